"""Settings of clients: declared once, and everywhere the same."""

from inspect import Parameter, signature
from typing import Any

import pytest

from barnabas import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer
from barnabas.client.declared import AdminSettings, ConsumerSettings, ProducerSettings, default_of, reader_of
from barnabas.client.settings import facts_of, sound
from barnabas.spark.declared import CLIENT_SETTINGS, reader_of_setting

DECLARED = [(Producer, ProducerSettings), (Consumer, ConsumerSettings), (Admin, AdminSettings)]


def settings_of(client: type) -> dict[str, Parameter]:
    return {
        name: each
        for name, each in signature(client).parameters.items()
        if each.kind is not Parameter.VAR_POSITIONAL
    }


@pytest.mark.parametrize(("client", "declared"), DECLARED)
def test_a_client_takes_what_is_declared_and_says_so_in_its_signature(client: type, declared: type) -> None:
    found = settings_of(client)
    assert found.keys() - {"bootstrap_servers"} == declared.__annotations__.keys() - {"bootstrap_servers"}
    for name in declared.__annotations__:
        assert found[name].default == default_of(declared, name)


@pytest.mark.parametrize(("client", "other"), [(AsyncProducer, Producer), (AsyncConsumer, Consumer)])
def test_a_client_for_asyncio_takes_the_settings_of_the_other(client: type, other: type) -> None:
    assert settings_of(client) == settings_of(other)


@pytest.mark.parametrize(("client", "declared"), DECLARED)
def test_every_default_is_of_its_own_type_and_every_setting_says_what_it_means(
    client: type, declared: type
) -> None:
    for name, annotation in declared.__annotations__.items():
        assert sound(name, annotation, default_of(declared, name)) == default_of(declared, name)
        assert facts_of(annotation).doc


@pytest.mark.parametrize(
    ("declared", "name", "text", "value"),
    [
        (ProducerSettings, "linger_ms", "5", 5),
        (ProducerSettings, "linger_ms", "0.5", 0.5),
        (ProducerSettings, "batch_size", "100", 100),
        (ProducerSettings, "acks", "1", "1"),
        (ProducerSettings, "enable_idempotence", "False", False),
        (ConsumerSettings, "check_crcs", "true", True),
        (ConsumerSettings, "group_id", "5", "5"),
    ],
)
def test_a_text_is_read_by_the_declared_type(declared: type, name: str, text: str, value: Any) -> None:
    read = reader_of(declared, name)(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("name", CLIENT_SETTINGS)
def test_what_spark_hands_on_is_declared_by_the_client(name: str) -> None:
    assert reader_of_setting(name) is not None

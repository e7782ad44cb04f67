"""`barnabas.testing.Broker`: leaves nothing behind, however it is used."""

import tempfile
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin.configs import Resource, ResourceType
from barnabas.errors import BarnabasError
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from tests.deadline import eventually


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_broker_that_ran_leaves_no_folder(temporary: Path) -> None:
    with Broker() as broker:
        assert list(temporary.iterdir()) == [broker.data]
        assert broker.data.stat().st_mode & 0o777 == 0o700
    assert not list(temporary.iterdir())


def test_a_broker_that_cannot_be_made_or_was_never_started_leaves_no_folder(temporary: Path) -> None:
    for wrong in ({"no.such": "1"}, {"num.partitions": "x"}):
        with pytest.raises(BarnabasError):
            Broker(wrong)
    Broker()
    with Broker() as running:
        port = int(running.bootstrap.rpartition(":")[2])
        with pytest.raises(BarnabasError, match="taken"):
            Broker(port=port).start()
    assert not list(temporary.iterdir())


def test_stopping_twice_or_too_early_does_no_harm(temporary: Path) -> None:
    never = Broker()
    never.stop()
    broker = Broker().start()
    broker.stop()
    broker.stop()
    assert not list(temporary.iterdir())


def test_numbers_and_booleans_are_settings_too() -> None:
    given = {"num.partitions": 4, "auto.create.topics.enable": False, "log.cleaner.min.cleanable.ratio": 0.25}
    with Broker(given) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        itself = Resource(ResourceType.BROKER, str(admin.describe_cluster().brokers[0].id))
        found = {each.name: each.value for each in admin.describe_configs(itself, list(given))}
    assert found == {
        "num.partitions": "4",
        "auto.create.topics.enable": "false",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }
    with pytest.raises(BarnabasError, match=r"num\.partitions takes text, a number or a boolean, not None"):
        Broker({"num.partitions": None})  # type: ignore[dict-item]


def test_a_stopped_broker_starts_again(temporary: Path) -> None:
    place = TopicPartition("t", 0)
    for broker, kept in ((Broker(data=temporary / "kept"), 2), (Broker(), 1)):
        for _ in range(2):
            with broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send("t", b"v").result()
                with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
                    end = consumer.end_offsets([place])[place]
        assert end == kept
    assert list(temporary.iterdir()) == [temporary / "kept"]


def test_a_broker_that_runs_is_not_started_twice() -> None:
    with Broker() as broker, pytest.raises(BarnabasError, match="started already"):
        broker.start()


def test_a_comma_in_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BarnabasError, match="comma"):
        Broker(data=tmp_path / "a,b")


def test_retention_rests_unless_it_is_asked_for() -> None:
    # Kafka looks every five minutes; a run of tests is longer than that, and once lost its records halfway.
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        itself = Resource(ResourceType.BROKER, str(admin.describe_cluster().brokers[0].id))
        (found,) = admin.describe_configs(itself, ["log.retention.check.interval.ms"])
        assert int(found.value or 0) > 1000 * 3600 * 24 * 365

    with Broker({"log.retention.check.interval.ms": "20"}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("t", b"old", timestamp=1_700_000_000_000).result()
        with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            place = TopicPartition("t", 0)
            eventually(lambda: consumer.beginning_offsets([place])[place] == 1, "retention")


def test_the_fixture_of_the_plugin_is_a_running_broker(barnabas_broker: Broker) -> None:
    assert barnabas_broker.bootstrap.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("num.partitions", "99999999999999", "between 1 and 2147483647"),
        ("num.partitions", "0", "at least 1"),
        ("metrics.listen", "nonsense", "like 127.0.0.1:9100"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_do(name: str, value: str, sentence: str) -> None:
    with pytest.raises(BarnabasError, match=sentence):
        Broker({name: value}).start()

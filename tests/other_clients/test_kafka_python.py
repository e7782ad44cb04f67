"""Proves the broker to kafka-python: all promises, by way of its adapter."""

from collections.abc import Iterator

import pytest

from tests.other_clients.adapters.kafka_python import KafkaPythonAdapter
from tests.other_clients.promises import ClientPromises


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaPythonAdapter]:
    with KafkaPythonAdapter(bootstrap) as client:
        yield client


class TestKafkaPython(ClientPromises):
    """Everything in ClientPromises."""

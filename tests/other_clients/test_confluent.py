"""Proves the broker to confluent-kafka: all promises, by way of its adapter."""

from collections.abc import Iterator

import pytest

from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.promises import ClientPromises


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[ConfluentAdapter]:
    with ConfluentAdapter(bootstrap) as client:
        yield client


class TestConfluent(ClientPromises):
    """Everything in ClientPromises."""

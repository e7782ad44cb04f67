"""Proves the broker to aiokafka: all promises, by way of its adapter."""

from collections.abc import Iterator

import pytest

from tests.other_clients.adapters.aiokafka import AiokafkaAdapter
from tests.other_clients.promises import ClientPromises


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[AiokafkaAdapter]:
    with AiokafkaAdapter(bootstrap) as client:
        yield client


class TestAiokafka(ClientPromises):
    """Everything in ClientPromises."""

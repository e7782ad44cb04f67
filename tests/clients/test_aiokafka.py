"""Proves the broker to aiokafka: all promises, by way of its adapter."""

from collections.abc import Iterator

import pytest

from tests.clients.adapters.aiokafka import AiokafkaAdapter
from tests.clients.promises import ClientPromises


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[AiokafkaAdapter]:
    with AiokafkaAdapter(bootstrap) as client:
        yield client


class TestAiokafka(ClientPromises):
    """Everything in ClientPromises."""

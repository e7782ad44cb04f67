"""Proves the broker to Apache Kafka's own Java client: all promises, by way of its adapter."""

import pytest

from tests.other_clients.adapters.java import JavaAdapter
from tests.other_clients.promises import ClientPromises


@pytest.fixture(scope="module")
def client(java_client: JavaAdapter) -> JavaAdapter:
    return java_client


@pytest.mark.java
class TestJava(ClientPromises):
    """Everything in ClientPromises."""

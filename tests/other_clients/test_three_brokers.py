"""Proves a cluster of three to every client: all promises, with three replicas of each topic.

`make test-cluster` has the rest of the suites at three brokers; this is what every run has of it.
"""

from collections.abc import Iterator

import pytest

from tests import brokers
from tests.other_clients.adapters.adapter import ClientAdapter
from tests.other_clients.adapters.aiokafka import AiokafkaAdapter
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.adapters.java import JavaAdapter
from tests.other_clients.adapters.kafka_python import KafkaPythonAdapter
from tests.other_clients.promises import ClientPromises

pytestmark = pytest.mark.slow(seconds=45)


@pytest.fixture(scope="module")
def three() -> Iterator[str]:
    with brokers.serving(count=3) as cluster:
        yield cluster.bootstrap


@pytest.fixture(scope="class")
def client(request: pytest.FixtureRequest, three: str) -> Iterator[ClientAdapter]:
    adapter = request.cls.adapter
    more = [request.getfixturevalue("kafka_libs")] if adapter is JavaAdapter else []
    with adapter(three, *more) as client:
        yield client


class TestConfluent(ClientPromises):
    adapter = ConfluentAdapter


class TestKafkaPython(ClientPromises):
    adapter = KafkaPythonAdapter


class TestAiokafka(ClientPromises):
    adapter = AiokafkaAdapter


@pytest.mark.java
class TestJava(ClientPromises):
    adapter = JavaAdapter

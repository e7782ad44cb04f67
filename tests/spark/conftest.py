"""Owns what tests of Spark share: a broker, topics of a test's own, a topic as a table."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from barnabas import Admin, Producer
from tests.brokers import Brokers

numbers = count()


@pytest.fixture(scope="session")
def broker(brokers: Brokers) -> Brokers:
    return brokers


@pytest.fixture(scope="session")
def admin(broker: Brokers) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as one:
        yield one


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes a topic, named after the test."""

    def make(partitions: int = 3, **configs: str) -> str:
        name = f"{request.node.originalname}-{next(numbers)}"
        # Records of these tests are from 2023: on a slow machine retention would come for them.
        wanted = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in configs.items()}}
        admin.create_topic(name, partitions=partitions, configs=wanted)
        return name

    return make


@pytest.fixture(scope="session")
def producer(broker: Brokers) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap) as one:
        yield one


Load = Callable[..., Any]


@pytest.fixture
def load(spark: Any, broker: Brokers) -> Load:
    """A topic as a table; options by their names."""

    def read(topic: str, schema: str | None = None, **options: str) -> Any:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("subscribe", topic).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return read

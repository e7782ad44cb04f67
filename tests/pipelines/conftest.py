"""Owns what tests of the pipelines share: a broker, made-up data and its records."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas import Admin, Producer
from barnabas.generate import Clock, streams
from barnabas.generate.sending import send
from barnabas.pipelines.finding import find
from barnabas.pipelines.running import Ended, Run, run_on
from tests.brokers import Brokers

START_MS = 1_780_000_000_000
_numbers = count()


class Made(NamedTuple):
    """A topic with made-up records, and the records as Python has them."""

    topic: str
    rows: list[dict[str, Any]]


@pytest.fixture(scope="session")
def broker(brokers: Brokers) -> Brokers:
    return brokers


@pytest.fixture
def new_topic(broker: Brokers) -> Callable[..., str]:
    def make(partitions: int = 3) -> str:
        name = f"pipe-{os.getpid()}-{next(_numbers)}"
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic(name, partitions=partitions)
        return name

    return make


@pytest.fixture
def made(broker: Brokers, new_topic: Callable[..., str]) -> Callable[..., Made]:
    """Fills a topic from a generator; `first` goes on where another call ended."""

    def make(stream: str, number: int, rate: float, *, topic: str = "", first: int = 0) -> Made:
        table = streams()[stream].rows(7, Clock(START_MS, rate), first, number)
        made = Made(topic or new_topic(), table.to_pylist())
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            send(producer, made.topic, [table], lambda sent: None)
        return made

    return make


@pytest.fixture
def run_once(spark: Any, broker: Brokers, tmp_path: Path) -> Callable[..., Ended]:
    """Runs a pipeline until it has caught up; the same name again goes on from the same checkpoint."""

    def run(name: str, **parameters: str) -> Ended:
        how = Run(broker.bootstrap, parameters, checkpoint=str(tmp_path / "checkpoints" / name), once=True)
        return run_on(spark, find(name), how)

    return run


@pytest.fixture
def records_of(spark: Any, broker: Brokers) -> Callable[[str], list[Any]]:
    """All records of a topic."""

    def read(topic: str) -> list[Any]:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("subscribe", topic).option("includeHeaders", "true")
        found: list[Any] = reader.load().collect()
        return found

    return read

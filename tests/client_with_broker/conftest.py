"""Owns the two brokers that the promises of our client are kept with: ours, and Apache Kafka (marked `java`).

Every test here runs once with each. One Apache Kafka serves the whole session; it is started by the first test that
wants it, and stopped at the end. BARNABAS_TEST_BOOTSTRAP takes the place of ours, as in all tests of clients.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from barnabas import Admin
from tests.deadline import eventually

# The bench knows how to start Apache Kafka; it is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

NewTopic: TypeAlias = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from bench.kafka import start

    # As ours in tests: records of long gone hours would vanish in the middle of a test that counts on them.
    never = str(1 << 40)
    retention_rests = {"log.initial.task.delay.ms": never, "log.retention.check.interval.ms": never}
    # As ours, too: members of the newer protocol hear what is theirs with a heartbeat.
    quick = dict.fromkeys(
        ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"), "200"
    )
    server = start(tmp_path_factory.mktemp("kafka"), settings=retention_rests | quick)
    try:
        yield server.bootstrap
    finally:
        server.stop()


@pytest.fixture(params=["barnabas", pytest.param("kafka", marks=pytest.mark.java)])
def broker(request: pytest.FixtureRequest) -> str:
    """The address of either broker."""
    return str(request.getfixturevalue("bootstrap" if request.param == "barnabas" else "kafka_bootstrap"))


@pytest.fixture
def admin(broker: str) -> Iterator[Admin]:
    with Admin(broker) as found:
        yield found


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes names that are not used elsewhere."""
    return lambda what: f"{what}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def new_topic(admin: Admin, unique: Callable[[str], str]) -> Iterator[NewTopic]:
    """Creates topics with names of their own, gone at the end of the test."""
    made: list[str] = []

    def create(partitions: int = 1, **configs: str) -> str:
        name = unique("suite")
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(name, partitions=partitions, configs=settings)
        made.append(name)
        # Apache Kafka answers before its broker knows of the topic.
        eventually(lambda: _is_led(admin, name), f"leaders of topic {name}")
        return name

    yield create
    admin.delete_topics(made)


def _is_led(admin: Admin, name: str) -> bool:
    found = {topic.name: topic for topic in admin.describe_topics()}
    return name in found and all(each.leader >= 0 for each in found[name].partitions)

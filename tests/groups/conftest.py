"""Owns the fixtures of tests of groups: a broker whose members may be missed soon, and groups of real clients."""

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.groups.group import SESSION_MS, Group, compile_java
from tests.groups.stream import Stream
from tests.process import BrokerProcess

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.heartbeat.interval.ms=200",
)

NewGroup = Callable[..., Group]
NewStream = Callable[[str], Stream]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def groups_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What all groups share: a broker of ours, several, or a given one that was started with SETTINGS."""
    if given := os.environ.get("BARNABAS_TEST_BOOTSTRAP"):
        yield given
        return
    if brokers.COUNT > 1:
        with brokers.serving(dict(each.split("=", 1) for each in SETTINGS)) as cluster:
            yield cluster.bootstrap
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS)
    broker.start()
    yield broker.bootstrap
    broker.close()
    assert "Traceback" not in "".join(broker.output), broker.said(100)


@pytest.fixture(scope="session")
def java_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """The class path of Java members, who are compiled when the first one is wanted."""
    return functools.cache(
        lambda: compile_java(request.getfixturevalue("kafka_libs"), tmp_path_factory.mktemp("java"))
    )


@pytest.fixture
def new_stream() -> Iterator[NewStream]:
    """Starts to write into a new topic at a broker."""
    streams: list[Stream] = []

    def start(bootstrap: str) -> Stream:
        streams.append(Stream(bootstrap, f"stream-{os.getpid()}-{next(_numbers)}"))
        return streams[-1]

    yield start
    for stream in streams:
        stream.close()


@pytest.fixture
def new_group(java_path: Callable[[], str], tmp_path: Path) -> Iterator[NewGroup]:
    """A new group over the topic of a stream, with no members yet."""
    groups: list[Group] = []

    def start(stream: Stream) -> Group:
        name = f"group-{os.getpid()}-{next(_numbers)}"
        groups.append(Group(stream.bootstrap, stream.topic, name, java_path, tmp_path))
        return groups[-1]

    yield start
    for group in groups:
        group.close()

"""Owns the fixtures that only tests of clients need: fresh topics, and one Java client for the whole run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.other_clients.adapters.java import JavaAdapter
from tests.other_clients.topics import TopicMaker


@pytest.fixture(scope="session")
def new_topic() -> TopicMaker:
    return TopicMaker()


@pytest.fixture(scope="session")
def java_client(bootstrap: str, kafka_libs: Path) -> Iterator[JavaAdapter]:
    with JavaAdapter(bootstrap, kafka_libs) as client:
        yield client

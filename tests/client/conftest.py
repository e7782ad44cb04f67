"""Owns what the tests of our client share: topics of their own on the broker they share."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from barnabas import Admin
from tests.deadline import eventually

_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as found:
        yield found


@pytest.fixture
def new_topic(admin: Admin, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Creates topics with names of their own, gone at the end of the test."""
    made: list[str] = []

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"client-{next(_numbers)}-{id(request):x}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(name, partitions=partitions, configs=settings)
        made.append(name)
        # Apache Kafka answers before its broker knows of the topic.
        eventually(lambda: name in admin.list_topics(), f"topic {name}")
        return name

    yield create
    for name in made:
        admin.delete_topic(name)

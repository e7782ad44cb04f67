"""One broker for the tests that only talk to it; topics have names of their own."""

import itertools
from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from tests.broker.speaking import connect
from tests.raw import RawConnection

_numbers = itertools.count()


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[RawConnection]:
    with connect(broker) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"

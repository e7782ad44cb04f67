"""The pytest plugin: comes with the package, needs no import.

def test_orders(barnabas_broker):
    producer = KafkaProducer(bootstrap_servers=barnabas_broker.bootstrap)
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker


@pytest.fixture
def barnabas_broker() -> "Iterator[Broker]":
    """A broker of the test's own, empty at its beginning and gone at its end."""
    from barnabas.testing.broker import Broker

    with Broker() as broker:
        yield broker

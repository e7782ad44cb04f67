"""The pytest plugin: comes with the package, needs no import.

def test_orders(barnabas_broker):
    producer = KafkaProducer(bootstrap_servers=barnabas_broker.bootstrap)


def test_a_broker_dies(barnabas_cluster):
    barnabas_cluster.kill(1)
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster


@pytest.fixture
def barnabas_broker() -> "Iterator[Broker]":
    """A broker of the test's own, empty at its beginning and gone at its end."""
    from barnabas.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def barnabas_cluster() -> "Iterator[Cluster]":
    """Three brokers of the test's own, which can be killed, paused and restarted one by one."""
    from barnabas.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster

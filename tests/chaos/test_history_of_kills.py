"""Kills one broker under the clients of both libraries: their history shows nothing wrong."""

from collections.abc import Callable

import pytest

from tests.chaos.clients import Clients
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROUNDS = 5
PARTITIONS = 3
WITHIN_S = 120.0


def test_the_history_of_a_broker_that_is_killed_again_and_again_is_clean(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker()
    with ConfluentAdapter(broker.bootstrap) as admin:
        admin.create_topic("killed", PARTITIONS, {})
    with Clients(broker.bootstrap, "killed", PARTITIONS) as clients:
        for _ in range(ROUNDS):
            clients.wait_for_writes(WITHIN_S)
            broker.kill()
            broker.start()
        clients.wait_for_writes(WITHIN_S)
        verdict = clients.finish(WITHIN_S).verdict()
    assert not verdict.findings, str(verdict)

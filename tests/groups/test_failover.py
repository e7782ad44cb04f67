"""Proves that groups outlive their coordinator: another broker takes over, with all that was committed."""

from collections.abc import Iterator

import pytest

from barnabas import Admin
from barnabas.testing import Cluster
from tests.brokers import hold_to_no_traceback
from tests.groups.conftest import SETTINGS, NewGroup, NewStream
from tests.groups.group import Group, Kind

pytestmark = pytest.mark.slow(seconds=35)

# Another broker leads within moments; what takes longer is the clients' own patience with the one that is gone.
GOES_ON_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(settings=dict(each.split("=", 1) for each in SETTINGS)) as running:
        yield running
        hold_to_no_traceback(running)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(
            [Kind("confluent"), Kind("kafka-python"), Kind("aiokafka"), Kind("barnabas")], id="classic"
        ),
        pytest.param([Kind("java"), Kind("java")], id="java-classic", marks=pytest.mark.java),
        pytest.param(
            [Kind("confluent", ("uniform",), "consumer"), Kind("barnabas", ("uniform",), "consumer")] * 2,
            id="kip-848",
        ),
        pytest.param([Kind("java", ("uniform",), "consumer")] * 2, id="java-kip-848", marks=pytest.mark.java),
    ],
)
@pytest.mark.shares_cores("brokers and members are nine processes with sessions of six seconds")
def test_after_kill_nine_of_its_coordinator_a_group_goes_on_from_what_was_committed(
    kinds: list[Kind], cluster: Cluster, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(cluster.bootstrap)
    group = new_group(stream)
    group.join(*kinds)
    group.wait_until_shared_by(group.members)
    group.wait_for_progress()
    group.ledger.refusals_are_unsure = True
    for _ in range(2):
        killed = coordinator(cluster, group)
        # Leaders go to others now, and may come back to the broker once it is here again.
        group.ledger.leader_changes += 2
        cluster.kill(killed)
        group.wait_for_progress(within=GOES_ON_S)
        assert coordinator(cluster, group) != killed
        cluster.restart(killed)
        cluster.wait_until_in_sync()
        group.wait_for_progress()
    late = group.join(kinds[0])
    group.wait_until_shared_by(group.members)
    group.let_go(late)
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go(group.members[:-1])
    group.ledger.judge(ends)


def coordinator(cluster: Cluster, group: Group) -> int:
    with Admin(cluster.bootstrap) as admin:
        address = admin.describe_group(group.name).coordinator
    return next(number for number, broker in cluster.brokers.items() if broker.address == address)

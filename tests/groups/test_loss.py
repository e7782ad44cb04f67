"""Proves what becomes of the work of members that are killed or fall silent, and of a broker that is."""

from collections.abc import Callable

import pytest

from tests.groups.conftest import SETTINGS, NewGroup, NewStream
from tests.groups.group import Kind, marked
from tests.process import BrokerProcess

pytestmark = pytest.mark.slow

KINDS = [
    Kind("barnabas", ("range",)),
    Kind("barnabas", ("cooperative-sticky",)),
    Kind("barnabas", ("uniform",), "consumer"),
    Kind("confluent", ("range",)),
    Kind("confluent", ("cooperative-sticky",)),
    Kind("confluent", ("uniform",), "consumer"),
    Kind("kafka-python", ("sticky",)),
    Kind("aiokafka", ("roundrobin",)),
    Kind("java", ("cooperative-sticky",)),
    Kind("java", ("uniform",), "consumer"),
]


@pytest.mark.parametrize("kind", marked(KINDS))
@pytest.mark.shares_cores("of four processes none may go without a core for six seconds")
def test_others_go_on_from_what_a_killed_and_a_stopped_member_committed(
    kind: Kind, groups_bootstrap: str, new_stream: NewStream, new_group: NewGroup
) -> None:
    stream = new_stream(groups_bootstrap)
    group = new_group(stream)
    killed, stopped, steady = group.join(kind, kind, kind)
    group.wait_until_shared_by([killed, stopped, steady])
    group.wait_for_progress()
    killed.kill()
    stopped.stop()
    late = group.join(kind)[0]
    group.wait_until_owned_by([steady, late])
    group.wait_for_progress()
    stopped.resume()
    group.wait_until_shared_by([stopped, steady, late])
    group.wait_for_progress()
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go([stopped, steady, late])
    group.ledger.judge(ends)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(
            [Kind("confluent"), Kind("kafka-python"), Kind("aiokafka"), Kind("barnabas")], id="classic"
        ),
        pytest.param([Kind("barnabas", ("cooperative-sticky",))] * 3, id="ours"),
        pytest.param([Kind("barnabas", ("uniform",), "consumer")] * 3, id="ours-kip-848"),
        pytest.param([Kind("confluent", ("uniform",), "consumer")] * 3, id="kip-848"),
        pytest.param([Kind("java"), Kind("java")], id="java-classic", marks=pytest.mark.java),
        pytest.param([Kind("java", ("uniform",), "consumer")] * 2, id="java-kip-848", marks=pytest.mark.java),
    ],
)
def test_after_kill_nine_of_the_broker_the_group_goes_on_from_what_was_committed(
    kinds: list[Kind], start_broker: Callable[..., BrokerProcess], new_stream: NewStream, new_group: NewGroup
) -> None:
    broker = start_broker(*SETTINGS)
    stream = new_stream(broker.bootstrap)
    group = new_group(stream)
    group.join(*kinds)
    group.wait_until_shared_by(group.members)
    group.wait_for_progress()
    group.ledger.refusals_are_unsure = True
    group.ledger.leader_changes += 1
    broker.kill()
    broker.start()
    group.wait_for_progress()
    late = group.join(kinds[0])
    group.wait_until_shared_by(group.members)
    group.let_go(late)
    ends = stream.end()
    group.wait_until_committed(ends)
    group.let_go(group.members[:-1])
    group.ledger.judge(ends)
    assert "Traceback" not in "".join(broker.output), broker.said(100)

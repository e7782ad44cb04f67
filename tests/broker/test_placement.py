"""Promises of elections and reassignments over the wire, as far as one broker can show them."""

from collections.abc import Iterator

import pytest

from barnabas import Admin
from barnabas.client.admin.placement import ElectionType
from barnabas.errors import BarnabasError, Code
from barnabas.testing import Broker
from barnabas.types import TopicPartition


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with Broker() as broker, Admin(broker.bootstrap) as opened:
        opened.create_topic("t", partitions=2)
        yield opened


def test_a_partition_that_is_led_well_needs_no_election(admin: Admin) -> None:
    assert admin.elect_leaders() == {}
    tp = TopicPartition("t", 0)
    for kind in ElectionType:
        (outcome,) = admin.elect_leaders([tp], kind=kind).values()
        assert outcome is not None
        assert outcome.code is Code.ELECTION_NOT_NEEDED


def test_an_election_of_what_there_is_not_is_refused_for_it_alone(admin: Admin) -> None:
    found = admin.elect_leaders([TopicPartition("t", 9), TopicPartition("none", 0), TopicPartition("t", 1)])
    codes = {tp: outcome.code for tp, outcome in found.items() if outcome is not None}
    assert codes == {
        TopicPartition("t", 9): Code.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("none", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
        TopicPartition("t", 1): Code.ELECTION_NOT_NEEDED,
    }


def test_a_partition_that_stays_is_moved_at_once(admin: Admin) -> None:
    admin.alter_reassignments({TopicPartition("t", 0): [1]})
    assert admin.list_reassignments() == {}


@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [([1, 2], "broker 2 is not there"), ([1, 1], "different brokers"), ([], "one or more")],
)
def test_replicas_that_cannot_be_are_refused(admin: Admin, replicas: list[int], sentence: str) -> None:
    with pytest.raises(BarnabasError, match=sentence):
        admin.alter_reassignments({TopicPartition("t", 0): replicas})


def test_there_is_nothing_to_cancel(admin: Admin) -> None:
    with pytest.raises(BarnabasError, match="No reassignment is under way"):
        admin.cancel_reassignments([TopicPartition("t", 0)])

"""Which replica leads: tables of what happens to brokers, and what becomes of a partition."""

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cluster.elections import (
    ElectionType,
    Electorate,
    Policy,
    Share,
    elect,
    policy_of,
    settled,
    unbalanced,
)
from barnabas.cluster.image import BrokerEpoch, PartitionEpoch, PartitionImage, Recovery, TopicImage
from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, LeaderEpoch

ALL = (1, 2, 3)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def part(leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(ids(*ALL), ids(*isr), BrokerId(leader), LeaderEpoch(5), elr=ids(*elr))


def among(
    *live: int,
    leaving: tuple[int, ...] = (),
    doubtful: tuple[int, ...] = (),
    missing: tuple[int, ...] = (),
) -> Electorate:
    return Electorate(ids(*live), ids(*leaving), ids(*doubtful), ids(*missing))


WAITS = Policy(min_insync=1)
TWO_IN_SYNC = Policy(min_insync=2)
UNCLEAN = Policy(allows_unclean=True)


@pytest.mark.parametrize(
    ("was", "electorate", "policy", "leader", "isr", "elr"),
    [
        # A broker dies.
        (part(1, (1, 2, 3)), among(2, 3), WAITS, 2, (2, 3), ()),
        (part(1, (1, 3)), among(2, 3), WAITS, 3, (3,), ()),
        (part(1, (3, 2, 1)), among(2, 3), WAITS, 2, (3, 2), ()),
        (part(1, (1, 2, 3)), among(1, 3), WAITS, 1, (1, 3), ()),
        (part(1, (1,)), among(2, 3), WAITS, -1, (1,), ()),
        (part(1, (1, 2, 3)), among(), WAITS, -1, (1, 2, 3), ()),
        # It comes back.
        (part(-1, (1,)), among(1, 2, 3), WAITS, 1, (1,), ()),
        (part(-1, (1, 2)), among(2), WAITS, 2, (2,), ()),
        (part(2, (2, 3)), among(1, 2, 3), WAITS, 2, (2, 3), ()),
        # Fewer than min.insync.replicas: those that leave stay eligible (KIP-966).
        (part(1, (1, 2)), among(1), TWO_IN_SYNC, 1, (1,), (2,)),
        (part(1, (1,), (2,)), among(2, 3), TWO_IN_SYNC, 2, (2,), (1,)),
        (part(1, (1,), (2,)), among(3), TWO_IN_SYNC, -1, (1,), (2,)),
        (part(1, (1, 2, 3)), among(1), TWO_IN_SYNC, 1, (1,), (2, 3)),
        (part(1, (1, 2, 3)), among(1, 3), TWO_IN_SYNC, 1, (1, 3), ()),
        (part(-1, (1,), (3,)), among(1, 3), TWO_IN_SYNC, 1, (1,), (3,)),
        # Unclean, where it is allowed.
        (part(1, (1,)), among(2, 3), UNCLEAN, 2, (2,), ()),
        (part(-1, (1,)), among(3), UNCLEAN, 3, (3,), ()),
        (part(1, (1, 3)), among(2, 3), UNCLEAN, 3, (3,), ()),
        (part(1, (1,)), among(), UNCLEAN, -1, (1,), ()),
        # A power cut: its replica is trusted only where there is no other.
        (part(-1, (1, 2)), among(1, doubtful=(1,)), WAITS, -1, (2,), ()),
        (part(-1, (1, 2)), among(1, 2, doubtful=(1,)), WAITS, 2, (2,), ()),
        (part(-1, (1,)), among(1, 2, doubtful=(1,)), WAITS, 1, (1,), ()),
        (part(-1, (1,), (2,)), among(1, doubtful=(1,)), TWO_IN_SYNC, -1, (2,), ()),
        (part(-1, (1,), (2,)), among(1, 2, doubtful=(1,)), TWO_IN_SYNC, 2, (2,), ()),
        (part(2, (2,), (1,)), among(1, 2, doubtful=(1,)), TWO_IN_SYNC, 2, (2,), ()),
        (part(-1, (1, 2)), among(1, 2, doubtful=(1, 2)), WAITS, 1, (1,), ()),
        (part(-1, (1,), (2,)), among(1, 2, doubtful=(1, 2)), TWO_IN_SYNC, 1, (1,), ()),
        (part(1, (1,)), among(1, 2, doubtful=(1,)), WAITS, 1, (1,), ()),
        # A broker stops.
        (part(1, (1, 2, 3)), among(1, 2, 3, leaving=(1,)), WAITS, 2, (2, 3), ()),
        (part(1, (1, 2, 3)), among(1, 2, 3, leaving=(3,)), WAITS, 1, (1, 2), ()),
        (part(1, (1,)), among(1, 2, 3, leaving=(1,)), WAITS, 1, (1,), ()),
        (part(1, (1, 2)), among(1, 2, leaving=(1, 2)), WAITS, 1, (1, 2), ()),
        (part(1, (1,), (2,)), among(1, 2, leaving=(1,)), TWO_IN_SYNC, 1, (1,), (2,)),
        # A broker has lost its copy.
        (part(1, (1, 2, 3)), among(*ALL, missing=(1,)), WAITS, 2, (2, 3), ()),
        (part(1, (1, 2, 3)), among(*ALL, missing=(2,)), WAITS, 1, (1, 3), ()),
        (part(1, (1,)), among(*ALL, missing=(1,)), WAITS, -1, (1,), ()),
        (part(1, (1,), (2,)), among(*ALL, missing=(1,)), TWO_IN_SYNC, 2, (2,), ()),
        (part(1, (1,), (2,)), among(1, 3, missing=(1,)), TWO_IN_SYNC, -1, (2,), ()),
        (part(1, (1,)), among(*ALL, missing=(1,)), UNCLEAN, 2, (2,), ()),
    ],
)
def test_what_becomes_of_a_partition(
    was: PartitionImage,
    electorate: Electorate,
    policy: Policy,
    leader: int,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
) -> None:
    now = settled(was, electorate, policy).partition
    assert (now.leader, now.isr, now.elr) == (leader, isr, elr)
    assert now.leader_epoch == 5 + (now.leader != was.leader or now.leader in electorate.doubtful)
    assert settled(now, electorate, policy).partition is now or electorate.doubtful


def test_a_partition_that_is_as_it_should_be_stays_the_same_object() -> None:
    was = part(1, (1, 2, 3))
    assert settled(was, among(1, 2, 3), WAITS).partition is was


def test_an_unclean_leader_recovers_and_the_note_says_what_may_be_lost() -> None:
    now, note = settled(part(1, (1,)), among(2, 3), UNCLEAN)
    assert now.recovery is Recovery.RECOVERING
    assert "broker 2" in note
    assert "lost" in note


def test_a_leader_that_lost_its_power_is_noted() -> None:
    assert "not flushed" in settled(part(-1, (1,)), among(1, doubtful=(1,)), WAITS).note
    assert settled(part(-1, (1,)), among(1), WAITS).note == ""


def test_replicas_are_tried_in_the_order_of_the_assignment_and_not_of_the_isr() -> None:
    was = replace(part(1, (1, 2, 3)), replicas=ids(3, 1, 2))
    assert settled(was, among(2, 3), WAITS).partition.leader == 3


@pytest.mark.parametrize(
    ("was", "kind", "electorate", "outcome"),
    [
        (part(2, (1, 2)), ElectionType.PREFERRED, among(*ALL), 1),
        (part(1, (1, 2)), ElectionType.PREFERRED, among(*ALL), Code.ELECTION_NOT_NEEDED),
        (part(2, (2, 3)), ElectionType.PREFERRED, among(*ALL), Code.PREFERRED_LEADER_NOT_AVAILABLE),
        (part(2, (1, 2)), ElectionType.PREFERRED, among(2, 3), Code.PREFERRED_LEADER_NOT_AVAILABLE),
        (
            part(2, (1, 2)),
            ElectionType.PREFERRED,
            among(*ALL, leaving=(1,)),
            Code.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (
            part(2, (1, 2)),
            ElectionType.PREFERRED,
            among(*ALL, missing=(1,)),
            Code.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (part(2, (1, 2)), ElectionType.UNCLEAN, among(*ALL), Code.ELECTION_NOT_NEEDED),
        (part(-1, (1,)), ElectionType.UNCLEAN, among(2, 3), 2),
        (part(-1, (1,)), ElectionType.UNCLEAN, among(), Code.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (part(-1, (1,), (3,)), ElectionType.UNCLEAN, among(2, 3), 3),
        (part(-1, (1,)), ElectionType.UNCLEAN, among(1, 3, missing=(1,)), 3),
        (part(-1, (1,)), ElectionType.UNCLEAN, among(1, missing=(1,)), 1),
    ],
)
def test_an_election_that_is_asked_for_has_a_leader_or_kafkas_code(
    was: PartitionImage, kind: ElectionType, electorate: Electorate, outcome: int | Code
) -> None:
    if isinstance(outcome, Code):
        with pytest.raises(Refused) as refused:
            elect(was, kind, electorate, WAITS)
        assert refused.value.code == outcome
    else:
        now = elect(was, kind, electorate, WAITS).partition
        assert (now.leader, now.leader_epoch) == (outcome, 6)


def test_a_topics_settings_go_before_the_brokers() -> None:
    defaults = TopicConfig(min_insync_replicas=2, unclean_leader_election_enable=True)
    topic = TopicImage("t", UUID(int=1), ())
    assert policy_of(topic, defaults) == (2, True)
    own = replace(topic, configs={"min.insync.replicas": "3", "unclean.leader.election.enable": "false"})
    assert policy_of(own, defaults) == (3, False)


def test_brokers_are_unbalanced_past_the_percentage_and_not_at_it() -> None:
    shares = {BrokerId(1): Share(10, 1), BrokerId(2): Share(10, 2), BrokerId(3): Share(5, 0)}
    assert unbalanced(shares, 10) == [2]


def test_a_wiped_disk_is_told_from_a_replica_that_has_nothing_yet() -> None:
    counted_on = replace(part(1, (1, 2)), partition_epoch=PartitionEpoch(3))
    assert not counted_on.may_lack_on(BrokerId(1))
    assert counted_on.may_lack_on(BrokerId(3))
    assert part(1, (1, 2)).may_lack_on(BrokerId(1)), "a new partition"
    unchanged = replace(part(1, (1, 2)), born=BrokerEpoch(7))
    assert unchanged.may_lack_on(BrokerId(1), BrokerEpoch(7)), "made in this life of the broker"
    assert not unchanged.may_lack_on(BrokerId(1), BrokerEpoch(8)), "made in an earlier one"
    without_state = replace(part(1, (1, 2)), partition_epoch=PartitionEpoch(-1))
    assert without_state.may_lack_on(BrokerId(1)), "one that a tool has made, and no controller seen yet"
    assert replace(counted_on, recovery=Recovery.RECOVERING).may_lack_on(BrokerId(1))

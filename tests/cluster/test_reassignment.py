"""Moving partitions: begun, changed, advanced by new ISRs, cancelled, refused with Kafka's codes."""

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cluster.deciding import Decided, Facts
from barnabas.cluster.elections import Electorate, Policy
from barnabas.cluster.image import (
    BrokerEpoch,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    PartitionImage,
    TopicCreated,
    TopicImage,
)
from barnabas.cluster.reassignment import advanced, alter_reassignments, begin, cancelled, under_way
from barnabas.errors import Code
from barnabas.types import BrokerId, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LIVE = [BrokerId(number) for number in range(1, 7)]
ALL = Electorate(LIVE)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def on(*replicas: int) -> PartitionImage:
    return PartitionImage(ids(*replicas), ids(*replicas), BrokerId(replicas[0]))


def cluster(*partitions: PartitionImage) -> ClusterImage:
    brokers: list[Change] = [
        BrokerRegistered(BrokerImage(broker, "h", 1, epoch=BrokerEpoch(1))) for broker in LIVE
    ]
    return ClusterImage("c").after([*brokers, TopicCreated(TopicImage("t", UUID(int=1), partitions))])


def code_of(decided: Decided, tp: TopicPartition = T0) -> Code | None:
    outcome = decided.outcomes[tp]
    return None if outcome is None else outcome.code


@pytest.mark.parametrize(
    ("was", "target", "replicas", "adding", "removing"),
    [
        (on(1, 2, 3), (4, 5, 6), (4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)),
        (on(1, 2, 3), (1, 2, 4), (1, 2, 4, 3), (4,), (3,)),
        (on(1, 2), (1, 2, 3), (1, 2, 3), (3,), ()),
    ],
)
def test_while_a_partition_moves_it_has_its_old_and_its_new_replicas(
    was: PartitionImage,
    target: tuple[int, ...],
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> None:
    image = cluster(was)
    decided = alter_reassignments(image, {T0: target}, Facts())
    now = image.after(decided.decision.changes).topics["t"].partitions[0]
    assert (now.replicas, now.adding, now.removing) == (replicas, adding, removing)
    assert (now.isr, now.leader, now.leader_epoch) == (was.isr, was.leader, was.leader_epoch)
    assert code_of(decided) is None


def test_replicas_go_when_all_that_stay_are_in_sync_and_not_before() -> None:
    moving = begin(on(1, 2), ids(3, 4))
    half = replace(moving, isr=ids(1, 2, 3))
    assert advanced(half, ALL, Policy()).partition is half
    now = advanced(replace(moving, isr=ids(1, 2, 4, 3)), ALL, Policy()).partition
    assert (now.replicas, now.isr, now.adding, now.removing) == ((3, 4), (4, 3), (), ())
    assert (now.leader, now.leader_epoch) == (3, 1)


def test_a_replica_that_is_to_stay_and_is_not_there_holds_up_those_that_are_to_go() -> None:
    moving = replace(begin(on(1, 2, 3), ids(2, 3, 4)), isr=ids(1, 2, 4))
    assert advanced(moving, ALL, Policy()).partition is moving


def test_another_order_or_fewer_replicas_are_had_at_once() -> None:
    image = cluster(on(1, 2, 3), on(1, 2, 3))
    decided = alter_reassignments(image, {T0: (3, 1, 2), T1: (2, 3)}, Facts())
    first, second = image.after(decided.decision.changes).topics["t"].partitions
    assert (first.replicas, first.leader, first.leader_epoch) == ((3, 1, 2), 1, 0)
    assert (second.replicas, second.isr, second.leader, second.leader_epoch) == ((2, 3), (2, 3), 2, 1)


def test_a_reassignment_can_be_changed_on_its_way() -> None:
    moving = begin(on(1, 2), ids(3, 4))
    elsewhere = begin(moving, ids(3, 5))
    assert (elsewhere.replicas, elsewhere.adding, elsewhere.removing) == ((3, 5, 4, 1, 2), (3, 5), (4, 1, 2))


def test_a_cancelled_reassignment_leaves_the_partition_where_it_was() -> None:
    moving = replace(begin(on(1, 2), ids(3, 2)), isr=ids(1, 2, 3), leader=BrokerId(3))
    now = cancelled(moving, ALL, Policy()).partition
    assert (set(now.replicas), set(now.isr)) == ({1, 2}, {1, 2})
    assert (now.adding, now.removing, now.leader_epoch) == ((), (), 1)
    assert now.leader == now.replicas[0]


@pytest.mark.parametrize(
    ("was", "target", "code"),
    [
        (on(1, 2), (1, 9), Code.INVALID_REPLICA_ASSIGNMENT),
        (on(1, 2), (1, 1), Code.INVALID_REPLICA_ASSIGNMENT),
        (on(1, 2), (), Code.INVALID_REPLICA_ASSIGNMENT),
        (on(1, 2), (1, -1), Code.INVALID_REPLICA_ASSIGNMENT),
        (on(1, 2), None, Code.NO_REASSIGNMENT_IN_PROGRESS),
        (replace(begin(on(1, 2), ids(3, 4)), isr=ids(3)), None, Code.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    was: PartitionImage, target: tuple[int, ...] | None, code: Code
) -> None:
    decided = alter_reassignments(cluster(was), {T0: target}, Facts())
    assert code_of(decided) == code
    assert decided.decision.changes == []


def test_the_number_of_replicas_stays_where_the_request_says_so() -> None:
    image = cluster(on(1, 2))
    fixed = alter_reassignments(image, {T0: (1, 2, 3)}, Facts(), may_change_factor=False)
    assert code_of(fixed) == Code.INVALID_REPLICATION_FACTOR
    moving = cluster(begin(on(1, 2), ids(3, 4)))
    again = alter_reassignments(moving, {T0: (5, 6)}, Facts(), may_change_factor=False)
    assert code_of(again) is None


def test_a_partition_that_is_unknown_does_not_keep_the_others() -> None:
    image = cluster(on(1, 2))
    decided = alter_reassignments(image, {TopicPartition("no", 0): (1,), T1: (1,), T0: (3, 4)}, Facts())
    assert code_of(decided, TopicPartition("no", 0)) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(decided, T1) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert len(decided.decision.changes) == 1


def test_the_ones_under_way_are_listed() -> None:
    moving = begin(on(1, 2), ids(3, 4))
    image = cluster(moving, on(1, 2))
    assert list(under_way(image)) == [(T0, moving)]
    assert list(under_way(image, [T1, TopicPartition("no", 0)])) == []

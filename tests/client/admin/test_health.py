"""Promises of what is told about a cluster's health: one line for each thing that is wrong, none for what is well."""

from dataclasses import replace
from uuid import uuid4

from barnabas.client.admin.health import ClusterView
from barnabas.client.network.metadata import NO_BROKER, Broker, Partition, Topic
from barnabas.types import BrokerId, TopicPartition


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def partition(
    index: int, leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)
) -> Partition:
    return Partition(index, BrokerId(leader), 0, ids(*replicas), ids(*isr))


def view(*partitions: Partition, brokers: tuple[int, ...] = (1, 2, 3), controller: int = 1) -> ClusterView:
    topics = (Topic("t", uuid4(), False, partitions),)
    alive = tuple(Broker(number, "host", 9092) for number in ids(*brokers))
    return ClusterView(BrokerId(controller), alive, topics, {"t": 2})


def test_nothing_is_told_of_a_cluster_in_sync() -> None:
    assert view(partition(0, 1, (1, 2, 3)), partition(1, 2, (2, 3, 1))).troubles() == []


def test_each_thing_that_is_wrong_has_its_line() -> None:
    found = view(
        partition(0, -1, (3,)),
        partition(1, 1, (1,)),
        partition(2, 1, (1, 2)),
        brokers=(1, 2),
        controller=NO_BROKER,
    ).troubles()
    assert found == [
        "No broker is the controller.",
        "Broker 3 is gone: it has replicas of 3 partitions.",
        "1 partition without a leader, neither written nor read: t-0.",
        "2 partitions with fewer in-sync replicas than min.insync.replicas, closed to acks=all: t-0, t-1.",
        "1 partition under-replicated: t-2.",
    ]


def test_a_leader_that_is_gone_is_none() -> None:
    seen = view(partition(0, 3, (3,)), brokers=(1, 2))
    assert seen.is_offline(TopicPartition("t", 0), seen.topics[0].partitions[0])


def test_replicas_that_a_reassignment_brings_are_not_missed() -> None:
    moving = partition(0, 1, (1, 2), (1, 2, 3))
    seen = view(moving)
    tp = TopicPartition("t", 0)
    assert seen.is_under_replicated(tp, moving)
    assert not replace(seen, adding={tp: ids(3)}).is_under_replicated(tp, moving)


def test_a_partition_led_by_another_than_its_first_replica_is_badly_led() -> None:
    tp = TopicPartition("t", 0)
    seen = view()
    assert seen.is_badly_led(tp, partition(0, 2, (1, 2, 3)))
    assert not seen.is_badly_led(tp, partition(0, 2, (2, 3)))
    assert not seen.is_badly_led(tp, partition(0, 1, (1, 2, 3)))


def test_of_many_partitions_a_few_are_named() -> None:
    found = view(*(partition(index, 1, (1, 2)) for index in range(9))).troubles()
    assert found == ["9 partitions under-replicated: t-0, t-1, t-2, t-3, t-4 and 4 more."]

"""What is written for which change: as few multis as fit, a topic at once, a deletion that a failover can end."""

import uuid
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from barnabas.cluster.image import (
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    BrokersConfigured,
    Change,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
    PartitionImage,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsTaken,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.changes import MOST_BYTES, MOST_OPERATIONS, cut, multis_between, with_epochs
from barnabas.cluster.zookeeper.client import Create, Delete, SetData, ZkOperation
from barnabas.types import BrokerId, LeaderEpoch, ProducerId

ONE, TWO = BrokerId(1), BrokerId(2)
EMPTY = ClusterImage("c").after([ControllerElected(ONE, ControllerEpoch(3))])


def topic(name: str, partitions: int, configs: dict[str, str] | None = None) -> TopicImage:
    made = tuple(PartitionImage((ONE, TWO), (ONE, TWO), ONE) for _ in range(partitions))
    return TopicImage(name, uuid.uuid4(), made, configs or {})


def image(*topics: TopicImage) -> ClusterImage:
    return EMPTY.after([TopicCreated(one) for one in topics])


def paths(operations: list[ZkOperation]) -> list[str]:
    return [operation.path for operation in operations]


def test_a_topic_comes_in_one_multi_with_its_settings_first() -> None:
    (multi,) = multis_between(EMPTY, image(topic("t", 2, {"a": "b"})), ())
    assert paths(multi) == [
        "/config/topics/t",
        "/brokers/topics/t",
        "/brokers/topics/t/partitions",
        "/brokers/topics/t/partitions/0",
        "/brokers/topics/t/partitions/0/state",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
    ]
    assert all(isinstance(operation, Create) for operation in multi)


def test_settings_that_have_a_node_are_set_and_others_made() -> None:
    before = image(topic("t", 1))
    after = before.after([TopicConfigured("t", {"a": "b"}), BrokersConfigured("", {"c": "d"})])
    (multi,) = multis_between(before, after, {"topics/t"})
    assert isinstance(multi[0], SetData)
    assert (multi[2].path, type(multi[2])) == ("/config/brokers/<default>", Create)


def test_a_partition_is_set_with_the_version_that_it_was_decided_on() -> None:
    before = image(topic("t", 3))
    partition = replace(before.topics["t"].partitions[1], leader=TWO, leader_epoch=LeaderEpoch(1))
    once = with_epochs(before, before.after([PartitionsChanged("t", {1: partition})]))
    assert multis_between(before, once, ()) == [
        [SetData(znodes.state_path("t", 1), znodes.encode_state(partition, ControllerEpoch(3)), 0)]
    ]
    twice = with_epochs(once, once.after([PartitionsChanged("t", {1: replace(partition, isr=(TWO,))})]))
    ((second,),) = multis_between(once, twice, ())
    assert isinstance(second, SetData)
    assert second.version == 1


def test_new_replicas_are_written_to_the_topic_too() -> None:
    before = image(topic("t", 2))
    moved = replace(before.topics["t"].partitions[0], replicas=(TWO, ONE), adding=(TWO,))
    (multi,) = multis_between(before, before.after([PartitionsChanged("t", {0: moved})]), ())
    assert paths(multi) == ["/brokers/topics/t", "/brokers/topics/t/partitions/0/state"]


def test_more_partitions_and_producer_ids_and_a_broker_that_is_given_up() -> None:
    before = image(topic("t", 1)).after([BrokerRegistered(BrokerImage(TWO, "h", 1))])
    added = PartitionImage((TWO,), (TWO,), TWO)
    after = before.after(
        [PartitionsAdded("t", (added,)), ProducerIdsTaken(ProducerId(1000)), BrokerGone(TWO)]
    )
    (multi,) = multis_between(before, after, ())
    assert paths(multi) == [
        "/brokers/topics/t",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
        "/brokers/ids/2",
        "/latest_producer_id_block",
    ]


def test_a_small_topic_goes_in_one_multi_leaves_first() -> None:
    before = image(topic("t", 1))
    (multi,) = multis_between(before, before.after([TopicDeleted("t")]), {"topics/t"})
    assert multi == [
        Delete("/brokers/topics/t/partitions/0/state"),
        Delete("/brokers/topics/t/partitions/0"),
        Delete("/brokers/topics/t/partitions"),
        Delete("/brokers/topics/t"),
        Delete("/config/topics/t"),
    ]


def test_a_large_topic_is_marked_first_and_its_mark_goes_last() -> None:
    before = image(topic("t", MOST_OPERATIONS))
    multis = multis_between(before, before.after([TopicDeleted("t")]), ())
    assert multis[0] == [Create("/admin/delete_topics/t")]
    assert multis[-1][-1] == Delete("/admin/delete_topics/t")
    assert len(multis) == 4


def test_a_topic_that_comes_again_under_its_name_is_another_one() -> None:
    before = image(topic("t", 1))
    after = before.after([TopicDeleted("t"), TopicCreated(topic("t", 1))])
    (multi,) = multis_between(before, after, {"topics/t"})
    assert [type(one) for one in multi if one.path == "/brokers/topics/t"] == [Delete, Create]
    assert [type(one) for one in multi if one.path == "/config/topics/t"] == [Delete, Create]


def test_the_death_of_a_broker_with_1500_partitions_is_two_multis() -> None:
    before = image(*(topic(f"t{number}", 15) for number in range(100)))
    changes = []
    for name, one in before.topics.items():
        settled = {
            index: replace(partition, leader=TWO, isr=(TWO,))
            for index, partition in enumerate(one.partitions)
        }
        changes.append(PartitionsChanged(name, settled))
    multis = multis_between(before, before.after(changes), ())
    assert sum(map(len, multis)) == 1500
    assert len(multis) == 2


def test_epochs_grow_by_one_for_each_commit_and_not_for_each_change() -> None:
    before = image(topic("t", 1))
    partition = before.topics["t"].partitions[0]
    changes: list[Change] = [
        PartitionsChanged("t", {0: replace(partition, leader=TWO)}),
        PartitionsChanged("t", {0: replace(partition, isr=())}),
        TopicCreated(topic("u", 1)),
        PartitionsChanged("u", {0: partition}),
    ]
    after = with_epochs(before, before.after(changes))
    assert [after.topics[name].partitions[0].partition_epoch for name in ("t", "u")] == [1, 0]


@given(some.lists(some.integers(0, MOST_BYTES), max_size=50))
def test_pieces_fit_and_nothing_is_lost_or_moved(sizes: list[int]) -> None:
    operations = [Create(f"/{number}", b"x" * size) for number, size in enumerate(sizes)]
    pieces = list(cut(operations))
    assert [operation for piece in pieces for operation in piece] == operations
    for piece in pieces:
        size = sum(len(one.data) for one in piece if isinstance(one, Create))
        assert len(piece) == 1 or size <= MOST_BYTES

"""The cluster's image: what changes make of it, what is different between two, and what of it is shared."""

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    BrokersConfigured,
    Change,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
    LeaderRestarted,
    PartitionImage,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsTaken,
    Recovery,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
    Topics,
)
from barnabas.types import BrokerId, LeaderEpoch, ProducerId, TopicPartition

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EMPTY = ClusterImage("c")


def partition(*replicas: BrokerId) -> PartitionImage:
    return PartitionImage(replicas, replicas, replicas[0])


def topic(name: str, *partitions: PartitionImage, number: int = 0) -> TopicImage:
    return TopicImage(name, UUID(int=number or hash(name) & 0xFFFF), partitions or (partition(ONE),))


def with_topics(count: int) -> ClusterImage:
    return ClusterImage("c", topics=Topics(topic(f"t{number}", number=number + 1) for number in range(count)))


def test_every_change_makes_the_next_version() -> None:
    image = EMPTY
    for number in range(3):
        image = image.after([TopicCreated(topic(f"t{number}"))])
        assert image.version == number + 1
    assert set(image.topics) == {"t0", "t1", "t2"}
    assert EMPTY.topics == {}


def test_a_changed_partition_counts_one_more_in_its_own_epoch_whatever_it_says() -> None:
    image = EMPTY.after([TopicCreated(topic("t", partition(ONE, TWO), partition(TWO, ONE)))])
    moving = replace(
        image.topics["t"].partitions[1],
        leader=ONE,
        leader_epoch=LeaderEpoch(5),
        isr=(ONE,),
        replicas=(TWO, ONE, THREE),
        adding=(THREE,),
        removing=(TWO,),
        recovery=Recovery.RECOVERING,
    )
    for count in (1, 2):
        image = image.after([PartitionsChanged("t", {1: moving})])
        now = image.partition(TopicPartition("t", 1))
        assert now is not None
        assert now.partition_epoch == count
        assert replace(now, partition_epoch=moving.partition_epoch) == moving
    assert image.topics["t"].partitions[0].partition_epoch == 0


def test_a_leader_that_restarts_begins_an_epoch_of_its_own_partitions_alone() -> None:
    image = EMPTY.after(
        [TopicCreated(topic("a", partition(ONE), partition(TWO))), TopicCreated(topic("b", partition(TWO)))]
    )
    after = image.after([LeaderRestarted(ONE)])
    assert [p.leader_epoch for p in after.topics["a"].partitions] == [1, 0]
    assert after.topics["b"] is image.topics["b"]
    assert after.since(image).topics == {"a"}


def test_brokers_come_and_go_and_one_of_them_is_the_controller() -> None:
    image = EMPTY.after([BrokerRegistered(BrokerImage(ONE, "h", 1, epoch=BrokerEpoch(4)))])
    again = image.after([BrokerRegistered(BrokerImage(ONE, "h", 1, epoch=BrokerEpoch(9)))])
    assert again.since(image).brokers == {ONE}
    assert again.brokers[ONE].epoch == 9
    elected = again.after([ControllerElected(ONE, ControllerEpoch(1))])
    assert (elected.controller, elected.controller_epoch) == (ONE, 1)
    gone = elected.after([BrokerGone(ONE), ControllerElected(NO_BROKER, ControllerEpoch(1))])
    assert (gone.brokers, gone.controller) == ({}, NO_BROKER)


@pytest.mark.parametrize("count", [3, 40, 2000])
@pytest.mark.parametrize(
    ("changes", "topics"),
    [
        ([TopicCreated(topic("new"))], {"new"}),
        ([TopicDeleted("t1")], {"t1"}),
        ([TopicDeleted("t1"), TopicCreated(topic("t1", number=99_999))], {"t1"}),
        ([TopicConfigured("t0", {"retention.ms": "1"})], {"t0"}),
        ([PartitionsAdded("t2", (partition(ONE),))], {"t2"}),
        ([PartitionsChanged("t2", {0: partition(TWO)}), TopicConfigured("t2", {})], {"t2"}),
        ([ProducerIdsTaken(ProducerId(7))], set()),
        ([BrokersConfigured("", {"max.connections": "1"})], set()),
    ],
)
def test_the_difference_names_the_topics_that_a_change_touches(
    count: int, changes: list[Change], topics: set[str]
) -> None:
    before = with_topics(count)
    after = before.after(changes)
    assert after.since(before).topics == topics == before.since(after).topics
    assert after.since(after).topics == set()
    assert after.since(None).topics == set(after.topics)


def test_topics_are_found_by_id_and_by_what_metrics_call_them() -> None:
    image = with_topics(2000)
    assert image.topic_by_id(UUID(int=5)) is image.topics["t4"]
    image = image.after([TopicDeleted("t4"), TopicCreated(topic("a.b_c", number=77_777))])
    assert image.topic_by_id(UUID(int=5)) is None
    assert image.topics.of_metric_name("a_b.c") == "a.b_c"
    image = image.after([TopicDeleted("a.b_c"), TopicCreated(topic("a_b_c", number=88_888))])
    assert image.topics.of_metric_name("a.b.c") == "a_b_c"
    assert image.topic_by_id(UUID(int=77_777)) is None
    image = image.after([TopicDeleted("a_b_c")])
    assert image.topics.of_metric_name("a.b.c") is None
    remade = image.after([TopicDeleted("t0"), TopicCreated(topic("t0", number=99_999))])
    assert remade.topic_by_id(UUID(int=1)) is None
    assert remade.topic_by_id(UUID(int=99_999)) is remade.topics["t0"]


def test_a_topic_made_and_deleted_by_the_same_changes_leaves_nothing() -> None:
    image = EMPTY.after(
        [TopicCreated(topic("t")), PartitionsAdded("t", (partition(ONE),)), TopicDeleted("t")]
    )
    assert image.topics == {}
    assert image.topic_by_id(topic("t").id) is None

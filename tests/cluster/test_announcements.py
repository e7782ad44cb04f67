"""What the controller announces is what the brokers know: over arbitrary histories, late and repeated messages."""

from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cluster import announcements
from barnabas.cluster.announcements import Announcement, Difference, announce
from barnabas.cluster.hearing import answered, heard
from barnabas.cluster.image import (
    BrokerEpoch,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
    PartitionImage,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from barnabas.wire.apis import APIS
from barnabas.wire.codec import decode, encode
from barnabas.wire.messages.controlling import (
    FULL,
    LEADER_DURING_DELETE,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.cluster.histories import BROKERS, histories

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ID = UUID(int=7)


def known(image: ClusterImage) -> Any:
    """All of an image that is announced."""
    topics = {name: (topic.id, topic.partitions) for name, topic in image.topics.items()}
    return topics, dict(image.brokers), image.controller, image.controller_epoch


def over_the_wire(request: Announcement) -> Announcement:
    version = APIS[request.api].highest
    return decode(type(request), version, b"".join(encode(request, version)))  # type: ignore[arg-type]


def told(image: ClusterImage, requests: list[Announcement], broker: BrokerId, epoch: int) -> ClusterImage:
    for request in requests:
        image = heard(image, over_the_wire(request), broker, BrokerEpoch(epoch))
    return image


def check_history(chance: Random, steps: int = 25) -> None:
    """Tell a broker of a cluster's life, some steps at once, with old messages in between; it knows what holds."""
    sent: list[Announcement] = []
    acknowledged: dict[BrokerId, ClusterImage] = {}
    knowing: dict[BrokerId, ClusterImage] = {}
    for image in histories(chance, steps):
        differences: dict[int, Difference] = {}
        for broker in BROKERS:
            if broker not in image.brokers:
                acknowledged.pop(broker, None)
                continue
            if chance.random() < 0.3:
                continue
            epoch = image.brokers[broker].epoch
            before = acknowledged.get(broker)
            requests = differences.setdefault(id(before), Difference(before, image)).to(broker)
            late = [chance.choice(sent)] if sent and chance.random() < 0.5 else []
            now = knowing.get(broker, ClusterImage("c"))
            now = told(now, requests, broker, epoch)
            for request in late:
                if request.broker_epoch == epoch and request.controller_epoch == image.controller_epoch:
                    now = told(now, [request], broker, epoch)
            assert known(now) == known(image)
            knowing[broker] = now
            acknowledged[broker] = image
            sent += requests


def check_seeds(count: int) -> None:
    for seed in range(count):
        check_history(Random(seed))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(chance=st.randoms(use_true_random=False))
def test_a_broker_knows_what_it_was_told_of_any_history(chance: Random) -> None:
    check_history(chance)


def cluster(*topics: TopicImage) -> ClusterImage:
    brokers = [
        BrokerRegistered(BrokerImage(broker, f"host{broker}", 9092, epoch=BrokerEpoch(10 + broker)))
        for broker in (ONE, TWO, THREE)
    ]
    claimed = ControllerElected(ONE, ControllerEpoch(4))
    return ClusterImage("c").after([*brokers, claimed, *map(TopicCreated, topics)])


def topic(*partitions: PartitionImage, name: str = "t", topic_id: UUID = ID) -> TopicImage:
    return TopicImage(name, topic_id, partitions)


def led_by(leader: BrokerId, *others: BrokerId) -> PartitionImage:
    return PartitionImage((leader, *others), (leader, *others), leader)


def first_heard(image: ClusterImage, broker: BrokerId = TWO) -> ClusterImage:
    return told(ClusterImage("c"), announce(None, image, broker), broker, image.brokers[broker].epoch)


def test_a_broker_hears_whether_a_partition_was_made_in_an_earlier_life() -> None:
    image = cluster(topic(replace(led_by(ONE, TWO), born=BrokerEpoch(12))))
    (partition,) = first_heard(image).topics["t"].partitions
    assert partition.may_lack_on(TWO, BrokerEpoch(12))
    assert not partition.may_lack_on(TWO, BrokerEpoch(13))


def test_a_broker_that_registers_is_told_everything_and_the_others_the_difference() -> None:
    before = cluster(topic(led_by(ONE, TWO), led_by(TWO, THREE)))
    again = before.brokers[TWO]._replace(epoch=BrokerEpoch(99))
    after = before.after([BrokerRegistered(again)])
    difference = Difference(before, after)
    full = difference.to(TWO)
    assert isinstance(full[0], UpdateMetadataRequest)
    assert full[0].type == FULL
    assert full[0].broker_epoch == 99
    assert len(full[0].topic_states[0].partition_states) == 2
    (told_others,) = difference.to(THREE)
    assert isinstance(told_others, UpdateMetadataRequest)
    assert (told_others.type, told_others.topic_states) == (1, [])
    assert [broker.id for broker in told_others.live_brokers] == [1, 2, 3]


def test_a_new_controller_begins_with_everything() -> None:
    before = cluster(topic(led_by(ONE, TWO)))
    after = before.after([ControllerElected(THREE, ControllerEpoch(5))])
    full = announce(before, after, TWO)[0]
    assert isinstance(full, UpdateMetadataRequest)
    assert full.type == FULL


def test_nothing_is_said_where_nothing_is_different_nor_to_a_broker_that_is_gone() -> None:
    image = cluster(topic(led_by(ONE, TWO)))
    assert announce(image, image.after([TopicConfigured("t", {"retention.ms": "1"})]), TWO) == []
    assert announce(image, image.after([BrokerGone(TWO)]), TWO) == []


def test_a_broker_is_told_the_partitions_that_it_has_and_those_that_it_has_no_longer() -> None:
    before = cluster(topic(led_by(ONE, TWO), led_by(TWO, THREE), led_by(ONE)))
    moved = replace(led_by(ONE, THREE), leader_epoch=LeaderEpoch(3))
    after = before.after([PartitionsChanged("t", {0: moved})])
    _, stopped = announce(before, after, TWO)
    assert isinstance(stopped, StopReplicaRequest)
    (state,) = stopped.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 3, True)
    _, led = announce(before, after, THREE)
    assert isinstance(led, LeaderAndIsrRequest)
    (mine,) = led.topic_states[0].partition_states
    assert (mine.partition_index, mine.leader, mine.isr, mine.is_new) == (0, 1, [1, 3], False)
    assert [(leader.broker_id, leader.host_name) for leader in led.live_leaders] == [(1, "host1")]


def test_a_deleted_topic_is_told_to_all_and_stopped_where_it_was() -> None:
    before = cluster(topic(led_by(ONE, TWO)))
    after = before.after([TopicDeleted("t")])
    everyone, stopped = announce(before, after, TWO)
    assert isinstance(everyone, UpdateMetadataRequest)
    assert isinstance(stopped, StopReplicaRequest)
    (state,) = everyone.topic_states[0].partition_states
    assert state.leader == LEADER_DURING_DELETE
    assert stopped.topic_states[0].partition_states[0].leader_epoch == -2
    assert len(announce(before, after, THREE)) == 1


def test_stop_replica_of_a_deleted_topic_leaves_its_successor_of_the_same_name_alone() -> None:
    before = cluster(topic(led_by(ONE, TWO)))
    after = before.after([TopicDeleted("t")])
    stopped = announce(before, after, TWO)[1]
    next_one = after.after([TopicCreated(topic(led_by(TWO), topic_id=UUID(int=8)))])
    now = first_heard(next_one)
    late = replace(stopped, image_version=next_one.version)
    assert told(now, [late], TWO, 12) is now


def test_a_topic_made_again_under_the_same_name_replaces_the_deleted_one() -> None:
    before = cluster(topic(replace(led_by(ONE, TWO), leader_epoch=LeaderEpoch(9)), led_by(TWO)))
    made = TopicCreated(topic(led_by(TWO), topic_id=UUID(int=8)))
    after = before.after([TopicDeleted("t"), made])
    now = told(first_heard(before), announce(before, after, TWO), TWO, 12)
    assert known(now) == known(after)


def test_settings_stay_with_a_topic_that_is_told_of_again() -> None:
    image = cluster(topic(led_by(ONE, TWO)))
    now = first_heard(image).after([TopicConfigured("t", {"retention.ms": "1"})])
    now = told(now, announce(None, image.after([]), TWO), TWO, 12)
    assert now.topics["t"].configs == {"retention.ms": "1"}


def test_a_full_announcement_replaces_what_a_broker_knew() -> None:
    known_before = first_heard(cluster(topic(led_by(ONE, TWO)), topic(led_by(TWO), name="gone")))
    image = cluster(topic(led_by(TWO, ONE))).after([])
    assert known(told(known_before, announce(None, image, TWO), TWO, 12)) == known(image)


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "code"),
    [
        (3, 12, Code.STALE_CONTROLLER_EPOCH),
        (4, 11, Code.STALE_BROKER_EPOCH),
        (5, 12, Code.INVALID_UPDATE_VERSION),
        (4, 13, None),
        (4, -1, None),
    ],
)
def test_an_announcement_of_another_controller_or_for_another_life_is_refused(
    controller_epoch: int, broker_epoch: int, code: Code | None
) -> None:
    before = cluster(topic(led_by(ONE, TWO)))
    after = before.after([TopicDeleted("t")])
    now = first_heard(before)
    for request in announce(before, after, TWO):
        fenced = replace(request, controller_epoch=controller_epoch, broker_epoch=broker_epoch)
        if code is None:
            assert "t" not in heard(now, fenced, TWO, BrokerEpoch(12)).topics
        else:
            with pytest.raises(Refused) as refused:
                heard(now, fenced, TWO, BrokerEpoch(12))
            assert refused.value.code == code


def test_an_announcement_that_comes_late_changes_nothing() -> None:
    before = cluster(topic(led_by(ONE, TWO)))
    deleted = before.after([TopicDeleted("t")])
    now = told(first_heard(before), announce(before, deleted, TWO), TWO, 12)
    assert told(now, announce(None, before, TWO), TWO, 12) is now


def test_partitions_with_a_gap_before_them_are_refused() -> None:
    image = cluster(topic(led_by(ONE, TWO), led_by(ONE)))
    (request, *_) = announce(None, image, TWO)
    assert isinstance(request, UpdateMetadataRequest)
    request.topic_states[0].partition_states[0].partition_index = 2**31 - 1
    with pytest.raises(Refused, match="invalid"):
        heard(ClusterImage("c"), request, TWO, BrokerEpoch(12))


def test_each_partition_has_its_own_result() -> None:
    old = cluster(topic(led_by(ONE, TWO), led_by(TWO, ONE), led_by(TWO)))
    newer = {0: replace(led_by(TWO, ONE), leader_epoch=LeaderEpoch(5))}
    image = first_heard(old.after([PartitionsChanged("t", newer)]))
    _, led = announce(None, old, TWO)
    response = answered(image, led, {TopicPartition("t", 2): Code.KAFKA_STORAGE_ERROR})
    (errors,) = response.topics  # type: ignore[union-attr]
    assert errors.topic_id == ID
    assert [each.error_code for each in errors.partition_errors] == [Code.STALE_CONTROLLER_EPOCH, 0, 56]


def test_a_replica_is_not_stopped_by_an_older_leader_epoch() -> None:
    before = cluster(topic(led_by(ONE, TWO)))
    moved = before.after([PartitionsChanged("t", {0: led_by(ONE, THREE)})])
    stopped = announce(before, moved, TWO)[1]
    back = moved.after([PartitionsChanged("t", {0: replace(led_by(TWO, ONE), leader_epoch=LeaderEpoch(6))})])
    now = first_heard(back)
    late = replace(stopped, image_version=back.version)
    assert told(now, [late], TWO, 12) is now
    errors = answered(now, late, {}).partition_errors  # type: ignore[union-attr]
    assert [each.error_code for each in errors] == [Code.FENCED_LEADER_EPOCH]


def test_plant_an_announcement_that_forgets_deleted_topics_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "_deleted_state", lambda topic: UpdateMetadataTopicState())
    monkeypatch.setattr(announcements._Part, "_note_deletion", lambda self, topic: None)
    with pytest.raises(AssertionError):
        check_seeds(20)

"""Promises of client/admin/admin.py, kept with our broker and with Apache Kafka alike."""

from collections.abc import Callable

import pytest

from barnabas import Admin, Producer, errors
from barnabas.client.admin.configs import ConfigSource, Resource, ResourceType
from barnabas.client.admin.offset_resets import MovedOffset
from barnabas.client.admin.topics import NewTopic
from barnabas.client.consumer.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import Offset, TopicPartition
from tests.deadline import eventually

NewName = Callable[..., str]


def of_topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def test_a_topic_is_created_described_and_deleted(admin: Admin) -> None:
    made = admin.create_topic("admin-made", partitions=3, replication_factor=1)
    assert (made.name, made.partitions, made.replication_factor) == ("admin-made", 3, 1)
    eventually(lambda: "admin-made" in admin.list_topics(), "the topic in the list")
    (topic,) = admin.describe_topics(["admin-made"])
    assert topic.id == made.id
    assert [each.index for each in topic.partitions] == [0, 1, 2]
    numbers = {each.id for each in admin.describe_cluster().brokers}
    assert all(each.leader in numbers for each in topic.partitions)
    assert all(each.replicas == each.isr == (each.leader,) for each in topic.partitions)
    admin.delete_topic("admin-made")
    eventually(lambda: "admin-made" not in admin.list_topics(), "the topic to go from the list")


def test_a_topic_can_be_tried_without_being_made(admin: Admin) -> None:
    admin.create_topic("only-tried", partitions=1, validate_only=True)
    assert "only-tried" not in admin.list_topics()


def test_replicas_can_be_placed_by_hand(admin: Admin) -> None:
    number = admin.describe_cluster().brokers[0].id
    admin.create_topic("placed", assignment={0: [number], 1: [number]})
    eventually(lambda: "placed" in admin.list_topics(), "the topic in the list")
    assert len(admin.describe_topics(["placed"])[0].partitions) == 2
    admin.delete_topic("placed")


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda admin: admin.create_topic("bad/name", partitions=1), Code.INVALID_TOPIC_EXCEPTION),
        (lambda admin: admin.create_topic("none", partitions=0), Code.INVALID_PARTITIONS),
        (lambda admin: admin.create_topic("far", replication_factor=99), Code.INVALID_REPLICATION_FACTOR),
        (lambda admin: admin.create_topic("odd", configs={"retention.ms": "soon"}), Code.INVALID_CONFIG),
        (lambda admin: admin.create_topic("odd", configs={"no.such.thing": "1"}), Code.INVALID_CONFIG),
        (lambda admin: admin.describe_topics(["never-made"]), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.delete_topic("never-made"), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.create_partitions("never-made", 3), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda admin: admin.describe_configs(of_topic("never-made")), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (
            lambda admin: admin.list_offsets({TopicPartition("never-made", 0): 0}),
            Code.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            lambda admin: admin.describe_configs(Resource(ResourceType.BROKER, "77")),
            Code.RESOURCE_NOT_FOUND,
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_code(
    admin: Admin, act: Callable[[Admin], object], code: Code
) -> None:
    with pytest.raises(Refused) as refused:
        act(admin)
    assert refused.value.code is code
    assert str(refused.value)


def test_a_second_topic_of_a_name_is_refused(admin: Admin, new_topic: NewName) -> None:
    name = new_topic()
    with pytest.raises(Refused, match=name) as refused:
        admin.create_topic(name)
    assert refused.value.code is Code.TOPIC_ALREADY_EXISTS


def test_partitions_can_only_become_more(admin: Admin, new_topic: NewName) -> None:
    name = new_topic(2)
    admin.create_partitions(name, 5)
    eventually(lambda: len(admin.describe_topics([name])[0].partitions) == 5, "five partitions")
    with pytest.raises(Refused) as refused:
        admin.create_partitions(name, 4)
    assert refused.value.code is Code.INVALID_PARTITIONS


def test_settings_are_changed_one_by_one(admin: Admin, new_topic: NewName) -> None:
    topic = of_topic(new_topic(retention_ms="60000"))
    admin.alter_configs(topic, {"segment.ms": "120000"})

    def own() -> dict[str, str | None]:
        return {
            c.name: c.value for c in admin.describe_configs(topic) if c.source is ConfigSource.DYNAMIC_TOPIC
        }

    eventually(lambda: own() == {"retention.ms": "60000", "segment.ms": "120000"}, "both settings")
    admin.alter_configs(topic, {"retention.ms": None}, append={"cleanup.policy": "compact"})
    eventually(
        lambda: own() == {"segment.ms": "120000", "cleanup.policy": "delete,compact"}, "the new settings"
    )
    with pytest.raises(Refused) as refused:
        admin.alter_configs(topic, {"retention.ms": "never"})
    assert refused.value.code is Code.INVALID_CONFIG


def test_settings_can_be_asked_for_by_name_and_with_their_meaning(admin: Admin, new_topic: NewName) -> None:
    (found,) = admin.describe_configs(of_topic(new_topic()), ["retention.ms"], documentation=True)
    assert (found.name, found.value, found.is_default) == ("retention.ms", "604800000", True)
    assert found.documentation


def test_a_broker_shows_its_settings(admin: Admin) -> None:
    broker = admin.describe_cluster().brokers[0]
    found = {
        each.name: each for each in admin.describe_configs(Resource(ResourceType.BROKER, str(broker.id)))
    }
    assert found["log.dirs"].read_only
    with pytest.raises(BarnabasError, match="its number"):
        admin.describe_configs(Resource(ResourceType.BROKER, "one"))


def test_offsets_are_found_and_records_deleted(admin: Admin, broker: str, new_topic: NewName) -> None:
    partition = TopicPartition(new_topic(), 0)
    with Producer(bootstrap_servers=broker) as producer:
        for number in range(10):
            producer.send(partition.topic, b"x", timestamp=1000 + (500 if number == 4 else number))
            producer.flush()
    assert admin.list_offsets({partition: EARLIEST})[partition].offset == 0
    assert admin.list_offsets({partition: LATEST})[partition].offset == 10
    assert admin.list_offsets({partition: MAX_TIMESTAMP})[partition][:2] == (4, 1500)
    assert admin.list_offsets({partition: 1003})[partition][:2] == (3, 1003)
    assert admin.list_offsets({partition: 9999})[partition].offset == -1
    assert admin.delete_records({partition: 6}) == {partition: 6}
    assert admin.list_offsets({partition: EARLIEST})[partition].offset == 6
    assert admin.delete_records({partition: -1}) == {partition: 10}
    with pytest.raises(Refused) as refused:
        admin.delete_records({partition: 11})
    assert refused.value.code is Code.OFFSET_OUT_OF_RANGE


def test_the_cluster_and_its_directories_are_shown(admin: Admin, broker: str, new_topic: NewName) -> None:
    cluster = admin.describe_cluster()
    assert cluster.id
    assert {f"{each.host}:{each.port}" for each in cluster.brokers} == set(broker.split(","))
    name = new_topic(2)
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(name, b"x" * 1000, partition=1)

    def sizes() -> dict[TopicPartition, int]:
        return {
            stored.partition: stored.size
            for directory in admin.describe_log_dirs()
            for stored in directory.partitions
            if directory.error is Code.NONE
        }

    # Kafka makes the logs of a topic one after the other, and takes records for the first one meanwhile.
    eventually(lambda: TopicPartition(name, 0) in sizes(), "the log of the other partition")
    found = sizes()
    assert found[TopicPartition(name, 0)] == 0
    assert found[TopicPartition(name, 1)] > 1000


def test_many_topics_are_made_and_deleted_at_once(admin: Admin) -> None:
    names = ["many-b", "many-a"]
    made = admin.create_topics([NewTopic(names[0], 2), NewTopic(names[1], configs={"retention.ms": "1000"})])
    assert [(each.name, each.partitions) for each in made] == [("many-b", 2), ("many-a", 1)]
    eventually(lambda: {*names} <= {*admin.list_topics()}, "both topics in the list")
    assert [each.name for each in admin.describe_topics(names)] == names
    assert admin.describe_topic("many-b").id == made[0].id
    admin.delete_topics(names)
    eventually(lambda: not {*names} & {*admin.list_topics()}, "both topics to go")
    assert admin.create_topics([]) == []
    admin.delete_topics([])


def test_of_many_topics_those_that_can_be_are_made(admin: Admin) -> None:
    with pytest.raises(errors.InvalidTopicException) as refused:
        admin.create_topics([NewTopic("bad/name"), NewTopic("good-name"), NewTopic("none", 0)])
    assert len(refused.value.__notes__) == 1
    assert "none" in refused.value.__notes__[0]
    eventually(lambda: "good-name" in admin.list_topics(), "the good one")
    with pytest.raises(errors.UnknownTopicOrPartition, match="never-made"):
        admin.delete_topics(["never-made", "good-name"])
    eventually(lambda: "good-name" not in admin.list_topics(), "the good one to go")


def test_producers_of_a_partition_are_named(admin: Admin, broker: str, new_topic: NewName) -> None:
    partition = TopicPartition(new_topic(), 0)
    assert admin.describe_producers([partition]) == {partition: ()}
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(partition.topic, b"x", timestamp=1234).result()
        (found,) = admin.describe_producers([partition])[partition]
    assert found.id >= 0
    assert (found.epoch, found.last_sequence, found.last_timestamp) == (0, 0, 1234)
    assert found.transaction_start is None
    with pytest.raises(errors.UnknownTopicOrPartition):
        admin.describe_producers([TopicPartition(partition.topic, 7)])


def test_a_group_is_moved_and_tells_from_where_to_where(
    admin: Admin, broker: str, new_topic: NewName
) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(bootstrap_servers=broker) as producer:
        for number in range(10):
            producer.send(topic, b"x", partition=0, timestamp=1000 + number)
    group = f"moved-{topic}"
    tried = admin.reset_group_offsets(group, [topic], to=LATEST, validate_only=True)
    assert tried == {first: MovedOffset(None, Offset(10)), second: MovedOffset(None, Offset(0))}
    assert admin.list_group_offsets(group) == {}
    assert admin.reset_group_offsets(group, [first], to=1004) == {first: MovedOffset(None, Offset(4))}
    assert admin.reset_group_offsets(group, [first], shift_by=-1)[first] == MovedOffset(Offset(4), Offset(3))
    assert admin.reset_group_offsets(group, [first], to_offset=99)[first].after == 10
    assert admin.list_group_offsets(group) == {first: 10}
    with pytest.raises(BarnabasError, match="one of to, to_offset and shift_by"):
        admin.reset_group_offsets(group, [first], to=EARLIEST, shift_by=1)
    with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 2"):
        admin.reset_group_offsets(group, [TopicPartition(topic, 2)], to=EARLIEST)


def test_many_groups_are_described_and_deleted(admin: Admin, new_topic: NewName) -> None:
    partition = TopicPartition(new_topic(), 0)
    names = [f"{partition.topic}-{number}" for number in range(3)]
    for name in names:
        admin.alter_group_offsets(name, {partition: 0})
    assert [(each.id, each.state) for each in admin.describe_groups(names)] == [(n, "Empty") for n in names]
    with pytest.raises(errors.GroupIdNotFound, match="never-made"):
        admin.delete_groups(["never-made", *names])
    assert not {*names} & {each.id for each in admin.list_groups()}

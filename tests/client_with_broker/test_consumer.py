"""Promises of Consumer, alone and in groups, kept with our broker and with Apache Kafka alike."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from barnabas import Admin, Consumer, ConsumerRecord, Producer, TopicPartition, errors
from tests.client_with_broker.conftest import NewTopic
from tests.client_with_broker.reading import poll_until
from tests.deadline import Deadline, eventually

Unique = Callable[[str], str]


def fill(broker: str, topic: str, numbers: range, partitions: int = 1) -> None:
    """Numbers, round the partitions, a millisecond apart from 1000 on."""
    with Producer(bootstrap_servers=broker) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % partitions, timestamp=1000 + number)


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def test_a_group_reads_from_the_beginning_and_goes_on_from_what_it_committed(
    broker: str, new_topic: NewTopic, unique: Unique
) -> None:
    topic, group = new_topic(2), unique("group")
    settings: dict[str, Any] = {
        "bootstrap_servers": broker,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    fill(broker, topic, range(20), 2)
    with Consumer(topic, **settings) as consumer:
        assert sorted(numbers(poll_until(consumer, 20))) == list(range(20))
    fill(broker, topic, range(20, 30), 2)
    with Consumer(topic, **settings) as consumer:
        assert sorted(numbers(poll_until(consumer, 10))) == list(range(20, 30))


def test_iterating_gives_record_after_record(broker: str, new_topic: NewTopic, unique: Unique) -> None:
    topic = new_topic()
    fill(broker, topic, range(50))
    with Consumer(
        topic, bootstrap_servers=broker, group_id=unique("group"), auto_offset_reset="earliest"
    ) as consumer:
        found = list(islice(consumer, 50))
    assert numbers(found) == list(range(50))
    assert [(each.topic, each.partition, each.offset, each.timestamp) for each in found] == [
        (topic, 0, number, 1000 + number) for number in range(50)
    ]


def test_offsets_are_committed_only_when_told_to(
    broker: str, new_topic: NewTopic, unique: Unique, admin: Admin
) -> None:
    topic, group = new_topic(), unique("group")
    partition = TopicPartition(topic, 0)
    fill(broker, topic, range(10))
    settings: dict[str, Any] = {
        "bootstrap_servers": broker,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    with Consumer(topic, enable_auto_commit=False, **settings) as consumer:
        poll_until(consumer, 10)
        assert consumer.committed([partition]) == {}
        consumer.commit({partition: 4})
        assert consumer.committed([partition]) == {partition: 4}
    assert admin.list_group_offsets(group) == {partition: 4}
    with Consumer(topic, enable_auto_commit=False, **settings) as consumer:
        assert numbers(poll_until(consumer, 6)) == list(range(4, 10))
        consumer.commit()
    assert admin.list_group_offsets(group) == {partition: 10}


def test_a_position_can_be_sought_by_offset_and_by_time(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    fill(broker, topic, range(10))
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 7)
        assert numbers(poll_until(consumer, 3)) == [7, 8, 9]
        assert consumer.position(partition) == 10
        consumer.seek_to_beginning()
        assert consumer.position(partition) == 0
        assert numbers(poll_until(consumer, 10)) == list(range(10))
        found = consumer.offsets_for_times({partition: 1004})[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (4, 1004)
        consumer.seek_to_end()
        assert consumer.position(partition) == 10
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}


def test_what_is_paused_waits_until_it_is_resumed(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first, second = partitions_of(topic, 2)
    fill(broker, topic, range(20), 2)
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign([first, second])
        consumer.seek_to_beginning()
        consumer.pause(first)
        assert sorted(numbers(poll_until(consumer, 10))) == list(range(1, 20, 2))
        assert consumer.poll(timeout=0.2) == []
        consumer.resume(first)
        assert sorted(numbers(poll_until(consumer, 10))) == list(range(0, 20, 2))


def test_members_share_the_partitions_and_each_record_goes_to_one(
    broker: str, new_topic: NewTopic, unique: Unique
) -> None:
    topic = new_topic(4)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker,
        "group_id": unique("group"),
        "auto_offset_reset": "earliest",
    }
    with Consumer(topic, **settings) as first, Consumer(topic, **settings) as second:
        came: list[int] = []

        def shared() -> bool:
            for each in (first, second):
                came.extend(numbers(each.poll(timeout=0.05)))
            return len(first.assignment()) == len(second.assignment()) == 2

        eventually(shared, "a share for each", 60)
        assert set(first.assignment()) | set(second.assignment()) == set(partitions_of(topic, 4))
        fill(broker, topic, range(100), 4)
        deadline = Deadline(30, "100 records")
        while len(came) < 100:
            for each in (first, second):
                came += numbers(each.poll(timeout=deadline.left(0.1)))
        assert sorted(came) == list(range(100))


def test_a_topic_that_comes_later_is_found_by_its_pattern(
    broker: str, new_topic: NewTopic, unique: Unique, admin: Admin
) -> None:
    name = unique("pattern")
    with Consumer(
        bootstrap_servers=broker,
        group_id=unique("group"),
        auto_offset_reset="earliest",
        metadata_max_age_ms=200,
    ) as consumer:
        consumer.subscribe(pattern=f"{name}-.*")
        consumer.poll(timeout=0.1)
        admin.create_topic(f"{name}-later", partitions=1)
        eventually(lambda: f"{name}-later" in admin.list_topics(), "the topic")
        fill(broker, f"{name}-later", range(5))
        assert numbers(poll_until(consumer, 5)) == list(range(5))
    admin.delete_topic(f"{name}-later")


def test_an_offset_that_is_gone_is_an_error_where_no_reset_is_set(broker: str, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    fill(broker, partition.topic, range(3))
    with Consumer(bootstrap_servers=broker, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 99)
        with pytest.raises(errors.OffsetOutOfRange, match=partition.topic):
            poll_until(consumer, 1)
    with Consumer(bootstrap_servers=broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 99)
        assert numbers(poll_until(consumer, 3)) == [0, 1, 2]

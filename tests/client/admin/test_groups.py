"""Promises of consumers in groups and of Admin about groups, kept with our broker and with Apache Kafka alike."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from tests.deadline import Deadline, eventually
from tests.process import free_port

NewTopic = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    """A name of its own."""
    return f"group-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def join(bootstrap: str, group: str) -> Iterator[Callable[..., Consumer]]:
    """Makes members of the group, gone at the end of the test."""
    made: list[Consumer] = []

    def consumer(*topics: str, **settings: object) -> Consumer:
        found = Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            fetch_max_wait_ms=50,
            **settings,  # type: ignore[arg-type]
        )
        made.append(found)
        found.subscribe(topics)
        return found

    yield consumer
    for each in made:
        each.close()


def fill(bootstrap: str, topic: str, partitions: int, numbers: range) -> None:
    with Producer(bootstrap) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % partitions)


def read(consumers: Sequence[Consumer], count: int, **limits: int) -> list[int]:
    """This many numbers in all, from any of the consumers."""
    found: list[int] = []
    deadline = Deadline(30, f"{count} records")
    while len(found) < count:
        for each in consumers:
            found += [int(r.value or b"-1") for r in each.poll(deadline.left(0.05), **limits)]
    return found


def settle(consumers: Sequence[Consumer], partitions: int) -> list[int]:
    """Poll until the members have the partitions among them, fairly; what came meanwhile."""
    came: list[int] = []

    def is_settled() -> bool:
        for each in consumers:
            came.extend(int(r.value or b"-1") for r in each.poll(0.05))
        shares = [len(each.assignment()) for each in consumers]
        return sum(shares) == partitions and max(shares) - min(shares) <= 1

    eventually(is_settled, "a settled group", 30)
    return came


def test_members_share_the_partitions_and_each_record_goes_to_one(
    bootstrap: str, new_topic: NewTopic, join: Callable[..., Consumer]
) -> None:
    topic = new_topic(partitions=4)
    first, second, third = join(topic), join(topic), join(topic)
    settle([first, second, third], 4)
    owned = [first.assignment(), second.assignment(), third.assignment()]
    assert set.union(*owned) == {TopicPartition(topic, number) for number in range(4)}
    fill(bootstrap, topic, 4, range(100))
    assert sorted(read([first, second, third], 100)) == list(range(100))


def test_the_group_goes_on_from_what_was_committed_when_a_member_leaves(
    bootstrap: str, new_topic: NewTopic, join: Callable[..., Consumer]
) -> None:
    topic = new_topic(partitions=4)
    first, second = join(topic), join(topic)
    settle([first, second], 4)
    fill(bootstrap, topic, 4, range(40))
    came = read([first], 20)
    first.close()
    came += read([second], 20)
    assert sorted(came) == list(range(40))
    assert settle([second], 4) == []
    assert second.poll(0.2) == []


def test_a_rebalance_commits_what_was_read_and_nothing_comes_twice(
    bootstrap: str, new_topic: NewTopic, join: Callable[..., Consumer]
) -> None:
    topic = new_topic(partitions=4)
    fill(bootstrap, topic, 4, range(200))
    first = join(topic)
    came = read([first], 30, max_records=30)
    second = join(topic)
    came += settle([first, second], 4)
    came += read([first, second], 200 - len(came))
    assert sorted(came) == list(range(200))


def test_what_was_read_before_a_failure_comes_again(
    bootstrap: str, new_topic: NewTopic, group: str, join: Callable[..., Consumer]
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1, range(10))
    consumer = join(topic)
    assert read([consumer], 4, max_records=4) == [0, 1, 2, 3]
    consumer.commit()
    assert read([consumer], 2, max_records=2) == [4, 5]
    with pytest.raises(ZeroDivisionError), consumer:
        raise ZeroDivisionError
    assert read([join(topic)], 6) == [4, 5, 6, 7, 8, 9]


def test_only_what_polls_have_given_is_committed(
    bootstrap: str, new_topic: NewTopic, group: str, admin: Admin, join: Callable[..., Consumer]
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 1, range(10))
    consumer = join(topic, enable_auto_commit=False)
    read([consumer], 3, max_records=3)
    assert admin.list_group_offsets(group) == {}
    consumer.commit()
    assert admin.list_group_offsets(group) == {TopicPartition(topic, 0): 3}
    consumer.commit({TopicPartition(topic, 0): 1})
    assert consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}
    read([consumer], 3, max_records=3)
    consumer.close()
    assert admin.list_group_offsets(group) == {TopicPartition(topic, 0): 1}


def test_a_leader_notices_that_a_topic_has_grown(
    bootstrap: str, new_topic: NewTopic, admin: Admin, join: Callable[..., Consumer]
) -> None:
    topic = new_topic(partitions=1)
    consumer = join(topic, metadata_max_age_ms=100)
    settle([consumer], 1)
    admin.create_partitions(topic, 3)
    settle([consumer], 3)


def test_a_group_without_partitions_for_a_member_lets_it_wait(
    new_topic: NewTopic, join: Callable[..., Consumer]
) -> None:
    topic = new_topic(partitions=1)
    first, second = join(topic), join(topic)
    settle([first, second], 1)
    eventually(
        lambda: (first.poll(0.05), second.poll(0.05)) and first.has_joined and second.has_joined, "both"
    )
    idle = first if not first.assignment() else second
    assert idle.poll(0.3) == []


def test_a_group_is_listed_described_and_deleted(
    bootstrap: str, new_topic: NewTopic, group: str, admin: Admin, join: Callable[..., Consumer]
) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(Refused) as caught:
        admin.describe_group(group)
    assert caught.value.code is Code.GROUP_ID_NOT_FOUND
    consumer = join(topic)
    fill(bootstrap, topic, 2, range(4))
    settle([consumer], 2)

    found = admin.describe_group(group)
    assert (found.state, found.type, found.assignor) == ("Stable", "classic", "range")
    (member,) = found.members
    assert member.client_id == "barnabas-consumer"
    assert set(member.partitions) == consumer.assignment()
    assert [each.id for each in admin.list_groups(states=["Stable"]) if each.id == group] == [group]
    assert group not in [each.id for each in admin.list_groups(states=["Empty"])]
    assert group not in [each.id for each in admin.list_groups(types=["consumer"])]
    for refused in (
        lambda: admin.delete_group(group),
        lambda: admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1}),
    ):
        with pytest.raises(Refused) as caught:
            refused()
        assert caught.value.code is Code.NON_EMPTY_GROUP

    consumer.close()
    assert admin.describe_group(group).state == "Empty"
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 2})
    admin.delete_group_offsets(group, [TopicPartition(topic, 1)])
    assert admin.list_group_offsets(group) == {TopicPartition(topic, 0): 1}
    admin.delete_group(group)
    assert group not in [each.id for each in admin.list_groups()]
    with pytest.raises(Refused) as caught:
        admin.delete_group(group)
    assert caught.value.code is Code.GROUP_ID_NOT_FOUND


def test_a_consumer_without_a_group_is_told_what_it_lacks(bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        for act in (
            lambda: consumer.subscribe(["t"]),
            consumer.commit,
            lambda: consumer.committed([TopicPartition("t", 0)]),
        ):
            with pytest.raises(BarnabasError, match="group"):
                act()


def test_members_of_librdkafka_and_ours_share_a_group(
    bootstrap: str, new_topic: NewTopic, group: str, join: Callable[..., Consumer]
) -> None:
    from confluent_kafka import Consumer as Confluent

    topic = new_topic(partitions=4)
    ours = join(topic)
    theirs = Confluent(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
        }
    )
    theirs.subscribe([topic])
    came: list[int] = []
    try:

        def is_settled() -> bool:
            came.extend(int(r.value or b"-1") for r in ours.poll(0.05))
            came.extend(int(each.value()) for each in theirs.consume(10, 0.05))
            return len(ours.assignment()) == 2 and len(theirs.assignment()) == 2

        eventually(is_settled, "two partitions each", 30)
        fill(bootstrap, topic, 4, range(40))
        eventually(lambda: (is_settled(), len(came) >= 40)[1], "40 records", 30)
    finally:
        theirs.close()
    assert sorted(came) == list(range(40))


def test_a_member_goes_on_when_its_broker_comes_back(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    broker = Broker(data=tmp_path, port=port).start()
    with Admin(address) as admin:
        admin.create_topic("t", partitions=2)
    fill(address, "t", 2, range(10))
    consumer = Consumer(
        bootstrap_servers=address,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        retry_backoff_ms=5,
        fetch_max_wait_ms=50,
    )
    with consumer:
        consumer.subscribe(["t"])
        came = read([consumer], 4, max_records=4)
        consumer.commit()
        broker.stop()
        with Broker(data=tmp_path, port=port):
            fill(address, "t", 2, range(10, 20))
            came += read([consumer], 16)
            assert sorted(came) == list(range(20))
            consumer.close()
            with Admin(address) as admin:
                assert sum(admin.list_group_offsets("g").values()) == 20

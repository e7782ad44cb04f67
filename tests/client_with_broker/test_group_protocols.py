"""Promises of members in both protocols and with every assignor, kept with our broker and with Apache Kafka alike."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from tests.client_with_broker.conftest import NewTopic
from tests.deadline import Deadline, eventually

PARTITIONS = 4
WAYS: list[dict[str, Any]] = [
    {"partition_assignment_strategy": "roundrobin"},
    {"partition_assignment_strategy": "sticky"},
    {"partition_assignment_strategy": "cooperative-sticky"},
    {"group_protocol": "consumer"},
]


class Listener:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.heard.append("assigned")

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.heard.append("revoked")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_members_come_and_go_and_each_record_is_read_once(
    way: dict[str, Any], broker: str, new_topic: NewTopic, unique: Callable[[str], str], admin: Admin
) -> None:
    topic, group = new_topic(PARTITIONS), unique("group")
    settings: dict[str, Any] = {
        "bootstrap_servers": broker,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 100,
        "max_poll_records": 10,
        **way,
    }
    came: list[int] = []
    listener = Listener()

    def poll(*members: Consumer) -> None:
        for each in members:
            came.extend(int(record.value) for record in each.poll(0.05))

    def shared(*members: Consumer) -> bool:
        poll(*members)
        shares = [each.assignment() for each in members]
        return sum(map(len, shares)) == PARTITIONS == len(set().union(*shares)) and all(
            len(share) == PARTITIONS // len(members) for share in shares
        )

    def send(numbers: range) -> None:
        with Producer(bootstrap_servers=broker) as producer:
            for number in numbers:
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)

    send(range(200))
    with Consumer(**settings) as first:
        first.subscribe(topic, listener=listener)
        eventually(lambda: shared(first), "one to have all", 60)
        with Consumer(topic, **settings) as second:
            eventually(lambda: shared(first, second), "two to share", 60)
            send(range(200, 300))
            deadline = Deadline(60, "all records")
            while len(came) < 300:
                poll(first, second)
                deadline.left()
        eventually(lambda: shared(first), "the first to have all again", 60)
        poll(first)
        assert sorted(came) == list(range(300))
    assert listener.heard[0] == "assigned"
    assert "revoked" in listener.heard
    assert sum(admin.list_group_offsets(group).values()) == 300
    described = admin.describe_group(group)
    assert described.state == "Empty"
    assert described.type == way.get("group_protocol", "classic")

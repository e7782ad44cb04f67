"""A broker whose disk is full lets others lead and count, where there are any, and comes back once it has room."""

from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin.topics import NewTopic
from barnabas.cluster.image import PartitionImage
from barnabas.errors import BarnabasError, Code
from barnabas.types import TopicPartition
from tests.broker.memory_cluster import Members
from tests.deadline import eventually

T0 = TopicPartition("t", 0)
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    # A replica that stores nothing any more would leave the ISR by being late: here it is given up because it says so.
    "replica.lag.time.max.ms": "600000",
}


def state(members: Members) -> PartitionImage:
    return members.cluster.image.topics["t"].partitions[0]


def make_topic(members: Members, *brokers: int) -> None:
    """Broker 1 stays the controller."""
    with Admin(bootstrap_servers=members[1].bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignment={0: list(brokers)})])
    eventually(lambda: len(state(members).isr) == len(brokers), "all replicas in sync")


def write(members: Members, *values: bytes) -> None:
    with Producer(bootstrap_servers=members[1].bootstrap, acks="all") as producer:
        for value in values:
            producer.send("t", value).result(60)


def read(members: Members, count: int) -> list[bytes]:
    found: list[bytes] = []

    def is_read() -> bool:
        found.extend(record.value for record in consumer.poll(1.0))
        return len(found) >= count

    with Consumer(bootstrap_servers=members[1].bootstrap) as consumer:
        consumer.assign({T0: 0})
        eventually(is_read, "all records")
    return found


def test_a_leader_without_room_is_followed_by_a_replica_in_sync_that_has_room(tmp_path: Path) -> None:
    with Members(tmp_path, settings=SETTINGS) as members:
        make_topic(members, 2, 3)
        write(members, b"a")
        members[2].disk.is_full = True
        write(members, b"b", b"c")
        assert (state(members).leader, state(members).isr) == (3, (3,))
        assert read(members, 3) == [b"a", b"b", b"c"]


def test_with_room_again_a_broker_catches_up_and_may_lead(tmp_path: Path) -> None:
    with (
        Members(tmp_path, settings=SETTINGS) as members,
        Admin(bootstrap_servers=members[1].bootstrap) as admin,
    ):
        make_topic(members, 2, 3)
        members[2].disk.is_full = True
        write(members, b"a")
        outcome = admin.elect_leaders([T0])[T0]
        assert outcome is not None
        assert outcome.code is Code.PREFERRED_LEADER_NOT_AVAILABLE
        members[2].disk.is_full = False
        eventually(lambda: set(state(members).isr) == {2, 3}, "the broker to be in sync again")
        admin.elect_leaders([T0])
        assert state(members).leader == 2
        write(members, b"b")
        assert read(members, 2) == [b"a", b"b"]


def test_a_follower_without_room_holds_nothing_up(tmp_path: Path) -> None:
    with Members(tmp_path, settings=SETTINGS) as members:
        make_topic(members, 2, 3)
        write(members, b"a")
        members[3].disk.is_full = True
        write(members, b"b", b"c")
        assert (state(members).leader, state(members).isr) == (2, (2,))
        members[3].disk.is_full = False
        eventually(lambda: state(members).isr == (2, 3), "the broker to be in sync again")


def test_a_leader_that_no_other_can_follow_goes_on_and_gives_way_when_one_can(tmp_path: Path) -> None:
    with Members(tmp_path, settings=SETTINGS) as members:
        make_topic(members, 2, 3)
        write(members, b"a")
        members[3].stop()
        eventually(lambda: state(members).isr == (2,), "the other replica to be given up")
        members[2].disk.is_full = True
        with (
            Producer(bootstrap_servers=members[1].bootstrap, retries=0) as producer,
            pytest.raises(BarnabasError),
        ):
            producer.send("t", b"lost").result(60)
        assert read(members, 1) == [b"a"]
        assert state(members).leader == 2
        members[3].start()
        eventually(lambda: state(members).leader == 3, "the replica with room to lead")
        write(members, b"b")
        assert read(members, 2) == [b"a", b"b"]


def test_the_next_controller_hears_of_it_too(tmp_path: Path) -> None:
    with Members(tmp_path, settings=SETTINGS) as members:
        make_topic(members, 2, 3)
        members[2].disk.is_full = True
        write(members, b"a")
        members[1].stop()
        others = [members[2].running, members[3].running]
        eventually(
            lambda: any(
                T0 in each.controlling.facts.full.get(members[2].id, ())
                for each in others
                if each.metadata.is_controller
            ),
            "the next controller to know",
        )
        assert state(members).leader == 3

"""A broker whose folder of a partition is gone does not lead it and does not count: it copies the records anew."""

import shutil
from pathlib import Path

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin.topics import NewTopic
from barnabas.cluster.image import NO_BROKER, PartitionImage
from barnabas.types import BrokerId, TopicPartition
from tests.broker.memory_cluster import Members
from tests.deadline import eventually

PATIENT = {"offsets.topic.replication.factor": "1"}


def state(members: Members) -> PartitionImage:
    return members.cluster.image.topics["t"].partitions[0]


def make_topic(members: Members, **configs: str) -> None:
    """Topic t on brokers 2 and 3; broker 1 stays the controller."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with Admin(bootstrap_servers=members[1].bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignment={0: [2, 3]}, configs=named)])
    eventually(lambda: len(state(members).isr) == 2, "both replicas in sync")


def write(members: Members, *values: bytes) -> None:
    with Producer(bootstrap_servers=members.bootstrap) as producer:
        for value in values:
            producer.send("t", value).result(30)


def read(members: Members, count: int) -> list[bytes]:
    found: list[bytes] = []

    def is_read() -> bool:
        found.extend(record.value for record in consumer.poll(1.0))
        return len(found) >= count

    with Consumer(bootstrap_servers=members.bootstrap) as consumer:
        consumer.assign({TopicPartition("t", 0): 0})
        eventually(is_read, "all records")
    return found


def wipe(members: Members, number: int) -> None:
    for folder in Path(members[number].data).glob("**/t-0"):
        shutil.rmtree(folder)


def test_a_follower_with_a_wiped_disk_copies_everything_again(tmp_path: Path) -> None:
    with Members(tmp_path, settings=PATIENT) as members:
        make_topic(members)
        write(members, b"a", b"b")
        members[3].stop()
        wipe(members, 3)
        members[3].start()
        eventually(lambda: state(members).isr == (2, 3), "the broker to be in sync again")
        members[2].stop()
        assert state(members).leader == 3
        assert read(members, 2) == [b"a", b"b"]


def test_the_last_leader_with_a_wiped_disk_does_not_lead_and_the_eligible_one_does(tmp_path: Path) -> None:
    with Members(tmp_path, settings=PATIENT) as members:
        make_topic(members, min_insync_replicas="2")
        write(members, b"a", b"b")
        members[2].stop()
        assert (state(members).isr, state(members).elr) == ((3,), (2,))
        members[3].stop()
        wipe(members, 3)
        members[3].start()
        eventually(
            lambda: state(members).leader == NO_BROKER and BrokerId(3) not in state(members).isr,
            "the broker without records to stand back",
        )
        members[2].start()
        eventually(lambda: state(members).leader == 2, "the broker that has the records to lead")
        eventually(lambda: set(state(members).isr) == {2, 3}, "the other one to copy them")
        write(members, b"c")
        assert read(members, 3) == [b"a", b"b", b"c"]


def test_a_disk_wiped_while_there_is_no_controller_is_noticed_for_a_partition_that_never_changed(
    tmp_path: Path,
) -> None:
    """The last controller did not see the broker go, the next one finds it there, and the partition looks new."""
    with Members(tmp_path, settings=PATIENT | {"controlled.shutdown.enable": "false"}) as members:
        make_topic(members)
        write(members, b"a", b"b")
        assert (state(members).leader, state(members).partition_epoch) == (2, 0)
        for number in (1, 3):
            members[number].store.cut()
        members[2].stop()
        members[1].stop()
        wipe(members, 2)
        assert state(members).partition_epoch == 0
        members[2].start()
        members[3].store.heal()
        eventually(lambda: set(state(members).isr) == {2, 3}, "the broker to be in sync again")
        eventually(lambda: state(members).partition_epoch > 0, "the loss to be noticed")
        assert read(members, 2) == [b"a", b"b"]

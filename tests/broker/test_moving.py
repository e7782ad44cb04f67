"""Partitions that move on three real brokers: records go along, old copies go, leaders come back."""

from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.admin.configs import Resource
from barnabas.client.admin.throttles import REPLICAS, lift_throttle, rates_of
from barnabas.client.admin.topics import NewTopic
from barnabas.client.network.routing import Cluster as Routes
from barnabas.cluster.image import PartitionImage
from barnabas.errors import NoReassignmentInProgress
from barnabas.types import TopicPartition
from tests.broker.memory_cluster import Members
from tests.deadline import eventually

T0 = TopicPartition("t", 0)
COUNT = 200


def state(members: Members) -> PartitionImage:
    return members.cluster.image.topics["t"].partitions[0]


def folders(members: Members) -> set[int]:
    """The brokers that have a folder of the partition."""
    return {member.id for member in members.all if list(Path(member.data).glob("**/t-0"))}


def filled(members: Members, *replicas: int) -> None:
    with Admin(bootstrap_servers=members.bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignment={0: list(replicas)})])
    with Producer(bootstrap_servers=members.bootstrap) as producer:
        sent = [producer.send("t", b"%d" % number) for number in range(COUNT)]
        for future in sent:
            future.result(30)


def values(members: Members, broker: int) -> list[bytes]:
    found: list[bytes] = []

    def is_read() -> bool:
        found.extend(record.value for record in consumer.poll(1.0))
        return len(found) >= COUNT

    with Consumer(bootstrap_servers=members[broker].bootstrap) as consumer:
        consumer.assign({T0: 0})
        eventually(is_read, "all records")
    return found


def test_a_partition_moves_with_all_its_records(tmp_path: Path) -> None:
    with Members(tmp_path) as members, Admin(bootstrap_servers=members.bootstrap) as admin:
        filled(members, 1, 2)
        admin.alter_reassignments({T0: [3, 2]})
        eventually(lambda: state(members).replicas == (3, 2), "the partition to have moved")
        assert (state(members).adding, state(members).removing) == ((), ())
        eventually(lambda: admin.list_reassignments() == {}, "the controller to show what is stored")
        eventually(lambda: folders(members) == {2, 3}, "the old copy to go")
        members[2].stop()
        eventually(lambda: state(members).leader == 3, "the new copy to lead")
        assert values(members, 3) == [b"%d" % number for number in range(COUNT)]


def test_all_replicas_can_move_at_once_and_the_leader_with_them(tmp_path: Path) -> None:
    with Members(tmp_path) as members, Admin(bootstrap_servers=members.bootstrap) as admin:
        filled(members, 1)
        admin.alter_reassignments({T0: [2, 3]})
        eventually(lambda: state(members).replicas == (2, 3), "the partition to have moved")
        assert state(members).leader == 2
        eventually(lambda: folders(members) == {2, 3}, "the old copy to go")
        assert values(members, 1) == [b"%d" % number for number in range(COUNT)]


def test_a_move_to_a_broker_that_does_not_answer_can_be_cancelled(tmp_path: Path) -> None:
    with Members(tmp_path) as members, Admin(bootstrap_servers=members[1].bootstrap) as admin:
        filled(members, 1, 2)
        # It is there, and it never fetches: its fetcher was told to stand still.
        members[3].running.replication.follows = lambda follower: None  # type: ignore[method-assign]
        admin.alter_reassignments({T0: [1, 3]})
        assert set(admin.list_reassignments()) == {T0}
        assert state(members).replicas == (1, 3, 2)
        admin.cancel_reassignments([T0])
        assert state(members).replicas == (1, 2)
        eventually(lambda: folders(members) == {1, 2}, "the new copy to go")
        with pytest.raises(NoReassignmentInProgress):
            admin.cancel_reassignments([T0])


def test_a_move_is_held_to_its_throttle_until_that_is_lifted(tmp_path: Path) -> None:
    """At one byte a second a batch is copied every eleven seconds, and there are two hundred."""
    one_batch = {"replica.fetch.max.bytes": "1000"}
    with (
        Members(tmp_path, settings=one_batch) as members,
        Admin(bootstrap_servers=members.bootstrap) as admin,
        Producer(bootstrap_servers=members.bootstrap) as producer,
    ):
        admin.create_topics([NewTopic("t", assignment={0: [1, 2]})])
        for _ in range(COUNT):
            producer.send("t", b"x" * 1000).result(30)
        plan = {T0: [3, 2]}

        def named() -> list[str | None]:
            return [row.value for row in admin.describe_configs(Resource.topic("t"), REPLICAS)]

        admin.throttle_reassignments(plan, 1)
        assert admin.list_throttles() == {1: 1, 2: 1, 3: 1}
        assert named() == ["0:3", "0:1,0:2"]
        admin.alter_reassignments(plan)

        def copied() -> int:
            found = members[3].running.replicas.find(*T0)
            return found.log.end if found is not None else 0

        eventually(copied, "the first batch")
        assert copied() < COUNT
        # Another rate while it goes on: the new replica is not one to copy from.
        admin.throttle_reassignments(plan, 2)
        assert admin.list_throttles() == {1: 2, 2: 2, 3: 2}
        assert named() == ["0:3", "0:1,0:2"]
        assert set(admin.list_reassignments()) == {T0}
        assert admin.lift_throttle(["t"])
        eventually(lambda: state(members).replicas == (3, 2), "the partition to have moved")
        eventually(lambda: admin.list_throttles() == {}, "all brokers to know of none")
        eventually(lambda: not admin.lift_throttle(["t"]), "nothing to be left to lift")
        settings = members.cluster.image.broker_configs
        assert not admin.lift_throttle(["t"])
        assert members.cluster.image.broker_configs is settings, "what changes nothing is not stored"


def test_a_throttle_is_lifted_without_a_broker_that_died_meanwhile(tmp_path: Path) -> None:
    with Members(tmp_path) as members, Admin(bootstrap_servers=members.bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignment={0: [1, 2]})])
        admin.throttle_reassignments({T0: [3, 2]}, 1000)
        known = [broker.id for broker in admin.describe_cluster().brokers]
        members[1].stop()
        eventually(lambda: set(admin.list_throttles()) == {2, 3}, "the cluster to miss broker 1")
        cluster = Routes(
            members[2].bootstrap, client_id="lifts", request_timeout_ms=30_000, retry_backoff_ms=10
        )
        try:
            assert rates_of(cluster, known, timeout=30) == {2: 1000, 3: 1000}
            assert lift_throttle(cluster, ["t"], known, timeout=30) == (True, [1])
        finally:
            cluster.close()
        eventually(lambda: admin.list_throttles() == {}, "all brokers to know of none")
        eventually(lambda: admin.lift_throttle(["t"]) == (False, [1]), "nothing to be left to lift")


def test_leaders_come_back_to_the_first_replica_when_asked_to(tmp_path: Path) -> None:
    with Members(tmp_path) as members, Admin(bootstrap_servers=members[1].bootstrap) as admin:
        filled(members, 2, 3)
        members[2].stop()
        assert state(members).leader == 3
        members[2].start()
        eventually(lambda: len(state(members).isr) == 2, "the first replica to be in sync")
        assert state(members).leader == 3
        admin.elect_leaders()
        assert state(members).leader == 2
        assert values(members, 1) == [b"%d" % number for number in range(COUNT)]

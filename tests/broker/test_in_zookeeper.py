"""Brokers whose cluster is in a real ZooKeeper: tools that write there are followed, sessions end and begin anew."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from barnabas import Admin
from barnabas.broker.broker import Broker as RunningBroker
from barnabas.client.admin.topics import NewTopic
from barnabas.config import BrokerConfig
from barnabas.errors import (
    BarnabasError,
    NetworkException,
    NotController,
    RequestTimedOut,
    TopicAlreadyExists,
)
from barnabas.processes.zookeeper import ZooKeeperProcess
from barnabas.testing import Broker
from barnabas.testing.proxy import Proxy
from tests.deadline import eventually

pytestmark = pytest.mark.java


class Member(Broker):
    """A broker of a cluster in ZooKeeper. `running` is the broker itself, to look at."""

    running: RunningBroker

    def _made(self, config: BrokerConfig) -> RunningBroker:
        self.running = RunningBroker(config)
        return self.running


Starter = Callable[..., Member]


@pytest.fixture
def start(zookeeper_connect: str, tmp_path: Path) -> Iterator[Starter]:
    """Starts brokers of one cluster; what still runs at the end is stopped."""
    started: list[Member] = []

    def start_one(number: int, data: str = "", **settings: str) -> Member:
        given = {
            "broker.id": str(number),
            "zookeeper.connect": zookeeper_connect,
            "zookeeper.chroot.create": "true",
            "zookeeper.session.timeout.ms": "30000",
            "offsets.topic.num.partitions": "1",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        member = Member(given, data=tmp_path / (data or f"broker-{number}"))
        member.start()
        started.append(member)
        return member

    yield start_one
    for member in reversed(started):
        member.stop()


@pytest.fixture
def tool(zookeeper_connect: str) -> Iterator[Any]:
    """What looks into ZooKeeper and writes there, as Kafka's older tools do."""
    client = KazooClient(zookeeper_connect)
    client.start_async().wait(10)
    client.ensure_path("/")
    yield client
    client.stop()
    client.close()


def knows(member: Member, count: int) -> Callable[[], bool]:
    return lambda: len(member.running.metadata.image.brokers) == count


def three(start: Starter) -> list[Member]:
    members = [start(number) for number in (1, 2, 3)]
    for member in members:
        eventually(knows(member, 3), "all brokers to be known")
    return members


def state(tool: Any, topic: str, partition: int = 0) -> dict[str, Any]:
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    return json.loads(tool.get(path)[0]) if tool.exists(path) else {}


def test_wishes_of_tools_in_zookeeper_are_fulfilled(start: Starter, tool: Any) -> None:
    three(start)
    tool.create("/brokers/topics/made", b'{"version":1,"partitions":{"0":[2,1],"1":[3]}}')
    eventually(lambda: state(tool, "made").get("leader") == 2, "a leader of the topic that a tool has made")
    assert state(tool, "made")["isr"] == [2, 1]
    eventually(lambda: state(tool, "made", 1).get("leader") == 3, "a leader of its second partition")
    moved = {"version": 1, "partitions": [{"topic": "made", "partition": 0, "replicas": [3, 1]}]}
    tool.create("/admin/reassign_partitions", json.dumps(moved).encode())
    eventually(lambda: sorted(state(tool, "made")["isr"]) == [1, 3], "the partition to move")
    eventually(
        lambda: json.loads(tool.get("/brokers/topics/made")[0])["partitions"]["0"] == [3, 1], "its replicas"
    )
    eventually(lambda: not tool.exists("/admin/reassign_partitions"), "the wish to be taken away")
    elected = {"version": 1, "partitions": [{"topic": "made", "partition": 0}]}
    tool.create("/admin/preferred_replica_election", json.dumps(elected).encode())
    eventually(lambda: state(tool, "made")["leader"] == 3, "the preferred leader")
    tool.create("/admin/delete_topics/made")
    eventually(lambda: not tool.exists("/brokers/topics/made"), "the topic to go")
    assert tool.get_children("/admin/delete_topics") == []


def test_the_folders_of_a_topic_that_a_tool_deletes_go(start: Starter, tool: Any) -> None:
    members = three(start)
    with Admin(bootstrap_servers=members[0].bootstrap) as admin:
        admin.create_topics([NewTopic("t", partitions=1, replication_factor=3)])
        eventually(lambda: all(m.running.replicas.find("t", 0) for m in members), "all replicas")
        tool.create("/admin/delete_topics/t")
        eventually(lambda: not any(m.running.replicas.find("t", 0) for m in members), "no replica")


def test_a_controller_that_is_deposed_by_hand_is_followed_by_another(start: Starter, tool: Any) -> None:
    members = three(start)
    epoch = int(tool.get("/controller_epoch")[0])
    tool.delete("/controller")
    eventually(lambda: int(tool.get("/controller_epoch")[0]) > epoch, "a new controller")
    controller = json.loads(tool.get("/controller")[0])["brokerid"]
    eventually(
        lambda: {m.running.metadata.image.controller for m in members} == {controller}, "all to know it"
    )
    with Admin(bootstrap_servers=members[0].bootstrap) as admin:
        eventually(lambda: creates(admin, "t"), "the new controller to decide")


def creates(admin: Admin, topic: str) -> bool:
    """Whether a topic could be made; one that is asked for while controllers change may have to be asked for again."""
    with suppress(TopicAlreadyExists):
        try:
            admin.create_topics([NewTopic(topic, partitions=3, replication_factor=3)])
        except (NetworkException, NotController, RequestTimedOut):
            return False
    return True


def test_a_broker_cut_off_from_zookeeper_for_longer_than_its_session_comes_back(
    start: Starter, zookeeper: ZooKeeperProcess, zookeeper_connect: str, tool: Any
) -> None:
    with Proxy(int(zookeeper.address.rsplit(":", 1)[1])) as proxy:
        chroot = zookeeper_connect.partition("/")[2]
        one = start(1, zookeeper_connect=f"{proxy.address}/{chroot}", zookeeper_session_timeout_ms="2000")
        start(2)
        with Admin(bootstrap_servers=one.bootstrap) as admin:
            eventually(knows(one, 2), "both brokers")
            admin.create_topics([NewTopic("t", partitions=2, replication_factor=2)])
        epoch = one.running.epoch
        proxy.cut()
        eventually(lambda: not tool.exists("/brokers/ids/1"), "the session to end")
        proxy.heal()
        eventually(lambda: tool.exists("/brokers/ids/1"), "the broker to register anew")
        eventually(lambda: one.running.epoch > epoch, "the broker to know its new life")
        eventually(lambda: sorted(state(tool, "t")["isr"]) == [1, 2], "all replicas in sync")
        eventually(lambda: sorted(state(tool, "t", 1)["isr"]) == [1, 2], "all replicas in sync")
        one.stop()


def test_an_id_that_is_taken_is_a_sentence_with_the_holders_address(start: Starter) -> None:
    first = start(1)
    with pytest.raises(BarnabasError, match=f"broker.id 1 is taken: the broker at {first.bootstrap} has it"):
        start(1, data="another", zookeeper_session_timeout_ms="2000")


def test_data_of_another_cluster_is_a_sentence_and_changes_nothing(
    start: Starter, zookeeper_connect: str, tool: Any
) -> None:
    start(1).stop()
    elsewhere = f"{zookeeper_connect}/elsewhere"
    with pytest.raises(BarnabasError, match="has no such chroot"):
        start(1, zookeeper_connect=elsewhere)
    tool.create("/elsewhere")
    with pytest.raises(
        BarnabasError, match=r"The data of this broker belongs to cluster .* has no cluster yet"
    ):
        start(1, zookeeper_connect=elsewhere)
    assert tool.get_children("/elsewhere") == []

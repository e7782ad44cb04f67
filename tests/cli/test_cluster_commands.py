"""Promises of the commands that look after a cluster, held against three brokers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.testing import Cluster
from barnabas.types import TopicPartition
from tests.cli.conftest import Ended, Run
from tests.deadline import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=30)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings: dict[str, str | float] = {
        # A small fetch: a throttled move that takes long is one of many pieces.
        "replica.fetch.max.bytes": 16_384,
        # A broker that a test lets stand still stays in the cluster meanwhile.
        "zookeeper.session.timeout.ms": 120_000,
    }
    with Cluster(3, settings, racks=["a", "b", "c"]) as started:
        yield started


@pytest.fixture
def environment(cluster: Cluster) -> dict[str, str]:
    return os.environ | {"BARNABAS_BOOTSTRAP": cluster.bootstrap}


def rows(described: Ended) -> list[dict[str, str]]:
    lines = (line for line in described.out.splitlines() if line.startswith("\tTopic: "))
    return [dict(part.split(": ") for part in line.strip().split("\t")) for line in lines]


def test_brokers_are_described_with_racks_and_what_they_have(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic, "--partitions", "3")
    ended = barnabas("cluster", "describe")
    lines = [
        dict(p.split(": ") for p in line.strip().split("\t"))
        for line in ended.out.splitlines()
        if "\t" in line
    ]
    assert [line.get("Rack") for line in lines[1:]] == ["a", "b", "c"]
    assert lines[0]["Controller"] in ("1", "2", "3")
    assert ended.out.endswith("All is well.\n")


def test_a_broker_that_stands_still_does_not_hide_the_others(cluster: Cluster, barnabas: Run) -> None:
    cluster.pause(3)
    try:
        described = barnabas("cluster", "describe")
        watched = barnabas("cluster", "watch", "--count", "1")
    finally:
        cluster.resume(3)
    assert described.code == 0, described.err
    assert "Broker 3 does not answer" in described.out
    assert watched.code == 0, watched.err
    cluster.wait_until_in_sync()


def test_brokers_are_found_in_zookeeper(barnabas: Run, cluster: Cluster, topic: str) -> None:
    made = barnabas("topic", "create", topic, "--zookeeper", cluster.zookeeper_connect)
    assert made == (0, f"Created topic {topic}.\n", "")
    assert topic in barnabas("topic", "list", "--zookeeper", cluster.zookeeper_connect).out.split()
    address = cluster.zookeeper.address
    missing = barnabas("topic", "list", "--zookeeper", f"{address}/nowhere")
    assert missing == (1, "", f"barnabas: There is no path /nowhere in the ZooKeeper at {address}.\n")


def test_more_replicas_than_brokers_are_refused(barnabas: Run, topic: str) -> None:
    ended = barnabas("topic", "create", topic, "--replication-factor", "4")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("\n") == 1
    assert "A replication factor of 4 is invalid here" in ended.err
    assert barnabas("reassign", "plan", "--replication-factor", "4").code == 1


def test_a_plan_with_or_without_a_broker_that_there_is_not_is_refused(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    for choice in (("--brokers", "1,9"), ("--without", "9")):
        ended = barnabas("reassign", "plan", topic, *choice)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.endswith("broker 9, which is not in the cluster (1, 2, 3 are).\n")


def test_partitions_move_by_a_plan_and_back(barnabas: Run, tmp_path: Path, topic: str) -> None:
    barnabas("topic", "create", topic, "--partitions", "4", "--replication-factor", "2")
    before, file = tmp_path / "before.json", tmp_path / "plan.json"
    before.write_text(barnabas("reassign", "plan", topic, "--current").out)
    planned = barnabas("reassign", "plan", topic, "--without", "2")
    assert planned.code == 0
    file.write_text(planned.out)
    assert barnabas("reassign", "status", file).code == 1
    run = barnabas("reassign", "run", file, "--throttle", "100000000")
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("Moved ")
    eventually(
        lambda: barnabas("reassign", "status", file) == (0, "The plan is carried out.\n", ""), "no throttle"
    )
    described = rows(barnabas("topic", "describe", topic))
    assert all("2" not in row["Replicas"].split(",") for row in described)
    assert all(sorted(row["Replicas"]) == sorted(row["Isr"]) for row in described)
    assert barnabas("reassign", "run", before).code == 0
    now = json.loads(barnabas("reassign", "plan", topic, "--current").out)
    assert now == json.loads(before.read_text())
    assert barnabas("reassign", "run", before).out == "All partitions are where the plan wants them.\n"
    assert barnabas("reassign", "status") == (0, "No partition is being moved.\n", "")
    assert barnabas("reassign", "cancel") == (0, "No partition is being moved.\n", "")
    assert "throttled" not in barnabas("config", "describe", "--topic", topic).out


def test_a_throttled_move_is_held_until_it_is_done_or_cancelled(
    barnabas: Run, cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topic(topic, assignment={0: [1, 2]})
        for _ in range(200):
            # One by one: a batch is copied whole.
            producer.send(topic, b"x" * 10_000).result(60)
    file = tmp_path / "plan.json"
    rows = [{"topic": topic, "partition": 0, "replicas": [3, 2]}]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    stays = f"The throttle stays until `barnabas reassign status {file}` finds all of it done.\n"
    begun = barnabas("reassign", "run", file, "--throttle", "1000", "--no-wait")
    assert begun == (0, f"On the way: 1 partition at 1,000 bytes a second at the most.\n{stays}", "")
    moving = f"{topic}-0\tis on 3,2,1, comes to 3, leaves 1\n"
    held = "Copies go at 1,000 bytes a second at the most at 3 brokers: 1,2,3.\n"
    assert barnabas("reassign", "status") == (1, moving + held, "")
    assert barnabas("reassign", "status", file) == (1, moving + held, "")
    cancelled = barnabas("reassign", "cancel", file)
    assert cancelled == (0, "Cancelled the moves of 1 partition.\nThe throttle is taken off.\n", "")
    eventually(lambda: "throttled" not in barnabas("config", "describe", "--topic", topic).out, "no throttle")
    # The same again: it goes on faster when it is run with another rate, and `status` ends it.
    assert barnabas("reassign", "run", file, "--throttle", "1000", "--no-wait").code == 0
    faster = barnabas("reassign", "run", file, "--throttle", "1000000000", "--no-wait")
    assert faster.out == f"On the way: 1 partition at 1,000,000,000 bytes a second at the most.\n{stays}"
    with Admin(cluster.bootstrap) as admin:
        eventually(lambda: admin.list_reassignments() == {}, "the move to be over")
    done = "The plan is carried out.\n"
    assert barnabas("reassign", "status", file).out.startswith(f"{done}The throttle is taken off.\n")
    eventually(lambda: barnabas("reassign", "status", file) == (0, done, ""), "nothing to be left to lift")


def test_a_cancelled_move_is_not_held_to_its_throttle_where_a_broker_is_gone(
    barnabas: Run, cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, assignment={0: [1, 2]})
        file = tmp_path / "plan.json"
        rows = [{"topic": topic, "partition": 0, "replicas": [2, 1]}]
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        admin.throttle_reassignments({TopicPartition(topic, 0): [3, 1]}, 1000)
        cluster.stop(2)
        try:
            eventually(lambda: set(admin.list_throttles()) == {1, 3}, "the cluster to miss broker 2")
            ended = barnabas("reassign", "cancel", file)
        finally:
            cluster.restart(2)
        lines = ended.out.splitlines()
        assert (ended.code, ended.err, lines[:2]) == (
            0,
            "",
            ["No partition is being moved.", "The throttle is taken off."],
        )
        assert lines[2].startswith("Not there to hear of it: 1 broker, 2.")
        eventually(lambda: set(admin.list_throttles()) == {2}, "the rate that is left")
        eventually(
            lambda: "is taken off" in barnabas("reassign", "status", file).out, "the last to be lifted"
        )
        eventually(lambda: admin.list_throttles() == {}, "all brokers to know of none")
    cluster.wait_until_in_sync()


def test_a_broker_that_is_gone_is_told_of_and_leaders_are_put_back(
    barnabas: Run, cluster: Cluster, topic: str
) -> None:
    barnabas("topic", "create", topic, "--partitions", "3")
    cluster.stop(2)
    with Admin(cluster.brokers[1].advertised) as admin:
        eventually(lambda: len(admin.describe_cluster().brokers) == 2, "the cluster to miss broker 2")
    described = barnabas("cluster", "describe").out
    assert "Broker 2 is gone: it has replicas of " in described
    assert "under-replicated: " in described
    found = rows(barnabas("topic", "describe", topic, "--under-replicated"))
    assert len(found) == 3
    assert barnabas("reassign", "plan", topic, "--without", "2", "--replication-factor", "2").code == 0
    assert rows(barnabas("topic", "describe", topic, "--at-min-isr")) == found
    assert rows(barnabas("topic", "describe", topic, "--offline", "--under-min-isr")) == []
    cluster.restart(2)
    assert barnabas("cluster", "wait", "--brokers", "3").code == 0
    assert "barnabas elect." in barnabas("cluster", "describe").out
    elected = barnabas("elect", topic)
    assert (elected.code, elected.err) == (0, "")
    assert "has its leader by election now." in elected.out
    assert all(row["Leader"] == row["Replicas"][0] for row in rows(barnabas("topic", "describe", topic)))
    assert barnabas("elect").code == 0
    assert "All is well." in barnabas("cluster", "describe").out

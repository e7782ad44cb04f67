"""Proves a cluster to the command-line tools of Apache Kafka that look after clusters: one JVM a command."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.testing import Cluster
from barnabas.types import TopicPartition
from tests.brokers import hold_to_no_traceback
from tests.deadline import Deadline, eventually
from tests.java import java_with

pytestmark = [pytest.mark.java, pytest.mark.slow(seconds=60)]

Tool = Callable[..., str]
COMMAND_S = 120.0

TOPICS = "org.apache.kafka.tools.TopicCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"default.replication.factor": 3, "replica.fetch.max.bytes": 16_384}
    with Cluster(4, settings, racks=["a", "b", "c", "a"]) as started:
        yield started
        hold_to_no_traceback(started)


@pytest.fixture(scope="module")
def tool(kafka_libs: Path, cluster: Cluster) -> Tool:
    """Runs a tool by its class name and gives what it printed; it has to end with `code`."""

    def run(name: str, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*java_with(kafka_libs), name, "--bootstrap-server", cluster.bootstrap, *arguments],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == code, f"{name} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def plan(tmp_path: Path, topic: str, *replicas: list[int]) -> str:
    rows = [
        {"topic": topic, "partition": index, "replicas": brokers} for index, brokers in enumerate(replicas)
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(file)


def test_the_topic_tool_creates_replicated_topics_and_finds_those_that_are_not_well(
    tool: Tool, cluster: Cluster
) -> None:
    tool(TOPICS, "--create", "--topic", "made", "--partitions", "4", "--replication-factor", "3")
    described = tool(TOPICS, "--describe", "--topic", "made")
    assert "PartitionCount: 4\tReplicationFactor: 3" in described
    assert all(len(row.split(",")) == 3 for row in re.findall(r"Isr: (\S+)", described))
    for look in ("under-replicated", "unavailable", "under-min-isr"):
        assert tool(TOPICS, "--describe", f"--{look}-partitions").strip() == ""
    cluster.kill(4)
    try:
        with Admin(cluster.bootstrap) as admin:
            eventually(lambda: len(admin.describe_cluster().brokers) == 3, "the cluster to miss broker 4")
        listed = tool(TOPICS, "--describe", "--topic", "made", "--under-replicated-partitions")
        assert "Topic: made" in listed
    finally:
        cluster.restart(4)
    cluster.wait_until_in_sync()


def test_the_reassignment_tool_moves_partitions_and_verifies(
    tool: Tool, cluster: Cluster, tmp_path: Path
) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("moved", assignment={0: [1, 2], 1: [2, 1]})
    file = plan(tmp_path, "moved", [3, 4], [4, 3])
    begun = tool(REASSIGN, "--reassignment-json-file", file, "--execute", "--throttle", "100000000")
    assert "The inter-broker throttle limit was set to 100000000 B/s" in begun
    assert "Successfully started partition reassignments" in begun
    eventually(
        lambda: "is still in progress" not in tool(REASSIGN, "--reassignment-json-file", file, "--verify"),
        "the reassignment to be over",
    )
    verified = tool(REASSIGN, "--reassignment-json-file", file, "--verify")
    assert verified.count("is completed") == 2
    assert "No partition reassignments found." in tool(REASSIGN, "--list")
    with Admin(cluster.bootstrap) as admin:
        topic = admin.describe_topic("moved")
    assert [sorted(each.replicas) for each in topic.partitions] == [[3, 4], [3, 4]]
    assert all(sorted(each.isr) == [3, 4] for each in topic.partitions)


def test_the_reassignment_tool_throttles_a_move_and_verifying_it_lifts_the_throttle(
    tool: Tool, cluster: Cluster, tmp_path: Path
) -> None:
    """At this rate a batch takes ten seconds, and there are four hundred."""
    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topic("slow", assignment={0: [1, 2]})
        for _ in range(400):
            # One by one: a batch is copied whole.
            producer.send("slow", b"x" * 10_000).result(60)
        file = plan(tmp_path, "slow", [3, 2])
        execute = ("--reassignment-json-file", file, "--execute", "--throttle")
        tool(REASSIGN, *execute, "1000")
        limits = {1: 1000, 2: 1000, 3: 1000}
        eventually(lambda: admin.list_throttles() == limits, "all brokers to know the rate")
        under_way = tool(REASSIGN, "--reassignment-json-file", file, "--verify")
        assert "Reassignment of partition slow-0 is still in progress." in under_way
        assert admin.list_throttles() != {}, "it is taken off when all is done"
        tool(REASSIGN, *execute, "1000000000", "--additional")
        eventually(lambda: admin.list_reassignments() == {}, "the move to be over")
        verified = tool(REASSIGN, "--reassignment-json-file", file, "--verify")
        assert "Reassignment of partition slow-0 is completed." in verified
        assert "Clearing topic-level throttles on topic slow" in verified
        eventually(lambda: admin.list_throttles() == {}, "all brokers to know of none")
        eventually(lambda: not admin.lift_throttle(["slow"]), "nothing to be left to lift")


def test_the_topic_tool_places_replicas_by_hand_and_refuses_more_than_there_are_brokers(tool: Tool) -> None:
    tool(TOPICS, "--create", "--topic", "placed", "--replica-assignment", "1:2,2:3")
    assert re.findall(r"Replicas: (\S+)", tool(TOPICS, "--describe", "--topic", "placed")) == ["1,2", "2,3"]
    # Two in sync have to be, and two there are.
    assert "Topic: placed" in tool(TOPICS, "--describe", "--at-min-isr-partitions")
    refused = tool(TOPICS, "--create", "--topic", "wide", "--replication-factor", "5", code=1)
    assert "InvalidReplicationFactorException" in refused


def test_the_reassignment_tool_cancels_what_cannot_end(tool: Tool, cluster: Cluster, tmp_path: Path) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("kept", assignment={0: [1, 2]})
        new = 3 if admin.describe_cluster().controller == 4 else 4
        # It takes no record between being chosen and its death.
        cluster.pause(new)
        admin.alter_reassignments({TopicPartition("kept", 0): [1, new]})
        cluster.kill(new)
        listed = tool(REASSIGN, "--list")
        assert re.search(rf"kept-0: replicas: \S+ adding: {new}. removing: 2.", listed), listed
        # Throttles are cleared at every broker of the plan: the dead one would not answer.
        cancel = ("--reassignment-json-file", plan(tmp_path, "kept", [1, new]), "--cancel")
        cancelled = tool(REASSIGN, *cancel, "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: kept-0" in cancelled
        assert admin.describe_topic("kept").partitions[0].replicas == (1, 2)
    cluster.restart(new)
    cluster.wait_until_in_sync()


def test_the_reassignment_tool_makes_a_plan(tool: Tool, cluster: Cluster, tmp_path: Path) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("planned", partitions=2)
    wish = tmp_path / "topics.json"
    wish.write_text('{"version": 1, "topics": [{"topic": "planned"}]}')
    made = tool(REASSIGN, "--generate", "--topics-to-move-json-file", str(wish), "--broker-list", "1,2,3")
    assert "Proposed partition reassignment configuration" in made


def test_the_election_tool_puts_leaders_back(tool: Tool, cluster: Cluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("led", assignment={0: [2, 1, 3]})
        cluster.stop(2)
        eventually(lambda: admin.describe_topic("led").partitions[0].leader in (1, 3), "another leader")
        cluster.restart(2)
        cluster.wait_until_in_sync()
        answer = tool(ELECT, "--election-type", "preferred", "--topic", "led", "--partition", "0")
        assert "Successfully completed leader election (PREFERRED) for partitions led-0" in answer
        assert admin.describe_topic("led").partitions[0].leader == 2
    assert "Valid replica already elected" in tool(
        ELECT, "--election-type", "preferred", "--topic", "led", "--partition", "0"
    )


def test_the_config_tool_changes_a_broker_through_any_other(tool: Tool) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "3")
    tool(CONFIGS, *entity, "--alter", "--add-config", "log.retention.ms=86400000")
    assert "log.retention.ms=86400000" in tool(CONFIGS, *entity, "--describe")
    tool(CONFIGS, *entity, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms=86400000" not in tool(CONFIGS, *entity, "--describe")


def test_the_config_tool_changes_a_topic(tool: Tool, cluster: Cluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("set", partitions=1)
    entity = ("--entity-type", "topics", "--entity-name", "set")
    tool(CONFIGS, *entity, "--alter", "--add-config", "segment.ms=3600000,min.insync.replicas=1")
    described = tool(CONFIGS, *entity, "--describe")
    assert "segment.ms=3600000" in described
    assert "min.insync.replicas=1" in described


def test_the_group_tool_finds_groups_at_all_coordinators(tool: Tool, cluster: Cluster) -> None:
    groups = [f"readers-{number}" for number in range(6)]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("read", partitions=1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(100):
                producer.send("read", b"%d" % number)
        for group in groups:
            _read_and_commit(cluster.bootstrap, group)
        assert len({admin.describe_group(group).coordinator for group in groups}) > 1
        assert {*groups} <= {*tool(GROUPS, "--list").split()}
        rows = [row.split() for row in tool(GROUPS, "--describe", "--all-groups").splitlines()]
        # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG
        assert {row[0]: row[1:6] for row in rows if row[1:2] == ["read"]} == {
            group: ["read", "0", "100", "100", "0"] for group in groups
        }
        tool(
            GROUPS, "--reset-offsets", "--to-offset", "40", "--all-topics", "--execute", "--group", groups[0]
        )
        assert {*admin.list_group_offsets(groups[0]).values()} == {40}
    tool(GROUPS, "--delete", *(part for group in groups for part in ("--group", group)))
    assert not {*groups} & {*tool(GROUPS, "--list").split()}


def _read_and_commit(bootstrap: str, group: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["read"])
        found = 0
        deadline = Deadline(60, "100 records")
        while found < 100:
            found += len(consumer.poll(timeout=deadline.left(1.0)))
        consumer.commit()


RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def test_the_reassignment_tool_moves_replicas_between_directories(
    tool: Tool, cluster: Cluster, tmp_path: Path
) -> None:
    """One that stays on its broker, and one that comes from another broker: both to the directory they are told."""
    for number in (1, 2):
        broker = cluster.brokers[number]
        broker.settings["log.dirs"] = f"{broker.data},{broker.data}-more"
        cluster.restart(number)
    cluster.wait_until_in_sync()
    second, other = (f"{cluster.brokers[number].data}-more" for number in (1, 2))
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("dirs", assignment={0: [1, 3], 1: [3, 4]})
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            sent = [producer.send("dirs", bytes(1000), partition=number % 2) for number in range(2000)]
            for future in sent:
                future.result(60)

        def where(broker: int, partition: int) -> list[tuple[str, bool]]:
            return [
                (each.path, row.is_future)
                for each in admin.describe_log_dirs([broker])
                for row in each.partitions
                if row.partition == TopicPartition("dirs", partition)
            ]

        home = where(1, 0)[0][0]
        target = second if home != second else str(cluster.brokers[1].data)
        rows = [
            {"topic": "dirs", "partition": 0, "replicas": [1, 3], "log_dirs": [target, "any"]},
            {"topic": "dirs", "partition": 1, "replicas": [3, 2], "log_dirs": ["any", other]},
        ]
        file = tmp_path / "directories.json"
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        given = ("--reassignment-json-file", str(file))
        # A byte a second keeps it under way until the tool has looked.
        begun = tool(REASSIGN, *given, "--execute", "--replica-alter-log-dirs-throttle", "1")
        assert begun.count("Successfully started moving log directory") == 2, begun
        assert sorted(where(1, 0)) == sorted([(home, False), (target, True)])
        seen = tool(REASSIGN, *given, "--verify", "--preserve-throttles")
        assert re.search(r"Reassignment of replica dirs-0-1 is still in progress", seen), seen
        described = tool(LOG_DIRS, "--describe", "--broker-list", "1", "--topic-list", "dirs")
        assert '"isFuture":true' in described, described
        for limited in ("1", "2"):
            tool(
                CONFIGS,
                "--entity-type",
                "brokers",
                "--entity-name",
                limited,
                "--alter",
                "--delete-config",
                RATE,
            )
        eventually(lambda: where(1, 0) == [(target, False)], "the replica to be in the other directory")
        eventually(lambda: where(2, 1) == [(other, False)], "the new replica to be where it was wished")
        eventually(lambda: not admin.list_reassignments(), "the reassignment to be over")
        done = tool(REASSIGN, *given, "--verify")
        assert "Reassignment of replica dirs-0-1 completed successfully" in done, done
        assert "Reassignment of replica dirs-1-2 completed successfully" in done, done


def test_the_log_directory_tool_sees_every_broker(tool: Tool) -> None:
    answer = tool(LOG_DIRS, "--describe")
    found = json.loads(next(line for line in answer.splitlines() if line.startswith("{")))
    assert sorted(broker["broker"] for broker in found["brokers"]) == [1, 2, 3, 4]

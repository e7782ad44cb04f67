"""Proves the broker to the command-line tools of Apache Kafka, run as people run them: one JVM a command."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import brokers
from tests.java import java_with
from tests.other_clients.adapters.confluent import ConfluentAdapter
from tests.other_clients.records import FIRST_MS, STEP_MS, some_records
from tests.other_clients.topics import TopicMaker

pytestmark = [pytest.mark.java, pytest.mark.slow]

Tool = Callable[..., str]
COMMAND_S = 120.0


@pytest.fixture(scope="module")
def tool(kafka_libs: Path, bootstrap: str) -> Tool:
    """Runs a tool by its class name and gives what it printed; a failure of the tool fails the test."""

    def run(name: str, *arguments: str, stdin: str = "", where: str = "--bootstrap-server") -> str:
        done = subprocess.run(
            [*java_with(kafka_libs), name, where, bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def client(bootstrap: str) -> ConfluentAdapter:
    return ConfluentAdapter(bootstrap)


TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"


def test_the_topic_tool_creates_describes_alters_and_deletes(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker
) -> None:
    topic = new_topic.name()
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=-1")
    assert client.partition_count(topic) == 2
    described = tool(TOPICS, "--describe", "--topic", topic)
    assert f"Topic: {topic}" in described
    assert "PartitionCount: 2" in described
    assert f"ReplicationFactor: {brokers.COUNT}" in described
    assert "retention.ms=-1" in described
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    assert client.partition_count(topic) == 4
    assert topic in tool(TOPICS, "--list").split()
    tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in client.topics()


def test_the_config_tool_describes_and_alters(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker
) -> None:
    topic = new_topic(client)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, *entity, "--alter", "--add-config", "segment.ms=3600000,cleanup.policy=[compact,delete]")
    described = tool(CONFIGS, *entity, "--describe")
    assert "segment.ms=3600000" in described
    assert "cleanup.policy=compact,delete" in described
    tool(CONFIGS, *entity, "--alter", "--delete-config", "segment.ms")
    assert client.configs(topic)["segment.ms"] == "604800000"
    everything = tool(CONFIGS, *entity, "--describe", "--all")
    assert f"min.insync.replicas={max(1, brokers.COUNT - 1)}" in everything


def test_the_config_tool_describes_the_broker(tool: Tool, client: ConfluentAdapter) -> None:
    for node in client.broker_ids():
        entity = ("--entity-type", "brokers", "--entity-name", str(node))
        everything = tool(CONFIGS, *entity, "--describe", "--all")
        assert "log.segment.bytes=1073741824" in everything
        assert "auto.create.topics.enable=true" in everything


def test_the_console_producer_writes_what_the_console_consumer_reads(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker
) -> None:
    topic = new_topic(client)
    lines = [f"key-{n}:value {n}" for n in range(200)]
    tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--topic", topic, "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        stdin="\n".join(lines) + "\n",
    )
    # A partition is named, so that no group is needed.
    read = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "200"),
        *("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"),
    )
    assert read.splitlines() == lines


def test_the_offset_tool_finds_first_last_and_by_time(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker
) -> None:
    topic = new_topic(client)
    client.produce(topic, 0, some_records(100))
    client.delete_records(topic, 0, 10)
    wanted = {
        "earliest": 10,
        "latest": 100,
        "max-timestamp": 99,
        str(FIRST_MS + 50 * STEP_MS): 50,
    }
    for time, offset in wanted.items():
        answer = tool("org.apache.kafka.tools.GetOffsetShell", "--topic", topic, "--time", time)
        assert answer.strip() == f"{topic}:0:{offset}"


def test_the_delete_tool_moves_the_first_offset(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(client)
    client.produce(topic, 0, some_records(100))
    wish = tmp_path / "offsets.json"
    wish.write_text(f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 42}}], "version": 1}}')
    answer = tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(wish))
    assert "low_watermark: 42" in answer
    assert client.offsets(topic, 0) == (42, 100)


def test_the_performance_tools_run(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker, bootstrap: str
) -> None:
    topic = new_topic(client, partitions=3)
    answer = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", "acks=all"),
    )
    assert "20000 records sent" in answer
    assert sum(client.offsets(topic, partition)[1] for partition in range(3)) == 20_000


def test_the_log_directory_tool_sees_the_partition(
    tool: Tool, client: ConfluentAdapter, new_topic: TopicMaker
) -> None:
    topic = new_topic(client)
    client.produce(topic, 0, some_records(100))
    answer = tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in answer


def test_the_versions_tool_reads_what_the_broker_speaks(tool: Tool) -> None:
    answer = tool("org.apache.kafka.tools.BrokerApiVersionsCommand")
    assert "Produce(0): 0 to" in answer

"""Promises of `barnabas cluster`, `reassign`, `elect` and --zookeeper, as far as one broker can show them."""

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.process import free_port


def test_a_cluster_is_described_in_lines(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic, "--partitions", "2")
    ended = barnabas("cluster", "describe")
    assert (ended.code, ended.err) == (0, "")
    head, broker, *rest = ended.out.splitlines()
    assert dict(part.split(": ") for part in head.split("\t")).keys() == {
        "Cluster",
        "Controller",
        "Brokers",
        "Topics",
        "Partitions",
    }
    row = dict(part.split(": ") for part in broker.strip().split("\t"))
    assert int(row["Leaders"]) >= 2
    assert int(row["Replicas"]) >= 2
    assert row["Rack"] == "-"
    assert row["Bytes"].isdigit()
    assert rest == ["All is well."]


def test_a_cluster_is_watched(barnabas: Run) -> None:
    ended = barnabas("cluster", "watch", "--count", "1", "--every", "0.1")
    assert (ended.code, ended.err) == (0, "")
    assert "All is well." in ended.out


def test_a_cluster_in_sync_is_waited_for(barnabas: Run) -> None:
    assert barnabas("cluster", "wait", "--brokers", "1") == (0, "in sync\n", "")
    ended = barnabas("cluster", "wait", "--brokers", "2", "--timeout", "0")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "barnabas: The cluster is not in sync after 0 s: The cluster has 1 broker, not 2.\n"


def test_looks_at_partitions_that_are_well_print_nothing(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    for look in (
        "--under-replicated",
        "--under-replicated-partitions",
        "--offline",
        "--unavailable-partitions",
        "--under-min-isr",
        "--under-min-isr-partitions",
    ):
        assert barnabas("topic", "describe", topic, look) == (0, "", "")
    (line,) = barnabas("topic", "describe", topic, "--at-min-isr").out.splitlines()
    assert line.startswith(f"\tTopic: {topic}\tPartition: 0\tLeader: ")


@pytest.mark.parametrize(
    "command",
    [("topic", "list"), ("cluster", "describe"), ("config", "describe", "--topic", "t"), ("group", "list")],
)
def test_no_zookeeper_is_one_sentence(barnabas: Run, command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    ended = barnabas(*command, "--zookeeper", f"{address}/kafka")
    assert ended == (1, "", f"barnabas: No ZooKeeper answers at {address} (connection refused).\n")


def test_what_is_no_zookeeper_is_told_in_bounded_time(barnabas: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ended = barnabas("topic", "list", "--zookeeper", f"127.0.0.1:{port}")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"barnabas: The ZooKeeper at 127.0.0.1:{port} does not answer")
    assert ended.err.count("\n") == 1


def test_an_address_of_no_form_is_wrong_usage(barnabas: Run) -> None:
    ended = barnabas("topic", "list", "--zookeeper", "nowhere")
    assert ended.code == 2
    assert ended.err == "barnabas: --zookeeper takes HOST:PORT,.../CHROOT, not 'nowhere'.\n"


def test_a_plan_that_cannot_be_is_one_sentence(barnabas: Run, tmp_path: Path, topic: str) -> None:
    plan = tmp_path / "plan.json"
    for text, sentence in (
        ("nonsense", "This is no plan"),
        (
            f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "replicas": [1, 1]}}]}}',
            "to broker 1 twice",
        ),
        (
            f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "replicas": [9]}}]}}',
            "not in the cluster",
        ),
    ):
        plan.write_text(text)
        ended = barnabas("reassign", "run", plan)
        assert (ended.code, ended.out) == (1, ""), text
        assert sentence in ended.err
        assert ended.err.count("\n") == 1
    assert barnabas("reassign", "run", tmp_path / "none.json").code == 1
    assert barnabas("reassign", "run", plan, "--throttle", "0").code == 2


def test_an_unclean_election_names_its_partitions(barnabas: Run) -> None:
    ended = barnabas("elect", "--unclean")
    assert (ended.code, ended.out) == (2, "")
    assert "name the partitions" in ended.err

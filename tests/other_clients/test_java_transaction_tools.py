"""Kafka's own tools look after our transactions: they list, describe, abort and dump them."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.errors import Refused
from barnabas.testing import Broker

pytestmark = pytest.mark.java

Tool = Callable[..., str]

STATES = [0, 1, 2, 4]
"""Empty, Ongoing, PrepareCommit, CompleteCommit: the life of one transaction, as the log has it."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker({"transaction.state.log.num.partitions": "1"}, data=tmp_path / "data") as made:
        yield made


@pytest.fixture
def transactions(kafka_libs: Path, broker: Broker) -> Tool:
    """Runs kafka-transactions."""

    def run(*arguments: str) -> str:
        done = _java(
            kafka_libs,
            "org.apache.kafka.tools.TransactionsCommand",
            "--bootstrap-server",
            broker.bootstrap,
            *arguments,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        return done.stdout

    return run


def _java(libs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_tool_lists_describes_and_ends_a_transaction(broker: Broker, transactions: Tool) -> None:
    with Producer(broker.bootstrap, transactional_id="payments") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"open").result(60)
        (row,) = [line.split() for line in transactions("list").splitlines() if "payments" in line]
        assert row[0] == "payments"
        assert row[-1] == "Ongoing"
        described = transactions("describe", "--transactional-id", "payments")
        assert "orders-0" in described
        producers = transactions("describe-producers", "--topic", "orders", "--partition", "0")
        assert any(line.split()[-1] == "0" for line in producers.splitlines()[1:]), producers
        transactions("forceTerminateTransaction", "--transactionalId", "payments")
        with pytest.raises(Refused):
            producer.commit_transaction()
    assert "Ongoing" not in transactions("list")


def test_the_dump_tool_reads_what_the_coordinator_has_written(broker: Broker, kafka_libs: Path) -> None:
    with Producer(broker.bootstrap, transactional_id="payments") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"committed")
    broker.stop()
    files = ",".join(str(path) for path in (broker.data / "__transaction_state-0").glob("*.log"))
    done = _java(
        kafka_libs, "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", files
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count('"transactionalId":"payments"') == len(STATES)
    assert [int(found) for found in re.findall(r'"transactionStatus":(\d)', done.stdout)] == STATES

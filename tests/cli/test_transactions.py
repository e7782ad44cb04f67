"""Promises of `barnabas transaction`."""

from collections.abc import Iterator

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.producer.producer import Producer
from barnabas.errors import Refused
from barnabas.testing import Broker
from barnabas.wire.batch import Record, encode_batch
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from tests.broker.speaking import connect
from tests.cli.conftest import Run


@pytest.fixture
def producer(bootstrap: str, topic: str) -> Iterator[Producer]:
    """With a transaction open in its topic, and a transactional id of the topic's name."""
    with Producer(bootstrap, transactional_id=topic) as made:
        made.init_transactions()
        made.begin_transaction()
        made.send(topic, b"open").result(60)
        yield made


def row_of(out: str, name: str) -> list[str]:
    (row,) = [line.split() for line in out.splitlines() if line.startswith(name + " ")]
    return row


def test_an_open_transaction_is_listed_and_described(barnabas: Run, producer: Producer, topic: str) -> None:
    listed = barnabas("transaction", "list", "--state", "Ongoing")
    assert listed.code == 0, listed.err
    assert row_of(listed.out, topic)[1] == "1"
    assert row_of(listed.out, topic)[3] == "Ongoing"
    assert topic not in barnabas("transaction", "list", "--running-longer-than-ms", "3600000").out
    assert topic in barnabas("transaction", "list", "--pattern", f"{topic[:3]}.*").out
    described = barnabas("transaction", "describe", topic)
    assert described.code == 0, described.err
    assert "State: Ongoing" in described.out
    assert f"Partitions: {topic}-0" in described.out
    producer.abort_transaction()


def test_an_open_transaction_is_aborted_and_its_producer_fenced(
    barnabas: Run, producer: Producer, topic: str
) -> None:
    done = barnabas("transaction", "abort", topic)
    assert done.code == 0, done.err
    assert f"Producers of {topic} are fenced" in done.out
    assert row_of(barnabas("transaction", "list").out, topic)[3] == "Empty"
    with pytest.raises(Refused):
        producer.commit_transaction()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("describe", "never-heard-of"), "never-heard-of"),
        (("abort", "never-heard-of"), "never-heard-of"),
        (("list", "--state", "Sleeping"), "no such state: Sleeping"),
        (("abort",), "Give a transactional id"),
        (("abort", "--partition", "orders", "--start-offset", "1"), "no TOPIC:PARTITION"),
        (("abort", "--partition", "orders:0"), "--start-offset"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(
    barnabas: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    done = barnabas("transaction", *arguments)
    assert done.code != 0
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_a_transaction_that_is_known_does_not_hang(barnabas: Run, producer: Producer, topic: str) -> None:
    done = barnabas("transaction", "find-hanging", topic, "--open-for-ms", "0")
    assert (done.code, done.out) == (0, "No transaction hangs.\n"), done.err
    producer.abort_transaction()


def test_a_transaction_that_hangs_is_found_and_aborted(barnabas: Run) -> None:
    with Broker({"transaction.partition.verification.enable": "false"}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders")
        batch = encode_batch(
            [Record(0, 1_000_000, b"", b"open")],
            producer_id=77,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        parts = [ProducePartition(0, memoryview(batch))]
        request = ProduceRequest(
            "gone", acks=-1, timeout_ms=60_000, topic_data=[ProduceTopic("orders", parts)]
        )
        with connect(broker) as connection:
            answer = connection.ask(request, 11)
        assert answer.responses[0].partition_responses[0].error_code == 0
        where = "--bootstrap", broker.bootstrap
        found = barnabas("transaction", "find-hanging", *where)
        assert row_of(found.out, "orders")[:5] == ["orders", "0", "0", "77", "0"]
        done = barnabas("transaction", "abort", "--partition", "orders:0", "--start-offset", "0", *where)
        assert done.code == 0, done.err
        assert barnabas("transaction", "find-hanging", *where).out == "No transaction hangs.\n"
        again = barnabas("transaction", "abort", "--partition", "orders:0", "--start-offset", "0", *where)
        assert again.code != 0
        assert "no open transaction" in again.err

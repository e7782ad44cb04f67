"""Promises of transactions where connections break, brokers go and come, and time runs out."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Consumer, Producer, TopicPartition, errors
from barnabas.client.producer.transactor import Transactor
from barnabas.errors import BarnabasError
from barnabas.testing import Broker
from tests.client.test_faults import TOPIC, behind
from tests.client.unreliable import FaultyProxy
from tests.deadline import Deadline, eventually
from tests.process import free_port

QUICK_TIMEOUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(params=["in the cluster's way", "in the older way"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways that transactions can go; the older one as an older client goes it."""
    if request.param == "in the older way":
        monkeypatch.setattr(Transactor, "version", 1)


def committed(bootstrap: str, topic: str, partitions: int = 1) -> dict[int, list[bytes]]:
    """By partition, what a reader of committed records sees; the end must be decided soon."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        with Consumer(bootstrap_servers=bootstrap) as all_reader:
            ends = all_reader.end_offsets(places)
        deadline = Deadline(60, "the end of what is stored to be decided")
        while any(consumer.position(place) < ends[place] for place in places):
            for record in consumer.poll(deadline.left(0.2)):
                found[record.partition].append(record.value)
    return found


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_connections_that_break_all_the_time_neither_lose_nor_double(seed: int) -> None:
    with (
        FaultyProxy(seed) as proxy,
        behind(proxy),
        Producer(proxy.address, transactional_id="x", retry_backoff_ms=1) as producer,
    ):
        producer.init_transactions()
        proxy.cut_about_every(1500)
        wanted: dict[int, list[bytes]] = {0: [], 1: []}
        for number in range(60):
            values = [b"%d.%d" % (number, each) for each in range(4)]
            with producer.transaction() as transaction:
                for each, value in enumerate(values):
                    transaction.send(TOPIC, value, partition=each % 2)
                if number % 5 == 4:
                    transaction.abort()
            if number % 5 != 4:
                wanted[0] += values[::2]
                wanted[1] += values[1::2]
        assert proxy.cuts > 5
        proxy.cut_about_every(None)
        assert committed(proxy.address, TOPIC, 2) == wanted


@pytest.mark.usefixtures("way")
def test_a_transaction_goes_on_when_its_broker_comes_back(tmp_path: Path) -> None:
    port = free_port()
    broker = Broker(data=tmp_path, port=port).start()
    bootstrap = broker.bootstrap
    with Producer(bootstrap, transactional_id="x", retry_backoff_ms=5) as producer:
        for number in range(3):
            with producer.transaction() as transaction:
                transaction.send("t", b"before %d" % number).result(30)
                broker.stop()
                broker = Broker(data=tmp_path, port=port)
                back = threading.Thread(target=broker.start)
                back.start()
                transaction.send("t", b"after %d" % number)
            back.join()
        assert committed(bootstrap, "t") == {
            0: [b"%s %d" % (when, number) for number in range(3) for when in (b"before", b"after")]
        }
    broker.stop()


@pytest.mark.usefixtures("way")
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_told() -> None:
    with (
        Broker(QUICK_TIMEOUTS) as broker,
        Producer(broker.bootstrap, transactional_id="x", transaction_timeout_ms=2000) as producer,
        Producer(broker.bootstrap, transactional_id="x") as successor,
    ):
        producer.begin_transaction()
        producer.send("t", b"forgotten").result(30)
        eventually(lambda: committed(broker.bootstrap, "t") == {0: []}, "the coordinator's abort")
        told = (errors.ProducerFenced, errors.TransactionAbortable)
        with pytest.raises(told, match=r"longer than transaction\.timeout\.ms") as caught:
            producer.commit_transaction()
        go_on = producer
        if caught.type is errors.ProducerFenced:
            go_on = successor
        else:
            producer.abort_transaction()
        with go_on.transaction() as transaction:
            transaction.send("t", b"done again")
        assert committed(broker.bootstrap, "t") == {0: [b"done again"]}


@pytest.mark.usefixtures("way")
def test_a_commit_that_timed_out_can_be_waited_for_again() -> None:
    with (
        FaultyProxy() as proxy,
        behind(proxy),
        Producer(proxy.address, transactional_id="x", request_timeout_ms=2000) as producer,
    ):
        producer.begin_transaction()
        producer.send(TOPIC, b"seen", partition=0).result(30)
        proxy.stall()
        with pytest.raises(errors.RequestTimedOut, match="Committing the transaction took longer"):
            producer.commit_transaction(0.1)
        with pytest.raises(BarnabasError, match="is being committed"):
            producer.abort_transaction()
        with pytest.raises(BarnabasError, match="is being committed"):
            producer.send(TOPIC, b"too late")
        proxy.flow()
        producer.commit_transaction()
        assert committed(proxy.address, TOPIC)[0] == [b"seen"]


def test_a_timeout_that_the_broker_does_not_allow_is_refused() -> None:
    with (
        Broker({"transaction.max.timeout.ms": "1000"}) as broker,
        Producer(broker.bootstrap, transactional_id="x", transaction_timeout_ms=1001) as producer,
        pytest.raises(errors.InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"),
    ):
        producer.init_transactions()


def test_a_record_that_waits_in_a_broken_transaction_is_told_at_once(bootstrap: str) -> None:
    with Producer(bootstrap, transactional_id="broken-early", linger_ms=60_000) as producer:
        producer.begin_transaction()
        lingering = producer.send("lingering", b"never sent")
        with pytest.raises(errors.TransactionAbortable):
            producer.send_offsets({TopicPartition("lingering", 0): 1}, "")
        failure = lingering.exception(30)
        assert isinstance(failure, errors.TransactionAbortable)
        assert "never sent" in str(failure)
        producer.abort_transaction()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transactional_id": ""}, "1 to 32,767 bytes"),
        ({"transactional_id": "x" * (1 << 20)}, "1 to 32,767 bytes"),
        ({"transactional_id": 5}, "transactional_id cannot be 5"),
        ({"transactional_id": "x", "acks": 1}, "Transactions need idempotence"),
        ({"transactional_id": "x", "enable_idempotence": False}, "Transactions need idempotence"),
        ({"transactional_id": "x", "retries": 0}, "Transactions need idempotence"),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, "1 or more"),
        ({"transaction_two_phase_commit_enable": True}, "needs a transactional_id"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    bootstrap: str, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(BarnabasError, match=words):
        Producer(bootstrap, **settings)  # type: ignore[arg-type]


CALLS: list[Callable[[Producer], object]] = [
    lambda producer: producer.transaction(),
    lambda producer: producer.init_transactions(),
    lambda producer: producer.begin_transaction(),
    lambda producer: producer.commit_transaction(),
    lambda producer: producer.abort_transaction(),
    lambda producer: producer.prepare_transaction(),
    lambda producer: producer.complete_transaction("1:1"),
    lambda producer: producer.send_offsets({TopicPartition("t", 0): 1}, "g"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_producer_without_a_transactional_id_says_what_it_needs(
    bootstrap: str, call: Callable[[Producer], object]
) -> None:
    with (
        Producer(bootstrap) as producer,
        pytest.raises(BarnabasError, match="Transactions need a transactional_id"),
    ):
        call(producer)


@pytest.mark.parametrize(
    ("read", "group", "words"),
    [
        ({TopicPartition("t", 0): 1}, None, "give its name"),
        ({TopicPartition("t", 0): -1}, "g", "0 or more"),
        ({"t": 1}, "g", "a partition, as TopicPartition"),
        (5, None, "Offsets are a consumer's, or a mapping"),
    ],
)
def test_offsets_that_are_none_are_refused(
    bootstrap: str, read: object, group: str | None, words: str
) -> None:
    with Producer(bootstrap, transactional_id="wrong-offsets") as producer:
        producer.begin_transaction()
        with pytest.raises(BarnabasError, match=words):
            producer.send_offsets(read, group)  # type: ignore[arg-type]

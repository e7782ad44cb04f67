"""Promises of transactions whose end is decided elsewhere (KIP-939)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Consumer, PreparedTransaction, Producer, TopicPartition
from barnabas.errors import BarnabasError
from barnabas.testing import Broker
from tests.deadline import Deadline

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
}
PLACE = TopicPartition("t", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(SETTINGS, data=tmp_path) as found:
        yield found


def producer(broker: Broker, **settings: object) -> Producer:
    return Producer(
        broker.bootstrap,
        transactional_id="task-1",
        transaction_two_phase_commit_enable=True,
        **settings,  # type: ignore[arg-type]
    )


def prepared(broker: Broker, value: bytes) -> PreparedTransaction:
    """By a producer that is gone afterwards."""
    with producer(broker) as task, task.transaction() as transaction:
        transaction.send("t", value)
        return transaction.prepare()


def committed(broker: Broker, count: int) -> list[bytes]:
    """What a reader of committed records sees first; it must not be more when that is all there is."""
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({PLACE: 0})
        found: list[bytes] = []
        deadline = Deadline(60, f"{count} committed records")
        while len(found) < count:
            found += [record.value for record in consumer.poll(deadline.left(1.0))]
        return found


def stable_end(broker: Broker) -> int:
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        return consumer.end_offsets([PLACE])[PLACE]


def test_a_prepared_transaction_outlives_its_producer_and_is_committed_by_the_next(broker: Broker) -> None:
    decided = str(prepared(broker, b"decided on"))
    assert stable_end(broker) == 0
    with producer(broker) as driver:
        assert str(driver.init_transactions(keep_prepared=True)) == decided
        assert driver.complete_transaction(decided)
        assert committed(broker, 1) == [b"decided on"]
        with driver.transaction() as transaction:
            transaction.send("t", b"the next")
    assert committed(broker, 2) == [b"decided on", b"the next"]


def test_a_transaction_that_was_not_decided_on_is_aborted(broker: Broker) -> None:
    earlier = prepared(broker, b"decided on")
    with producer(broker) as driver:
        driver.init_transactions(keep_prepared=True)
        assert driver.complete_transaction(earlier)
    prepared(broker, b"of a task that came too late")
    with producer(broker) as driver:
        driver.init_transactions(keep_prepared=True)
        assert not driver.complete_transaction(earlier)
        with driver.transaction() as transaction:
            transaction.send("t", b"last")
    assert committed(broker, 2) == [b"decided on", b"last"]


def test_what_was_completed_is_completed_again_without_harm(broker: Broker) -> None:
    decided = prepared(broker, b"once")
    for _ in range(2):
        with producer(broker) as driver:
            driver.init_transactions(keep_prepared=True)
            assert driver.complete_transaction(decided)
    with Producer(broker.bootstrap) as plain:
        plain.send("t", b"behind it")
    assert committed(broker, 2) == [b"once", b"behind it"]


def test_a_prepared_transaction_is_aborted_where_none_is_kept(broker: Broker) -> None:
    prepared(broker, b"given up")
    with producer(broker) as task, task.transaction() as transaction:
        transaction.send("t", b"done again")
    assert committed(broker, 1) == [b"done again"]


def test_a_prepared_transaction_outlives_its_broker(tmp_path: Path) -> None:
    with Broker(SETTINGS, data=tmp_path) as broker:
        decided = prepared(broker, b"decided on")
    with Broker(SETTINGS, data=tmp_path) as broker:
        with producer(broker) as driver:
            assert driver.init_transactions(keep_prepared=True) == decided
            driver.commit_transaction()
        assert committed(broker, 1) == [b"decided on"]


def test_no_timeout_ends_it(broker: Broker) -> None:
    with producer(broker, transaction_timeout_ms=1) as task:
        with task.transaction() as transaction:
            transaction.send("t", b"takes its time")
            decided = transaction.prepare()
        # A transaction that has a timeout, begun later, is aborted meanwhile.
        with Producer(broker.bootstrap, transactional_id="other", transaction_timeout_ms=1) as other:
            other.begin_transaction()
            deadline = Deadline(60, "the abort of what took too long")
            while other.send("other", b"x").exception(30) is None:
                deadline.left()
        assert task.complete_transaction(decided)
    assert committed(broker, 1) == [b"takes its time"]


def test_the_broker_has_to_allow_it() -> None:
    with (
        Broker() as broker,
        producer(broker) as task,
        pytest.raises(BarnabasError, match=r"transaction\.two\.phase\.commit\.enable"),
    ):
        task.init_transactions()


def test_nothing_can_be_sent_into_what_is_prepared(broker: Broker) -> None:
    with producer(broker) as task:
        task.begin_transaction()
        task.send("t", b"x")
        task.prepare_transaction()
        with pytest.raises(BarnabasError, match="is prepared"):
            task.send("t", b"y")
        task.abort_transaction()

"""Promises of the producer about what it cannot deliver: a sentence, in bounded time, where it should be heard.

That it neither loses nor doubles nor reorders is in test_faults.py.
"""

import threading
import time
from pathlib import Path

import pytest

from barnabas import Admin, PartlySent, Producer
from barnabas.client.network.failures import Closed, TimedOut
from barnabas.client.producer.batches import Sent
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from tests.client.producer.test_producer import read_all
from tests.client.test_faults import TOPIC, behind
from tests.client.unreliable import FaultyProxy
from tests.deadline import eventually
from tests.process import free_port


def test_a_broker_that_stays_away_fails_every_record_in_time(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path).start()
    with Producer(broker.bootstrap, delivery_timeout_ms=2000, retry_backoff_ms=5) as producer:
        producer.send("t", b"before").result(10)
        broker.stop()
        began = time.monotonic()
        lost = [producer.send("t", b"after") for _ in range(1000)]
        assert all(isinstance(each.exception(30), Refused) for each in lost)
        assert 1.9 < time.monotonic() - began < 30


def test_a_record_that_failed_is_not_stored_when_its_broker_comes_back(tmp_path: Path) -> None:
    port = free_port()
    broker = Broker(data=tmp_path, port=port).start()
    # An attempt to connect comes seconds after the last one; a record is given up before.
    with Producer(broker.bootstrap, delivery_timeout_ms=1000, retry_backoff_ms=3000) as producer:
        producer.send("t", b"before").result(10)
        broker.stop()
        eventually(lambda: producer._network._pauses, "an attempt to connect that fails")
        failed = producer.send("t", b"failed").exception(10)
        assert isinstance(failed, Refused)
        assert "never sent" in str(failed)
        assert not failed.may_be_stored
        broker.start()
        eventually(lambda: producer.send("t", b"after").exception() is None, "a record to be stored")
        stored = [record.value for record in read_all(broker.bootstrap, "t", 2)]
    broker.stop()
    assert stored == [b"before", b"after"]


def test_a_record_that_may_be_stored_says_so() -> None:
    with (
        FaultyProxy() as proxy,
        behind(proxy),
        Producer(proxy.address, delivery_timeout_ms=1000) as producer,
    ):
        producer.send(TOPIC, b"before").result(10)
        proxy.stall()
        failed = producer.send(TOPIC, b"sent").exception(10)
        assert isinstance(failed, TimedOut)
        assert "may have been stored" in str(failed)
        assert failed.may_be_stored
        proxy.flow()


def test_closing_tells_what_was_never_sent_from_what_may_be_stored(tmp_path: Path) -> None:
    with FaultyProxy() as proxy, behind(proxy):
        producer = Producer(proxy.address, max_in_flight_requests_per_connection=1)
        producer.send(TOPIC, b"before", partition=0).result(10)
        proxy.stall()
        sent = producer.send(TOPIC, b"sent", partition=0)
        eventually(lambda: producer._sender._flying, "the request to be sent")
        waiting = producer.send(TOPIC, b"waiting", partition=1)
        with pytest.raises(TimedOut):
            producer.close(0.1)
        assert isinstance(sent.exception(10), Closed)
        assert isinstance(waiting.exception(10), Closed)
        assert [each.exception(0).may_be_stored for each in (sent, waiting)] == [True, False]  # type: ignore[union-attr]
        proxy.flow()


def test_when_memory_is_full_sending_waits_and_then_says_so() -> None:
    with (
        FaultyProxy() as proxy,
        behind(proxy),
        Producer(proxy.address, buffer_memory=50_000, max_block_ms=2000) as producer,
    ):
        producer.send(TOPIC, b"before").result(10)
        proxy.stall()

        def fill() -> None:
            for _ in range(1000):
                producer.send(TOPIC, bytes(1000))

        began = time.monotonic()
        with pytest.raises(TimedOut, match=r"no room for the record in 2 s.*buffer\.memory"):
            fill()
        assert 1.9 < time.monotonic() - began < 30
        proxy.flow()
        sent = [producer.send(TOPIC, bytes(1000)) for _ in range(1000)]
        assert all(each.exception(30) is None for each in sent)


def test_every_record_has_an_outcome_however_the_producer_is_closed() -> None:
    with FaultyProxy() as proxy, behind(proxy):
        producer = Producer(proxy.address, linger_ms=0)
        producer.partitions_for(TOPIC)
        done = threading.Event()

        def close(_: Sent) -> None:
            proxy.stall()
            waiting.extend(producer.send(TOPIC, b"after", partition=1) for _ in range(100))
            try:
                producer.close()
            except BarnabasError:
                done.set()  # it may not wait in a callback, and says so; but it is closed

        waiting: list[Sent] = []
        proxy.stall()  # a callback added to a record that is done is called by this thread
        producer.send(TOPIC, b"before", partition=0).add_done_callback(close)
        proxy.flow()
        assert done.wait(30)
        assert all(isinstance(each.exception(10), Closed) for each in waiting)
        proxy.flow()


def test_a_topic_that_is_deleted_fails_its_records_in_time() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        Admin(broker.bootstrap) as admin,
        Producer(broker.bootstrap, delivery_timeout_ms=2000) as producer,
    ):
        admin.create_topic("t", partitions=1)
        producer.send("t", b"before").result(10)
        admin.delete_topic("t")
        failure = producer.send("t", b"after").exception(30)
        assert isinstance(failure, Refused)
        assert failure.code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.REQUEST_TIMED_OUT)


def test_a_failure_that_was_not_looked_at_is_raised_when_the_producer_is_closed(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path).start()
    producer = Producer(broker.bootstrap, delivery_timeout_ms=2000, retry_backoff_ms=5)
    producer.send("t", b"before").result(10)
    broker.stop()
    producer.send("t", b"after")
    with pytest.raises(BarnabasError):
        producer.close()


def test_a_failure_that_was_looked_at_is_not_raised_again(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path).start()
    with Producer(broker.bootstrap, delivery_timeout_ms=2000, retry_backoff_ms=5) as producer:
        producer.send("t", b"before").result(10)
        broker.stop()
        told: list[Sent] = []
        producer.send("t", b"one").add_done_callback(told.append)
        assert producer.send("t", b"two").exception(30) is not None
        producer.flush(30)
        assert told[0].exception(0) is not None


def test_a_table_that_finds_no_room_in_the_middle_tells_how_much_is_on_its_way() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [bytes(1000)] * 1000})
    settings = {"buffer_memory": 100_000, "max_request_size": 20_000, "max_block_ms": 500}
    with (
        FaultyProxy() as proxy,
        behind(proxy),
        Producer(proxy.address, **settings) as producer,  # type: ignore[arg-type]
    ):
        producer.send(TOPIC, b"before").result(10)
        proxy.stall()
        with pytest.raises(PartlySent, match=r"buffer\.memory.*rows of the table are on their way") as caught:
            producer.send_table(TOPIC, table)
        assert isinstance(caught.value.__cause__, TimedOut)
        sent = caught.value.sent
        assert 0 < sent.rows < 1000
        assert not sent.done()
        with pytest.raises(TimedOut):
            producer.send_table(TOPIC, table)  # of this one nothing was queued
        proxy.flow()
        stored = sent.result(30)
        assert sum(last - first + 1 for first, last in stored.offsets.values()) == stored.rows == sent.rows

"""Promises of the producer when brokers die, connections are cut and no broker answers.

It neither loses nor doubles nor reorders; when it is closed it delivers or reports each record; and whatever cannot
be done is one clear error in bounded time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, Sent, TopicPartition, errors
from barnabas.testing import Broker
from tests.client.unreliable import FaultyProxy
from tests.deadline import Deadline
from tests.process import BrokerProcess, free_port

PARTITIONS = 3
TOPIC = "numbers"
SETTINGS: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "delivery_timeout_ms": 60_000,
    "linger_ms": 1,
    "batch_size": 2_000,
}


def send(producer: Producer, numbers: range) -> list[Sent]:
    return [producer.send(TOPIC, b"%-100d" % each, partition=each % PARTITIONS) for each in numbers]


def read_all(bootstrap: str, count: int) -> list[list[int]]:
    """The numbers of each partition, in order, up to what are the ends now."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        assert sum(consumer.end_offsets(partitions).values()) == count
        return read(consumer, count)


def read(consumer: Consumer, count: int, within: float = 60) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    deadline = Deadline(within, f"{count} records")
    while sum(map(len, found)) < count:
        for record in consumer.poll(timeout=deadline.left(1.0)):
            found[record.partition].append(int(record.value or b"-1"))
    return found


def in_order(count: int) -> list[list[int]]:
    return [list(range(number, count, PARTITIONS)) for number in range(PARTITIONS)]


def check(bootstrap: str, sent: Sequence[Sent]) -> None:
    """Every record is there once, in order, at the offset that its result names."""
    for number, each in enumerate(sent):
        result = each.result(30)
        assert (result.partition, result.offset) == (number % PARTITIONS, number // PARTITIONS)
    assert read_all(bootstrap, len(sent)) == in_order(len(sent))


@contextmanager
def behind(proxy: FaultyProxy) -> Iterator[None]:
    """A broker that is reached through the proxy, with the topic."""
    proxy.target = free_port()
    with Broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"}, port=proxy.target):
        with Admin(proxy.address) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield


def test_a_broker_killed_while_records_are_sent_gets_each_once_and_in_order(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("num.partitions=3")
    with Producer(bootstrap_servers=broker.bootstrap, **SETTINGS) as producer:
        sent: list[Sent] = []
        for round_ in range(3):
            sent += send(producer, range(round_ * 3000, round_ * 3000 + 3000))
            sent[-1000].result(30)
            broker.kill()
            broker.start()
        producer.flush()
        check(broker.bootstrap, sent)


def test_connections_cut_in_the_middle_neither_lose_nor_double_nor_reorder() -> None:
    with FaultyProxy(seed=5) as proxy, behind(proxy):
        with Producer(bootstrap_servers=proxy.address, max_request_size=20_000, **SETTINGS) as producer:
            send(producer, range(PARTITIONS))[-1].result(30)
            proxy.cut_about_every(80_000)
            sent = send(producer, range(PARTITIONS, 9_000))
            producer.flush()
            proxy.cut_about_every(None)
            assert proxy.cuts >= 3
            assert [each.result(0).offset for each in sent] == [
                n // PARTITIONS for n in range(PARTITIONS, 9_000)
            ]
        assert read_all(proxy.address, 9_000) == in_order(9_000)


def test_a_broker_that_stalls_is_left_and_asked_again() -> None:
    with (
        FaultyProxy() as proxy,
        behind(proxy),
        Producer(bootstrap_servers=proxy.address, request_timeout_ms=2000, **SETTINGS) as producer,
    ):
        sent = send(producer, range(300))
        sent[-1].result(30)
        proxy.stall()
        sent += send(producer, range(300, 600))
        with pytest.raises(errors.RequestTimedOut):
            sent[-1].result(2.5)
        proxy.flow()
        producer.flush()
        check(proxy.address, sent)


def test_a_slow_broker_is_only_slow() -> None:
    with FaultyProxy() as proxy, behind(proxy):
        proxy.trickle(500, 0.001)
        with Producer(bootstrap_servers=proxy.address, **SETTINGS) as producer:
            sent = send(producer, range(900))
            producer.flush()
            check(proxy.address, sent)


def test_closing_delivers_what_is_on_its_way() -> None:
    with Broker({"num.partitions": "3"}) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
        sent = send(producer, range(900))
        producer.close()
        assert all(each.done() for each in sent)
        check(broker.bootstrap, sent)


def test_closing_reports_each_record_that_cannot_be_delivered() -> None:
    with FaultyProxy() as proxy, behind(proxy):
        producer = Producer(bootstrap_servers=proxy.address, **SETTINGS)
        send(producer, range(3))[-1].result(30)
        proxy.stall()
        sent = send(producer, range(3, 303))
        begun = time.monotonic()
        with pytest.raises(errors.RequestTimedOut):
            producer.close(timeout=0.5)
        assert time.monotonic() - begun < 30
        assert all(isinstance(each.exception(0), errors.BarnabasError) for each in sent)


@pytest.mark.parametrize("acks", ["all", 1])
def test_a_record_too_large_is_one_clear_error(bootstrap: str, acks: str | int) -> None:
    with Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        with pytest.raises(errors.MessageTooLarge, match=r"max\.request\.size"):
            producer.send(TOPIC, b"x" * 2_000_000).result(10)
        assert producer.send(TOPIC, b"small").result(10).offset >= 0


def test_an_unknown_topic_is_one_clear_error_in_time() -> None:
    with (
        Broker({"auto.create.topics.enable": "false"}) as broker,
        Producer(bootstrap_servers=broker.bootstrap, max_block_ms=3000) as producer,
        Consumer(bootstrap_servers=broker.bootstrap) as consumer,
    ):
        begun = time.monotonic()
        with pytest.raises(errors.UnknownTopicOrPartition, match="never-made"):
            producer.send("never-made", b"x").result(10)
        with pytest.raises(errors.UnknownTopicOrPartition, match="never-made"):
            consumer.end_offsets([TopicPartition("never-made", 0)])
        assert time.monotonic() - begun < 30


def test_a_wrong_type_is_one_clear_error(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for wrong in (3.5, 1, object(), ["x"]):
            with pytest.raises((TypeError, errors.BarnabasError), match="bytes"):
                producer.send(TOPIC, wrong).result(10)
        with pytest.raises((TypeError, errors.BarnabasError), match="bytes"):
            producer.send(TOPIC, b"x", key=7).result(10)


def test_an_unreachable_broker_is_one_clear_error_in_time() -> None:
    address = f"127.0.0.1:{free_port()}"
    begun = time.monotonic()
    with pytest.raises(errors.NetworkException, match=address):
        Producer(bootstrap_servers=address, max_block_ms=3000).send(TOPIC, b"x").result(10)
    assert time.monotonic() - begun < 30

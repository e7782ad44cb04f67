"""Promises of a consumer whose broker dies, stalls or hangs up: it goes on, in order, with each record once."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.errors import UnknownTopicOrPartition
from barnabas.testing import Broker
from tests.client.unreliable import LossyProxy
from tests.deadline import Deadline, eventually
from tests.process import BrokerProcess, free_port

FAST = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 50,
    "retry_backoff_ms": 10,
    "heartbeat_interval_ms": 50,
}


def send(bootstrap: str, numbers: range, partitions: int = 1) -> None:
    with Producer(bootstrap) as producer:
        for number in numbers:
            producer.send("t", b"%d" % number, partition=number % partitions)
            if number % 25 == 24:
                producer.flush()


def read(consumer: Consumer, count: int) -> list[int]:
    """This many records, and not one more."""
    found: list[int] = []
    deadline = Deadline(60, f"{count} records")
    while len(found) < count:
        records = consumer.poll(deadline.left(0.5), max_records=count - len(found))
        found += [int(record.value) for record in records]
    return found


def test_connections_that_are_cut_cost_nothing() -> None:
    """Alone: answers get lost again and again, and records come once and in order."""
    with LossyProxy() as proxy:
        proxy.target = free_port()
        with Broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"}, port=proxy.target):
            send(proxy.address, range(1000))
            with Consumer(
                bootstrap_servers=proxy.address,
                max_partition_fetch_bytes=500,
                **FAST,  # type: ignore[arg-type]
            ) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                found: list[int] = []
                while len(found) < 1000:
                    proxy.lose_next.set()
                    found += read(consumer, 100)
                    # What was fetched ahead is read without an answer: the loss may still be to come.
                    eventually(lambda: not proxy.lose_next.is_set(), "an answer to lose")
                assert found == list(range(1000))
                assert proxy.lost == 10


def test_a_group_goes_on_when_connections_are_cut() -> None:
    with LossyProxy() as proxy:
        proxy.target = free_port()
        with Broker({"advertised.listeners": f"PLAINTEXT://{proxy.address}"}, port=proxy.target):
            send(proxy.address, range(400), 1)
            with Consumer("t", bootstrap_servers=proxy.address, group_id="g", **FAST) as consumer:  # type: ignore[arg-type]
                found: list[int] = []
                while len(found) < 400:
                    proxy.lose_next.set()
                    found += read(consumer, 40)
                    consumer.commit()
                assert found == list(range(400))
                assert consumer.committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 400}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_broker_that_is_killed_and_comes_back_costs_no_record(
    strategy: str, start_broker: Callable[..., BrokerProcess]
) -> None:
    """In a group of one: after kill -9 it reads on from where it was, committed or not."""
    broker = start_broker("group.initial.rebalance.delay.ms=0")
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=2)
    send(broker.bootstrap, range(100), 2)
    with Consumer(
        "t",
        bootstrap_servers=broker.bootstrap,
        group_id="g",
        partition_assignment_strategy=strategy,
        **FAST,  # type: ignore[arg-type]
    ) as consumer:
        found = read(consumer, 60)
        consumer.commit()
        broker.kill()
        broker.start()
        send(broker.bootstrap, range(100, 200), 2)
        found += read(consumer, 140)
        assert sorted(found) == list(range(200))
        consumer.commit()
        assert sum(consumer.committed(consumer.assignment()).values()) == 200


@pytest.mark.shares_cores("what was fetched must come within 3.5 s of the clock")
def test_a_broker_that_stands_still_for_a_while_is_waited_for(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """Requests to a broker that is stopped time out, and another connection goes on when it does."""
    broker = start_broker("group.initial.rebalance.delay.ms=0")
    send(broker.bootstrap, range(100))
    with Consumer(
        "t",
        bootstrap_servers=broker.bootstrap,
        group_id="g",
        request_timeout_ms=2000,
        **FAST,  # type: ignore[arg-type]
    ) as consumer:
        found = read(consumer, 50)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            while rest := consumer.poll(4.0):
                # What was fetched before comes, at once; then nothing, and nothing is raised.
                assert time.monotonic() - begun < 3.5
                found += [int(record.value) for record in rest]
                begun = time.monotonic()
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        send(broker.bootstrap, range(100, 150))
        found += read(consumer, 150 - len(found))
        assert found == list(range(150))


def test_closing_does_not_wait_for_a_broker_that_is_gone(tmp_path: Path) -> None:
    broker = Broker(data=tmp_path).start()
    send(broker.bootstrap, range(10))
    consumer = Consumer("t", bootstrap_servers=broker.bootstrap, group_id="g", **FAST)  # type: ignore[arg-type]
    read(consumer, 10)
    broker.stop()
    begun = time.monotonic()
    consumer.close(1.0)
    assert time.monotonic() - begun < 20.0


def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning(
    bootstrap: str, admin: Admin
) -> None:
    topic = "made-anew"
    partition = TopicPartition(topic, 0)
    admin.create_topic(topic)
    with Producer(bootstrap) as producer:
        for _ in range(10):
            producer.send(topic, b"old")
    with Consumer(bootstrap_servers=bootstrap, **FAST) as consumer:  # type: ignore[arg-type]
        consumer.assign([partition])
        eventually(lambda: consumer.poll(0.05) and consumer.position(partition) == 10, "the old ones")
        admin.delete_topic(topic)
        admin.create_topic(topic)
        with Producer(bootstrap) as producer:
            producer.send(topic, b"new").result()
        deadline = Deadline(20, "the new one")
        found: list[bytes] = []
        while not found:
            try:
                found = [record.value for record in consumer.poll(deadline.left(0.2))]
            except UnknownTopicOrPartition:
                continue
        assert found == [b"new"]
    admin.delete_topic(topic)


def test_a_topic_that_was_made_anew_and_is_longer_is_noticed_by_its_id(bootstrap: str, admin: Admin) -> None:
    """With `latest` too: where the old records were, others are now. A fetch by name that is faster than the
    news of the other topic may bring its tail first; all of it comes then, from its beginning."""
    topic = "made-anew-and-longer"
    partition = TopicPartition(topic, 0)
    admin.create_topic(topic)

    def fill(values: list[bytes]) -> None:
        with Producer(bootstrap) as producer:
            for value in values:
                producer.send(topic, value)

    fill([b"old"] * 10)
    new = [b"new %d" % number for number in range(15)]
    with Consumer(bootstrap_servers=bootstrap, **FAST | {"auto_offset_reset": "latest"}) as consumer:  # type: ignore[arg-type]
        consumer.assign({partition: 0})
        eventually(lambda: consumer.poll(0.05) and consumer.position(partition) == 10, "the old ones")
        consumer.pause(partition)  # until the new log is longer than the old one was
        admin.delete_topic(topic)
        admin.create_topic(topic)
        fill(new)
        consumer.resume(partition)
        deadline = Deadline(20, "the new ones")
        found: list[bytes] = []
        while found[-len(new) :] != new:
            try:
                found += [record.value for record in consumer.poll(deadline.left(0.2))]
            except UnknownTopicOrPartition:
                continue
        early = len(found) - len(new)
        assert early <= 5
        assert found == new[len(new) - early :] + new
    admin.delete_topic(topic)

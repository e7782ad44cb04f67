"""Promises of client/consumer/consumer.py, kept with our broker and with Apache Kafka alike."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.network.failures import NoBroker
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from tests.deadline import Deadline
from tests.process import free_port

NewTopic = Callable[..., str]


@pytest.fixture
def filled(bootstrap: str, new_topic: NewTopic) -> TopicPartition:
    """A partition with the records 0 to 99, ten a batch, a second apart."""
    partition = TopicPartition(new_topic(), 0)
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(partition.topic, b"%d" % number, timestamp=1_000_000 + number * 1000)
            if number % 10 == 9:
                producer.flush()
    return partition


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as found:
        yield found


def read(consumer: Consumer, count: int) -> list[int]:
    """The numbers of the next records."""
    found: list[int] = []
    deadline = Deadline(20, f"{count} records")
    while len(found) < count:
        records = consumer.poll(deadline.left(1.0), max_records=count - len(found))
        found += [int(record.value or b"-1") for record in records]
    return found


def test_records_come_in_order_whatever_the_portions(consumer: Consumer, filled: TopicPartition) -> None:
    consumer.assign([filled])
    assert read(consumer, 7) + read(consumer, 50) + read(consumer, 43) == list(range(100))
    assert consumer.poll(0.01) == []


def test_reading_starts_in_the_middle_of_a_batch(consumer: Consumer, filled: TopicPartition) -> None:
    consumer.assign({filled: 37})
    assert read(consumer, 5) == [37, 38, 39, 40, 41]
    assert consumer.position(filled) == 42


def test_seeking_forgets_what_was_read_ahead(consumer: Consumer, filled: TopicPartition) -> None:
    consumer.assign([filled])
    assert read(consumer, 3) == [0, 1, 2]
    assert consumer.position(filled) == 3
    consumer.seek(filled, 95)
    assert read(consumer, 5) == [95, 96, 97, 98, 99]
    consumer.seek_to_beginning(filled)
    assert read(consumer, 2) == [0, 1]
    consumer.seek_to_end()
    assert consumer.position(filled) == 100
    assert consumer.poll(0.01) == []


def test_seeking_by_time_finds_the_first_record_not_before_it(
    consumer: Consumer, filled: TopicPartition
) -> None:
    consumer.assign([filled])
    consumer.seek_to_time(1_000_000 + 41_500)
    assert read(consumer, 1) == [42]
    consumer.seek_to_time(9_999_999)
    assert consumer.position(filled) == 100
    found = consumer.offsets_for_times({filled: 1_000_000 + 10_000})[filled]
    assert found is not None
    assert found[:2] == (10, 1_010_000)
    assert consumer.offsets_for_times({filled: 9_999_999}) == {filled: None}


def test_the_ends_of_a_log_are_known(consumer: Consumer, admin: Admin, filled: TopicPartition) -> None:
    admin.delete_records({filled: 20})
    assert consumer.beginning_offsets([filled]) == {filled: 20}
    assert consumer.end_offsets([filled]) == {filled: 100}


def test_an_offset_that_is_gone_is_reset_as_asked(
    bootstrap: str, admin: Admin, filled: TopicPartition
) -> None:
    admin.delete_records({filled: 20})
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign({filled: 5})
        assert read(consumer, 1) == [20]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign({filled: 5})
        with pytest.raises(Refused) as refused:
            consumer.poll(20.0)
        assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([filled])
        assert consumer.position(filled) == 100, "latest is the default"


def test_waiting_ends_when_a_record_comes(bootstrap: str, consumer: Consumer, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    consumer.assign([partition])
    assert consumer.poll(0.0) == []

    def send() -> None:
        with Producer(bootstrap) as producer:
            producer.send(partition.topic, b"1")

    sending = threading.Timer(0.05, send)
    sending.start()
    assert read(consumer, 1) == [1]
    sending.join()


def test_several_partitions_are_read_evenly(bootstrap: str, consumer: Consumer, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    with Producer(bootstrap) as producer:
        for number in range(400):
            producer.send(topic, b"%d" % number, partition=number % 4)
    partitions = consumer.partitions_for(topic)
    assert [each.partition for each in partitions] == [0, 1, 2, 3]
    consumer.assign(partitions)
    assert consumer.assignment() == set(partitions)
    assert sorted(read(consumer, 400)) == list(range(400))


def test_misuse_is_told(bootstrap: str, consumer: Consumer, filled: TopicPartition) -> None:
    with pytest.raises(BarnabasError, match="call assign first"):
        consumer.poll()
    consumer.assign([filled])
    with pytest.raises(BarnabasError, match="is not assigned"):
        consumer.seek(TopicPartition("other", 0), 0)
    with pytest.raises(BarnabasError, match="earliest, latest or none"):
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="middle")
    with pytest.raises(Refused, match="does not exist"):
        consumer.partitions_for("never-made")
    consumer.assign([TopicPartition(filled.topic, 7)])
    with pytest.raises(Refused, match="no partition 7, only 1"):
        consumer.poll(10.0)
    with pytest.raises(NoBroker):
        Consumer(bootstrap_servers=f"127.0.0.1:{free_port()}")


def test_reading_goes_on_when_the_broker_comes_back(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    broker = Broker(data=tmp_path, port=port).start()
    with Producer(address) as producer:
        producer.send("t", b"0").result()
        producer.send("t", b"1").result()
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest", retry_backoff_ms=5) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert read(consumer, 1) == [0]
        broker.stop()
        with Broker(data=tmp_path, port=port), Producer(address) as producer:
            producer.send("t", b"2").result()
            assert read(consumer, 2) == [1, 2]

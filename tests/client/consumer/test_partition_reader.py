"""Promises of client/consumer/partition_reader.py, kept with our broker and with Apache Kafka alike."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer

from barnabas import Admin, Producer
from barnabas.client.consumer.partition_reader import read_partition
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from tests.deadline import eventually
from tests.process import free_port

NewTopic = Callable[..., str]


def fill(
    bootstrap: str, partition: TopicPartition, numbers: range, *, size: int = 0, per_batch: int = 10
) -> None:
    """Records that say their number, followed by a filling; a given number a batch."""
    with Producer(bootstrap) as producer:
        for number in numbers:
            producer.send(partition.topic, b"%d" % number + b" " * size, partition=partition.partition)
            if number % per_batch == per_batch - 1:
                producer.flush()


@pytest.fixture
def filled(bootstrap: str, new_topic: NewTopic) -> TopicPartition:
    """A partition with the records 0 to 99, ten a batch."""
    partition = TopicPartition(new_topic(), 0)
    fill(bootstrap, partition, range(100))
    return partition


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [int(value) for batch in batches for value in batch["value"].to_pylist()]


@pytest.mark.parametrize(
    ("start", "end"), [(0, 100), (0, 1), (37, 52), (40, 50), (99, 100), (50, 50), (60, 20)]
)
def test_exactly_the_records_asked_for_come(
    bootstrap: str, filled: TopicPartition, start: int, end: int
) -> None:
    found = list(read_partition(bootstrap, filled, start, end))
    assert numbers(found) == list(range(start, end))
    assert [offset for batch in found for offset in batch["offset"].to_pylist()] == list(range(start, end))


def test_small_fetches_join_to_the_same_records(bootstrap: str, filled: TopicPartition) -> None:
    found = list(read_partition(bootstrap, filled, 5, 95, ["value"], fetch_max_bytes=100))
    assert numbers(found) == list(range(5, 95))
    assert len(found) > 5
    assert found[0].schema.names == ["value"]


def test_much_comes_in_chunks(bootstrap: str, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)
    fill(bootstrap, partition, range(2400), size=10_000, per_batch=20)
    found = list(read_partition(bootstrap, partition, 3, 2397))
    assert numbers(found) == list(range(3, 2397))
    assert max(batch.nbytes for batch in found) < 5_000_000
    assert len(found) >= 5


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_another_client_has_written_is_read(bootstrap: str, new_topic: NewTopic, codec: str) -> None:
    partition = TopicPartition(new_topic(), 0)
    theirs = ConfluentProducer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(500):
        theirs.produce(
            partition.topic,
            key=b"%d" % number if number % 3 else None,
            value=b"%d" % number * (number % 50) if number % 7 else None,
            headers=[("n", b"%d" % number), ("nothing", None)] if number % 5 == 0 else None,
            partition=0,
            timestamp=1_700_000_000_000 - number,
        )
    assert theirs.flush(20) == 0
    found = pa.Table.from_batches(read_partition(bootstrap, partition, 0, 500)).to_pylist()
    assert [row["offset"] for row in found] == list(range(500))
    assert [row["key"] for row in found] == [b"%d" % n if n % 3 else None for n in range(500)]
    assert [row["value"] for row in found] == [b"%d" % n * (n % 50) if n % 7 else None for n in range(500)]
    assert [row["timestamp"].timestamp() for row in found] == [1_700_000_000 - n / 1000 for n in range(500)]
    assert [row["headers"] for row in found] == [
        None if n % 5 else [{"key": "n", "value": b"%d" % n}, {"key": "nothing", "value": None}]
        for n in range(500)
    ]


def test_reading_may_stop_early(bootstrap: str, filled: TopicPartition) -> None:
    reading = read_partition(bootstrap, filled, 0, 100, fetch_max_bytes=100)
    assert numbers([next(reading)])[:3] == [0, 1, 2]
    reading.close()  # type: ignore[attr-defined]  # what was asked ahead must not be left open


def test_records_that_are_gone_are_an_error(bootstrap: str, admin: Admin, filled: TopicPartition) -> None:
    admin.delete_records({filled: 42})
    with pytest.raises(
        Refused, match=f"Partition {filled}: the records from offset 10 to 41 are gone"
    ) as caught:
        list(read_partition(bootstrap, filled, 10, 60))
    assert caught.value.code is Code.OFFSET_OUT_OF_RANGE
    with pytest.raises(Refused, match="the records from offset 10 to 19 are gone"):
        list(read_partition(bootstrap, filled, 10, 20))


def test_records_that_are_gone_are_a_warning_if_that_is_wanted(
    bootstrap: str, admin: Admin, filled: TopicPartition, caplog: pytest.LogCaptureFixture
) -> None:
    admin.delete_records({filled: 42})
    with caplog.at_level(logging.WARNING, "barnabas.client"):
        assert numbers(list(read_partition(bootstrap, filled, 10, 60, fail_on_data_loss=False))) == list(
            range(42, 60)
        )
        assert list(read_partition(bootstrap, filled, 10, 20, fail_on_data_loss=False)) == []
    assert [
        f"from offset 10 to {last} are gone" in message
        for last, message in zip((41, 19), caplog.messages, strict=True)
    ]


def test_a_log_that_is_shorter_than_it_was_has_lost_records(bootstrap: str, filled: TopicPartition) -> None:
    with pytest.raises(Refused, match="from offset 150 to 199 are gone"):
        list(read_partition(bootstrap, filled, 150, 200))
    assert list(read_partition(bootstrap, filled, 150, 200, fail_on_data_loss=False)) == []
    with pytest.raises(Refused, match="from offset 100 to 119 are gone"):
        list(read_partition(bootstrap, filled, 90, 120, timeout_ms=2000))


def test_what_cannot_be_is_said_at_once(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(Refused, match="no-such-topic"):
        list(read_partition(bootstrap, TopicPartition("no-such-topic", 0), 0, 10))
    with pytest.raises(Refused, match="has no partition 7, only 1"):
        list(read_partition(bootstrap, TopicPartition(topic, 7), 0, 10))
    with pytest.raises(BarnabasError, match="There is no column 'valeu'"):
        read_partition(bootstrap, TopicPartition(topic, 0), 0, 10, ["valeu"])
    with pytest.raises(BarnabasError, match="isolation_level is one of"):
        read_partition(bootstrap, TopicPartition(topic, 0), 0, 10, isolation_level="serializable")
    with pytest.raises(Refused, match="No broker answers"):
        list(read_partition("127.0.0.1:1", TopicPartition(topic, 0), 0, 10, timeout_ms=2000))


def test_a_broker_that_comes_back_is_read_on(tmp_path: Path) -> None:
    partition = TopicPartition("t", 0)
    port = free_port()
    with Broker(data=tmp_path, port=port) as broker:
        bootstrap = broker.bootstrap
        with Admin(bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        fill(bootstrap, partition, range(100))
        reading = read_partition(bootstrap, partition, 0, 100, fetch_max_bytes=100)
        found = [next(reading)]
    with Broker(data=tmp_path, port=port):
        found += reading
    assert numbers(found) == list(range(100))


def test_what_is_asked_for_may_have_been_compacted_away(tmp_path: Path) -> None:
    partition = TopicPartition("t", 0)
    fast = {
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.bytes": "2000",
        "log.retention.check.interval.ms": "100",
    }
    with Broker(fast, data=tmp_path) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs={"cleanup.policy": "compact"})
            with Producer(broker.bootstrap) as producer:
                for number in range(300):
                    producer.send("t", b"%d" % number, key=b"%d" % (number % 7))
                    producer.flush()

        def whole() -> list[int]:
            return numbers(list(read_partition(broker.bootstrap, partition, 0, 300)))

        eventually(lambda: whole()[:1] > [100], "compaction")
        assert list(read_partition(broker.bootstrap, partition, 0, 1)) == []
        assert list(read_partition(broker.bootstrap, partition, 3, 100)) == []
        assert whole()[-7:] == list(range(293, 300))

"""Promises of columns, in and out, kept with our broker and with Apache Kafka alike."""

from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from barnabas import BarnabasError, Consumer, Producer, TopicPartition
from barnabas.client.partitioner import partition_of
from tests.client_with_broker.conftest import NewTopic
from tests.client_with_broker.reading import read_topic
from tests.deadline import Deadline

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def read_columns(broker: str, topic: str, count: int, partitions: int = 1) -> pa.Table:
    found: list[pa.RecordBatch] = []
    deadline = Deadline(60, f"{count} rows")
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        consumer.seek_to_beginning()
        while sum(batch.num_rows for batch in found) < count:
            batch = consumer.poll_arrow(timeout=deadline.left(1.0))
            if batch is not None:
                found.append(batch)
    table = pa.Table.from_batches(found)
    assert table.num_rows == count
    return table


@pytest.mark.parametrize("codec", CODECS)
def test_a_table_that_is_sent_comes_back(broker: str, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    table = pa.table({"user": [f"u{number}" for number in range(5000)], "payload": [b"p"] * 5000})
    with Producer(bootstrap_servers=broker, compression_type=codec) as producer:
        producer.send_table(topic, table, key="user", value="payload").result(30)
    found = read_columns(broker, topic, 5000)
    assert found.column("key").to_pylist() == [b"u%d" % number for number in range(5000)]
    assert set(found.column("value").to_pylist()) == {b"p"}
    assert found.column("offset").to_pylist() == list(range(5000))
    assert set(found.column("topic").to_pylist()) == {topic}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_frames_of_every_kind_are_taken(broker: str, new_topic: NewTopic, frame: type) -> None:
    topic = new_topic(3)
    rows = {"id": ["a", "b", "c", "d"], "value": ["1", "2", "3", "4"]}
    with Producer(bootstrap_servers=broker) as producer:
        producer.send_table(topic, frame(rows), key="id").result(30)
    found = read_topic(broker, topic, 4, partitions=3)
    assert {(each.key, each.value, each.partition) for each in found} == {
        (key.encode(), value.encode(), partition_of(key.encode(), 3))
        for key, value in zip(rows["id"], rows["value"], strict=True)
    }


def test_records_and_columns_are_the_same_log(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, b"one", key=b"k", headers={"a": b"1"}, timestamp=1000).result(30)
        producer.send(topic, None, key=b"gone", timestamp=2000).result(30)
        producer.send_table(topic, pa.table({"value": ["three"]})).result(30)
    found = read_columns(broker, topic, 3)
    assert found.column("key").to_pylist() == [b"k", b"gone", None]
    assert found.column("value").to_pylist() == [b"one", None, b"three"]
    assert found.column("timestamp").to_pylist()[:2] == [
        datetime.fromtimestamp(1, UTC),
        datetime.fromtimestamp(2, UTC),
    ]
    assert found.column("headers").to_pylist()[0] == [{"key": "a", "value": b"1"}]
    assert [each.value for each in read_topic(broker, topic, 3)] == [b"one", None, b"three"]


def test_a_table_keeps_its_order_in_each_partition(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic(4)
    rows = pa.table(
        {"value": [b"%d" % number for number in range(20_000)], "where": [n % 4 for n in range(20_000)]}
    )
    with Producer(bootstrap_servers=broker) as producer:
        producer.send_table(topic, rows, partition="where").result(30)
    found = read_columns(broker, topic, 20_000, partitions=4).to_pandas()
    for number in range(4):
        of_partition = found[found["partition"] == number].sort_values("offset")
        assert [int(value) for value in of_partition["value"]] == list(range(number, 20_000, 4))


def test_a_column_that_cannot_be_sent_is_one_clear_error(broker: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker) as producer:
        with pytest.raises(BarnabasError, match="absent"):
            producer.send_table(topic, pa.table({"value": ["x"]}), key="absent").result(30)
        with pytest.raises(BarnabasError, match="value"):
            producer.send_table(topic, pa.table({"value": [1.5]})).result(30)


def test_there_may_be_nothing_to_read(broker: str, new_topic: NewTopic) -> None:
    with Consumer(bootstrap_servers=broker) as consumer:
        consumer.assign([TopicPartition(new_topic(), 0)])
        consumer.seek_to_beginning()
        assert consumer.poll_arrow(timeout=0.2) is None

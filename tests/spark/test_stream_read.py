"""Topics as streams: every record once, whatever becomes of the topic; a query goes on where it was."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.spark.installed import has_read_limits
from barnabas.types import TopicPartition
from tests.brokers import Brokers
from tests.deadline import eventually
from tests.spark.conftest import Load

pytestmark = pytest.mark.java

Topic = Callable[..., str]
LIMIT_S = 180
with_limits = pytest.mark.skipif(not has_read_limits(), reason="Spark 4.1 has no limits for a batch")


class Stream:
    """A query that writes what it reads to a folder."""

    def __init__(self, spark: Any, broker: Brokers, folder: Path, connector: str = "barnabas") -> None:
        self._spark = spark
        self._bootstrap = broker.bootstrap
        self._folder = folder
        self._connector = connector

    def start(self, topic: str, *, available_now: bool = False, **options: str) -> Any:
        source = self._spark.readStream.format(self._connector).option(
            "kafka.bootstrap.servers", self._bootstrap
        )
        source = source.option("subscribe", topic).options(**{"startingOffsets": "earliest", **options})
        sink = source.load().selectExpr("partition", "offset", "string(value) as value").writeStream
        sink = sink.option("checkpointLocation", str(self._folder / "checkpoint"))
        sink = sink.format("parquet").option("path", str(self._folder / "rows"))
        return (sink.trigger(availableNow=True) if available_now else sink).start()

    def run(self, topic: str, **options: str) -> list[int]:
        """Read what there is; how many rows each batch had."""
        query = self.start(topic, available_now=True, **options)
        assert query.awaitTermination(LIMIT_S)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> list[tuple[int, int, str]]:
        found = self._spark.read.parquet(str(self._folder / "rows")).collect()
        return sorted((row.partition, row.offset, row.value) for row in found)


@pytest.fixture
def stream(spark: Any, broker: Brokers, tmp_path: Path) -> Stream:
    return Stream(spark, broker, tmp_path)


def fill(producer: Producer, topic: str, count: int, *partitions: int) -> None:
    for i in range(count):
        producer.send(topic, b"%d" % i, partition=partitions[i % len(partitions)])
    producer.flush()


def test_a_stream_goes_on_where_it_was(producer: Producer, topic: Topic, stream: Stream) -> None:
    name = topic()
    fill(producer, name, 90, 0, 1, 2)
    assert stream.run(name) == [90]
    fill(producer, name, 30, 0, 1)
    assert stream.run(name, startingOffsets="latest") == [30]
    places = [(partition, offset) for partition, offset, _ in stream.rows()]
    assert places == [(0, at) for at in range(45)] + [(1, at) for at in range(45)] + [
        (2, at) for at in range(30)
    ]


@with_limits
def test_batches_are_as_small_as_asked_for(producer: Producer, topic: Topic, stream: Stream) -> None:
    name = topic()
    fill(producer, name, 100, 0, 1, 1, 1)
    assert stream.run(name, maxOffsetsPerTrigger="40", minPartitions="4") == [40, 40, 20]
    assert len(set(stream.rows())) == 100


def test_an_option_that_a_stream_does_not_have_is_one_sentence(topic: Topic, stream: Stream) -> None:
    with pytest.raises(Exception, match="did you mean failOnDataLoss"):
        stream.run(topic(), failOnDataLos="false")


@pytest.mark.skipif(has_read_limits(), reason="Spark has them from 4.2 on")
@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_limits_that_spark_does_not_have_are_one_sentence(topic: Topic, stream: Stream, option: str) -> None:
    with pytest.raises(Exception, match=rf"{option} needs PySpark 4\.2 or newer"):
        stream.run(topic(), **{option: "40"})


@with_limits
def test_available_now_does_not_wait_for_more(
    admin: Admin, producer: Producer, topic: Topic, stream: Stream
) -> None:
    name = topic(partitions=2)
    fill(producer, name, 10, 0)
    assert stream.run(name, minOffsetsPerTrigger="1000") == [10]
    admin.create_partitions(name, 3)
    assert stream.run(name) == []


def test_new_partitions_are_read_from_their_beginning(
    broker: Brokers, admin: Admin, producer: Producer, topic: Topic, stream: Stream
) -> None:
    name = topic(partitions=1)
    fill(producer, name, 10, 0)
    query = stream.start(name)
    try:
        query.processAllAvailable()
        admin.create_partitions(name, 2)
        with Producer(bootstrap_servers=broker.bootstrap) as newer:
            fill(newer, name, 20, 0, 1)
        eventually(lambda: query.exception() or len(stream.rows()) == 30, "the new partition", LIMIT_S)
        assert query.exception() is None
    finally:
        query.stop()
    assert [(row[0], row[1]) for row in stream.rows()] == [(0, at) for at in range(20)] + [
        (1, at) for at in range(10)
    ]


def test_a_deleted_topic_is_one_sentence_or_a_warning(
    admin: Admin, producer: Producer, topic: Topic, stream: Stream
) -> None:
    name, other = topic(partitions=1), topic(partitions=1)
    fill(producer, name, 10, 0)
    query = stream.start(f"{name},{other}")
    try:
        query.processAllAvailable()
        admin.delete_topic(name)
        failure = eventually(query.exception, "an error", LIMIT_S)
    finally:
        query.stop()
    assert f"Partition {name}-0, read up to 10, is there no more. To go on without them" in str(failure)
    fill(producer, other, 5, 0)
    assert stream.run(f"{name},{other}", failOnDataLoss="false") == [5]
    assert len(stream.rows()) == 15


@pytest.mark.parametrize("count", [4, 50])
def test_a_topic_made_anew_is_told_from_the_old_one(
    broker: Brokers, admin: Admin, producer: Producer, topic: Topic, stream: Stream, count: int
) -> None:
    name = topic(partitions=1)
    fill(producer, name, 10, 0)
    assert stream.run(name) == [10]
    admin.delete_topic(name)
    admin.create_topic(name, partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as newer:
        fill(newer, name, count, 0)
    with pytest.raises(Exception, match=rf"Topic {name} was deleted and made anew after it was read"):
        stream.run(name)
    assert stream.run(name, failOnDataLoss="false") == [count]
    with Producer(bootstrap_servers=broker.bootstrap) as newer:
        fill(newer, name, 3, 0)
    assert stream.run(name) == [3]


def test_a_checkpoint_without_ids_of_topics_is_gone_on_from(
    broker: Brokers, admin: Admin, producer: Producer, topic: Topic, stream: Stream, tmp_path: Path
) -> None:
    name = topic(partitions=1)
    fill(producer, name, 10, 0)
    assert stream.run(name) == [10]
    for kept in (tmp_path / "checkpoint").rglob("[0-9]*"):
        if kept.parent.name in ("offsets", "0"):
            kept.write_text(re.sub(rf',\s*"{name}#[^"]*":\{{\}}', "", kept.read_text()))
    for sums in (tmp_path / "checkpoint").rglob(".*.crc"):
        sums.unlink()
    fill(producer, name, 5, 0)
    assert stream.run(name) == [5]
    assert any(f"{name}#" in kept.read_text() for kept in (tmp_path / "checkpoint/offsets").glob("[0-9]*"))
    admin.delete_topic(name)
    admin.create_topic(name, partitions=1)
    with pytest.raises(Exception, match="was deleted and made anew"):
        stream.run(name)


def test_what_retention_took_is_an_error_or_a_warning(
    admin: Admin, producer: Producer, topic: Topic, stream: Stream
) -> None:
    name = topic(partitions=1)
    fill(producer, name, 10, 0)
    assert stream.run(name) == [10]
    fill(producer, name, 10, 0)
    admin.delete_records({TopicPartition(name, 0): 15})
    with pytest.raises(Exception, match=r"Records 10 to 14 of .* are gone: its log begins at 15"):
        stream.run(name)
    assert stream.run(name, failOnDataLoss="false") == [5]
    assert [row[1] for row in stream.rows()] == [*range(10), *range(15, 20)]


def test_a_checkpoint_of_sparks_kafka_source_is_gone_on_from(
    spark: Any, broker: Brokers, producer: Producer, topic: Topic, tmp_path: Path
) -> None:
    name = topic()
    fill(producer, name, 60, 0, 1, 2)
    theirs = Stream(spark, broker, tmp_path, "kafka")
    assert theirs.run(name) == [60]
    fill(producer, name, 30, 1, 2)
    ours = Stream(spark, broker, tmp_path)
    assert ours.run(name) == [30]
    assert len(set(ours.rows())) == 90
    fill(producer, name, 3, 0)
    assert theirs.run(name) == [3]


def test_a_stream_without_topic_or_broker_is_one_sentence(
    spark: Any, broker: Brokers, stream: Stream, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="Topic 'nowhere': This topic or partition does not exist"):
        stream.run("nowhere")
    source = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", "127.0.0.1:1")
    sink = source.option("subscribe", "orders").load().writeStream.format("noop")
    query = sink.option("checkpointLocation", str(tmp_path / "other")).start()
    with pytest.raises(Exception, match=r"No broker answers at 127\.0\.0\.1:1"):
        query.awaitTermination(LIMIT_S)


def test_a_stream_becomes_a_topic(
    spark: Any, broker: Brokers, producer: Producer, topic: Topic, load: Load, tmp_path: Path
) -> None:
    source, target = topic(), topic(partitions=2)
    fill(producer, source, 50, 0, 1, 2)
    read = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = read.option("subscribe", source).option("startingOffsets", "earliest").load()
    rows = rows.selectExpr("string(offset) as key", "value")

    def run() -> None:
        sink = rows.writeStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
        sink = sink.option("topic", target).option("checkpointLocation", str(tmp_path))
        assert sink.trigger(availableNow=True).start().awaitTermination(LIMIT_S)

    run()
    fill(producer, source, 10, 0)
    run()
    written = sorted(int(row.value) for row in load(target).collect())
    assert written == sorted([*range(50), *range(10)])

"""Topics as tables: what Spark's Kafka source would give, and only what was asked for."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.types import TopicPartition
from tests.brokers import Brokers
from tests.deadline import eventually
from tests.spark.conftest import Load

pytestmark = pytest.mark.java

BEGIN_MS = 1_700_000_000_000
Topic = Callable[..., str]


def fill(producer: Producer, topic: str, count: int, partitions: int = 3, **more: Any) -> None:
    """Record i goes to partition i modulo partitions, one a second."""
    for i in range(count):
        at = BEGIN_MS + 1000 * i
        producer.send(topic, b"value %d" % i, key=b"%d" % i, partition=i % partitions, timestamp=at, **more)
    producer.flush()


def test_the_schema_is_that_of_sparks_kafka_source(
    spark: Any, broker: Brokers, topic: Topic, load: Load
) -> None:
    name = topic()
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    theirs = theirs.option("subscribe", name)
    assert load(name).schema == theirs.load().schema
    with_headers = theirs.option("includeHeaders", "true").load().schema
    assert load(name, includeHeaders="true").schema == with_headers


def test_records_come_as_they_were_sent(producer: Producer, topic: Topic, load: Load) -> None:
    name = topic(partitions=1)
    million = bytes(range(256)) * 4096
    producer.send(name, b"plain", key=b"k", timestamp=BEGIN_MS)
    producer.send(name, None, key=b"gone", timestamp=BEGIN_MS + 1)
    producer.send(name, b"", key=None, timestamp=BEGIN_MS + 2)
    producer.send(name, b"x", headers=[("a", b"1"), ("a", None), ("ü", b"")], timestamp=BEGIN_MS + 3)
    producer.send(name, million[:1_000_000], timestamp=BEGIN_MS + 4)
    producer.flush()
    rows = load(name, includeHeaders="true").orderBy("offset").collect()
    assert [row.key for row in rows] == [b"k", b"gone", None, None, None]
    assert [row.value for row in rows] == [b"plain", None, b"", b"x", million[:1_000_000]]
    headers = [None if row.headers is None else [tuple(each) for each in row.headers] for row in rows]
    assert headers == [None, None, None, [("a", b"1"), ("a", None), ("ü", b"")], None]
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(name, 0, 0)}
    begin = datetime.fromtimestamp(BEGIN_MS / 1000, UTC)
    assert [(row.timestamp.astimezone(UTC) - begin).microseconds for row in rows] == [
        0,
        1000,
        2000,
        3000,
        4000,
    ]


def test_a_narrower_schema_has_only_its_columns(producer: Producer, topic: Topic, load: Load) -> None:
    name = topic()
    fill(producer, name, 30)
    assert load(name, "offset LONG, value BINARY").columns == ["offset", "value"]
    rows = load(name, "offset LONG, value BINARY").where("offset = 9").collect()
    assert sorted(row.value for row in rows) == [b"value 27", b"value 28", b"value 29"]
    assert load(name, "partition INT").distinct().count() == 3


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("vlaue BINARY", "There is no column 'vlaue'; did you mean value?"),
        ("value STRING", "The column value is binary, not string: cast it after reading."),
    ],
)
def test_a_schema_of_other_columns_is_refused(schema: str, sentence: str, topic: Topic, load: Load) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as told:
        load(topic(), schema).count()
    assert sentence in str(told.value)
    assert "Traceback" not in str(told.value).partition("SQLSTATE")[0]


def test_a_wrong_option_is_one_sentence(topic: Topic, load: Load) -> None:
    with pytest.raises(
        Exception, match="There is no option 'startingoffset'; did you mean startingOffsets"
    ) as told:
        load(topic(), startingOffset="earliest")
    assert "Traceback" not in str(told.value).partition("SQLSTATE")[0]


def test_no_topic_and_no_broker_are_one_sentence_each(spark: Any, load: Load) -> None:
    with pytest.raises(Exception, match="Topic 'nowhere': This topic or partition does not exist"):
        load("nowhere").count()
    begun = time.monotonic()
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", "127.0.0.1:1")
    reader = reader.option("kafka.request.timeout.ms", "200000")  # told at once, and not when that is over
    with pytest.raises(Exception, match=r"No broker answers at 127\.0\.0\.1:1") as told:
        reader.option("subscribe", "orders").load().count()
    assert "Traceback" not in str(told.value).partition("SQLSTATE")[0]
    assert time.monotonic() - begun < 100


def test_places_say_where_to_begin_and_end(producer: Producer, topic: Topic, load: Load) -> None:
    name = topic()
    fill(producer, name, 30)

    def read(**options: str) -> list[int]:
        rows = load(name, "value BINARY", **options).collect()
        return sorted(int(row.value.split()[1]) for row in rows)

    offsets = f'{{"{name}":{{"0":2,"1":-2,"2":9}}}}'
    ends = f'{{"{name}":{{"0":3,"1":1,"2":-1}}}}'
    assert read(startingOffsets=offsets, endingOffsets=ends) == [1, 6, 29]
    assert read(startingTimestamp=str(BEGIN_MS + 24_000)) == [24, 25, 26, 27, 28, 29]
    assert read(endingTimestamp=str(BEGIN_MS + 2_000)) == [0, 1]
    times = f'{{"{name}":{{"0":{BEGIN_MS + 27_000},"1":{BEGIN_MS + 28_000},"2":{BEGIN_MS + 99_000}}}}}'
    with pytest.raises(Exception, match=r"No record of .*-2 is as late as the starting time"):
        read(startingOffsetsByTimestamp=times)
    late = read(startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest")
    assert late == [27, 28]
    with pytest.raises(Exception, match=r"startingOffsets does not name .*-1"):
        read(startingOffsets=f'{{"{name}":{{"0":0,"2":0}}}}')
    with pytest.raises(Exception, match="its log ends at 10"):
        read(endingOffsets=f'{{"{name}":{{"0":10,"1":10,"2":11}}}}')


def test_topics_by_pattern_and_partitions_by_name(
    spark: Any, broker: Brokers, producer: Producer, topic: Topic
) -> None:
    first, second = topic(), topic()
    fill(producer, first, 30)
    fill(producer, second, 60)
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    both = reader.option("subscribePattern", f"{first}|{second}").load()
    assert {(row.topic, row["count"]) for row in both.groupBy("topic").count().collect()} == {
        (first, 30),
        (second, 60),
    }
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    assert reader.option("assign", f'{{"{first}":[1],"{second}":[0,2]}}').load().count() == 50


def test_empty_partitions_and_topics_have_no_rows(producer: Producer, topic: Topic, load: Load) -> None:
    name = topic(partitions=4)
    assert load(name).count() == 0
    fill(producer, name, 5, partitions=1)
    assert load(name).count() == 5


def test_holes_of_compaction_are_passed_over(
    admin: Admin, producer: Producer, topic: Topic, load: Load
) -> None:
    name = topic(
        partitions=1,
        cleanup_policy="compact",
        segment_bytes="2000",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    sent = [(b"%d" % (i % 7), b"value %d" % i) for i in range(300)]
    for key, value in sent:
        producer.send(name, value, key=key).result()
    producer.send(name, b"last", key=b"last").result()

    def compacted() -> Any:
        rows = load(name).collect()
        # A read that began before segments were swapped, and ended after, has old ones first.
        return rows if len(rows) < 200 and all(row.offset for row in rows) else None

    rows = eventually(compacted, "a compacted log", within=60)
    newest = {row.key: row.value for row in sorted(rows, key=lambda row: row.offset)}
    assert newest == {**dict(sent), b"last": b"last"}
    assert max(row.offset for row in rows) == 300
    # Compaction goes on: the two are equal once it found nothing more to do.
    eventually(
        lambda: load(name, minPartitions="10").count() == load(name).count(), "the same rows in ten parts"
    )


def test_what_retention_took_is_told(
    admin: Admin, producer: Producer, topic: Topic, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(partitions=1)
    fill(producer, name, 20, partitions=1)
    admin.delete_records({TopicPartition(name, 0): 5})
    assert load(name).count() == 15
    start = f'{{"{name}":{{"0":2}}}}'
    with pytest.raises(Exception, match=r"Records 2 to 4 of .* are gone: its log begins at 5\. To go on"):
        load(name, startingOffsets=start).count()
    assert load(name, startingOffsets=start, failOnDataLoss="false").count() == 15
    eventually(lambda: f"Records 2 to 4 of {name}-0 are gone" in caplog.text, "a warning in this process")


def test_large_partitions_are_split(producer: Producer, topic: Topic, load: Load) -> None:
    name = topic(partitions=2)
    fill(producer, name, 100, partitions=2)
    split = load(name, minPartitions="8")
    assert split.rdd.getNumPartitions() == 10
    assert split.distinct().count() == 100
    assert load(name, maxRecordsPerPartition="30").rdd.getNumPartitions() == 4


@pytest.mark.parametrize("switch", ["false", "true"])
def test_a_filter_of_one_use_never_holds_for_another(
    switch: str, spark: Any, producer: Producer, topic: Topic, load: Load
) -> None:
    # With the switch on, Spark 4.3 keeps for all uses of a load() what was planned with the filters of the last one.
    name = topic()
    fill(producer, name, 30)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", switch)
    try:
        table = load(name)
        assert table.where("partition = 0").count() == 10
        assert table.count() == 30
        assert table.where("partition = 1").union(table.where("offset < 5")).count() == 25
        assert table.where("topic = 'another'").count() == 0
        assert table.where("timestamp >= timestamp_millis(1700000020000)").count() == 10
        assert table.where("offset in (0, 9) or partition = 0").count() == 14
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

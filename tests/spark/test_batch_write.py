"""Tables written to topics: as Spark's Kafka sink would, with the partitioner of every Kafka client."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from barnabas import Producer
from barnabas.client.partitioner import partition_of
from tests.brokers import Brokers
from tests.spark.conftest import Load

pytestmark = pytest.mark.java

Topic = Callable[..., str]
Save = Callable[..., None]
HEADERS = "array(named_struct('key', 'h', 'value', cast(string(id) as binary)))"


@pytest.fixture
def save(broker: Brokers) -> Save:
    def write(table: Any, **options: str) -> None:
        writer = table.write.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
        writer.options(**options).mode("append").save()

    return write


def test_rows_become_records(spark: Any, topic: Topic, save: Save, load: Load) -> None:
    name = topic()
    table = spark.range(2000).selectExpr(
        "if(id % 5 = 0, null, concat('key ', id)) as key",
        "if(id % 7 = 0, null, cast(concat('value ', id) as binary)) as value",
        f"if(id % 3 = 0, null, {HEADERS}) as headers",
        "id as not_sent",
    )
    save(table, topic=name)
    rows = load(name, includeHeaders="true").collect()
    assert len(rows) == 2000
    there = {(row.key, row.value, _headers(row.headers)) for row in rows}
    wanted = {
        (
            None if i % 5 == 0 else b"key %d" % i,
            None if i % 7 == 0 else b"value %d" % i,
            () if i % 3 == 0 else (("h", b"%d" % i),),
        )
        for i in range(2000)
    }
    assert there == wanted


def _headers(found: Any) -> tuple[tuple[str, bytes], ...]:
    return tuple((each.key, bytes(each.value)) for each in found or ())


def test_keys_go_where_every_client_sends_them(
    spark: Any, broker: Brokers, producer: Producer, topic: Topic, save: Save, load: Load
) -> None:
    ours, theirs, java = topic(partitions=7), topic(partitions=7), topic(partitions=7)
    table = spark.range(500).selectExpr("concat('ключ ', id * id) as key", "'x' as value")
    save(table, topic=ours)
    java_sink = table.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    java_sink.option("topic", java).save()
    for i in range(500):
        producer.send(theirs, b"x", key=f"ключ {i * i}".encode())
    producer.flush()

    def places(name: str) -> dict[bytes, int]:
        return {row.key: row.partition for row in load(name, "key BINARY, partition INT").collect()}

    assert places(ours) == places(theirs) == places(java)
    assert places(ours) == {key: partition_of(key, 7) for key in places(ours)}


def test_a_row_may_name_its_topic_and_partition(spark: Any, topic: Topic, save: Save, load: Load) -> None:
    first, second = topic(), topic()
    table = spark.range(300).selectExpr(
        f"if(id < 100, '{first}', '{second}') as topic",
        "cast(id % 2 as int) as partition",
        "string(id) as value",
    )
    save(table)
    for name, ids in ((first, range(100)), (second, range(100, 300))):
        rows = load(name).orderBy("partition", "offset").collect()
        assert sorted(int(row.value) for row in rows) == list(ids)
        assert all(row.partition == int(row.value) % 2 for row in rows)
    save(table, topic=first)
    assert load(first).count() == 400


def test_a_million_bytes_are_one_record(spark: Any, topic: Topic, save: Save, load: Load) -> None:
    name = topic()
    save(spark.range(3).selectExpr("repeat('x', 1000000) as value"), topic=name)
    assert [len(row.value) for row in load(name).collect()] == [1_000_000] * 3


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (["'x' as value"], {}, "Nothing says which topic to write to"),
        (["'x' as key"], {"topic": "t"}, "There is no column value to write"),
        (["id as value"], {"topic": "t"}, "The column value must be binary or string, not bigint: cast it."),
        (
            ["'x' as value", "'1' as partition"],
            {"topic": "t"},
            "The column partition must be int, not string",
        ),
        (
            ["'x' as value", "'1' as headers"],
            {"topic": "t"},
            "The column headers must be array<struct<key:string",
        ),
        (["'x' as value"], {"topic": "t", "subscribe": "t"}, "The option subscribe is not for writes"),
        (["'x' as value"], {"topic": "t", "kafka.ack": "all"}, "did you mean kafka.acks?"),
        (["'x' as value", "string(null) as topic"], {}, "A row has no topic"),
        (
            ["'x' as value", "99 as partition"],
            {"topic": "TOPIC"},
            "A row names partition 99, but the topic has 3.",
        ),
    ],
)
def test_what_cannot_be_written_is_one_sentence(
    spark: Any, topic: Topic, save: Save, columns: list[str], options: dict[str, str], sentence: str
) -> None:
    if options.get("topic") == "TOPIC":
        options = {**options, "topic": topic()}
    with pytest.raises(Exception, match=re.escape(sentence)) as told:
        save(spark.range(1).selectExpr(*columns), **options)
    assert "Traceback" not in str(told.value)


def test_topics_are_not_overwritten(spark: Any, broker: Brokers, topic: Topic) -> None:
    writer = spark.range(1).selectExpr("'x' as value").write.format("barnabas").mode("overwrite")
    with pytest.raises(Exception, match="A topic cannot be overwritten"):
        writer.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic()).save()

"""Spark's own Kafka connector, with Java's clients in it, takes our broker for Kafka: batch, stream and sink."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from tests.brokers import Brokers
from tests.spark.conftest import Load

pytestmark = pytest.mark.java

Topic = Callable[..., str]
BEGIN_MS = 1_700_000_000_000
LIMIT_S = 180


def options(broker: Brokers, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}


def fill(producer: Producer, topic: str, count: int) -> None:
    for i in range(count):
        headers = {"number": b"%d" % i} if i % 2 else None
        at = BEGIN_MS + 1000 * i
        key = b"%d" % i if i % 3 else None
        value = b"value %d" % i if i % 5 else None
        producer.send(topic, value, key=key, headers=headers, partition=i % 3, timestamp=at)
    producer.flush()


def as_rows(table: Any) -> list[Any]:
    rows = table.orderBy("partition", "offset").collect()
    return [row.asDict(recursive=True) for row in rows]


def test_both_connectors_read_the_same(
    spark: Any, broker: Brokers, producer: Producer, topic: Topic, load: Load
) -> None:
    name = topic()
    fill(producer, name, 300)
    theirs = spark.read.format("kafka").options(**options(broker, name))
    assert as_rows(theirs.load()) == as_rows(load(name, includeHeaders="true"))
    for place in (
        {
            "startingOffsets": f'{{"{name}":{{"0":5,"1":-2,"2":99}}}}',
            "endingOffsets": f'{{"{name}":{{"0":9,"1":3,"2":-1}}}}',
        },
        {"startingTimestamp": str(BEGIN_MS + 100_500), "endingTimestamp": str(BEGIN_MS + 160_000)},
        {"minPartitions": "7"},
    ):
        table = spark.read.format("kafka").options(**options(broker, name), **place).load()
        assert as_rows(table) == as_rows(load(name, includeHeaders="true", **place))


def test_its_stream_follows_a_topic(
    spark: Any, broker: Brokers, admin: Admin, producer: Producer, topic: Topic, tmp_path: Path
) -> None:
    name = topic()
    fill(producer, name, 300)

    def run() -> int:
        source = spark.readStream.format("kafka").options(**options(broker, name))
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200")
        sink = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = sink.trigger(availableNow=True).start()
        assert query.awaitTermination(LIMIT_S)
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    assert run() == 300
    fill(producer, name, 30)
    assert run() == 30


def test_its_sink_writes_tables_and_streams(
    spark: Any, broker: Brokers, producer: Producer, topic: Topic, load: Load, tmp_path: Path
) -> None:
    source, batch, stream = topic(), topic(), topic()
    fill(producer, source, 300)
    columns = ["key", "value", "headers", "partition"]
    rows = spark.read.format("kafka").options(**options(broker, source)).load().select(*columns)
    rows.write.format("kafka").options(**options(broker, "x")).option("topic", batch).save()
    streamed = spark.readStream.format("kafka").options(**options(broker, source))
    streamed = streamed.option("startingOffsets", "earliest").load().select(*columns)
    sink = streamed.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    sink = sink.option("topic", stream).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert sink.start().awaitTermination(LIMIT_S)

    def sent(name: str) -> list[Any]:
        found = load(name, includeHeaders="true").select(*columns).collect()
        return sorted((row.asDict(recursive=True) for row in found), key=repr)

    assert sent(batch) == sent(stream) == sent(source)


@pytest.mark.parametrize("connector", ["kafka", "barnabas"])
def test_a_batch_that_begins_beyond_the_end_is_refused(
    connector: str, spark: Any, broker: Brokers, producer: Producer, topic: Topic
) -> None:
    name = topic(partitions=1)
    producer.send(name, b"one", partition=0).result()
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", name)
    assert reader.option("startingOffsets", f'{{"{name}":{{"0":1}}}}').load().count() == 0
    for lossy in ("true", "false"):
        late = reader.option("failOnDataLoss", lossy).option("startingOffsets", f'{{"{name}":{{"0":5}}}}')
        with pytest.raises(Exception, match=r"beyond (its|the) end"):
            late.load().count()
    backwards = reader.option("startingOffsets", f'{{"{name}":{{"0":1}}}}')
    with pytest.raises(Exception, match=r"beyond its end|greater than the end"):
        backwards.option("endingOffsets", f'{{"{name}":{{"0":0}}}}').load().count()

"""Streams from topics of a real broker to topics of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from barnabas.client.admin.admin import Admin
from barnabas.streams import Stream, StreamError, count, run, sum
from tests.brokers import Brokers, serving
from tests.streams.feed import WITHIN_S, rows

pytestmark = pytest.mark.java

ORDERS = "id long, user string, amount double"


@pytest.fixture(scope="module")
def broker() -> Iterator[Brokers]:
    with serving() as running:
        with Admin(running.bootstrap) as admin:
            for topic in ("orders", "big", "rest", "copied", "totals"):
                admin.create_topic(topic, partitions=2)
        yield running


def _records(spark: SparkSession, broker: Brokers, topic: str) -> list[tuple[str | None, str]]:
    read = Stream.from_topic(spark, topic, bootstrap=broker.bootstrap, streaming=False)
    text = read.map(key=col("key").cast("string"), value=col("value").cast("string"))
    return [(key, value) for key, value in rows(text, "key", "value")]


def test_orders_are_read_parted_and_written(spark: SparkSession, broker: Brokers, tmp_path: Path) -> None:
    orders = [(1, "ann", 10.0), (2, "bob", 250.0), (3, "ann", 300.0), (4, "cyd", 1.0)]
    made = Stream.of(spark.createDataFrame(orders, ORDERS)).key_by("user")
    made.to_topic("orders", bootstrap=broker.bootstrap).run()
    read = Stream.from_topic(spark, "orders", bootstrap=broker.bootstrap, schema=ORDERS)
    assert {"key", "offset", "timestamp", "id", "user", "amount"} <= set(read.dataframe.columns)
    parts = read.select("id", "user", "amount").key_by("user").branch(big=col("amount") > 100, rest=True)
    outputs = [part.to_topic(name, bootstrap=broker.bootstrap) for name, part in parts.items()]
    for each in run(*outputs, checkpoint=str(tmp_path / "state"), once=True):
        assert each.wait(WITHIN_S)
    big = _records(spark, broker, "big")
    assert [(key, json.loads(value)) for key, value in big] == [
        ("ann", {"id": 3, "user": "ann", "amount": 300.0}),
        ("bob", {"id": 2, "user": "bob", "amount": 250.0}),
    ]
    assert [key for key, _ in _records(spark, broker, "rest")] == ["ann", "cyd"]

    totals = read.key_by("user").aggregate(total=sum("amount"), n=count())
    running = totals.to_topic("totals", bootstrap=broker.bootstrap).run(
        checkpoint=str(tmp_path / "totals"), once=True
    )
    assert running.wait(WITHIN_S)
    found = {key: json.loads(value)["total"] for key, value in _records(spark, broker, "totals")}
    assert found == {"ann": 310.0, "bob": 250.0, "cyd": 1.0}


def test_records_that_were_not_looked_into_are_copied_as_they_are(
    spark: SparkSession, broker: Brokers, tmp_path: Path
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("raw", partitions=1)
    raw = [(b"\x00\xff", b"\xfe"), (None, b"x"), (b"k", None)]
    Stream(spark.createDataFrame(raw, "key binary, value binary"), records=True).to_topic(
        "raw", bootstrap=broker.bootstrap
    ).run()
    copy = Stream.from_topic(spark, "raw", bootstrap=broker.bootstrap).filter(col("offset") >= 0)
    assert (
        copy.to_topic("copied", bootstrap=broker.bootstrap)
        .run(checkpoint=str(tmp_path / "s"), once=True)
        .wait(WITHIN_S)
    )
    read = Stream.from_topic(spark, "copied", bootstrap=broker.bootstrap, streaming=False)
    assert {
        tuple(None if each is None else bytes(each) for each in row) for row in rows(read, "key", "value")
    } == set(raw)


def test_a_topic_that_is_not_there_is_one_sentence(spark: SparkSession, broker: Brokers) -> None:
    read = Stream.from_topic(spark, "nosuch", bootstrap=broker.bootstrap)
    running = read.to_memory("nosuch").run(once=True)
    with pytest.raises(StreamError, match="nosuch") as told:
        running.wait(WITHIN_S)
    assert "\n" not in str(told.value)

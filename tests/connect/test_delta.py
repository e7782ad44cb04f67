"""Delta tables as sources and sinks of flows, where the installed PySpark has a Delta Lake."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.connect.connector import Batch
from barnabas.connect.delta import DeltaSink
from tests.brokers import Brokers, serving
from tests.connect.conftest import RunFile
from tests.spark.connector import table_formats

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif("delta" not in table_formats(), reason="Delta has no release for this PySpark"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Brokers]:
    with serving() as running:
        yield running


def test_from_a_topic_through_a_delta_table_to_a_topic(
    spark: Any, run_file: RunFile, broker: Brokers, tmp_path: Path
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("in", partitions=2)
        admin.create_topic("out", partitions=1)
    table = tmp_path / "table"
    there = f"""
        bootstrap = "{broker.bootstrap}"
        [source.in]
        connector = "topic"
        topic = "in"
        schema = "id long, user string"
        [sink.table]
        connector = "delta"
        path = "{table}"
        partition_by = "user"
    """
    back = f"""
        bootstrap = "{broker.bootstrap}"
        [source.table]
        connector = "delta"
        path = "{table}"
        [sink.out]
        connector = "topic"
        topic = "out"
        key = "user"
    """
    for first in (0, 50):
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(first, first + 50):
                producer.send("in", b'{"id": %d, "user": "u%d"}' % (number, number % 3))
        assert run_file(there, checkpoint="there").told.rows == 50
        assert run_file(back, checkpoint="back").told.rows == 50
    assert run_file(there, checkpoint="there").told.rows == 0
    assert run_file(back, checkpoint="back").told.rows == 0
    found = spark.read.format("delta").load(str(table)).collect()
    assert sorted((row["id"], row["user"]) for row in found) == [(n, f"u{n % 3}") for n in range(100)]
    sent = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    values = sent.option("subscribe", "out").load().selectExpr("from_json(string(value), 'id long') as v")
    assert sorted(row["v"]["id"] for row in values.collect()) == list(range(100))


def test_a_batch_that_comes_again_counts_once(spark: Any, tmp_path: Path) -> None:
    sink = DeltaSink(path=str(tmp_path / "out"))
    for batch, rows in ((Batch("a", 0), 3), (Batch("a", 1), 2), (Batch("a", 1), 2), (Batch("b", 0), 1)):
        sink.write(spark.range(rows).toDF("id"), batch)
    assert spark.read.format("delta").load(str(tmp_path / "out")).count() == 6

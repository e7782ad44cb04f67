"""Parquet, Delta and Iceberg, end to end: a topic to a table, incremental, one row a key, and back to a topic."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas import Producer
from barnabas.pipelines import delta, iceberg, parquet
from barnabas.pipelines.places import Files, Surroundings
from barnabas.pipelines.running import Ended
from tests.brokers import Brokers
from tests.pipelines.conftest import Made
from tests.spark.connector import table_formats

PLACES: dict[str, Callable[..., Files]] = {"parquet": parquet, "delta": delta, "iceberg": iceberg}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.parametrize(
        "kind",
        [
            pytest.param(
                kind,
                marks=pytest.mark.skipif(
                    kind not in ("parquet", *table_formats()),
                    reason=f"{kind} has no release for this PySpark",
                ),
            )
            for kind in PLACES
        ],
    ),
]


def rows_of(spark: Any, kind: str, path: str) -> list[dict[str, Any]]:
    table = PLACES[kind](path).read(spark, Surroundings(""))
    return [row.asDict() for row in table.collect()]


@pytest.mark.parametrize("partition_by", ["", "service"])
def test_a_topic_becomes_a_table_and_the_table_a_topic(
    spark: Any,
    made: Callable[..., Made],
    new_topic: Callable[..., str],
    run_once: Callable[..., Ended],
    records_of: Callable[[str], list[Any]],
    tmp_path: Path,
    kind: str,
    partition_by: str,
) -> None:
    output, back = str(tmp_path / "the table"), new_topic()
    readings = made("metrics", 2000, 5.0)
    wanted = {"source": readings.topic, "output": output, "format": kind, "partition_by": partition_by}
    assert run_once("offline-load", **wanted).rows == {"out": 2000}
    more = made("metrics", 500, 5.0, topic=readings.topic, first=2000)
    assert run_once("offline-load", **wanted).rows == {"out": 500}, "the second run reads only what is new"
    # As after a crash between the table's commit and Spark's: the batch comes again.
    commits = tmp_path / "checkpoints" / "offline-load" / "out" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    for each in (commits / str(last), commits / f".{last}.crc"):
        each.unlink(missing_ok=True)
    assert run_once("offline-load", **wanted).rows["out"] in (0, 500), "Delta does not even read it again"
    assert run_once("offline-load", **wanted).rows == {"out": 0}
    values = [json.loads(row["value"]) for row in readings.rows + more.rows]
    found = rows_of(spark, kind, output)
    partition = "_topic_partition" if kind == "iceberg" else "_partition"
    assert len({(row[partition], row["_offset"]) for row in found}) == len(found) == 2500, "each row once"
    assert set(values[0]) < set(found[0]), "the fields of the JSON are columns"
    assert all(row["_corrupt"] is None for row in found)
    assert sum(row["value"] for row in found) == pytest.approx(sum(each["value"] for each in values))

    there = {"table": output, "topic": back, "key": "service", "format": kind}
    assert run_once("table-to-topic", **there).rows == {"out": 2500}
    assert run_once("table-to-topic", **there).rows == {"out": 0}
    returned = [(bytes(row["key"]).decode(), json.loads(row["value"])) for row in records_of(back)]
    fields = {"service", "host", "metric", "time", "value"}
    assert all(set(each) == fields and each["service"] == key for key, each in returned)
    by_content = sorted(json.dumps(each, sort_keys=True) for each in values)
    assert sorted(json.dumps(each, sort_keys=True) for _, each in returned) == by_content


def test_a_table_keeps_the_newest_row_a_key_and_forgets_what_was_deleted(
    spark: Any,
    broker: Brokers,
    new_topic: Callable[..., str],
    run_once: Callable[..., Ended],
    tmp_path: Path,
    kind: str,
) -> None:
    source, output = new_topic(), str(tmp_path / "newest")
    wanted = {"source": source, "output": output, "newest_by": "_key", "schema": "n BIGINT, note STRING"}
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(300):
            value = b'{"n": %d, "note": "first"}' % number
            producer.send(source, value, key=b"k%d" % (number % 100))
        producer.send(source, b"no json", key=b"odd")
        producer.send(source, None, key=b"never there")
    run_once("offline-load", format=kind, **wanted)
    first = {row["_key"]: row["n"] for row in rows_of(spark, kind, output)}
    assert first == {f"k{number}": 200 + number for number in range(100)} | {"odd": None}
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(source, None, key=b"k7")
        producer.send(source, b'{"n": 1000}', key=b"k8")
        producer.send(source, b'{"n": 1, "note": "new"}', key=b"new")
    run_once("offline-load", format=kind, **wanted)
    table = rows_of(spark, kind, output)
    second = {row["_key"]: row["n"] for row in table}
    assert len(table) == len(second), "one row a key"
    assert second == {key: n for key, n in first.items() if key != "k7"} | {"k8": 1000, "new": 1}
    assert [row["_corrupt"] for row in table if row["_key"] == "odd"] == ["no json"]


def test_a_batch_that_comes_again_changes_nothing(spark: Any, tmp_path: Path, kind: str) -> None:
    from barnabas.pipelines.newest import keep_newest

    place = PLACES[kind](str(tmp_path / "again"), newest_by="id")
    batch = spark.sql(
        "select id, 'a' as note, 0 as _partition, id as _offset, id = 3 as _deleted from range(10)"
    )
    write = keep_newest(place)
    write(batch, 0)
    write(batch, 0)
    older = batch.selectExpr(
        "id", "'older' as note", "_partition", "_offset - 1 as _offset", "false as _deleted"
    )
    write(older.where("id <> 3"), 1)
    found = place.read(spark, Surroundings("")).collect()
    assert sorted((row["id"], row["note"]) for row in found) == [(n, "a") for n in range(10) if n != 3]


def test_rows_that_are_all_there_are_appended(spark: Any, tmp_path: Path, kind: str) -> None:
    place = PLACES[kind](str(tmp_path / "still"), partition_by=("part",))
    for _ in range(2):
        place.write(spark.range(10).selectExpr("id", "id % 3 as part"), Surroundings(""))
    assert place.read(spark, Surroundings("")).count() == 20

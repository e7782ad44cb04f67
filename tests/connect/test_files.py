"""Files in, files out: each once, what does not fit goes where it is told to."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQueryListener

from barnabas.connect.connector import Batch
from barnabas.connect.delta import DeltaSink
from barnabas.connect.files import ParquetSink
from barnabas.connect.option import ConnectError
from tests.connect.conftest import RunFile
from tests.spark.connector import table_formats

pytestmark = pytest.mark.java


def _rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_csv_to_parquet_and_json_with_dead_letters(spark: Any, run_file: RunFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("id,user,amount\n1,ann,10.5\n2,bob,much\n3,cyd,\n4,dan,1\n")
    text = f"""
        [source.orders]
        connector = "csv"
        path = "{tmp_path}/in"
        schema = "id long, user string, amount double"

        [sink.table]
        connector = "parquet"
        path = "{tmp_path}/table"
        partition_by = ["user"]

        [sink.lines]
        connector = "jsonlines"
        path = "{tmp_path}/lines"

        [sink.letters]
        connector = "csv"
        path = "{tmp_path}/letters"

        [flow.main]
        source = "orders"
        sinks = ["table", "lines"]
        where = "id < 4"
        select = ["id", "user", "coalesce(amount, 0) as amount"]
        dead_letters = "letters"
    """
    done = run_file(text)
    assert (done.told.batches, done.told.rows) == (1, 4)
    assert _rows(spark.read.parquet(f"{tmp_path}/table"), "id", "user", "amount") == [
        (1, "ann", 10.5),
        (3, "cyd", 0.0),
    ]
    assert _rows(spark.read.json(f"{tmp_path}/lines"), "id", "amount") == [(1, 10.5), (3, 0.0)]
    letters = spark.read.option("header", True).csv(f"{tmp_path}/letters")
    assert _rows(letters, "value", "reason", "flow") == [("2,bob,much", "it does not fit the schema", "main")]

    (tmp_path / "in" / "2.csv").write_text("id,user,amount\n0,eve,7\n")
    assert run_file(text).told.rows == 1  # the file that came, and no other
    assert _rows(spark.read.parquet(f"{tmp_path}/table"), "id") == [(0,), (1,), (3,)]


@pytest.mark.slow
def test_rows_that_spark_tells_of_late_are_counted(spark: Any, run_file: RunFile, tmp_path: Path) -> None:
    class Slow(StreamingQueryListener):  # type: ignore[misc]
        """Spark tells one listener after the other: who comes behind this one hears everything late."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            Event().wait(7)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("one\ntwo\n")
    slow = Slow()
    spark.streams.addListener(slow)
    try:
        done = run_file(
            f'[source.lines]\nconnector = "text"\npath = "{tmp_path}/in"\n'
            f'[sink.out]\nconnector = "jsonlines"\npath = "{tmp_path}/out"\n'
        )
    finally:
        spark.streams.removeListener(slow)
    assert (done.told.batches, done.told.rows) == (1, 2)


def test_a_header_that_is_not_the_schema_ends_the_flow(run_file: RunFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("user,id\n1,2\n")
    text = f"""
        [source.orders]
        connector = "csv"
        path = "{tmp_path}/in"
        schema = "id long, user string"
        [sink.out]
        connector = "jsonlines"
        path = "{tmp_path}/out"
    """
    with pytest.raises(ConnectError, match="CSV header does not conform to the schema") as told:
        run_file(text)
    assert "\n" not in str(told.value)


def test_without_dead_letters_a_bad_row_ends_the_flow(run_file: RunFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": tw\n')
    text = f"""
        [source.lines]
        connector = "jsonlines"
        path = "{tmp_path}/in"
        schema = "id long"
        [sink.out]
        connector = "csv"
        path = "{tmp_path}/out"
    """
    with pytest.raises(ConnectError, match=r"Flow lines: .*a value is no JSON of the schema.*tw") as told:
        run_file(text)
    assert "\n" not in str(told.value)


def test_a_batch_that_comes_again_replaces_itself(spark: Any, tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path / "out"))
    for batch, rows in ((Batch("a", 0), 3), (Batch("a", 1), 2), (Batch("a", 1), 2), (Batch("b", 0), 1)):
        sink.write(spark.range(rows).toDF("id"), batch)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 6


def test_wrong_columns_are_told_before_anything_runs(run_file: RunFile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ends = f"""
        [source.lines]
        connector = "text"
        path = "{tmp_path}/in"
        [sink.out]
        connector = "csv"
        path = "{tmp_path}/out"
        [flow.main]
        source = "lines"
        sinks = ["out"]
    """
    with pytest.raises(Exception, match="filter: there is no column vale; did you mean value"):
        run_file(ends + 'where = "vale is not null"')
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif("delta" in table_formats(), reason="this Spark has Delta")
def test_delta_that_spark_does_not_have_is_one_sentence(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"Delta tables need Delta Lake in Spark: .* \(this is 4\.\d"):
        DeltaSink(path=str(tmp_path / "table")).write(spark.range(1), Batch("a", 0))

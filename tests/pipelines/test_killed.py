"""A folder that a pipeline writes means the same to every reader, also after kill -9: whole files, each row once."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pyarrow.dataset as ds
import pytest

from barnabas import Producer
from barnabas.errors import BarnabasError
from barnabas.spark.installed import has_read_limits
from barnabas.spark.published import Published
from tests.brokers import Brokers
from tests.conftest import ROOT
from tests.deadline import eventually

pytestmark = [pytest.mark.java]

RECORDS = 9000
KILLS = 3
LIMIT_S = 180
Rows = list[tuple[int, int]]


@contextmanager
def pipeline(broker: Brokers, topic: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.pipelines.to_kill", broker.bootstrap, topic, str(folder)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, start_new_session=True)
    try:
        yield process
    finally:
        # Spark's JVM is in the same session: all of it goes at once, as when a machine does.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)


def seen_by_all(table: Path) -> Rows:
    """What DuckDB, pandas and PyArrow find in a folder: all the same."""
    glob = f"{table}/**/*.parquet"
    by_duckdb = duckdb.sql(
        f'select "partition", "offset" from read_parquet(\'{glob}\', hive_partitioning=true)'
    )
    frame = pandas.read_parquet(table)
    arrow = ds.dataset(table, format="parquet", partitioning="hive").to_table()
    found = [
        [(int(partition), int(offset)) for partition, offset in by_duckdb.fetchall()],
        [
            (int(partition), int(offset))
            for partition, offset in zip(frame["partition"], frame["offset"], strict=True)
        ],
        list(zip(arrow["partition"].to_pylist(), arrow["offset"].to_pylist(), strict=True)),
    ]
    assert sorted(found[0]) == sorted(found[1]) == sorted(found[2])
    return sorted(found[0])


@pytest.mark.slow(seconds=80)
@pytest.mark.timeout(900)
@pytest.mark.skipif(not has_read_limits(), reason="Spark 4.1 reads all there is in one batch")
def test_killed_again_and_again_every_reader_finds_each_row_once(
    broker: Brokers, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    topic, table = new_topic(3), tmp_path / "table"
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for i in range(RECORDS):
            producer.send(topic, b"%d" % i, partition=i % 3)

    def files() -> int:
        """Those that are there, those that are being written, those that are ready: a kill comes at any of them."""
        return sum(len(names) for _, _, names in os.walk(tmp_path))

    for _ in range(KILLS):
        enough = files() + dice.randrange(15, 60)
        with pipeline(broker, topic, tmp_path) as process:
            eventually(
                lambda enough=enough, process=process: files() >= enough or process.poll() is not None,  # type: ignore[misc]
                f"more files (seed {seed})",
                LIMIT_S,
            )
            assert process.poll() is None, f"the pipeline ended by itself (seed {seed})"
        if table.exists():
            found = seen_by_all(table)
            assert len(set(found)) == len(found), f"rows twice (seed {seed})"
    with pipeline(broker, topic, tmp_path) as process:
        assert process.wait(LIMIT_S) == 0
    assert seen_by_all(table) == [(partition, at) for partition in range(3) for at in range(RECORDS // 3)]


@pytest.fixture
def as_query(spark: Any) -> Iterator[Any]:
    """A session in which batches are those of one query."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "query")
    yield spark
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)


def test_a_batch_that_is_repeated_goes_on_where_it_was(as_query: Any, tmp_path: Path) -> None:
    table, beside = tmp_path / "table", tmp_path / ".table.query"
    folder = Published(str(table), "parquet", partition_by=["partition"])

    def rows(first: int) -> Any:
        return as_query.range(first, first + 30, numPartitions=3).selectExpr(
            "int(id % 2) as partition", "id as offset"
        )

    wanted = sorted((at % 2, at) for at in range(30))
    folder.batch(rows(0), 0)
    assert seen_by_all(table) == wanted
    folder.batch(rows(0), 0)  # Spark was killed before it had noted that the batch was done
    assert seen_by_all(table) == wanted
    # Killed while files were moved: some are in the folder, some beside it.
    (beside / "0.done").rename(beside / "0")
    moved = sorted(table.rglob("*.parquet"))[:2]
    for file in moved:
        back = beside / "0" / file.relative_to(table)
        back.parent.mkdir(parents=True, exist_ok=True)
        file.rename(back)
    folder.batch(rows(0), 0)
    assert seen_by_all(table) == wanted
    # Killed while the next batch was written.
    (beside / "1.writing" / "_temporary").mkdir(parents=True)
    (beside / "1.writing" / "_temporary" / "part-0.parquet").touch()
    folder.batch(rows(30), 1)
    assert seen_by_all(table) == sorted((at % 2, at) for at in range(60))


def test_a_folder_with_a_log_of_sparks_own_sink_is_refused(as_query: Any, tmp_path: Path) -> None:
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(BarnabasError, match="was written by Spark's own sink, whose log hides every file"):
        Published(str(tmp_path / "table"), "parquet").batch(as_query.range(3), 0)

"""A query's checkpoint: on a local disk without a process for every file, elsewhere as Spark keeps it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark import checkpoints
from barnabas.spark.checkpoints import HOW_FILES_ARE_KEPT, PLAINLY, start_query

pytestmark = pytest.mark.java

SPARKS_OWN = PLAINLY.replace("FileSystemBased", "FileContextBased")


@pytest.fixture
def rows(spark: Any, tmp_path: Path) -> Any:
    """Lines of files that come."""
    (tmp_path / "lines").mkdir()
    come(tmp_path, "first")
    return spark.readStream.text(str(tmp_path / "lines"))


def come(where: Path, name: str) -> None:
    (where / name).write_text(f"{name}\n")
    (where / name).rename(where / "lines" / name)


@pytest.fixture
def told(spark: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets a setting of the session for one test."""
    keys = []

    def tell(key: str, value: str) -> None:
        keys.append(key)
        spark.conf.set(key, value)

    yield tell
    for key in keys:
        spark.conf.unset(key)


def kept_by(spark: Any, rows: Any, folder: str) -> str | None:
    """How a query that was started there keeps its checkpoint."""
    query = start_query(spark, rows.writeStream.format("noop"), folder)
    try:
        query.processAllAvailable()
        settings = query._jsq.streamingQuery().sparkSessionForStream().conf()
        found: str | None = settings.get(HOW_FILES_ARE_KEPT, None)
        return found
    finally:
        query.stop()


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_files_on_a_local_disk_are_kept_plainly(spark: Any, rows: Any, tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "with space"
    assert kept_by(spark, rows, f"{scheme}{folder}") == PLAINLY
    assert (folder / "commits" / "0").exists()
    assert spark.conf.get(HOW_FILES_ARE_KEPT, None) is None


def test_what_the_session_was_told_is_kept(
    spark: Any, rows: Any, tmp_path: Path, told: Callable[[str, str], None]
) -> None:
    told(HOW_FILES_ARE_KEPT, SPARKS_OWN)
    assert kept_by(spark, rows, str(tmp_path / "checkpoint")) == SPARKS_OWN
    assert spark.conf.get(HOW_FILES_ARE_KEPT) == SPARKS_OWN


@pytest.mark.parametrize("folder", ["hdfs://name-node/checkpoint", "s3a://bucket/checkpoint"])
def test_files_elsewhere_are_kept_as_spark_does_it(spark: Any, folder: str) -> None:
    with checkpoints._files_kept_plainly(spark, folder):
        assert spark.conf.get(HOW_FILES_ARE_KEPT, None) is None


def test_a_folder_without_a_scheme_is_where_hadoop_says(spark: Any) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://name-node")
    try:
        with checkpoints._files_kept_plainly(spark, "/checkpoint"):
            assert spark.conf.get(HOW_FILES_ARE_KEPT, None) is None
    finally:
        hadoop.set("fs.defaultFS", before)


def test_a_query_that_does_not_start_leaves_the_session_as_it_was(
    spark: Any, rows: Any, tmp_path: Path
) -> None:
    writer = rows.writeStream.format("noop").outputMode("complete")
    with pytest.raises(Exception, match=r"[Cc]omplete"):
        start_query(spark, writer, str(tmp_path))
    assert spark.conf.get(HOW_FILES_ARE_KEPT, None) is None


def test_a_checkpoint_that_spark_began_is_taken_up(spark: Any, rows: Any, tmp_path: Path) -> None:
    """And the other way round: whoever goes back to Spark's own way loses nothing."""
    folder = tmp_path / "checkpoint"
    written = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows")).queryName("both ways")
    theirs = written.option("checkpointLocation", str(folder)).start
    for start, name in (
        (theirs, "second"),
        (lambda: start_query(spark, written, str(folder)), "third"),
        (theirs, "fourth"),
    ):
        come(tmp_path, name)
        query = start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    found = sorted(row.value for row in spark.read.parquet(str(tmp_path / "rows")).collect())
    assert found == sorted(["first", "second", "third", "fourth"])

"""Starts a streaming query with its checkpoint: quickly where that is on a disk of this machine.

Called by pipelines, streams (and through them connectors) and the bench. Always holds: where Spark was told how to
keep checkpoints, or the checkpoint is on HDFS or in an object store, it is kept as Spark does it; the session is left
as it was.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

HOW_FILES_ARE_KEPT = "spark.sql.streaming.checkpointFileManagerClass"
PLAINLY = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Through Hadoop's older interface. The newer one, which Spark takes where it can, looks for symbolic links by starting
`readlink` as a process, some twenty times a batch: 65 ms for the two files of a batch, instead of 20."""

_one_at_a_time = threading.Lock()


def start_query(spark: "SparkSession", writer: "DataStreamWriter", checkpoint: str) -> "StreamingQuery":
    """Start a query that keeps in the folder `checkpoint` how far it has come."""
    with _files_kept_plainly(spark, checkpoint):
        return writer.option("checkpointLocation", checkpoint).start()


@contextmanager
def _files_kept_plainly(spark: "SparkSession", checkpoint: str) -> Iterator[None]:
    """A query has its own copy of the session's settings from its start on: the session need not keep this one."""
    with _one_at_a_time:
        if spark.conf.get(HOW_FILES_ARE_KEPT, None) is not None or not _is_local(spark, checkpoint):
            yield
            return
        spark.conf.set(HOW_FILES_ARE_KEPT, PLAINLY)
        try:
            yield
        finally:
            spark.conf.unset(HOW_FILES_ARE_KEPT)


def _is_local(spark: "SparkSession", folder: str) -> bool:
    """Elsewhere a file may not be replaced by a rename, and the state of a batch that is done again is."""
    scheme = urlsplit(folder).scheme
    if not scheme:
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        scheme = urlsplit(hadoop.get("fs.defaultFS") or "").scheme
    return scheme == "file"

"""Owns how the files of a batch come into a folder: written beside it, then moved in one by one.

Used by the sinks of pipelines and streams that are folders of files. Spark's own sink tells by a log of its own,
`_spark_metadata`, which of the files in a folder count, and no other reader knows it: after kill -9 DuckDB, pandas and
PyArrow met torn files, and rows twice. Always holds: what is in the folder is whole and there once, for every reader; a
batch that is repeated goes on where it was; one that is done is passed over.

Beside `tables/orders` there is `tables/.orders.QUERY`. In it are `7.writing` while batch 7 is written, `7` while its
files are moved, `7.done` from then on until the next batch.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from barnabas.errors import BarnabasError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
"""Of these a folder is all there is: no log of its own says which files count."""

_QUERY = "sql.streaming.queryId"
_LOG_OF_SPARK = "_spark_metadata"


class Published:
    """A folder of files in one format."""

    def __init__(
        self,
        path: str,
        format: str,  # noqa: A002
        *,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path.rstrip("/")
        self._format = format
        self._partition_by = tuple(partition_by)
        self._options = dict(options or {})

    def batch(self, rows: "DataFrame", number: int) -> None:
        """Write a batch of a stream; Spark calls it from `foreachBatch`."""
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
        if not query:
            raise BarnabasError(f"A batch for {self._path} belongs to no query.")
        self._publish(rows, str(query), str(number))

    def whole(self, rows: "DataFrame") -> None:
        """Append rows that are all there."""
        self._publish(rows, uuid4().hex, "all", clean=True)

    def _publish(self, rows: "DataFrame", origin: str, batch: str, *, clean: bool = False) -> None:
        files = _Files(rows.sparkSession, self._path)
        if files.exists(f"{self._path}/{_LOG_OF_SPARK}"):
            raise BarnabasError(
                f"{self._path} was written by Spark's own sink, whose log hides every file that is not in it: write to "
                f"another folder, or read it with Spark and write it anew."
            )
        around, _, name = self._path.rpartition("/")
        beside = f"{around}/.{name}.{origin}" if around else f".{name}.{origin}"
        ready, done = f"{beside}/{batch}", f"{beside}/{batch}.done"
        if files.exists(done):
            return
        if not files.exists(ready):
            files.delete(beside)
            self._write(rows, f"{ready}.writing")
            files.rename(f"{ready}.writing", ready)
        for file in files.below(ready):
            files.move(f"{ready}/{file}", f"{self._path}/{file}")
        if clean:
            files.delete(beside)
        else:
            files.rename(ready, done)

    def _write(self, rows: "DataFrame", folder: str) -> None:
        writer = rows.write.format(self._format).mode("overwrite").options(**self._options)
        (writer.partitionBy(*self._partition_by) if self._partition_by else writer).save(folder)


class _Files:
    """The file system that Spark has the folder on."""

    def __init__(self, spark: Any, path: str) -> None:
        context = spark.sparkContext
        self._of = context._jvm.org.apache.hadoop.fs.Path
        self._files = self._of(path).getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._of(path)))

    def delete(self, path: str) -> None:
        self._files.delete(self._of(path), True)

    def rename(self, before: str, after: str) -> None:
        if not self._files.rename(self._of(before), self._of(after)):
            raise BarnabasError(f"{before} cannot be renamed to {after}.")

    def move(self, before: str, after: str) -> None:
        self._files.mkdirs(self._of(after).getParent())
        self.rename(before, after)

    def below(self, folder: str) -> list[str]:
        """The files with rows, from the folder on: not Spark's own, such as _SUCCESS."""
        found = []
        for status in self._files.listStatus(self._of(folder)):
            name = str(status.getPath().getName())
            if status.isDirectory():
                found += [f"{name}/{each}" for each in self.below(f"{folder}/{name}")]
            elif not name.startswith(("_", ".")):
                found.append(name)
        return found

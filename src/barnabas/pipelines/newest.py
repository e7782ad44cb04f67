"""One row a key: keeps a table at the newest row of every key, as a compacted topic would.

Used by `places.Files` with `newest_by`. Always holds: a batch that is done twice changes nothing the second time,
because the row with the highest offset wins; a crash at any point leaves the old table or the new one. Of Parquet it
may be under the name beside it (.last), from where the next batch brings it back.

Parquet is written anew with each batch that has something for it: made for tables that fit a few disks,
loaded every few minutes. Delta and Iceberg merge instead; use them for more.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.errors import BarnabasError
from barnabas.pipelines import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.pipelines.places import Files

ORDER = ("_partition", "_offset")
DELETED = "_deleted"
"""Where a row has this column and it is true, its key is no longer in the table: a tombstone."""


def newest(rows: "DataFrame", key: str) -> "DataFrame":
    """The last row of every key. A key has one partition, so its offsets tell the order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    missing = [name for name in (key, *ORDER) if name not in rows.columns]
    if missing:
        raise BarnabasError(f"The newest row a {key} needs the column {missing[0]!r}, which is not there.")
    latest_first = Window.partitionBy(key).orderBy(*(f.col(name).desc() for name in reversed(ORDER)))
    return rows.withColumn("_place", f.row_number().over(latest_first)).where("_place = 1").drop("_place")


def keep_newest(table: "Files") -> Callable[["DataFrame", int], None]:
    """What a stream does with each batch."""
    if table.format in tables.FORMATS:
        return _merge_newest(table)
    if table.format != "parquet":
        raise BarnabasError(
            f"The newest row a key is kept in Parquet, Delta or Iceberg only, not in {table.format}."
        )

    from pyspark.sql import functions as f

    def merge(batch: "DataFrame", number: int) -> None:
        spark = batch.sparkSession
        folder = _Folder(spark, table.path)
        folder.recover()
        rows = newest(batch, table.newest_by)
        if folder.exists():
            before = spark.read.options(**table.options).parquet(table.path)
            if DELETED in rows.columns:
                before = before.withColumn(DELETED, f.lit(False))
            rows = newest(before.unionByName(rows, allowMissingColumns=True), table.newest_by)
        if DELETED in rows.columns:
            rows = rows.where(f"not {DELETED}").drop(DELETED)
        writer = rows.write.mode("overwrite")
        (writer.partitionBy(*table.partition_by) if table.partition_by else writer).parquet(folder.next)
        folder.swap()

    return merge


def _merge_newest(table: "Files") -> Callable[["DataFrame", int], None]:
    names = tables.RENAMED if table.format == "iceberg" else {}
    order = [names.get(name, name) for name in reversed(ORDER)]
    old, new = (", ".join(f"{side}.{name}" for name in order) for side in ("old", "new"))

    def merge(batch: "DataFrame", number: int) -> None:
        rows = tables.fit(newest(batch, table.newest_by), table)
        name = tables.make(table, rows.drop(DELETED).schema, batch.sparkSession)
        deleted = f"new.{DELETED}" if DELETED in rows.columns else "false"
        tables.merge(rows, name, key=table.newest_by, newer=f"({old}) < ({new})", deleted=deleted)

    return merge


class _Folder:
    """The table's folder and the two beside it, on whatever file system Spark has it on."""

    def __init__(self, spark: Any, path: str) -> None:
        jvm = spark.sparkContext._jvm
        path = path.rstrip("/")
        self.next, self._last = f"{path}.next", f"{path}.last"
        self._of = jvm.org.apache.hadoop.fs.Path
        self._path = path
        self._files = self._of(path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def exists(self) -> bool:
        return bool(self._files.exists(self._of(self._path)))

    def recover(self) -> None:
        """After a crash between two renames: back to the table before the batch, which is now repeated."""
        if not self.exists() and self._files.exists(self._of(self._last)):
            self._rename(self._last, self._path)

    def swap(self) -> None:
        self._files.delete(self._of(self._last), True)
        if self.exists():
            self._rename(self._path, self._last)
        self._rename(self.next, self._path)
        self._files.delete(self._of(self._last), True)

    def _rename(self, before: str, after: str) -> None:
        if not self._files.rename(self._of(before), self._of(after)):
            raise BarnabasError(f"{before} cannot be renamed to {after}.")

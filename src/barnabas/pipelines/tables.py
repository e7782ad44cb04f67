"""Delta and Iceberg tables that are folders: what SQL calls them, how one is made, how rows are merged into one.

Used by `places` and `newest`. Always holds: a merge is one commit of the table: readers see all of a batch or nothing.
"""

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from barnabas.pipelines.places import Files

FORMATS = ("delta", "iceberg")

RENAMED = {"_partition": "_topic_partition"}
"""Iceberg has a column _partition of its own, and no table of it may: ours has another name there."""

_ICEBERG = "org.apache.iceberg.spark.SparkCatalog"


def name_of(table: "Files", spark: "SparkSession") -> str:
    """What SQL calls the table. Iceberg's tables have names in catalogs: the folder around it is made one."""
    if table.format == "iceberg" and "/" not in table.path:
        return table.path
    path = _whole(table.path, spark)
    if table.format == "delta":
        return f"delta.{_quoted(path)}"
    around, _, name = path.rpartition("/")
    catalog = _word_for(around)
    setting = f"spark.sql.catalog.{catalog}"
    if spark.conf.get(setting, None) is None:
        spark.conf.set(f"{setting}.type", "hadoop")
        spark.conf.set(f"{setting}.warehouse", around)
        # Each query has a session and so a catalog of its own: one would not see for 30 s what another wrote.
        spark.conf.set(f"{setting}.cache-enabled", "false")
        spark.conf.set(setting, _ICEBERG)
    return f"{catalog}.{_quoted(name)}"


def fit(rows: "DataFrame", table: "Files") -> "DataFrame":
    """The rows with names that the format allows."""
    return rows.withColumnsRenamed(RENAMED) if table.format == "iceberg" else rows


def make(table: "Files", schema: "StructType", spark: "SparkSession") -> str:
    """Make the table if it is not there, without rows; its name."""
    name = name_of(table, spark)
    writer = spark.createDataFrame([], schema).write.format(table.format).mode("ignore")
    (writer.partitionBy(*table.partition_by) if table.partition_by else writer).saveAsTable(name)
    return name


def merge(rows: "DataFrame", name: str, *, key: str, newer: str, deleted: str) -> None:
    """Bring rows, one a key, into a table: `newer` and `deleted` are conditions on `new` and `old`."""
    view = _word_for(name)
    rows.createOrReplaceTempView(view)
    spark = rows.sparkSession
    try:
        spark.sql(
            f"MERGE INTO {name} AS old USING {view} AS new ON old.{_quoted(key)} <=> new.{_quoted(key)} "
            f"WHEN MATCHED AND {newer} AND {deleted} THEN DELETE "
            f"WHEN MATCHED AND {newer} THEN UPDATE SET * "
            f"WHEN NOT MATCHED AND NOT {deleted} THEN INSERT *"
        )
    finally:
        spark.catalog.dropTempView(view)


def _whole(path: str, spark: "SparkSession") -> str:
    """The path with its file system and from its root on."""
    jvm = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(path.rstrip("/"))
    files = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return str(files.makeQualified(place).toString())


def _word_for(text: str) -> str:
    """A name that SQL needs no quotes for, another for every text."""
    return f"barnabas_{sha256(text.encode()).hexdigest()[:16]}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

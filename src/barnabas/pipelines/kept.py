"""Small texts that a pipeline keeps in its checkpoint, on whatever file system Spark has it on."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_kept(spark: "SparkSession", path: str) -> str | None:
    """The text of a file; None where there is none."""
    place, files = _file(spark, path)
    if not files.exists(place):
        return None
    found: str = spark.read.text(path, wholetext=True).first()[0]
    return found


def keep(spark: "SparkSession", path: str, text: str) -> None:
    """Write a file; it is there whole or not at all."""
    beside, files = _file(spark, f"{path}.new")
    stream = files.create(beside, True)
    stream.write(bytearray(text.encode()))
    stream.close()
    place, _ = _file(spark, path)
    files.delete(place, False)
    files.rename(beside, place)


def is_there(spark: "SparkSession", path: str) -> bool:
    place, files = _file(spark, path)
    return bool(files.exists(place))


def delete(spark: "SparkSession", folder: str) -> None:
    place, files = _file(spark, folder)
    files.delete(place, True)


def _file(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    place = context._jvm.org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())

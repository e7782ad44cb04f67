"""Files as sources and sinks: CSV, JSON lines, text and Parquet, on any file system that Spark knows.

A source takes files that come into its folder, each once. A sink gives each batch a folder `batch=ID` of its own, so
that a batch which comes again replaces itself.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.connect.connector import BAD, Batch, Sink, StreamSource, connector
from barnabas.connect.option import ConnectError, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

    from barnabas.streams import Stream

_COMPRESSIONS = ("none", "gzip", "snappy", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileSource(StreamSource):
    path: str = option("The folder whose files are read; patterns such as `in/*.log` work.", example="in")
    max_files: int = option("How many files a batch takes at most.", 100, least=1)

    def check(self) -> None:
        local = _local_path(self.path)
        if local is not None and not any(sign in self.path for sign in "*?[{") and not local.is_dir():
            raise ConnectError(f"There is no folder {self.path} to read files from.")

    def guarantee(self) -> str:
        return "each file once"

    def _files(
        self,
        spark: "SparkSession",
        kind: str,
        schema: "str | StructType",
        options: Mapping[str, str] | None = None,
    ) -> "Stream":
        from barnabas.streams import Stream

        options = {"maxFilesPerTrigger": str(self.max_files), **(options or {})}
        return Stream.from_files(spark, self.path, format=kind, schema=schema, options=options)


@connector("text")
@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource(_FileSource):
    """Lines of text files: one column, value."""

    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        return self._files(spark, "text", "value string")


@connector("jsonlines")
@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLinesSource(_FileSource):
    """Files with one JSON object a line."""

    schema: str = option("Names and types of the fields.", example="id long, name string")

    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        return self._files(spark, "text", "value string").json(self.schema, bad=bad)


@connector("csv")
@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSource(_FileSource):
    """CSV files."""

    schema: str = option("Names and types of the columns, in their order.", example="id long, name string")
    header: bool = option("The first line of each file has the names, and is passed over.", True)
    delimiter: str = option("What parts two columns.", ",")

    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        from pyspark.sql import functions

        from barnabas.streams.refusals import schema_of

        schema = schema_of(self.schema).add(BAD, "string")
        options = {
            "header": str(self.header).lower(),
            "sep": self.delimiter,
            "columnNameOfCorruptRecord": BAD,
            # Else columns in another order than the schema's would change their places unseen.
            "enforceSchema": str(not self.header).lower(),
        }
        rows = self._files(spark, "csv", schema, options)
        if bad == BAD:
            return rows
        complaint = functions.concat(functions.lit("a line does not fit the schema: "), functions.col(BAD))
        fine = functions.when(functions.col(BAD).isNotNull(), functions.raise_error(complaint)).otherwise(
            True
        )
        return rows.filter(fine).drop(BAD)


@connector("parquet")
@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource(_FileSource):
    """Parquet files."""

    schema: str = option(
        "Names and types of the columns; those of the files that are there, if not given.", ""
    )

    def stream(self, spark: "SparkSession", bad: str) -> "Stream":
        from barnabas.streams import Stream

        schema = self.schema or Stream.from_files(spark, self.path, streaming=False).dataframe.schema
        return self._files(spark, "parquet", schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileSink(Sink):
    path: str = option("The folder; each batch has a folder batch=ID in it.", example="out")
    partition_by: tuple[str, ...] = option("Columns whose values become subfolders.", ())
    files: int = option("Into how many files a batch goes at most; 0 leaves it to Spark.", 1, least=0)
    compression: str = option("How files are compressed.", "none", among=_COMPRESSIONS)

    def check(self) -> None:
        local = _local_path(self.path)
        if local is not None and local.exists() and not local.is_dir():
            raise ConnectError(f"{self.path} is a file: files of batches need a folder.")

    def guarantee(self) -> str:
        return "exactly once"

    def write(self, frame: "DataFrame", batch: Batch, *, keep_refused: bool = False) -> None:
        if self.files:
            frame = frame.coalesce(self.files)
        writer = frame.write.mode("overwrite").option("compression", self.compression)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        self._save(writer, f"{self.path.rstrip('/')}/batch={batch}")

    @abstractmethod
    def _save(self, writer: "DataFrameWriter", folder: str) -> None: ...


@connector("parquet")
@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSink(_FileSink):
    """Parquet files."""

    compression: str = option("How files are compressed.", "snappy", among=_COMPRESSIONS)

    def _save(self, writer: "DataFrameWriter", folder: str) -> None:
        writer.parquet(folder)


@connector("jsonlines")
@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLinesSink(_FileSink):
    """Files with one JSON object a line."""

    def _save(self, writer: "DataFrameWriter", folder: str) -> None:
        writer.json(folder)


@connector("csv")
@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSink(_FileSink):
    """CSV files."""

    header: bool = option("Write the names into the first line of each file.", True)
    delimiter: str = option("What parts two columns.", ",")

    def _save(self, writer: "DataFrameWriter", folder: str) -> None:
        writer.option("header", self.header).option("sep", self.delimiter).csv(folder)


def _local_path(path: str) -> Path | None:
    """The path on this machine; None where it is on another file system."""
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return Path(parts.path if parts.scheme else path)
    return None

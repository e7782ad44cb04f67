"""Where rows come from and where they go: topics, folders of files, tables, the terminal. Values; Spark does the work.

Used by pipelines as sources and sinks. Always holds: a place reads and writes with Spark's own readers and writers, so
what Spark promises for them is what the pipeline promises; files come into a folder whole, and once (`published`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.errors import BarnabasError
from barnabas.pipelines import tables
from barnabas.spark.published import FORMATS, Published

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a place must know of the run it is in."""

    bootstrap: str
    starting: str = "earliest"
    checkpoint: str = ""
    once: bool = False


class Place(Protocol):
    """A source, a sink, or both."""

    def filled(self, parameters: Mapping[str, Any]) -> "Place":
        """The same place with the parameters in its names."""

    def describe(self) -> str:
        """Where it is, for a person."""

    def read(self, spark: "SparkSession", around: Surroundings) -> "DataFrame": ...

    def write(self, rows: "DataFrame", around: Surroundings) -> None:
        """Write rows that are all there."""

    def writer(self, rows: "DataFrame", around: Surroundings) -> "DataStreamWriter":
        """Begin to write rows that go on coming."""


def fill(text: str, parameters: Mapping[str, Any]) -> str:
    """Put parameters into a name: "{output}/visits"."""
    try:
        return text.format_map(parameters)
    except (KeyError, ValueError, IndexError):
        names = ", ".join(parameters) or "none"
        raise BarnabasError(
            f"{text!r} names a parameter that the pipeline does not have (it has: {names})."
        ) from None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. Read as Spark's Kafka source gives it; written from key and value, or rows as JSON."""

    name: str
    key: str | None = None
    mode: str = "append"
    batch: bool = False
    json: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def filled(self, parameters: Mapping[str, Any]) -> "Topic":
        key = None if self.key is None else fill(self.key, parameters) or None
        json = None if self.json is None else fill(self.json, parameters)
        options = {name: fill(value, parameters) for name, value in self.options.items()}
        return replace(self, name=fill(self.name, parameters), key=key, json=json, options=options)

    def describe(self) -> str:
        return f"topic {self.name}"

    def read(self, spark: "SparkSession", around: Surroundings) -> "DataFrame":
        reader = spark.read if self.batch else spark.readStream
        options = {
            "kafka.bootstrap.servers": around.bootstrap,
            "subscribe": self.name,
            "startingOffsets": around.starting,
            **self.options,
        }
        records = reader.format("barnabas").options(**options).load()
        if self.json is None:
            return records
        from barnabas.pipelines import json_values

        past = spark.read.format("barnabas").options(**options | {"startingOffsets": "earliest"})
        schema = json_values.schema_of(spark, self.json, past.load(), f"{around.checkpoint}/schema.json")
        return json_values.columns(records, schema)

    def write(self, rows: "DataFrame", around: Surroundings) -> None:
        options = {"kafka.bootstrap.servers": around.bootstrap, "topic": self.name, **self.options}
        as_records(rows, self.key).write.format("barnabas").mode("append").options(**options).save()

    def writer(self, rows: "DataFrame", around: Surroundings) -> "DataStreamWriter":
        options = {"kafka.bootstrap.servers": around.bootstrap, "topic": self.name, **self.options}
        records = as_records(rows, self.key)
        return records.writeStream.format("barnabas").outputMode(self.mode).options(**options)


@dataclass(frozen=True, slots=True)
class Files:
    """A folder of files, or a table format that keeps its files in a folder."""

    format: str
    path: str
    partition_by: tuple[str, ...] = ()
    newest_by: str = ""
    stream: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def filled(self, parameters: Mapping[str, Any]) -> "Files":
        return replace(
            self,
            format=fill(self.format, parameters),
            path=fill(self.path, parameters),
            partition_by=tuple(name for each in self.partition_by if (name := fill(each, parameters))),
            newest_by=fill(self.newest_by, parameters),
            options={name: fill(value, parameters) for name, value in self.options.items()},
        )

    def describe(self) -> str:
        by = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        newest = f", the newest row a {self.newest_by}" if self.newest_by else ""
        return f"{self.format} {self.path}{by}{newest}"

    def read(self, spark: "SparkSession", around: Surroundings) -> "DataFrame":
        still = spark.read.format(self.format).options(**self.options)
        if not self.stream:
            return still.load(self._target(spark))
        reader = spark.readStream.format(self.format).options(**self.options)
        if self.format in tables.FORMATS:
            return reader.load(self._target(spark))
        # A stream of files wants to be told its schema: it is that of the files that are there.
        return reader.schema(still.load(self.path).schema).load(self.path)

    def write(self, rows: "DataFrame", around: Surroundings) -> None:
        if self.format in FORMATS:
            self._published().whole(rows)
            return
        rows = tables.fit(rows, self)
        if self.format == "iceberg":
            tables.make(self, rows.schema, rows.sparkSession)
        writer = rows.write.format(self.format).mode("append").options(**self.options)
        if self.partition_by and self.format != "iceberg":
            writer = writer.partitionBy(*self.partition_by)
        writer.save(self._target(rows.sparkSession))

    def writer(self, rows: "DataFrame", around: Surroundings) -> "DataStreamWriter":
        if self.newest_by:
            from barnabas.pipelines.newest import keep_newest

            return rows.writeStream.foreachBatch(keep_newest(self))
        if self.format in FORMATS:
            return rows.writeStream.foreachBatch(self._published().batch)
        if self.format == "iceberg":
            rows = tables.fit(rows, self)
            tables.make(self, rows.schema, rows.sparkSession)
            # Rows of all partitions come as they come: a file for each is open until the batch ends.
            options = {"fanout-enabled": "true", **self.options, "path": self._target(rows.sparkSession)}
            return rows.writeStream.format("iceberg").outputMode("append").options(**options)
        writer = rows.writeStream.format(self.format).outputMode("append").options(**self.options)
        writer = writer.option("path", self.path)
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def _published(self) -> Published:
        return Published(self.path, self.format, partition_by=self.partition_by, options=self.options)

    def _target(self, spark: "SparkSession") -> str:
        """What Spark's readers and writers call it."""
        return tables.name_of(self, spark) if self.format == "iceberg" else self.path


@dataclass(frozen=True, slots=True)
class Console:
    """The terminal: the first rows of every batch."""

    rows: int = 20
    mode: str = "append"

    def filled(self, parameters: Mapping[str, Any]) -> "Console":
        return self

    def describe(self) -> str:
        return "the terminal"

    def read(self, spark: "SparkSession", around: Surroundings) -> "DataFrame":
        raise BarnabasError("The terminal is no source: use topic(...) or files(...).")

    def write(self, rows: "DataFrame", around: Surroundings) -> None:
        rows.show(self.rows, truncate=False)

    def writer(self, rows: "DataFrame", around: Surroundings) -> "DataStreamWriter":
        limit = self.rows

        def show(batch: "DataFrame", number: int) -> None:
            batch.show(limit, truncate=False)

        return rows.writeStream.outputMode(self.mode).foreachBatch(show)


def topic(
    name: str,
    *,
    key: str | None = None,
    mode: str = "append",
    batch: bool = False,
    json: str | None = None,
    **options: str,
) -> Topic:
    """A topic, or several by commas as a source; with `json` ("auto", columns, a file) its values become columns.

    As a sink it takes key, value and headers; rows without a `value` go as JSON, keyed by `key`.
    """
    return Topic(name, key, mode, batch, json, options)


def files(
    format: str,  # noqa: A002
    path: str,
    *,
    partition_by: tuple[str, ...] = (),
    newest_by: str = "",
    stream: bool = False,
    **options: str,
) -> Files:
    """A folder in any format that Spark has. `newest_by` keeps one row a key, the one with the highest offset."""
    return Files(format, path, partition_by, newest_by, stream, options)


def parquet(
    path: str,
    *,
    partition_by: tuple[str, ...] = (),
    newest_by: str = "",
    stream: bool = False,
    **options: str,
) -> Files:
    """A folder of Parquet files."""
    return Files("parquet", path, partition_by, newest_by, stream, options)


def delta(
    path: str,
    *,
    partition_by: tuple[str, ...] = (),
    newest_by: str = "",
    stream: bool = False,
    **options: str,
) -> Files:
    """A Delta table; Spark must have Delta's jars (--packages), its extension and its catalog."""
    return Files("delta", path, partition_by, newest_by, stream, options)


def iceberg(
    path: str,
    *,
    partition_by: tuple[str, ...] = (),
    newest_by: str = "",
    stream: bool = False,
    **options: str,
) -> Files:
    """An Iceberg table: a folder, or its name in a catalog of yours; Spark must have Iceberg's runtime (--packages)."""
    return Files("iceberg", path, partition_by, newest_by, stream, options)


def console(rows: int = 20, *, mode: str = "append") -> Console:
    """Print the rows; for trying things out."""
    return Console(rows, mode)


def as_records(rows: "DataFrame", key: str | None) -> "DataFrame":
    """The columns a topic takes: those that are there, or the whole row as JSON."""
    from pyspark.sql import functions as f

    value = f.to_json(f.struct("*")).alias("value")
    # Nothing here may ask for the columns where a key is given: Spark Declarative Pipelines do not allow it.
    if key is not None:
        return rows.select(f.col(key).cast("string").alias("key"), value)
    return rows if "value" in rows.columns else rows.select(value)

"""Owns `Stream`: a DataFrame, and the few facts about it that let a mistake be told before Spark finds it.

Used by people, pipelines and connectors. Always holds: a step returns a new Stream and changes nothing; the
DataFrame behind it is Spark's own and always at hand as `.dataframe`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import StructType

from barnabas.streams.aggregates import Columnar
from barnabas.streams.branches import Branches
from barnabas.streams.json_fields import with_json_fields
from barnabas.streams.refusals import (
    StreamError,
    analysed,
    duration,
    require_columns,
    require_time,
    schema_of,
)

if TYPE_CHECKING:
    from barnabas.streams.outputs import Output
    from barnabas.streams.windows import Windowed

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_EVENT_TIME = "timestamp"
_WATERMARK = "spark.watermarkDelayMs"
"""Spark's own note at a column that has one."""


class Shape(Enum):
    """What the rows of a stream are: it decides which outputs can take them."""

    ROWS = "rows"
    """Each row is there once and never changes."""
    WINDOWS = "windows"
    """One row a window, there when the watermark has passed it."""
    RUNNING = "running"
    """Aggregates without an end: rows change for as long as the stream runs."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of rows, or a batch of them: `Stream.of(dataframe)`, `Stream.from_topic(spark, "orders")`."""

    dataframe: DataFrame
    keys: tuple[str, ...] = ()
    event_time: str | None = None
    watermark: str | None = None
    shape: Shape = Shape.ROWS
    records: bool = False
    """Rows are a topic's records as they were read: key and value go to another topic as they are."""

    # Where streams come from.

    @classmethod
    def of(cls, dataframe: DataFrame) -> "Stream":
        """A stream of any DataFrame, streaming or not."""
        return cls(dataframe)

    @classmethod
    def from_topic(
        cls,
        spark: SparkSession,
        topic: str | Sequence[str],
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        schema: str | StructType | None = None,
        streaming: bool = True,
        starting: str = "earliest",
        options: Mapping[str, str] | None = None,
    ) -> "Stream":
        """The records of topics: key, value, topic, partition, offset, timestamp; with a schema, the columns of
        their JSON values. `options` are those of the data source `barnabas`."""
        from barnabas.spark import register

        register(spark)
        names = [topic] if isinstance(topic, str) else list(topic)
        reader = (spark.readStream if streaming else spark.read).format("barnabas")
        reader = reader.options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "subscribe": ",".join(names),
                "startingOffsets": starting,
                **(options or {}),
            }
        )
        with analysed(step=f"Reading {', '.join(names)}"):
            stream = cls(reader.load(), records=True)
        return stream if schema is None else stream.json(schema)

    @classmethod
    def from_files(
        cls,
        spark: SparkSession,
        path: str,
        *,
        format: str = "parquet",
        schema: str | StructType | None = None,
        streaming: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> "Stream":
        """The rows of files in a folder; streaming, also of those that come later."""
        reader = (spark.readStream if streaming else spark.read).format(format).options(**(options or {}))
        if schema is not None:
            reader = reader.schema(schema_of(schema))
        elif streaming:
            raise StreamError(
                f"A stream of the files in {path} needs schema='id long, ...': they may not be there yet."
            )
        with analysed(step=f"Reading {path}"):
            return cls(reader.load(path))

    # Steps.

    def json(self, schema: str | StructType, *, column: str = "value", bad: str = "fail") -> "Stream":
        """Puts the fields of a JSON column in its place; they win over columns of the same name.

        What does not parse makes the query fail; `bad="null"` gives nulls, `bad="drop"` leaves the row out, and
        any other word is the name of a column that then holds the text (null in good rows), to branch on.
        """
        return self._rows(with_json_fields(self.dataframe, schema_of(schema), column, bad))

    def select(self, *columns: Columnar, **named: Columnar) -> "Stream":
        """Only these columns: `select("user", total=col("price") * col("n"))`."""
        chosen = [*map(_column, columns), *(_column(each).alias(name) for name, each in named.items())]
        with analysed(self.dataframe, "select"):
            return self._rows(self.dataframe.select(*chosen))

    def map(self, **columns: Columnar) -> "Stream":
        """Adds columns, or gives those that are there new values: `map(total=col("price") * col("n"))`."""
        with analysed(self.dataframe, "map"):
            return self._rows(
                self.dataframe.withColumns({name: _column(each) for name, each in columns.items()})
            )

    def rename(self, **names: str) -> "Stream":
        """Other names for columns: `rename(old="new")`."""
        require_columns(self.dataframe, list(names), "rename")
        return replace(
            self,
            dataframe=self.dataframe.withColumnsRenamed(names),
            keys=tuple(names.get(key, key) for key in self.keys),
            event_time=names.get(self.event_time or "", self.event_time),
            records=False,
        )

    def drop(self, *columns: str) -> "Stream":
        """Without these columns."""
        require_columns(self.dataframe, columns, "drop")
        return self._rows(self.dataframe.drop(*columns))

    def filter(self, condition: Columnar) -> "Stream":
        """Only the rows for which this is true: a column expression, or SQL such as `"amount > 10"`."""
        with analysed(self.dataframe, "filter"):
            return replace(self, dataframe=self.dataframe.filter(condition))

    def explode(self, column: str, into: str | None = None) -> "Stream":
        """One row for each element of a list; rows whose list is empty or null go."""
        require_columns(self.dataframe, [column], "explode")
        name = into or column
        kept = [each for each in self.dataframe.columns if each not in (column, name)]
        with analysed(self.dataframe, "explode"):
            return self._rows(self.dataframe.select(*kept, functions.explode(column).alias(name)))

    def flat(self) -> "Stream":
        """Structs become columns: `window` becomes `window_start` and `window_end`."""
        columns: list[Column] = []
        for field in self.dataframe.schema.fields:
            if isinstance(field.dataType, StructType):
                columns += [
                    functions.col(f"`{field.name}`.`{inner}`").alias(f"{field.name}_{inner}")
                    for inner in field.dataType.fieldNames()
                ]
            else:
                columns.append(functions.col(f"`{field.name}`"))
        return self._rows(self.dataframe.select(*columns))

    def through(self, function: Callable[[DataFrame], DataFrame]) -> "Stream":
        """Whatever Spark can do to a DataFrame and this class has no word for."""
        return self._rows(function(self.dataframe))

    def key_by(self, *columns: str) -> "Stream":
        """Rows with equal values here belong together: aggregates are per key, and topics get it as their key."""
        require_columns(self.dataframe, columns, "key_by")
        return replace(self, keys=columns)

    def with_event_time(self, column: str, *, watermark: str | timedelta) -> "Stream":
        """Which column says when it happened, and how late a row may come and still count."""
        return self._with_watermark(column, duration(watermark, "watermark"), "with_event_time")

    def deduplicate(self, *columns: str, within: str | timedelta | None = None) -> "Stream":
        """The first row of each value of these columns; on a stream, among those that come within a time."""
        require_columns(self.dataframe, columns, "deduplicate")
        if not self.dataframe.isStreaming:
            return replace(self, dataframe=self.dataframe.dropDuplicates(list(columns)))
        stream = self
        if self.watermark is None:
            if within is None:
                raise StreamError(
                    "deduplicate: a stream cannot remember every row for ever; say within='10 minutes'."
                )
            stream = self._with_watermark(
                self.event_time or DEFAULT_EVENT_TIME, duration(within, "within"), "deduplicate"
            )
        elif within is not None and duration(within, "within") != self.watermark:
            raise StreamError(
                f"deduplicate: the stream has a watermark of {self.watermark} already, which is how long rows are "
                "remembered; leave within= out."
            )
        return replace(stream, dataframe=stream.dataframe.dropDuplicatesWithinWatermark(list(columns)))

    def window(
        self,
        length: str | timedelta,
        *,
        watermark: str | timedelta | None = None,
        on: str | None = None,
        every: str | timedelta | None = None,
    ) -> "Windowed":
        """Windows of event time, to be aggregated; `every` makes them overlap.

        `watermark` is how late rows may come; a window is over, and its row there, when it has passed.
        """
        from barnabas.streams.windows import fixed_windows

        return fixed_windows(self, length, watermark=watermark, on=on, every=every)

    def session(
        self, gap: str | timedelta, *, watermark: str | timedelta | None = None, on: str | None = None
    ) -> "Windowed":
        """Sessions: windows that last until nothing came for that long."""
        from barnabas.streams.windows import session_windows

        return session_windows(self, gap, watermark=watermark, on=on)

    def aggregate(self, **aggregates: Column) -> "Stream":
        """One row a key, over everything so far: `key_by("user").aggregate(n=count())`."""
        if not aggregates:
            raise StreamError("aggregate: say what, as in aggregate(n=count(), total=sum('amount')).")
        with analysed(self.dataframe, "aggregate"):
            frame = self.dataframe.groupBy(*self.keys).agg(*_named(aggregates))
        running = Shape.RUNNING if self.dataframe.isStreaming else Shape.ROWS
        return Stream(frame, keys=self.keys, shape=running)

    def join(
        self,
        other: "Stream",
        on: str | Sequence[str],
        *,
        within: str | timedelta | None = None,
        how: str = "inner",
        suffix: str = "_right",
    ) -> "Stream":
        """Rows of both with equal columns `on`; of two streams, those whose event times are `within` of each other.

        Columns that both have get `suffix` on the right. `how`: inner, left, right, full.
        """
        from barnabas.streams.joins import joined

        return joined(self, other, [on] if isinstance(on, str) else list(on), within, how, suffix)

    def union(self, *others: "Stream") -> "Stream":
        """The rows of all; columns are matched by name."""
        frame = self.dataframe
        for other in others:
            if other.dataframe.isStreaming != self.dataframe.isStreaming:
                raise StreamError("union: one is a stream and the other a batch; read both the same way.")
            with analysed(step="union"):
                frame = frame.unionByName(other.dataframe)
        all_timed = all(
            (each.event_time, each.watermark) == (self.event_time, self.watermark) for each in others
        )
        running = any(each.shape is Shape.RUNNING for each in (self, *others))
        return replace(
            self,
            dataframe=frame,
            event_time=self.event_time if all_timed else None,
            watermark=self.watermark if all_timed else None,
            shape=Shape.RUNNING if running else self.shape,
            records=self.records and all(each.records for each in others),
        )

    def branch(self, **conditions: Columnar | bool) -> Branches:
        """Parts the stream: each row goes to the first branch whose condition is true; True takes what is left.

        `big, rest = orders.branch(big=col("amount") > 100, rest=True).values()`. Rows that none wants are gone.
        """
        if not conditions:
            raise StreamError("branch: say which, as in branch(big=col('amount') > 100, rest=True).")
        taken = functions.lit(False)
        branches: dict[str, Stream] = {}
        for name, given in conditions.items():
            wanted = functions.lit(given) if isinstance(given, bool) else _condition(given)
            # A condition that is null is not true: such a row is still there for the next branch.
            wanted = functions.coalesce(wanted, functions.lit(False))
            with analysed(self.dataframe, f"branch {name}"):
                branches[name] = replace(self, dataframe=self.dataframe.filter(~taken & wanted))
            taken = taken | wanted
        return Branches(branches)

    # Where streams go. Each gives an `Output`: nothing happens before its `run`.

    def to_topic(
        self,
        topic: str,
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        key: Columnar | None = None,
        value: Columnar | None = None,
        options: Mapping[str, str] | None = None,
    ) -> "Output":
        """Each row as a record: the key of `key_by`, the value all columns as JSON, if not given here."""
        from barnabas.streams import outputs

        return outputs.to_topic(self, topic, bootstrap, key, value, options or {})

    def to_parquet(self, path: str, *, partition_by: Sequence[str] = ()) -> "Output":
        """Files in a folder, a subfolder for each value of `partition_by`."""
        return self.to_files(path, format="parquet", partition_by=partition_by)

    def to_files(
        self,
        path: str,
        *,
        format: str,
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> "Output":
        """Files of any format that Spark writes: parquet, json, csv, orc, delta."""
        from barnabas.streams import outputs

        return outputs.to_files(self, path, format, partition_by, options or {})

    def to_memory(self, name: str) -> "Output":
        """A table in the driver's memory, `spark.table(name)`: to look at, and for tests."""
        from barnabas.streams import outputs

        return outputs.to_memory(self, name)

    def to_console(self) -> "Output":
        """Printed, batch by batch."""
        from barnabas.streams import outputs

        return outputs.to_console(self)

    def to_batches(self, name: str, write: Callable[[DataFrame, int], Any]) -> "Output":
        """Calls `write(dataframe, batch_id)` for each batch; after a crash the last one comes again, by the same id."""
        from barnabas.streams import outputs

        return outputs.to_batches(self, name, write)

    def _rows(self, frame: DataFrame) -> "Stream":
        """The same stream with other columns: what they were known for holds only while they are there."""
        there = set(frame.columns)
        keeps_time = self.event_time in there and not self._lost_watermark(frame)
        return replace(
            self,
            dataframe=frame,
            keys=self.keys if there.issuperset(self.keys) else (),
            event_time=self.event_time if keeps_time else None,
            watermark=self.watermark if keeps_time else None,
            records=False,
        )

    def _lost_watermark(self, frame: DataFrame) -> bool:
        """A column that was computed anew under the name of the event time has no watermark any more."""
        if self.watermark is None or not frame.isStreaming:
            return False
        return _WATERMARK not in frame.schema[self.event_time].metadata

    def _with_watermark(self, column: str, delay: str, step: str) -> "Stream":
        require_time(self.dataframe, column, step)
        if self.watermark is not None and (column, delay) != (self.event_time, self.watermark):
            raise StreamError(
                f"{step}: the stream has a watermark of {self.watermark} on {self.event_time} already; it can have one."
            )
        if self.watermark is not None:
            return self
        frame = self.dataframe.withWatermark(column, delay)
        return replace(self, dataframe=frame, event_time=column, watermark=delay)


def _column(given: Columnar) -> Column:
    return functions.col(given) if isinstance(given, str) else given


def _condition(given: Columnar) -> Column:
    return functions.expr(given) if isinstance(given, str) else given


def _named(aggregates: Mapping[str, Column]) -> list[Column]:
    return [each.alias(name) for name, each in aggregates.items()]

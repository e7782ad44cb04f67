"""Owns where a stream goes and how it runs: `Output` says what would be written, `run` starts it, `Run` is what
runs. Made by `Stream.to_...`; Spark's own query is always at hand as `Run.query`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import BinaryType, StringType

from barnabas.spark.checkpoints import start_query
from barnabas.spark.published import FORMATS, Published
from barnabas.spark.sentences import sentence_of
from barnabas.streams.aggregates import Columnar
from barnabas.streams.refusals import StreamError, analysed, duration, require_columns, told
from barnabas.streams.stream import Shape, Stream

_FORGETFUL = ("memory", "console", "noop")
"""Formats that have nothing to come back to, so they need no checkpoint."""


@dataclass(frozen=True, slots=True)
class Output:
    """What would be written where: `orders.to_topic("big-orders").run(checkpoint="state")`."""

    dataframe: DataFrame
    name: str
    what: str
    """For people: `topic big-orders`."""
    format: str
    mode: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    write: Callable[[DataFrame, int], Any] | None = None

    def named(self, name: str) -> "Output":
        """The same under another name: the query's, and that of its folder in a shared checkpoint."""
        return replace(self, name=name)

    def run(
        self, *, checkpoint: str | None = None, once: bool = False, every: str | timedelta | None = None
    ) -> "Run":
        """Starts writing. A batch is written at once; a stream runs until it is stopped.

        `checkpoint` is the folder that knows how far it came; `once` takes what is there now and ends; `every`
        starts a batch at that pace, else one follows the other.
        """
        if not self.dataframe.isStreaming:
            told(self._write_batch, f"Writing to {self.what}")
            return Run(self, None)
        if checkpoint is None and self.format not in _FORGETFUL:
            raise StreamError(
                f"Writing a stream to {self.what} needs checkpoint='DIR': without it every start would begin anew."
            )
        if once and every is not None:
            raise StreamError("run: once=True and every= exclude each other.")
        writer = self.dataframe.writeStream.queryName(self.name).outputMode(self.mode)
        noted = _Noted(self.write) if self.write else None
        writer = writer.foreachBatch(noted) if noted else writer.format(self.format).options(**self.options)
        if self.path is not None:
            writer = writer.option("path", self.path)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        if once:
            writer = writer.trigger(availableNow=True)
        elif every is not None:
            writer = writer.trigger(processingTime=duration(every, "every"))
        return Run(self, told(lambda: self._start(writer, checkpoint), f"Writing to {self.what}"), noted)

    def _start(self, writer: DataStreamWriter, checkpoint: str | None) -> StreamingQuery:
        if checkpoint is None:
            return writer.start()
        return start_query(self.dataframe.sparkSession, writer, checkpoint)

    def _write_batch(self) -> None:
        if self.write is not None:
            self.write(self.dataframe, 0)
        elif self.format == "memory":
            self.dataframe.createOrReplaceTempView(self.name)
        elif self.format == "console":
            self.dataframe.show(truncate=False)
        else:
            writer = self.dataframe.write.format(self.format).options(**self.options).mode("append")
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.save(self.path)


class _Noted:
    """Writes batches and keeps what went wrong: through Java and back only its text would survive."""

    def __init__(self, write: Callable[[DataFrame, int], Any]) -> None:
        self._write = write
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._write(frame, batch)
        except Exception as error:
            self.error = error
            raise


class Run:
    """An output that is being written. Leaving its `with` block stops it."""

    def __init__(self, output: Output, query: StreamingQuery | None, noted: _Noted | None = None) -> None:
        self.output = output
        self.query = query
        """Spark's own handle; None for a batch, which is done when `run` returns."""
        self._noted = noted

    def wait(self, timeout: float | None = None) -> bool:
        """Until the query has ended, or until the time-out in seconds is over; True if it has. Raises if it failed."""
        if self.query is None:
            return True
        try:
            ended = self.query.awaitTermination() if timeout is None else self.query.awaitTermination(timeout)
        except StreamingQueryException as error:
            raise self._failure(error) from error
        return ended is not False

    def process_all(self) -> None:
        """Until everything that is there now has been written: for tests, and between batches of work."""
        if self.query is None:
            return
        try:
            self.query.processAllAvailable()
        except PySparkException as error:
            raise self._failure(error) from error

    def _failure(self, error: PySparkException) -> StreamError:
        cause = self._noted.error if self._noted and self._noted.error else error
        return StreamError(f"{self.output.name}, to {self.output.what}, failed: {sentence_of(cause)}.")

    def stop(self) -> None:
        """Ends the query; what it had not finished is done again at the next start from the same checkpoint."""
        if self.query is not None:
            self.query.stop()

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def run(
    *outputs: Output, checkpoint: str, once: bool = False, every: str | timedelta | None = None
) -> list[Run]:
    """Starts several outputs, each with a folder of its own name in the checkpoint."""
    names = [output.name for output in outputs]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise StreamError(f"Two outputs are called {twice.pop()}: give one another name with named('...').")
    return [
        output.run(checkpoint=f"{checkpoint.rstrip('/')}/{output.name}", once=once, every=every)
        for output in outputs
    ]


def to_topic(
    stream: Stream,
    topic: str,
    bootstrap: str,
    key: Columnar | None,
    value: Columnar | None,
    options: Mapping[str, str],
) -> Output:
    from barnabas.spark import register

    register(stream.dataframe.sparkSession)
    if stream.records and key is None and value is None and not stream.keys:
        kept = [name for name in ("key", "value", "headers") if name in stream.dataframe.columns]
        frame = stream.dataframe.select(*kept)
    else:
        frame = _as_records(stream, key, value)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **options}

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.format("barnabas").options(**options).mode("append").save()

    output = Output(frame, topic, f"topic {topic}", format="barnabas", mode="append", options=options)
    # Spark lets a data source of Python's take only rows that never change; those that do are written by batch.
    return replace(output, mode="update", write=write) if stream.shape is Shape.RUNNING else output


def to_files(
    stream: Stream, path: str, format: str, partition_by: Sequence[str], options: Mapping[str, str]
) -> Output:
    require_columns(stream.dataframe, partition_by, "partition_by")
    _require_final_rows(stream, f"files in {path}")
    name, what = PurePosixPath(path).name or format, f"{format} in {path}"
    if format in FORMATS:
        folder = Published(path, format, partition_by=partition_by, options=options)
        write = folder.batch if stream.dataframe.isStreaming else lambda rows, _: folder.whole(rows)
        return Output(stream.dataframe, name=name, what=what, format=format, mode="append", write=write)
    return Output(
        stream.dataframe,
        name=name,
        what=what,
        format=format,
        mode="append",
        path=path,
        options=options,
        partition_by=tuple(partition_by),
    )


def to_memory(stream: Stream, name: str) -> Output:
    if not name.isidentifier():
        raise StreamError(f"to_memory: {name!r} is no name for a table; use letters, digits and _.")
    mode = "complete" if stream.shape is Shape.RUNNING else "append"
    return Output(stream.dataframe, name=name, what=f"table {name} in memory", format="memory", mode=mode)


def to_console(stream: Stream) -> Output:
    mode = "complete" if stream.shape is Shape.RUNNING else "append"
    return Output(stream.dataframe, name="console", what="the console", format="console", mode=mode)


def to_batches(stream: Stream, name: str, write: Callable[[DataFrame, int], Any]) -> Output:
    mode = "update" if stream.shape is Shape.RUNNING else "append"
    return Output(stream.dataframe, name=name, what=name, format="foreachBatch", mode=mode, write=write)


def _require_final_rows(stream: Stream, what: str) -> None:
    if stream.shape is Shape.RUNNING:
        raise StreamError(
            f"An aggregate without an end cannot be appended to {what}, because its rows change for ever: aggregate "
            "in a window(..., watermark='30 seconds'), or write to a topic or a table in memory."
        )


def _as_records(stream: Stream, key: Columnar | None, value: Columnar | None) -> DataFrame:
    frame = stream.dataframe
    with analysed(frame, "to_topic"):
        values = _column(value) if value is not None else _json_of(frame)
        keys = _column(key) if key is not None else _key_of(stream)
        return frame.select(keys.alias("key"), values.alias("value"))


def _column(given: Columnar) -> Column:
    return functions.col(given) if isinstance(given, str) else given


def _json_of(frame: DataFrame) -> Column:
    return functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in frame.columns)))


def _key_of(stream: Stream) -> Column:
    """One key column is its text, or its bytes; of several it is their JSON."""
    if not stream.keys:
        return functions.lit(None).cast("binary")
    if len(stream.keys) > 1:
        return functions.to_json(functions.struct(*stream.keys))
    kind = stream.dataframe.schema[stream.keys[0]].dataType
    column = functions.col(f"`{stream.keys[0]}`")
    return column if isinstance(kind, StringType | BinaryType) else column.cast("string")

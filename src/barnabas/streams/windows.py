"""Owns windows of event time between `window` or `session` and `aggregate`. Used by `Stream`.

A window without a watermark is never known to be over: on a stream its row then changes for ever.
"""

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, functions
from pyspark.sql.types import StructType

from barnabas.streams.refusals import StreamError, analysed, duration, require_time
from barnabas.streams.stream import DEFAULT_EVENT_TIME, Shape, Stream

WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Windowed:
    """A stream cut into windows, waiting to be told what to make of each."""

    stream: Stream
    window: Column

    def aggregate(self, **aggregates: Column) -> Stream:
        """One row a key and window: the keys, `window` (a struct of start and end), and what is named here."""
        stream = self.stream
        if not aggregates:
            raise StreamError("aggregate: say what, as in aggregate(n=count(), total=sum('amount')).")
        clash = {WINDOW, *stream.keys} & aggregates.keys()
        if clash:
            raise StreamError(f"aggregate: {clash.pop()} is the name of a column of the result already.")
        named = [each.alias(name) for name, each in aggregates.items()]
        with analysed(stream.dataframe, "aggregate"):
            frame = stream.dataframe.groupBy(*stream.keys, self.window.alias(WINDOW)).agg(*named)
        if not stream.dataframe.isStreaming:
            return Stream(frame, keys=stream.keys, event_time=WINDOW)
        ends = stream.watermark is not None
        return Stream(
            frame,
            keys=stream.keys,
            event_time=WINDOW,
            watermark=stream.watermark,
            shape=Shape.WINDOWS if ends else Shape.RUNNING,
        )


def fixed_windows(
    stream: Stream,
    length: str | timedelta,
    *,
    watermark: str | timedelta | None,
    on: str | None,
    every: str | timedelta | None,
) -> Windowed:
    size = duration(length, "window")
    timed, column = _timed(stream, watermark, on, "window")
    slide = duration(every, "every") if every is not None else None
    with analysed(timed.dataframe, "window"):
        return Windowed(timed, functions.window(column, size, slide))


def session_windows(
    stream: Stream, gap: str | timedelta, *, watermark: str | timedelta | None, on: str | None
) -> Windowed:
    length = duration(gap, "session")
    timed, column = _timed(stream, watermark, on, "session")
    if timed.dataframe.isStreaming and not timed.keys:
        raise StreamError("session: sessions are per key; say whose with key_by('user') first.")
    return Windowed(timed, functions.session_window(functions.col(column), length))


def _timed(
    stream: Stream, watermark: str | timedelta | None, on: str | None, step: str
) -> tuple[Stream, str]:
    column = on or stream.event_time or DEFAULT_EVENT_TIME
    require_time(stream.dataframe, column, step)
    if isinstance(stream.dataframe.schema[column].dataType, StructType) and column != WINDOW:
        raise StreamError(f"{step}: {column} is a struct, not a timestamp.")
    if stream.shape is Shape.RUNNING:
        raise StreamError(
            f"{step}: rows of an aggregate without a watermark change for ever and belong to no window; give "
            "the first window watermark='30 seconds'."
        )
    if watermark is None:
        return stream, column
    return stream._with_watermark(column, duration(watermark, "watermark"), step), column

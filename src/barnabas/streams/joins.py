"""Owns what a join needs: keys on both sides, and of two streams a bound in time, without which Spark would keep
every row for ever. Used by `Stream.join`.
"""

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, functions

from barnabas.streams.refusals import StreamError, analysed, duration, require_columns
from barnabas.streams.stream import Shape, Stream

_HOW = ("inner", "left", "right", "full")


def joined(
    left: Stream, right: Stream, on: Sequence[str], within: str | timedelta | None, how: str, suffix: str
) -> Stream:
    if how not in _HOW:
        raise StreamError(f"join: how is one of {', '.join(_HOW)}, not {how!r}.")
    if not on:
        raise StreamError("join: on= names the columns that have to be equal.")
    for side, stream in (("left", left), ("right", right)):
        require_columns(stream.dataframe, on, f"join, {side} side")
    both = left.dataframe.isStreaming and right.dataframe.isStreaming
    bound = duration(within, "within") if within is not None else None
    if both:
        _require_bounds(left, right, on, bound)
    _require_side_that_streams(left, right, how)

    names = {name: _right_name(name, left.dataframe, on, suffix) for name in right.dataframe.columns}
    if len(set(names.values()) | set(left.dataframe.columns)) < len(names) + len(left.dataframe.columns):
        raise StreamError(f"join: with the suffix {suffix!r} two columns have the same name; give another.")
    other = right.dataframe.withColumnsRenamed(names)
    condition = _all_equal(left.dataframe, other, [(key, names[key]) for key in on])
    if bound is not None:
        condition &= _near(left, right, names, bound)
    with analysed(step="join"):
        frame = left.dataframe.join(other, condition, how)
    columns = [
        _key(key, names[key], how) if key in on else functions.col(f"`{key}`")
        for key in left.dataframe.columns
    ]
    columns += [functions.col(f"`{new}`") for old, new in names.items() if old not in on]
    keeps_time = how != "right" and left.event_time is not None and left.event_time not in on
    return Stream(
        frame.select(*columns),
        keys=left.keys,
        event_time=left.event_time if keeps_time else None,
        watermark=left.watermark if keeps_time else None,
    )


def _require_bounds(left: Stream, right: Stream, on: Sequence[str], bound: str | None) -> None:
    for side, stream in (("left", left), ("right", right)):
        if stream.shape is Shape.RUNNING:
            raise StreamError(
                f"join: the {side} side is an aggregate whose rows change for ever; give its window a watermark."
            )
        if stream.watermark is None:
            raise StreamError(
                f"join: the {side} stream has no watermark, so Spark would keep its rows for ever; give it one "
                "with with_event_time('timestamp', watermark='30 seconds')."
            )
    windows_match = left.event_time == right.event_time and left.event_time in on
    if bound is None and not windows_match:
        raise StreamError(
            "join: two streams need within='5 minutes' (how far apart in event time two rows may be), or their "
            "event time among the columns of on=."
        )


def _require_side_that_streams(left: Stream, right: Stream, how: str) -> None:
    streaming = (left.dataframe.isStreaming, right.dataframe.isStreaming)
    impossible = {(True, False): ("right", "full"), (False, True): ("left", "full")}.get(streaming, ())
    if how in impossible:
        batch = "right" if streaming[0] else "left"
        raise StreamError(
            f"join: with a batch on the {batch} a {how} join would have to wait for the end of the stream."
        )


def _right_name(name: str, left: DataFrame, on: Sequence[str], suffix: str) -> str:
    if name in on:
        return f"_right_{name}"
    return f"{name}{suffix}" if name in left.columns else name


def _all_equal(left: DataFrame, right: DataFrame, pairs: Sequence[tuple[str, str]]) -> Column:
    condition: Column | None = None
    for mine, theirs in pairs:
        equal = left[mine] == right[theirs]
        condition = equal if condition is None else condition & equal
    return condition


def _near(left: Stream, right: Stream, names: dict[str, str], bound: str) -> Column:
    times = (left.event_time, right.event_time)
    if None in times:
        raise StreamError("join: within= compares event times; name them with with_event_time on both sides.")
    mine, theirs = functions.col(f"`{left.event_time}`"), functions.col(f"`{names[right.event_time or '']}`")
    span = functions.expr(f"INTERVAL {bound}")
    return (theirs >= mine - span) & (theirs <= mine + span)


def _key(name: str, theirs: str, how: str) -> Column:
    """The key's one column in the result: that of the side which is always there."""
    if how == "right":
        return functions.col(f"`{theirs}`").alias(name)
    if how == "full":
        return functions.coalesce(functions.col(f"`{name}`"), functions.col(f"`{theirs}`")).alias(name)
    return functions.col(f"`{name}`")

"""How mistakes are told: before Spark's own errors where that is cheap, and in one sentence where it is not.

Used by every step of a stream.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from barnabas.errors import BarnabasError
from barnabas.spark.sentences import sentence_of

T = TypeVar("T")

_DURATION = re.compile(r"\s*\d+\s+(microsecond|millisecond|second|minute|hour|day|week)s?\s*", re.IGNORECASE)


class StreamError(BarnabasError):
    """A stream that cannot be what was asked for, or a query that failed."""


def duration(given: str | timedelta, what: str) -> str:
    """A length of time as Spark writes it."""
    if isinstance(given, timedelta):
        text = f"{given // timedelta(microseconds=1)} microseconds"
        if given < timedelta(0):
            raise StreamError(f"{what} cannot be negative: {given}.")
        return text
    if not _DURATION.fullmatch(given):
        raise StreamError(f"{what} is a length of time such as '30 seconds' or '5 minutes', not {given!r}.")
    return given.strip()


def schema_of(given: str | StructType) -> StructType:
    """A schema, given as such or as `name type, ...`."""
    if isinstance(given, StructType):
        return given
    with analysed():
        try:
            found: DataType = DataType.fromDDL(given)
        except ParseException as error:
            raise StreamError(
                f"{given!r} is no schema: write it as 'id long, at timestamp' ({sentence_of(error)})."
            ) from error
    if not isinstance(found, StructType):
        raise StreamError(f"{given!r} is no schema: write it as 'id long, at timestamp'.")
    return found


def require_columns(frame: DataFrame, names: Sequence[str], step: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise StreamError(f"{step}: {_no_such_column(name, frame.columns)}")


def require_time(frame: DataFrame, column: str, step: str) -> None:
    """Event time has to be a column of timestamps, or the window of an earlier aggregate."""
    require_columns(frame, [column], step)
    kind = frame.schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType | StructType):
        raise StreamError(
            f"{step}: {column} is {kind.simpleString()}, not a timestamp; "
            f"map({column}=to_timestamp('{column}')) makes it one, or name another with on=."
        )


def _no_such_column(name: str, there: Sequence[str]) -> str:
    near = get_close_matches(name, there, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no column {name}{hint} The stream has {', '.join(there)}.".replace(
        f"{name} The", f"{name}. The"
    )


@contextmanager
def analysed(frame: DataFrame | None = None, step: str = "") -> Iterator[None]:
    """Turns what Spark says of a plan it cannot make into one sentence."""
    try:
        yield
    except AnalysisException as error:
        about = f"{step}: " if step else ""
        parameters = error.getMessageParameters() or {}
        condition = error.getCondition() or ""
        if frame is not None and condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
            name = parameters["objectName"].replace("`", "")
            raise StreamError(about + _no_such_column(name, frame.columns)) from error
        raise StreamError(f"{about}{sentence_of(error)}.") from error


def told(act: Callable[[], T], what: str) -> T:
    """Runs `act`; whatever Spark refuses becomes a sentence about `what`."""
    try:
        return act()
    except (PySparkException, Py4JJavaError) as error:
        raise StreamError(f"{what}: {sentence_of(error)}.") from error

"""Filters that Spark pushes down, as bounds on what has to be read. Pure.

Used by the batch reader. Always holds: no record that passes the filters lies outside the bounds. Filters whose records
are exactly those inside need not be looked at again; of times only the outline is known, so Spark looks again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from barnabas.types import TopicPartition

NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")

_TESTS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: bool(found == value),
    EqualNullSafe: lambda found, value: bool(found == value),
    GreaterThan: lambda found, value: bool(found > value),
    GreaterThanOrEqual: lambda found, value: bool(found >= value),
    LessThan: lambda found, value: bool(found < value),
    LessThanOrEqual: lambda found, value: bool(found <= value),
    In: lambda found, value: found in value,
    StringStartsWith: lambda found, value: bool(found.startswith(value)),
    StringEndsWith: lambda found, value: bool(found.endswith(value)),
    StringContains: lambda found, value: value in found,
}


@dataclass(slots=True)
class BoundsState:
    """What is left to read while filters come in; `None` is no bound. Ends are not part of what is read."""

    names: list[Filter] = field(default_factory=list)
    first_offset: int | None = None
    end_offset: int | None = None
    since_ms: int | None = None
    before_ms: int | None = None

    def admits(self, partition: TopicPartition) -> bool:
        """Whether records of a partition can pass the filters on topic and partition."""
        return all(_passes(each, partition) for each in self.names)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Narrow the bounds; what Spark still has to look at comes back."""
        return [each for each in filters if not self._take(each)]

    def _take(self, given: Filter) -> bool:
        inner = given.child if isinstance(given, Not) else given
        column: tuple[str, ...] = getattr(inner, "attribute", ())
        if isinstance(given, IsNotNull):
            return len(column) == 1 and column[0] in NEVER_NULL
        value = getattr(inner, "value", None)
        if type(inner) not in _TESTS or value is None or (isinstance(inner, In) and None in value):
            return False
        if column in (("topic",), ("partition",)):
            self.names.append(given)
            return True
        if isinstance(given, Not):
            return False
        if column == ("offset",):
            low, high = _interval(given, lambda value: value, 1)
            self.first_offset = _larger(self.first_offset, low)
            self.end_offset = _smaller(self.end_offset, high)
            return not isinstance(given, In)
        if column == ("timestamp",):
            # Records have whole milliseconds, filters have microseconds.
            low, high = _interval(given, _micros, 1)
            self.since_ms = _larger(self.since_ms, None if low is None else -(-low // 1000))
            self.before_ms = _smaller(self.before_ms, None if high is None else -(-high // 1000))
        return False


def _passes(given: Filter, partition: TopicPartition) -> bool:
    if isinstance(given, Not):
        return not _passes(given.child, partition)
    (column,) = given.attribute
    return _TESTS[type(given)](getattr(partition, column), given.value)


def _interval(given: Filter, number: Callable[[Any], int], step: int) -> tuple[int | None, int | None]:
    """The numbers that pass: from the first up to but not with the second."""
    if isinstance(given, In):
        found = [number(value) for value in given.value]
        return (min(found), max(found) + step) if found else (0, 0)
    value = number(given.value)
    match given:
        case EqualTo() | EqualNullSafe():
            return value, value + step
        case GreaterThan():
            return value + step, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + step
    return None, None


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.astimezone()
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _larger(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _smaller(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else min(one, other)

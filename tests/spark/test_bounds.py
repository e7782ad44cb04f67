"""Filters become bounds that leave out no record that passes."""

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from barnabas.spark.bounds import BoundsState
from barnabas.types import TopicPartition

T, P, N, S = ("topic",), ("partition",), ("offset",), ("timestamp",)
COMPARED = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def moment(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def passes(given: Filter, record: dict[str, Any]) -> bool:
    if isinstance(given, Not):
        return not passes(given.child, record)
    found = record[given.attribute[0]]
    match given:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return bool(found == value)
        case GreaterThan(_, value):
            return bool(found > value)
        case GreaterThanOrEqual(_, value):
            return bool(found >= value)
        case LessThan(_, value):
            return bool(found < value)
        case LessThanOrEqual(_, value):
            return bool(found <= value)
        case In(_, values):
            return found in values
        case IsNotNull():
            return found is not None
    raise AssertionError(given)


@pytest.mark.parametrize("seed", range(300))
def test_no_record_that_passes_is_out_of_bounds(seed: int) -> None:
    dice = random.Random(seed)

    def value(column: str) -> Any:
        match column:
            case "topic":
                return dice.choice("abc")
            case "timestamp":
                return moment(dice.randrange(2000) / 100)
            case _:
                return dice.randrange(12)

    def one() -> Filter:
        column = dice.choice(["topic", "partition", "offset", "timestamp"])
        kind = dice.choice([*COMPARED, In, IsNotNull])
        if kind is IsNotNull:
            return IsNotNull((column,))
        found = tuple(value(column) for _ in range(3)) if kind is In else value(column)
        made = kind((column,), found)
        return Not(made) if dice.random() < 0.3 else made

    filters = [one() for _ in range(dice.randrange(1, 4))]
    bounds = BoundsState()
    left = bounds.take(filters)
    for topic in "abc":
        for index in range(3):
            for offset in range(14):
                time = moment(dice.randrange(25))
                record = {"topic": topic, "partition": index, "offset": offset, "timestamp": time}
                inside = (
                    bounds.admits(TopicPartition(topic, index))
                    and offset >= (bounds.first_offset or 0)
                    and offset < (99 if bounds.end_offset is None else bounds.end_offset)
                    and time >= moment(0 if bounds.since_ms is None else bounds.since_ms)
                    and time < moment(9**9 if bounds.before_ms is None else bounds.before_ms)
                )
                wanted = all(passes(each, record) for each in filters)
                assert inside or not wanted
                # What Spark is not told to look at again has to be exact.
                assert wanted == (inside and all(passes(each, record) for each in left))


def test_what_is_not_known_is_left_to_spark() -> None:
    others = [
        EqualTo(("key",), b"k"),
        IsNull(T),
        EqualTo(T, None),
        In(P, (1, None)),
        Not(GreaterThan(N, 5)),
        GreaterThan(("headers", "key"), "a"),
    ]
    bounds = BoundsState()
    assert bounds.take(others) == others
    assert bounds == BoundsState()


def test_topics_are_compared_as_text() -> None:
    for given, admitted in (
        (StringStartsWith(T, "or"), {"orders"}),
        (StringEndsWith(T, "s"), {"orders", "clicks"}),
        (StringContains(T, "lick"), {"clicks"}),
        (Not(EqualTo(T, "orders")), {"clicks", "views!"}),
    ):
        bounds = BoundsState()
        assert bounds.take([given]) == []
        topics = ("orders", "clicks", "views!")
        assert {topic for topic in topics if bounds.admits(TopicPartition(topic, 0))} == admitted


def test_times_are_the_same_in_every_zone() -> None:
    bounds = BoundsState()
    far = datetime(2026, 1, 1, 5, 30, 0, 500, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    bounds.take([GreaterThanOrEqual(S, far)])
    assert bounds.since_ms == 1_767_225_600_001

"""Each step does to a batch what it says, and leaves the stream it was called on as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from barnabas.streams import Stream, StreamError, avg, collect, count, first, last, max, min, sum
from tests.streams.feed import Feed, order, rows

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    feed = Feed(spark, tmp_path_factory.mktemp("steps") / "orders")
    feed.add(
        order(1, "ann", 10.0, "00:00:10"),
        order(2, "bob", 200.0, "00:00:20"),
        order(3, "ann", 30.0, "00:01:05"),
        {"id": 4, "user": "cyd"},
    )
    return feed.batch()


def test_select_map_rename_drop_and_filter(orders: Stream) -> None:
    made = (
        orders.filter("amount is not null")
        .map(cents=col("amount") * 100)
        .rename(user="who")
        .drop("at", "amount")
        .select("id", "who", dollars=col("cents") / 100)
    )
    assert rows(made, "id", "who", "dollars") == [(1, "ann", 10.0), (2, "bob", 200.0), (3, "ann", 30.0)]
    assert made.dataframe.columns == ["id", "who", "dollars"]
    assert orders.dataframe.columns == ["id", "user", "amount", "at"]


def test_aggregates_are_per_key(orders: Stream) -> None:
    made = orders.key_by("user").aggregate(
        n=count(),
        paid=count("amount"),
        total=sum("amount"),
        mean=avg("amount"),
        least=min("amount"),
        most=max("amount"),
        ids=collect("id"),
    )
    assert rows(made, "user", "n", "paid", "total", "mean", "least", "most", "ids") == [
        ("ann", 2, 2, 40.0, 20.0, 10.0, 30.0, [1, 3]),
        ("bob", 1, 1, 200.0, 200.0, 200.0, 200.0, [2]),
        ("cyd", 1, 0, None, None, None, None, [4]),
    ]
    everything = orders.aggregate(n=count(), a=first("user"), z=last("user"))
    assert rows(everything, "n", "a", "z") == [(4, "ann", "cyd")]


def test_windows_and_sessions_of_a_batch(orders: Stream) -> None:
    timed = orders.filter("at is not null").key_by("user")
    minutes = timed.window("1 minute", on="at").aggregate(total=sum("amount")).flat()
    assert minutes.dataframe.columns == ["user", "window_start", "window_end", "total"]
    assert [
        (user, start.minute, total) for user, start, total in rows(minutes, "user", "window_start", "total")
    ] == [
        ("ann", 0, 10.0),
        ("ann", 1, 30.0),
        ("bob", 0, 200.0),
    ]
    overlapping = timed.window("2 minutes", on="at", every="1 minute").aggregate(n=count())
    assert overlapping.dataframe.count() == 5
    sessions = timed.session("2 minutes", on="at").aggregate(n=count())
    assert rows(sessions, "user", "n") == [("ann", 2), ("bob", 1)]


def test_windows_of_windows(orders: Stream) -> None:
    minutes = orders.filter("at is not null").window("1 minute", on="at").aggregate(total=sum("amount"))
    hours = minutes.window("1 hour").aggregate(minutes=count(), total=sum("total"))
    assert rows(hours, "minutes", "total") == [(2, 240.0)]


def test_every_row_takes_the_first_branch_that_wants_it(orders: Stream) -> None:
    parts = orders.branch(big=col("amount") > 100, some="amount > 5", rest=True)
    assert list(parts) == ["big", "some", "rest"]
    assert rows(parts.big, "id") == [(2,)]
    assert rows(parts["some"], "id") == [(1,), (3,)]
    assert rows(parts.rest, "id") == [(4,)]  # its amount is null: neither true nor false
    with pytest.raises(AttributeError, match="no branch small: there are big, some, rest"):
        _ = parts.small


def test_explode_union_and_through(orders: Stream) -> None:
    listed = orders.key_by("user").aggregate(ids=collect("id"))
    assert rows(listed.explode("ids", into="id"), "user", "id") == [
        ("ann", 1),
        ("ann", 3),
        ("bob", 2),
        ("cyd", 4),
    ]
    assert orders.union(orders, orders).dataframe.count() == 12
    assert orders.deduplicate("user").dataframe.count() == 3
    assert orders.through(lambda frame: frame.limit(1)).dataframe.count() == 1


def test_json_takes_the_place_of_its_column(spark: SparkSession) -> None:
    values = [(b"k", b'{"id": 1, "user": "ann"}'), (b"k", None), (b"k", b'{"id": 2, "key": "mine"}')]
    raw = Stream.of(spark.createDataFrame(values, "key binary, value binary"))
    made = raw.json("id long, user string")
    assert made.dataframe.columns == ["key", "id", "user"]
    assert rows(made, "id", "user") == [(1, "ann"), (2, None), (None, None)]
    assert rows(raw.json("id long, key string"), "key", "id") == [("mine", 2), (None, 1), (None, None)]


def test_json_that_does_not_parse_is_failed_dropped_nulled_or_kept(spark: SparkSession) -> None:
    values = [('{"id": 1}',), ("no json",), ('{"id": "x"}',)]
    raw = Stream.of(spark.createDataFrame(values, "value string"))
    with pytest.raises(Exception, match="a value is no JSON of the schema"):
        raw.json("id long").dataframe.collect()
    assert rows(raw.json("id long", bad="drop"), "id") == [(1,)]
    assert rows(raw.json("id long", bad="null"), "id") == [(1,), (None,), (None,)]
    good, bad = raw.json("id long", bad="text").branch(good=col("text").isNull(), bad=True).values()
    assert rows(good, "id") == [(1,)]
    assert rows(bad, "text") == [("no json",), ('{"id": "x"}',)]


def test_joins_of_batches(spark: SparkSession, orders: Stream) -> None:
    names = Stream.of(
        spark.createDataFrame([("ann", "Ann", 1), ("dan", "Dan", 2)], "user string, name string, id int")
    )
    assert rows(orders.join(names, on="user"), "id", "user", "name", "id_right") == [
        (1, "ann", "Ann", 1),
        (3, "ann", "Ann", 1),
    ]
    assert orders.join(names, on="user", how="left").dataframe.count() == 4
    assert rows(orders.join(names, on="user", how="right"), "user", "id") == [
        ("ann", 1),
        ("ann", 3),
        ("dan", None),
    ]
    full = orders.join(names, on="user", how="full")
    assert {user for (user,) in rows(full, "user")} == {"ann", "bob", "cyd", "dan"}
    near = orders.with_event_time("at", watermark="1 minute")
    pairs = near.join(near, on="user", within="30 seconds", suffix="_2")
    assert rows(pairs, "id", "id_2") == [(1, 1), (2, 2), (3, 3)]


Wrong = Callable[[Stream], Any]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda s: s.select("amout"),
            r"select: there is no column amout; did you mean amount\? The stream has id, ",
        ),
        (lambda s: s.filter(col("zzz") > 1), r"filter: there is no column zzz\. The stream has id, "),
        (lambda s: s.key_by("usr"), "key_by: there is no column usr; did you mean user"),
        (lambda s: s.filter("amount >"), "filter: "),
        (lambda s: s.map(x=col("user.name")), "map: "),
        (lambda s: s.window("1 minute"), "window: there is no column timestamp"),
        (lambda s: s.window("1 minute", on="amount"), "window: amount is double, not a timestamp; map"),
        (lambda s: s.window("a minute", on="at"), "window is a length of time such as '30 seconds'"),
        (lambda s: s.with_event_time("at", watermark="soon"), "watermark is a length of time"),
        (lambda s: s.aggregate(), "aggregate: say what"),
        (lambda s: s.window("1 minute", on="at").aggregate(), "aggregate: say what"),
        (lambda s: s.key_by("user").window("1 minute", on="at").aggregate(user=count()), "user is the name"),
        (lambda s: s.branch(), "branch: say which"),
        (lambda s: s.json("id lnog", column="user"), "is no schema: write it as"),
        (lambda s: s.json("id long"), "json: there is no column value"),
        (lambda s: s.join(s, on="usr"), "join, left side: there is no column usr"),
        (lambda s: s.join(s, on="user", how="outer"), "how is one of inner, left, right, full, not 'outer'"),
        (lambda s: s.join(s, on="user", within="1 minute"), "within= compares event times"),
        (lambda s: s.to_memory("no table"), "is no name for a table"),
        (lambda s: s.to_parquet("/x", partition_by=["day"]), "partition_by: there is no column day"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(orders: Stream, wrong: Wrong, sentence: str) -> None:
    with pytest.raises(StreamError, match=sentence) as told:
        wrong(orders)
    assert "\n" not in str(told.value)
    assert "SQLSTATE" not in str(told.value)


def test_a_batch_is_written_when_run_returns(spark: SparkSession, orders: Stream, tmp_path: Path) -> None:
    orders.to_parquet(str(tmp_path / "out"), partition_by=["user"]).run()
    back = Stream.from_files(spark, str(tmp_path / "out"), streaming=False)
    assert rows(back, "id") == [(1,), (2,), (3,), (4,)]
    orders.to_memory("batch_orders").run()
    assert spark.table("batch_orders").count() == 4
    seen: list[int] = []
    assert orders.to_batches("count", lambda frame, batch: seen.append(frame.count())).run().wait()
    assert seen == [4]


def test_json_is_read_once(spark: SparkSession) -> None:
    raw = Stream.of(spark.createDataFrame([('{"id": 1}',)], "value string").repartition(2))
    plan = raw.json("id long").dataframe._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json") == 1, plan

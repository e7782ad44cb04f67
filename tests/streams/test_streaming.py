"""The same steps on streams: windows close, state is bounded, a query goes on where it was, mistakes are told early."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

from barnabas.streams import Stream, StreamError, count, run, sum
from tests.streams.feed import WITHIN_S, Feed, in_table, order, rows

pytestmark = pytest.mark.java


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "orders")


def test_a_window_is_there_when_the_watermark_has_passed_it(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.add(
        order(1, "ann", 10.0, "00:00:10"), order(2, "ann", 20.0, "00:00:50"), order(3, "bob", 5.0, "00:00:30")
    )
    feed.add(order(4, "ann", 7.0, "00:05:00"))  # moves the watermark to 00:04:30
    feed.add(order(5, "ann", 8.0, "00:05:01"))  # what the watermark has passed goes out with the next batch
    feed.add(order(6, "ann", 99.0, "00:00:20"))  # too late
    per_minute = (
        feed.stream()
        .key_by("user")
        .window("1 minute", on="at", watermark="30 seconds")
        .aggregate(total=sum("amount"), n=count())
    )
    out = str(tmp_path / "out")
    assert per_minute.to_parquet(out).run(checkpoint=str(tmp_path / "state"), once=True).wait(WITHIN_S)
    made = Stream.from_files(spark, out, streaming=False).flat()
    kept = rows(made, "user", "window_start", "total", "n")
    found = [(user, start.minute, total, n) for user, start, total, n in kept]
    assert found == [("ann", 0, 30.0, 2), ("bob", 0, 5.0, 1)]


def test_streams_meet_within_a_time(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    clicks = Feed(spark, tmp_path / "clicks", "user string, page string, at timestamp")
    feed.add(order(1, "ann", 10.0, "00:10:00"), order(2, "bob", 20.0, "00:10:00"))
    clicks.add(
        {"user": "ann", "page": "/a", "at": "2026-01-01T00:08:00Z"},
        {"user": "ann", "page": "/late", "at": "2026-01-01T00:16:00Z"},
        {"user": "cyd", "page": "/c", "at": "2026-01-01T00:10:00Z"},
    )
    left = feed.stream().with_event_time("at", watermark="1 minute")
    right = clicks.stream().with_event_time("at", watermark="1 minute")
    joined = left.join(right, on="user", within="5 minutes")
    assert joined.dataframe.columns == ["id", "user", "amount", "at", "page", "at_right"]
    with joined.to_memory("joined").run() as running:
        running.process_all()
        assert in_table(spark, "joined", ["id", "user", "page"]) == [(1, "ann", "/a")]


def test_windows_meet_by_their_window_and_a_left_row_waits_for_its_watermark(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.add(order(1, "ann", 10.0, "00:00:10"), order(2, "bob", 1.0, "00:00:20"))
    feed.add(order(3, "eve", 1.0, "00:30:00"))  # moves the watermark past both
    feed.add(order(4, "eve", 1.0, "00:31:00"))
    feed.add(order(5, "eve", 1.0, "00:32:00"))
    other = Feed(spark, tmp_path / "other")
    other.add(order(11, "ann", 5.0, "00:00:30"))
    for number in range(12, 15):
        other.add(order(number, "cyd", 5.0, f"00:3{number - 12}:00"))

    def written(stream: Stream, name: str) -> str:
        out = str(tmp_path / name)
        assert (
            stream.to_parquet(out).run(checkpoint=str(tmp_path / f"{name}-state"), once=True).wait(WITHIN_S)
        )
        return out

    left, right = (each.stream().with_event_time("at", watermark="1 minute") for each in (feed, other))
    near = written(left.join(right, on="user", within="5 minutes", how="left"), "near")
    assert rows(spark.read.parquet(near), "id", "id_right") == [(1, 11), (2, None)]
    minutes = [
        each.key_by("user").window("1 minute").aggregate(total=sum("amount")) for each in (left, right)
    ]
    both = written(minutes[0].join(minutes[1], on=["user", "window"]), "both")
    assert rows(spark.read.parquet(both), "user", "total", "total_right") == [("ann", 10.0, 5.0)]


def test_a_watermark_holds_as_long_as_its_column_is_what_it_was(feed: Feed) -> None:
    timed = _timed(feed.stream())
    assert timed.filter("id > 1").select("id", "at").rename(at="when").watermark == "1 minute"
    assert timed.rename(at="when").event_time == "when"
    assert timed.map(at=col("at") + expr("INTERVAL 1 HOUR")).watermark is None
    assert timed.drop("at").event_time is None
    assert timed.union(_timed(feed.stream())).watermark == "1 minute"
    assert timed.union(feed.stream()).watermark is None


def test_branches_run_side_by_side_and_go_on_where_they_were(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    state, out = str(tmp_path / "state"), str(tmp_path / "out")

    def once() -> None:
        big, rest = feed.stream().branch(big=col("amount") > 100, rest=True).values()
        names = spark.createDataFrame([("ann", "Ann"), ("bob", "Bob")], "user string, name string")
        outputs = (
            big.to_parquet(f"{out}/big"),
            rest.join(Stream.of(names), on="user").to_parquet(f"{out}/rest"),
        )
        for each in run(*outputs, checkpoint=state, once=True):
            assert each.wait(WITHIN_S)

    feed.add(order(1, "ann", 10.0, "00:00:00"), order(2, "bob", 200.0, "00:00:00"))
    once()
    feed.add(order(3, "bob", 300.0, "00:00:00"))
    once()
    assert rows(spark.read.parquet(f"{out}/big"), "id") == [(2,), (3,)]
    assert rows(spark.read.parquet(f"{out}/rest"), "id", "name") == [(1, "Ann")]


def test_duplicates_go_and_a_running_count_is_complete_in_memory(spark: SparkSession, feed: Feed) -> None:
    feed.add(
        order(1, "ann", 1.0, "00:00:00"), order(1, "ann", 1.0, "00:00:01"), order(2, "bob", 1.0, "00:00:02")
    )
    feed.add(order(2, "bob", 1.0, "00:00:03"), order(3, "bob", 1.0, "00:00:04"))
    once_each = feed.stream().with_event_time("at", watermark="10 minutes").deduplicate("id")
    with once_each.to_memory("once_each").run() as running:
        running.process_all()
    assert in_table(spark, "once_each", ["id"]) == [(1,), (2,), (3,)]
    counted = feed.stream().key_by("user").aggregate(n=count())
    with counted.to_memory("counted").run() as running:
        running.process_all()
        assert in_table(spark, "counted", ["user", "n"]) == [("ann", 2), ("bob", 3)]


def test_a_query_that_fails_says_why_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "broken", "value string")
    feed.add({"value": "{"})
    running = (
        feed.stream()
        .json("id long")
        .to_parquet(str(tmp_path / "out"))
        .run(checkpoint=str(tmp_path / "state"))
    )
    with pytest.raises(
        StreamError, match=r"out, to parquet in .* failed: .*a value is no JSON of the schema"
    ) as told:
        running.wait(WITHIN_S)
    assert "\n" not in str(told.value)


def test_what_is_written_for_each_batch_may_fail_too(feed: Feed, tmp_path: Path) -> None:
    def write(frame: Any, batch: int) -> None:
        raise ValueError("the disk is on fire")

    feed.add(order(1, "ann", 1.0, "00:00:00"))
    running = feed.stream().to_batches("burning", write).run(checkpoint=str(tmp_path / "state"))
    with pytest.raises(StreamError, match=r"burning, to burning, failed: the disk is on fire\.$"):
        running.wait(WITHIN_S)


Wrong = Callable[[Stream], Any]


def _timed(stream: Stream) -> Stream:
    return stream.with_event_time("at", watermark="1 minute")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda s: s.join(s, on="user", within="1 minute"), "the left stream has no watermark"),
        (lambda s: _timed(s).join(s, on="user", within="1 minute"), "the right stream has no watermark"),
        (lambda s: _timed(s).join(_timed(s), on="user"), "two streams need within='5 minutes'"),
        (
            lambda s: s.key_by("user").aggregate(n=count()).to_parquet("/x"),
            "An aggregate without an end cannot be appended to files in /x",
        ),
        (
            lambda s: s.window("1 minute", on="at").aggregate(n=count()).to_parquet("/x"),
            "An aggregate without an end cannot be appended",
        ),
        (
            lambda s: s.window("1 minute", on="at").aggregate(n=count()).window("1 hour"),
            "rows of an aggregate without a watermark change for ever",
        ),
        (lambda s: s.deduplicate("id"), "say within='10 minutes'"),
        (lambda s: _timed(s).deduplicate("id", within="9 minutes"), "a watermark of 1 minute already"),
        (lambda s: _timed(s).window("1 minute", on="at", watermark="2 minutes"), "already; it can have one"),
        (lambda s: s.session("1 minute", on="at", watermark="1 minute"), "sessions are per key"),
        (lambda s: s.to_parquet("/x").run(), "needs checkpoint='DIR'"),
        (lambda s: s.to_memory("x").run(once=True, every="1 second"), "exclude each other"),
        (lambda s: s.to_memory("x").run(every="now and then"), "every is a length of time"),
        (lambda s: run(s.to_memory("x"), s.to_memory("x"), checkpoint="/x"), "Two outputs are called x"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(feed: Feed, wrong: Wrong, sentence: str) -> None:
    with pytest.raises(StreamError, match=sentence):
        wrong(feed.stream())


def test_a_batch_on_one_side_forbids_some_joins(spark: SparkSession, feed: Feed) -> None:
    names = Stream.of(spark.createDataFrame([("ann", "Ann")], "user string, name string"))
    with pytest.raises(StreamError, match="with a batch on the right a full join would have to wait"):
        feed.stream().join(names, on="user", how="full")
    with pytest.raises(StreamError, match="one is a stream and the other a batch"):
        feed.stream().union(names)


def test_a_stream_of_files_needs_a_schema(spark: SparkSession) -> None:
    with pytest.raises(StreamError, match="needs schema="):
        Stream.from_files(spark, "/nowhere")
    with pytest.raises(StreamError, match="Reading /nowhere: "):
        Stream.from_files(spark, "/nowhere", streaming=False)

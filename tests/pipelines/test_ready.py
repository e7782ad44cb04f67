"""The pipelines that come with Barnabas, end to end: made-up data in, and what comes out held against plain Python."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQueryListener

from barnabas.pipelines.running import Ended
from tests.pipelines.conftest import Made

pytestmark = [pytest.mark.slow, pytest.mark.java]

LINE = re.compile(rb'(\S+) - (\S+) \[([^\]]+)\] "(\w+) (\S+) (HTTP/[\d.]+)" (\d+) (\d+) "([^"]*)" "([^"]*)"')


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_access_lines_become_a_table_and_bad_ones_dead_letters(
    spark: Any,
    made: Callable[..., Made],
    new_topic: Callable[..., str],
    run_once: Callable[..., Ended],
    records_of: Callable[[str], list[Any]],
    tmp_path: Path,
) -> None:
    dead, output = new_topic(), str(tmp_path / "logs")
    first = made("logs", 8000, 20.0)
    run_once("log-collection", source=first.topic, output=output, dead_letters=dead)
    more = made("logs", 2000, 20.0, topic=first.topic, first=8000)
    ended = run_once("log-collection", source=first.topic, output=output, dead_letters=dead)
    assert ended.rows == {"lines": 2000, "bad": 2000}, "the second run reads only what is new"

    values = [row["value"] for row in first.rows + more.rows]
    good = [match for value in values if (match := LINE.fullmatch(value))]
    table = spark.read.parquet(output)
    found = table.selectExpr("count(*)", "sum(bytes)", "count(distinct partition, offset)").first()
    assert tuple(found) == (len(good), sum(int(match[8]) for match in good), len(good))
    by_status = {row["status"]: row["count"] for row in table.groupBy("status").count().collect()}
    assert by_status == Counter(int(match[7]) for match in good)
    hours = {(str(row["day"]), row["hour"]) for row in table.select("day", "hour").distinct().collect()}
    moments = [datetime.strptime(match[3].decode(), "%d/%b/%Y:%H:%M:%S %z") for match in good]
    assert hours == {(str(each.date()), each.hour) for each in moments}
    bad = records_of(dead)
    assert Counter(bytes(row["value"]) for row in bad) == Counter(
        value for value in values if not LINE.fullmatch(value)
    )
    origins = {
        bytes(header["value"]).decode()
        for row in bad
        for header in row["headers"]
        if header["key"] == "source"
    }
    assert len(origins) == len(bad)
    assert all(origin.startswith(f"{first.topic}-") for origin in origins)


def sessions_in(events: list[dict[str, Any]], gap_s: float, watermark: float) -> list[tuple[Any, ...]]:
    """(user, began, ended, views, searches, clicks) of every session that was over at the watermark."""
    by_user: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        by_user[event["user"]].append((moment(event["time"]), event["event"]))
    found = []
    for user, acts in by_user.items():
        acts.sort()
        begin = 0
        for place in range(1, len(acts) + 1):
            if place == len(acts) or acts[place][0] - acts[place - 1][0] >= gap_s:
                session = acts[begin:place]
                kinds = Counter(kind for _, kind in session)
                if session[-1][0] + gap_s <= watermark:
                    counts = kinds["view"], kinds["search"], kinds["click"]
                    found.append((user, session[0][0], session[-1][0], *counts))
                begin = place
    return sorted(found)


def test_visitors_become_sessions_and_their_views_top_pages(
    spark: Any,
    made: Callable[..., Made],
    new_topic: Callable[..., str],
    run_once: Callable[..., Ended],
    records_of: Callable[[str], list[Any]],
    tmp_path: Path,
) -> None:
    sessions, output = new_topic(), str(tmp_path / "pages")
    visits = made("activity", 8000, 1.0)
    wanted = {"source": visits.topic, "sessions": sessions, "output": output, "top": "5", "late": "4 minutes"}
    run_once("activity-tracking", **wanted)

    events = [json.loads(row["value"]) for row in visits.rows]
    watermark = max(moment(event["time"]) for event in events) - 240
    found = records_of(sessions)
    shown = [json.loads(row["value"]) for row in found]
    assert sorted(
        (
            each["user"],
            moment(each["began"]),
            moment(each["ended"]),
            each["views"],
            each["searches"],
            each["clicks"],
        )
        for each in shown
    ) == sessions_in(events, 1800, watermark)
    assert all(each["events"] == each["views"] + each["searches"] + each["clicks"] for each in shown)
    assert [bytes(row["key"]).decode() for row in found] == [each["user"] for each in shown]

    views: dict[float, Counter[str]] = defaultdict(Counter)
    for event in events:
        if event["event"] == "view":
            views[moment(event["time"]) // 300 * 300][event["page"]] += 1
    expected = [
        (window, rank, page, count)
        for window, pages in sorted(views.items())
        if window + 300 <= watermark
        for rank, (page, count) in enumerate(
            sorted(pages.items(), key=lambda each: (-each[1], each[0]))[:5], 1
        )
    ]
    rows = (
        spark.read.parquet(output).selectExpr("unix_millis(began) / 1000", "rank", "page", "views").collect()
    )
    assert sorted(tuple(row) for row in rows) == expected
    assert len(expected) > 100


def test_readings_become_minutes_and_alerts(
    spark: Any,
    made: Callable[..., Made],
    new_topic: Callable[..., str],
    run_once: Callable[..., Ended],
    records_of: Callable[[str], list[Any]],
    tmp_path: Path,
) -> None:
    alerts, output = new_topic(), str(tmp_path / "minutes")
    readings = made("metrics", 20_000, 5.0)
    run_once("operational-metrics", source=readings.topic, output=output, alerts=alerts)

    values: dict[tuple[float, str, str], list[float]] = defaultdict(list)
    last = 0.0
    for row in readings.rows:
        each = json.loads(row["value"])
        at = moment(each["time"])
        last = max(last, at)
        values[at // 60 * 60, each["service"], each["metric"]].append(each["value"])
    over = {key: found for key, found in values.items() if key[0] + 60 <= last - 60}
    rows = spark.read.parquet(output).withColumn("began", _seconds("began")).collect()
    assert {(row["began"], row["service"], row["metric"]): row["readings"] for row in rows} == {
        key: len(found) for key, found in over.items()
    }
    for row in rows:
        found = over[row["began"], row["service"], row["metric"]]
        assert (row["min"], row["max"]) == (min(found), max(found))
        assert row["sum"] == pytest.approx(sum(found))
    limits = {"latency_ms": 200.0, "error_rate": 5.0, "cpu_percent": 90.0}
    alarming = {
        key for key, found in over.items() if key[2] in limits and sum(found) / len(found) > limits[key[2]]
    }
    told = [json.loads(row["value"]) for row in records_of(alerts)]
    assert {(moment(each["began"]), each["service"], each["metric"]) for each in told} == alarming
    assert len(told) == len(alarming) > 10


def _seconds(name: str) -> Any:
    from pyspark.sql import functions as f

    return f.unix_timestamp(name).cast("double")


def test_rows_that_spark_tells_of_late_are_counted(
    spark: Any, made: Callable[..., Made], run_once: Callable[..., Ended], tmp_path: Path
) -> None:
    class Slow(StreamingQueryListener):  # type: ignore[misc]
        """Spark tells one listener after the other: who comes behind this one hears everything late."""

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            Event().wait(4)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    readings = made("metrics", 300, 5.0)
    slow = Slow()
    spark.streams.addListener(slow)
    try:
        ended = run_once("offline-load", source=readings.topic, output=str(tmp_path / "table"))
    finally:
        spark.streams.removeListener(slow)
    assert ended.rows == {"out": 300}

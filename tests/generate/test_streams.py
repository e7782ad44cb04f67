"""Promises of the made-up streams: the same from the same seed, in any chunks, and like what they imitate."""

import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import Any

import pytest

from barnabas.generate import Clock, streams
from barnabas.generate.sending import paced

START_MS = 1_780_000_000_000
NAMES = ["logs", "activity", "metrics"]
NGINX = re.compile(
    rb"10(\.\d{1,3}){3} - [\w-]+ \[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000)\] "
    rb'"[A-Z]+ /\S* HTTP/1\.1" (\d{3}) \d+ ".*" ".*"'
)


def rows(
    name: str, count: int, *, seed: int = 7, first: int = 0, rate: float = 100.0
) -> list[dict[str, Any]]:
    table = streams()[name].rows(seed, Clock(START_MS, rate), first, count)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_depends_on_the_seed_and_its_number_alone(name: str) -> None:
    whole = rows(name, 3000)
    assert rows(name, 3000) == whole
    assert rows(name, 500, first=1234) == whole[1234:1734]
    assert rows(name, 3000, seed=8) != whole
    chunks = streams()[name].chunks(7, Clock(START_MS, 100.0), 120_000)
    assert [chunk.num_rows for chunk in chunks] == [50_000, 50_000, 20_000]


@pytest.mark.parametrize("name", NAMES)
def test_rows_come_at_the_rate_of_the_clock(name: str) -> None:
    at = [row["timestamp"].timestamp() * 1000 for row in rows(name, 1001)]
    assert at == sorted(at)
    assert (at[0], at[-1]) == (START_MS, START_MS + 10_000)


def test_access_lines_are_nginx_lines_but_for_one_in_two_hundred() -> None:
    found = rows("logs", 40_000)
    good = [match for row in found if (match := NGINX.fullmatch(row["value"]))]
    assert 0.003 < 1 - len(good) / len(found) < 0.007
    assert {row["key"] for row in found} == {f"web-{number:02}".encode() for number in range(1, 41)}
    assert {match[3][:1] for match in good} == {b"2", b"3", b"4", b"5"}
    assert not any(b"\n" in row["value"] for row in found), "a line is one line"
    first = datetime.strptime(good[0][2].decode(), "%d/%b/%Y:%H:%M:%S %z")
    assert first == datetime.fromtimestamp(START_MS // 1000, UTC)


def test_visitors_come_in_visits_and_some_of_their_events_come_late() -> None:
    found = rows("activity", 40_000, rate=10.0)
    events = [json.loads(row["value"]) for row in found]
    assert set(Counter(event["event"] for event in events)) == {"view", "search", "click"}
    assert all(("query" in event) == (event["event"] == "search") for event in events)
    assert all(("target" in event) == (event["event"] == "click") for event in events)
    assert [event["user"].encode() for event in events] == [row["key"] for row in found]
    late = [
        row["timestamp"].timestamp() - moment(event["time"]) for row, event in zip(found, events, strict=True)
    ]
    assert min(late) > 0.049
    assert 0.015 < sum(seconds > 5 for seconds in late) / len(late) < 0.027
    assert 0.0003 < sum(seconds > 3000 for seconds in late) / len(late) < 0.002
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event["user"]].append(moment(event["time"]))
    gaps = [
        after - before
        for each in times.values()
        for before, after in zip(sorted(each), sorted(each)[1:], strict=False)
    ]
    within = sum(gap < 60 for gap in gaps) / len(gaps)
    apart = sum(gap > 1800 for gap in gaps) / len(gaps)
    assert within > 0.6
    assert apart > 0.015
    assert within + apart > 0.9, "a gap is one within a visit or one between two"


def test_services_have_incidents_that_show_in_their_latency() -> None:
    found = [json.loads(row["value"]) for row in rows("metrics", 120_000, rate=10.0)]
    assert len({(each["service"], each["host"], each["metric"]) for each in found}) == 20 * 4 * 4
    minutes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in found:
        if each["metric"] == "latency_ms":
            minutes[each["service"], each["time"][:16]].append(each["value"])
    means = sorted(sum(values) / len(values) for values in minutes.values())
    in_trouble = sum(mean > 200 for mean in means) / len(means)
    assert 0.005 < in_trouble < 0.05
    assert 35 < means[len(means) // 2] < 50


def test_paced_rows_leave_when_they_are_due_and_not_before() -> None:
    chunks = streams()["metrics"].chunks(1, Clock(START_MS, 400.0), 100)
    began, seen = monotonic(), 0
    for part in paced(chunks, 400.0):
        seen += part.num_rows
        assert seen <= (monotonic() - began) * 400.0 + 1
    assert seen == 100
    assert monotonic() - began >= 99 / 400


def test_pacing_ends_when_it_is_told_to() -> None:
    stop = Event()
    parts = paced(streams()["metrics"].chunks(1, Clock(START_MS, 0.001)), 0.001, stop=stop)
    assert next(parts).num_rows == 1
    stop.set()
    assert list(parts) == []

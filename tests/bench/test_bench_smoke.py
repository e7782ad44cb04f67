"""The bench's arithmetic and its report, without a broker: pure functions only."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from crc32c import crc32c

# The bench is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measure import (
    KAFKA,
    OURS,
    Case,
    Measured,
    Metric,
    Readings,
    SharedSide,
    SideState,
    Spread,
    Wanted,
    Workload,
    compares_brokers,
    kept,
    ratios,
    sides_of,
    spread,
)
from bench.processes import Spent, Usage
from bench.server import Server

from bench import page_cache, plots, report, wire

SPEED = Metric("mb_s", "produce", "MB/s", more_is_better=True)


def workload(bound: Wanted | None = None) -> Workload:
    def wanted(_metric: str, _case: Case, _limits: Sequence[str]) -> Wanted | None:
        return bound

    made = SimpleNamespace(NAME="w", TITLE="A workload", ABOUT="About it.", METRICS=(SPEED,), wanted=wanted)
    return cast(Workload, made)


def readings(
    kafka: Sequence[float | None], ours: Sequence[float | None], case: Case | None = None
) -> Readings:
    def measured(value: float | None) -> Measured | None:
        return None if value is None else Measured({"mb_s": value}, {"mb_s": "client"})

    made = Readings("w", case or Case("a case", 1.0))
    made.by_side = {KAFKA: [measured(v) for v in kafka], OURS: [measured(v) for v in ours]}
    return made


def test_a_ratio_is_made_round_by_round() -> None:
    # A machine twice as slow in the second round leaves the ratio as it is.
    assert ratios([(100.0, 200.0), (50.0, 100.0)]) == [2.0, 2.0]
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_a_round_that_failed_on_one_side_counts_on_neither() -> None:
    assert readings([1.0, None, 3.0], [2.0, 4.0, None]).paired("mb_s") == [(1.0, 2.0)]


@pytest.mark.parametrize(
    ("wanted", "ratio", "met"),
    [
        (Wanted(1.2, at_least=True), Spread(1.25, 1.0, 1.3), True),
        (Wanted(1.2, at_least=True), Spread(1.19, 1.0, 1.3), False),
        (Wanted(1.0, at_least=True, within_spread=True), Spread(0.97, 0.9, 1.01), True),
        (Wanted(1.0, at_least=True, within_spread=True), Spread(0.97, 0.9, 0.99), False),
        (Wanted(0.5, at_least=False), Spread(0.4, 0.3, 0.9), True),
        (Wanted(0.5, at_least=False), Spread(0.6, 0.3, 0.9), False),
    ],
)
def test_a_wanted_ratio_is_met_by_the_median_or_within_the_spread(
    wanted: Wanted, ratio: Spread, met: bool
) -> None:
    assert wanted.met(ratio) is met


def test_what_is_asked_of_ours_alone_is_not_a_ratio() -> None:
    flat = Wanted(1.1, at_least=False, of_ours=True)
    theirs_grew, ours_grew = readings([2.0], [1.05]), readings([1.0], [1.2])
    assert [row.met for row in report.rows(workload(flat), [theirs_grew, ours_grew])] == [True, False]
    assert str(flat) == "≤ 1.1 of ours"


def test_a_workload_may_compare_clients_of_one_broker(tmp_path: Path) -> None:
    def never(_directory: Path) -> Server:
        raise AssertionError("nobody asked for a broker")

    brokers = {KAFKA: SideState("Kafka", never, tmp_path), OURS: SideState("Barnabas", never, tmp_path)}
    assert sides_of(workload(), brokers) is brokers
    assert compares_brokers(workload())
    clients = cast(Workload, SimpleNamespace(**vars(workload()), THEIRS="the other", PICTURE="clients.svg"))
    clients.sides = lambda of: {KAFKA: SharedSide("a", of[OURS]), OURS: SharedSide("b", of[OURS])}  # type: ignore[attr-defined]
    assert not compares_brokers(clients)
    assert [side.name for side in sides_of(clients, brokers).values()] == ["a", "b"]
    text = report.markdown([], [(clients, [readings([1.0], [2.0])])], [], [])
    assert "| case | what | the other | Barnabas |" in text


def test_clients_are_drawn_apart_from_brokers(tmp_path: Path) -> None:
    of_clients = cast(
        Workload, SimpleNamespace(**vars(workload(Wanted(1.0, at_least=True))), PICTURE="clients.svg")
    )
    rows = [
        *report.rows(workload(Wanted(1.0, at_least=True)), [readings([1.0], [2.0])]),
        *report.rows(of_clients, [readings([1.0], [2.0])]),
    ]
    assert plots.draw(rows, tmp_path) == ["bench-ratios.svg", "clients.svg"]
    assert "the other library" in (tmp_path / "clients.svg").read_text()


def test_growth_compares_what_each_broker_keeps_of_its_own_smallest() -> None:
    small = readings([100.0], [400.0], Case("1", 1.0, series="s"))
    large = readings([50.0], [300.0], Case("1,000", 1.0, series="s"))
    assert kept(large.paired("mb_s"), small.paired("mb_s")) == [(0.5, 0.75)]
    found = report.rows(workload(Wanted(1.0, at_least=True)), [small, large])
    assert [(row.growth, row.ratio.median, row.met) for row in found] == [
        (False, 4.0, None),
        (False, 6.0, None),
        (True, 1.5, True),
    ]


@pytest.mark.parametrize(("large_ours", "met"), [(410.0, True), (390.0, False)])
def test_a_side_that_keeps_all_has_lost_nothing_whatever_the_other_gained(
    large_ours: float, met: bool
) -> None:
    small = readings([100.0], [400.0], Case("1", 1.0, series="s"))
    large = readings([200.0], [large_ours], Case("1,000", 1.0, series="s"))
    found = report.rows(workload(Wanted(1.0, at_least=True)), [small, large])
    assert found[-1].ratio.median < 1
    assert found[-1].met is met


def test_the_page_cache_is_filled_until_little_memory_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([600, 500, 300, 300])
    said = {"MemTotal": 4096 * page_cache.MIB}
    monkeypatch.setattr(page_cache, "_of_meminfo", lambda name: said.get(name) or next(free) * page_cache.MIB)
    read: list[int] = []
    monkeypatch.setattr("os.preadv", lambda _file, _into, at: read.append(at))
    pages = page_cache.PageCache(tmp_path)
    pages.fill()
    assert len(read) == 2 * page_cache.STEP // page_cache.MIB
    pages.fill()
    assert len(read) == 2 * page_cache.STEP // page_cache.MIB


def test_the_page_cache_is_left_alone_where_the_system_does_not_tell_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_of_meminfo", lambda _name: 0)
    page_cache.PageCache(tmp_path).fill()
    assert not list(tmp_path.iterdir())


def test_the_record_names_every_ratio_and_every_failure() -> None:
    chosen = workload(Wanted(1.2, at_least=True))
    text = report.markdown(
        [("cores", "2")], [(chosen, [readings([100.0], [150.0])])], ["it broke"], ["a/b.svg"]
    )
    assert "| a case | produce | 100 MB/s | 150 MB/s | 1.5 (1.5 to 1.5) | ≥ 1.2 | yes | client |" in text
    assert "1 of 1 wanted ratios met." in text
    assert "- it broke" in text
    assert "![b](a/b.svg)" in text


def test_a_workload_that_measured_nothing_says_so() -> None:
    text = report.markdown([], [(workload(), [readings([None], [1.0])])], [], [])
    assert "Nothing was measured on both sides." in text


@pytest.mark.parametrize(
    ("client_busiest", "broker_busiest", "machine", "limit"),
    [
        (0.9, 0.95, 2.0, "client"),
        (0.5, 0.9, 1.5, "broker"),
        (0.5, 0.5, 100.0, "machine"),
        (0.1, 0.1, 0.2, "waiting"),
    ],
)
def test_the_limit_is_the_side_that_had_nothing_left(
    client_busiest: float, broker_busiest: float, machine: float, limit: str
) -> None:
    usage = Usage(1.0, client_busiest, client_busiest, Spent(broker_busiest, broker_busiest, 0), machine)
    assert usage.limit == limit


def test_a_frame_encoded_beforehand_holds_a_batch_with_a_right_crc() -> None:
    batch = wire.batch([b"one", b"two"], 1_700_000_000_000)
    (length,) = struct.unpack_from(">i", batch, 8)
    magic, crc = struct.unpack_from(">bI", batch, 16)
    assert (length, magic, crc) == (len(batch) - 12, 2, crc32c(batch[21:]))
    frame = wire.produce_request("topic", 3, batch)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert batch in frame


def test_a_batch_of_a_size_fills_it_and_never_passes_it() -> None:
    batch, count = wire.batch_of_size(1 << 20, 1024, 0)
    assert 0.99 * (1 << 20) < len(batch) <= 1 << 20
    assert struct.unpack_from(">i", batch, 57)[0] == count

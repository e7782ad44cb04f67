"""The workload that compares client libraries: every library does its work on a real broker, a little of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The bench is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measure import KAFKA, OURS, Case, SharedSide, SideState, Size
from bench.workloads import client

from bench import barnabas_server

WHO = (client.CONFLUENT, client.TOLD, client.KAFKA_PYTHON, client.RECORDS, client.COLUMNS)


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideState]:
    """Our side, on a broker that is not warmed up."""
    brokers = {OURS: SideState("Barnabas", barnabas_server.start, tmp_path_factory.mktemp("bench"))}
    yield client.sides(brokers)[OURS]
    brokers[OURS].stop()


def case(who: str, **settings: float) -> Case:
    return Case("a case", 1.0, {OURS: who, KAFKA: who, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("who", WHO)
def test_every_library_sends_and_reads(side: SideState, who: str) -> None:
    values = client.run(side, case(who, share=0.02)).values
    assert values["produce_per_s"] > 0
    assert ("consume_per_s" in values) == (who != client.TOLD)
    assert values.get("consume_per_s", 1.0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("who", [each for each in WHO if each != client.COLUMNS])
def test_every_library_that_sends_one_record_is_timed(side: SideState, who: str) -> None:
    values = client.run(side, case(who, sends=50)).values
    assert 0 < values["p50_us"] <= values["p99_us"]


@pytest.mark.slow
@pytest.mark.parametrize("who", WHO)
def test_memory_is_read_on_the_way(side: SideState, who: str) -> None:
    values = client.run(side, case(who, memory=20_000)).values
    assert 0 < values["start_mb"] < 1000
    assert values["growth"] > 0.1


@pytest.mark.parametrize("size", list(Size))
def test_every_ratio_of_the_issue_is_asked_for(size: Size) -> None:
    asked = {
        (metric.key, each.settings[OURS], each.settings[KAFKA]): bound.bound
        for each in client.cases(size)
        for metric in client.METRICS
        if (bound := client.wanted(metric.key, each, ())) is not None
    }
    speed = {
        (client.RECORDS, client.CONFLUENT): (1.3, 1.3),
        (client.COLUMNS, client.CONFLUENT): (3.0, 4.0),
        (client.RECORDS, client.KAFKA_PYTHON): (8.0, 3.0),
    }
    for (ours, theirs), (produce, consume) in speed.items():
        assert asked["produce_per_s", ours, theirs] == produce
        assert asked["consume_per_s", ours, theirs] == consume
    assert asked["produce_per_s", client.RECORDS, client.TOLD] == 1.3
    assert asked["p50_us", client.RECORDS, client.CONFLUENT] == 1.0
    assert asked["growth", client.COLUMNS, client.CONFLUENT] == client.FLAT


def test_both_sides_are_clients_of_our_broker(tmp_path: Path) -> None:
    def never(_directory: Path) -> object:
        raise AssertionError("nobody asked for a broker")

    ours = SideState("Barnabas", never, tmp_path)  # type: ignore[arg-type]
    found = client.sides({OURS: ours})
    assert all(isinstance(each, SharedSide) for each in found.values())
    assert {each.name for each in found.values()} == {"ours", "the other library"}

"""The workload that compares Spark's connectors: both do their work on a real broker, a little of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The bench is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measure import KAFKA, OURS, Case, SideState, Size
from bench.workloads import spark

from bench import barnabas_server


@pytest.mark.slow(seconds=60)
@pytest.mark.timeout(600)
@pytest.mark.java
def test_both_connectors_read_and_write(tmp_path: Path) -> None:
    broker = SideState("Barnabas", barnabas_server.start, tmp_path)
    sides = spark.sides({OURS: broker})
    try:
        # Beside other tests the machine is never at rest: to wait for that took minutes.
        settings = {"records": 6_000, "bytes": 100, "times": 2, "small": 1, "rest_s": 0}
        case = Case("a case", 1.0, settings)
        for side in (sides[OURS], sides[KAFKA]):
            values = spark.run(side, case).values
            assert set(values) == {metric.key for metric in spark.METRICS}
            assert all(value > 0 for value in values.values())
    finally:
        sides[OURS].stop()
        broker.stop()


@pytest.mark.parametrize("size", [Size.DEFAULT, Size.FULL])
def test_every_ratio_of_the_issue_is_asked_for(size: Size) -> None:
    asked = {
        (case.name, metric.key): bound.bound
        for case in spark.cases(size)
        for metric in spark.METRICS
        if (bound := spark.wanted(metric.key, case, [])) is not None
    }
    three = {"read_per_s": 3.0, "stream_per_s": 2.0, "write_per_s": 2.0}
    three |= {f"plain_{key}": 2.0 for key in three}
    wanted = {(name, key): bound for name in ("100 B", "1024 B") for key, bound in three.items()}
    assert asked == wanted

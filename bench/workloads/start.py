"""How long a broker takes from its start to its first answer, and what it holds when nobody asks anything."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "start"
TITLE = "Start and idle memory"
FRESH = True
ABOUT = (
    "A new process on an empty data folder (Kafka's is formatted beforehand, outside the clock), its code "
    "compiled as an installation leaves it. First answer: to ApiVersions. Serving: Metadata names a broker. "
    "Idle memory: resident, two seconds later."
)
IDLE_S = 2.0
METRICS = (
    Metric("first_answer_s", "start to first answer", "s"),
    Metric("serving_s", "start to serving", "s"),
    Metric("cpu_s", "broker CPU for the start", "s"),
    Metric("idle_mb", "idle memory", "MB"),
)


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    return (Case("one broker", 6.0),)


def run(side: SideState, case: Case) -> Measured:
    server = side.fresh()
    try:
        time.sleep(IDLE_S)
        cost = server.cost()
    finally:
        server.stop()
    return Measured(
        {
            "first_answer_s": server.first_answer_s,
            "serving_s": server.serving_s,
            "cpu_s": cost.cpu_s,
            "idle_mb": cost.rss_bytes / 1e6,
        }
    )


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    bounds = {"first_answer_s": 1 / 15, "idle_mb": 1 / 6}
    return Wanted(bounds[metric], at_least=False) if metric in bounds else None

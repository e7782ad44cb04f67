"""One-record produce requests with flush.messages=1 and without: what it costs to have each on the disk first, and
how many producers share an fsync. docs/GUARANTEES.md has a run of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import librdkafka, loadgen
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted
from bench.workloads.one_record import one_record_load

NAME = "durable"
TITLE = "Produce requests that wait for the disk"
FRESH = False
ABOUT = (
    "Produce v9, acks=1, one record of 100 B, one partition, one request in flight on each connection: with "
    "flush.messages=1, where every answer waits for an fsync, and without."
)
METRICS = (
    Metric("per_s", "requests", "/s", more_is_better=True),
    Metric("p50_us", "p50", "us"),
    Metric("p99_us", "p99", "us"),
    Metric("cpu_us", "broker CPU a request", "us"),
)
PRODUCERS = (1, 16, 128)
FLUSHED = {"flush.messages": "1"}


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    seconds = 1.5 if size is Size.QUICK else 3.0
    return [
        Case(
            f"{n} producer{'s' if n > 1 else ''}, {'flush.messages=1' if settings else 'no flush'}",
            seconds + 1.2,
            {"producers": n, "seconds": seconds, "settings": settings},
        )
        for n in PRODUCERS
        for settings in (FLUSHED, {})
    ]


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    with librdkafka.topic(server, "durable", 1, case.settings["settings"]) as topic:
        load = one_record_load(topic, 1, case.settings["producers"], case.settings["seconds"])
        answered = loadgen.run(server, load)
    return Measured(
        {
            "per_s": answered.requests / answered.seconds,
            "p50_us": answered.p50_ns / 1e3,
            "p99_us": answered.p99_ns / 1e3,
            "cpu_us": answered.broker.cpu_s / answered.requests * 1e6,
        },
        {"per_s": answered.usage.limit},
        answered.usage.others,
    )


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """Nothing was asked for: the disk decides."""
    return None

"""From produce() in one thread to the record in another's hand, at 1,000 records a second."""

from __future__ import annotations

from collections.abc import Sequence

from bench import librdkafka
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "end_to_end"
TITLE = "End-to-end latency at 1,000 records/s"
FRESH = False
ABOUT = (
    "confluent-kafka producer (linger 0, acks=all) and consumer in one process, two threads; each "
    "record of 100 B carries the monotonic time at which it was sent."
)
METRICS = (
    Metric("p50_ms", "p50", "ms"),
    Metric("p99_ms", "p99", "ms"),
    Metric("cpu", "broker CPU of a core", "%"),
)
RATE, RECORD_BYTES = 1000, 100


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    seconds = 2.0 if size is Size.QUICK else 5.0
    return (Case("1 partition", seconds + 2.5, {"partitions": 1, "seconds": seconds}),)


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    with librdkafka.topic(server, "end-to-end", case.settings["partitions"]) as topic:
        done = latency(side, topic, case.settings["partitions"], case.settings["seconds"])
    return Measured(
        {
            "p50_ms": done.said["p50_ns"] / 1e6,
            "p99_ms": done.said["p99_ns"] / 1e6,
            "cpu": done.broker.cpu_s / done.seconds * 100,
        },
        others=done.usage.others,
    )


def latency(side: SideState, topic: str, partitions: int, seconds: float) -> librdkafka.Done:
    shape = {"topic": topic, "partitions": partitions, "record_bytes": RECORD_BYTES}
    return librdkafka.run(side.server, "latency", rate=RATE, seconds=seconds, warm_up_s=1.0, **shape)


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    return Wanted(0.5, at_least=False) if metric in ("p50_ms", "p99_ms") else None

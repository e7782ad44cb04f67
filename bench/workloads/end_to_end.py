"""From the sending of a record to its bytes in a reader's hand, at 1,000 records a second."""

from __future__ import annotations

from collections.abc import Sequence

from bench import endtoend, librdkafka
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "end_to_end"
TITLE = "End-to-end latency at 1,000 records/s"
FRESH = False
ABOUT = (
    "Records of 100 B, acks=all, one partition. Frames: one thread of C that sends frames encoded beforehand on one "
    "connection and waits in a fetch on another, from send() to the whole answer; what the brokers and the kernel "
    "take. librdkafka: confluent-kafka's producer (linger 0) and consumer in one process, two threads of Python, each "
    "record carries the time at which it was handed over; on both sides some 0.1 ms of that are the client's own."
)
METRICS = (
    Metric("p50_ms", "p50", "ms"),
    Metric("p99_ms", "p99", "ms"),
    Metric("cpu", "broker CPU of a core", "%"),
)
RATE, RECORD_BYTES = 1000, 100
FRAMES, LIBRDKAFKA = "frames", "librdkafka"


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    seconds = 2.0 if size is Size.QUICK else 5.0
    ways = (FRAMES, LIBRDKAFKA) if endtoend.is_there() else (LIBRDKAFKA,)
    return [Case(way, seconds + 2.5, {"seconds": seconds}) for way in ways]


def run(side: SideState, case: Case) -> Measured:
    server, seconds = side.server, case.settings["seconds"]
    with librdkafka.topic(server, "end-to-end", 1) as topic:
        if case.name == FRAMES:
            done = endtoend.run(server, topic, RATE, RECORD_BYTES, seconds)
        else:
            done = latency(side, topic, 1, seconds)
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

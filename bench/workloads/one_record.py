"""Produce requests with one record each, encoded beforehand: what a small request costs, and how long it
takes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import librdkafka, loadgen, wire
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "one_record"
TITLE = "One-record produce requests"
FRESH = False
ABOUT = (
    "Produce v9 (older versions are named), acks=1, one record of 100 B, frames encoded beforehand, 4 partitions, "
    "one request in flight on each connection; sent by an epoll loop whose own CPU is given."
)
METRICS = (
    Metric("per_s", "requests", "/s", more_is_better=True),
    Metric("p50_us", "p50", "us"),
    Metric("p99_us", "p99", "us"),
    Metric("cpu_us", "broker CPU a request", "us"),
    Metric("generator_us", "generator CPU a request", "us"),
)
PARTITIONS, VALUE = 4, b"x" * 100
WANTED_PER_S = {1: 1.5, 16: 1.2, 128: 1.0}


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    seconds = 1.5 if size is Size.QUICK else 3.0
    return [
        Case(
            f"{n} connection{'s' if n > 1 else ''}{'' if version == wire.PRODUCE_VERSION else f', v{version}'}",
            seconds + 1.2,
            {"connections": n, "seconds": seconds, "version": version},
        )
        for n, version in ((1, 9), (16, 9), (128, 9), (128, 7), (128, 3))
    ]


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    with librdkafka.topic(server, "one-record", PARTITIONS) as topic:
        load = one_record_load(topic, PARTITIONS, **case.settings)
        answered = loadgen.run(server, load)
    return Measured(
        {
            "per_s": answered.requests / answered.seconds,
            "p50_us": answered.p50_ns / 1e3,
            "p99_us": answered.p99_ns / 1e3,
            "cpu_us": answered.broker.cpu_s / answered.requests * 1e6,
            "generator_us": answered.generator_cpu_s / answered.requests * 1e6,
        },
        {"per_s": answered.usage.limit},
        answered.usage.others,
    )


def one_record_load(
    topic: str,
    partitions: int,
    connections: int,
    seconds: float,
    version: int = wire.PRODUCE_VERSION,
    acks: int = 1,
) -> loadgen.Load:
    batch = wire.batch([VALUE], int(time.time() * 1000))
    frames = [
        wire.produce_request(topic, partition, batch, version=version, acks=acks)
        for partition in range(partitions)
    ]
    return loadgen.Load(frames, wire.error_offset(topic, version), connections, seconds=seconds)


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    if metric == "per_s":
        return Wanted(WANTED_PER_S[case.settings["connections"]], at_least=True)
    bounds = {"p99_us": 1.0, "cpu_us": 0.8}
    return Wanted(bounds[metric], at_least=False) if metric in bounds else None

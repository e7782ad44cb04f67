"""Produce requests of 1 MiB encoded beforehand, four in flight on one connection: how fast bytes reach the
log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench import librdkafka, loadgen, wire
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "one_mib"
TITLE = "1 MiB produce requests"
FRESH = False
ABOUT = (
    "Produce v9, acks=1, one batch of 1 MiB (1 KiB records, uncompressed) a request, four in flight on "
    "one connection; at most 1 GiB a round, so that the page cache and not the disk takes it."
)
METRICS = (
    Metric("mb_s", "produce", "MB/s", more_is_better=True),
    Metric("cpu", "broker CPU a GB", "s"),
    Metric("generator_cpu", "generator CPU a GB", "s"),
)
MIB = 1 << 20


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    requests = 512 if size is Size.QUICK else 1024
    return (Case("4 in flight, 1 connection", 3.0 + requests / 400, {"requests": requests}),)


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    with librdkafka.topic(server, "one-mib", 1) as topic:
        answered = loadgen.run(server, one_mib_load(topic, case.settings["requests"])[0])
    gigabytes = answered.sent_bytes / 1e9
    return Measured(
        {
            "mb_s": answered.sent_bytes / answered.seconds / 1e6,
            "cpu": answered.broker.cpu_s / gigabytes,
            "generator_cpu": answered.generator_cpu_s / gigabytes,
        },
        {"mb_s": answered.usage.limit},
        answered.usage.others,
    )


def one_mib_load(topic: str, requests: int, warm_up_s: float = 0.5) -> tuple[loadgen.Load, int]:
    """The load, and how many records one request holds."""
    batch, records = wire.batch_of_size(MIB, 1024, int(time.time() * 1000))
    frame = wire.produce_request(topic, 0, batch)
    offset = wire.error_offset(topic)
    load = loadgen.Load(
        [frame], offset, in_flight=4, warm_up_s=warm_up_s, seconds=60.0, max_requests=requests
    )
    return load, records


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    return Wanted(2.0, at_least=True) if metric == "mb_s" else None

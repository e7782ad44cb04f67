"""What a broker loses when a partition holds 1 or 5 GB instead of 0.1."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bench import librdkafka, loadgen
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted
from bench.workloads.one_mib import MIB, one_mib_load
from bench.workloads.one_record import one_record_load

NAME = "retained"
TITLE = "Growth: 0.1 to 5 GB retained"
FRESH = False
ABOUT = (
    "One partition filled with 1 KiB records, then measured in that same partition: 100 MB produced with librdkafka, "
    "100 MB read from the middle (the median of five), one-record requests over 16 connections; what was filled in "
    "is on disk by then. Of its smallest: the share of its own value at 0.1 GB; a broker that keeps all of it has "
    "lost nothing, whatever the other gained."
)
METRICS = (
    Metric("produce_mb_s", "produce", "MB/s", more_is_better=True),
    Metric("consume_mb_s", "consume", "MB/s", more_is_better=True),
    Metric("per_s", "one-record requests", "/s", more_is_better=True),
    Metric("p99_us", "one-record p99", "us"),
)
RECORD_BYTES, RECORDS, READS = 1024, 100_000, 5


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 3


def cases(size: Size) -> Sequence[Case]:
    levels = (0.1, 1.0) if size is Size.QUICK else (0.1, 1.0, 5.0)
    return [Case(f"{level:g} GB", 5.0 + 4.0 * level, {"gb": level}, series="retained") for level in levels]


def run(side: SideState, case: Case) -> Measured:
    """Fills a new topic every time: measuring adds to what is retained."""
    server = side.server
    with librdkafka.topic(server, "retained", 1) as topic:
        requests = round(case.settings["gb"] * 1e9 / MIB)
        filling, each = one_mib_load(topic, requests, warm_up_s=0.0)
        if loadgen.run(server, filling).requests < requests:
            raise loadgen.GeneratorFailedError(
                f"{server.name} did not take {case.name} in {filling.seconds} s"
            )
        # Who fills faster has more left to be written back: 5 GB of it cost a third of the reading that followed.
        os.sync()
        shape = {"topic": topic, "partitions": 1, "records": RECORDS, "record_bytes": RECORD_BYTES}
        # The last record read is at most the last one filled in.
        middle = max(0, min(requests * each // 2, requests * each - RECORDS))
        records = min(RECORDS, requests * each)
        # One takes a tenth of a second, and varies by a third.
        reads = [
            librdkafka.run(server, "consume", offset=middle, **(shape | {"records": records}))
            for _ in range(READS)
        ]
        read = sorted(reads, key=lambda each: each.mb_per_s)[READS // 2]
        sent = librdkafka.run(server, "produce", codec="none", **shape)
        small = loadgen.run(server, one_record_load(topic, 1, 16, 1.5))
    return Measured(
        {
            "produce_mb_s": sent.mb_per_s,
            "consume_mb_s": read.mb_per_s,
            "per_s": small.requests / small.seconds,
            "p99_us": small.p99_ns / 1e3,
        },
        {"produce_mb_s": sent.usage.limit, "consume_mb_s": read.usage.limit, "per_s": small.usage.limit},
        max(sent.usage.others, read.usage.others),
    )


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """Of the shares kept: ours is to be no worse than Kafka's."""
    return Wanted(1.0, at_least=metric != "p99_us", within_spread=True)

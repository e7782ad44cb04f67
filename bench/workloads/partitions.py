"""What a broker loses when a topic has 100 or 1,000 partitions instead of one."""

from __future__ import annotations

from collections.abc import Sequence

from bench import librdkafka, loadgen
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted
from bench.workloads.end_to_end import latency
from bench.workloads.one_record import one_record_load

NAME = "partitions"
TITLE = "Growth: 1 to 1,000 partitions"
FRESH = False
ABOUT = (
    "One topic, 1 KiB records spread evenly over its partitions; one-record requests over 16 "
    "connections; latency at 1,000 records/s. Of its smallest: the share of its own value at 1 "
    "partition; a broker that keeps all of it has lost nothing, whatever the other gained."
)
METRICS = (
    Metric("produce_mb_s", "produce", "MB/s", more_is_better=True),
    Metric("consume_mb_s", "consume", "MB/s", more_is_better=True),
    Metric("per_s", "one-record requests", "/s", more_is_better=True),
    Metric("p50_ms", "latency p50", "ms"),
    Metric("p99_ms", "latency p99", "ms"),
)
RECORD_BYTES = 1024


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 3


def cases(size: Size) -> Sequence[Case]:
    quick = size is Size.QUICK
    records, seconds = (100_000, 1.0) if quick else (250_000, 2.0)
    return [
        Case(f"{n:,} partition{'s' if n > 1 else ''}", 7.0 if quick else 12.0, settings, series="partitions")
        for n in ((1, 1000) if quick else (1, 100, 1000))
        for settings in ({"partitions": n, "records": records, "seconds": seconds},)
    ]


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    count, records, seconds = case.settings["partitions"], case.settings["records"], case.settings["seconds"]
    with librdkafka.topic(server, "partitions", count) as topic:
        shape = {"topic": topic, "partitions": count, "records": records, "record_bytes": RECORD_BYTES}
        sent = librdkafka.run(server, "produce", codec="none", **shape)
        read = librdkafka.run(server, "consume", **shape)
        late = latency(side, topic, count, seconds)
        small = loadgen.run(server, one_record_load(topic, count, 16, seconds))
    return Measured(
        {
            "produce_mb_s": sent.mb_per_s,
            "consume_mb_s": read.mb_per_s,
            "per_s": small.requests / small.seconds,
            "p50_ms": late.said["p50_ns"] / 1e6,
            "p99_ms": late.said["p99_ns"] / 1e6,
        },
        {"produce_mb_s": sent.usage.limit, "consume_mb_s": read.usage.limit, "per_s": small.usage.limit},
        max(sent.usage.others, read.usage.others),
    )


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """Of the shares kept: ours is to be no worse than Kafka's."""
    return Wanted(1.0, at_least=not metric.endswith("ms"), within_spread=True)

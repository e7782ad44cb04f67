"""librdkafka produces as fast as it can, then reads the same data back: MB/s of payload, broker CPU for
each GB.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import librdkafka
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "throughput"
TITLE = "librdkafka: produce and consume"
FRESH = False
ABOUT = (
    "confluent-kafka with librdkafka's defaults and acks=all, records spread evenly over the "
    "partitions; then a new consumer reads it all. MB are payload before compression. Limit: whose "
    "busiest thread had nothing left (client, broker), or both cores together (machine)."
)
METRICS = (
    Metric("produce_mb_s", "produce", "MB/s", more_is_better=True),
    Metric("produce_cpu", "broker CPU a GB produced", "s"),
    Metric("consume_mb_s", "consume", "MB/s", more_is_better=True),
    Metric("consume_cpu", "broker CPU a GB consumed", "s"),
    Metric("rss_mb", "broker memory", "MB"),
)
SIZES = {100: "100 B", 1024: "1 KiB", 10240: "10 KiB"}
# So many records that the slower half of the grid takes about two seconds.
RECORDS = {100: 2_500_000, 1024: 500_000, 10240: 60_000}
SUBSET = (
    (100, 4, "none"),
    (1024, 1, "none"),
    (1024, 4, "none"),
    (1024, 64, "none"),
    (10240, 4, "none"),
    (100, 4, "lz4"),
    (1024, 4, "lz4"),
    (1024, 64, "lz4"),
)
QUICK = ((1024, 4, "none"), (100, 4, "none"), (1024, 64, "lz4"))


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    grid = [(size_, parts, codec) for size_ in SIZES for parts in (1, 4, 64) for codec in ("none", "lz4")]
    chosen = {Size.QUICK: QUICK, Size.DEFAULT: SUBSET, Size.FULL: grid}[size]
    share = 0.4 if size is Size.QUICK else 1.0
    return [_case(record_bytes, parts, codec, share) for record_bytes, parts, codec in chosen]


def _case(record_bytes: int, partitions: int, codec: str, share: float) -> Case:
    name = f"{SIZES[record_bytes]}, {partitions} partition{'s' if partitions > 1 else ''}, {codec}"
    settings = {
        "record_bytes": record_bytes,
        "partitions": partitions,
        "codec": codec,
        "records": int(RECORDS[record_bytes] * share),
    }
    return Case(name, 1.5 + 4.5 * share, settings)


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    of = case.settings
    with librdkafka.topic(server, "throughput", of["partitions"]) as topic:
        sent = librdkafka.run(server, "produce", topic=topic, **of)
        read = librdkafka.run(server, "consume", topic=topic, **of)
    return Measured(
        {
            "produce_mb_s": sent.mb_per_s,
            "produce_cpu": sent.broker_cpu_s_per_gb,
            "consume_mb_s": read.mb_per_s,
            "consume_cpu": read.broker_cpu_s_per_gb,
            "rss_mb": read.broker.rss_bytes / 1e6,
        },
        {"produce_mb_s": sent.usage.limit, "consume_mb_s": read.usage.limit},
        max(sent.usage.others, read.usage.others),
    )


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """`limits` are ours: where the client cannot send faster, nobody can ask for more than its speed."""
    if metric == "produce_mb_s":
        client_bound = limits.count("client") * 2 > len(limits)
        return Wanted(1.0, at_least=True, within_spread=True) if client_bound else Wanted(1.2, at_least=True)
    bounds = {
        "consume_mb_s": Wanted(1.0, at_least=True, within_spread=True),
        "produce_cpu": Wanted(0.7, at_least=False),
        "consume_cpu": Wanted(1.0, at_least=False),
    }
    return bounds.get(metric)

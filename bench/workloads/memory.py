"""What a fresh broker holds after one gigabyte has gone in and come out again."""

from __future__ import annotations

from collections.abc import Sequence

from bench import librdkafka
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "memory"
TITLE = "Memory after 1 GB"
FRESH = True
ABOUT = "A fresh broker; librdkafka produces 1 GB of 1 KiB records to 4 partitions and reads it all back."
METRICS = (Metric("rss_mb", "memory after 1 GB", "MB"),)
RECORD_BYTES, RECORDS, PARTITIONS = 1024, 1_000_000, 4


def rounds(size: Size) -> int:
    return 1 if size is Size.QUICK else 2


def cases(size: Size) -> Sequence[Case]:
    return (Case("1 GB in and out", 16.0),)


def run(side: SideState, case: Case) -> Measured:
    server = side.fresh()
    try:
        with librdkafka.topic(server, "memory", PARTITIONS) as topic:
            shape = {
                "topic": topic,
                "partitions": PARTITIONS,
                "records": RECORDS,
                "record_bytes": RECORD_BYTES,
            }
            librdkafka.run(server, "produce", codec="none", **shape)
            librdkafka.run(server, "consume", **shape)
            return Measured({"rss_mb": server.cost().rss_bytes / 1e6})
    finally:
        server.stop()


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    return Wanted(1 / 8, at_least=False)

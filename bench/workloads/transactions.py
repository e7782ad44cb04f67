"""Transactions: how many a second, what each costs the broker, and how soon a reader has what was committed."""

from __future__ import annotations

from collections.abc import Sequence

from bench import librdkafka, transactions
from bench.measure import Case, Measured, Metric, SideState, Size, Wanted

NAME = "transactions"
TITLE = "Transactions"
FRESH = False
ABOUT = (
    "confluent-kafka, a transactional id for each producer, transactions of 1 and of 100 records of 100 B over 4 "
    "partitions, one after the other, each producer in a thread of one process. Begin to read: one producer, one "
    "record, until a consumer with isolation.level=read_committed has it."
)
METRICS = (
    Metric("commits_s", "commits", "/s", more_is_better=True),
    Metric("cpu_ms", "broker CPU a commit", "ms"),
    Metric("p50_ms", "begin to read, p50", "ms"),
    Metric("p99_ms", "begin to read, p99", "ms"),
)
PARTITIONS = 4
WANTED_COMMITS = {1: 3.0, 8: 1.5, 16: 1.5}


def rounds(size: Size) -> int:
    return 3 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    seconds = 1.5 if size is Size.QUICK else 4.0
    return [
        *(
            Case(
                f"{n} producer{'s' if n > 1 else ''}, {records} record{'s' if records > 1 else ''}",
                seconds + 2.5,
                {"do": "commits", "producers": n, "records": records, "seconds": seconds},
            )
            for n in WANTED_COMMITS
            for records in (1, 100)
        ),
        Case("begin to read", seconds + 2.0, {"do": "latency", "seconds": seconds}),
    ]


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    with librdkafka.topic(server, "transactions", PARTITIONS) as topic:
        done = transactions.run(server, topic=topic, partitions=PARTITIONS, **case.settings)
    values = {"cpu_ms": done.broker.cpu_s / done.said["commits"] * 1e3}
    if case.settings["do"] == "latency":
        values |= {"p50_ms": done.said["p50_ns"] / 1e6, "p99_ms": done.said["p99_ns"] / 1e6}
    else:
        values["commits_s"] = done.said["commits"] / done.seconds
    return Measured(values, {"commits_s": done.usage.limit}, done.usage.others)


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    if metric == "commits_s":
        return Wanted(WANTED_COMMITS[case.settings["producers"]], at_least=True)
    return Wanted(0.5, at_least=False) if metric in ("cpu_ms", "p50_ms") else None

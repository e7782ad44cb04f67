"""Three brokers beside three: what replication costs, how long nothing is acknowledged when one ends, and restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from bench import cluster, endtoend, librdkafka, loadgen, outage
from bench.cluster import BROKERS, ClusterServer
from bench.measure import KAFKA, OURS, Case, Measured, Metric, SideState, Size, Wanted
from bench.server import Server
from bench.workloads.one_record import one_record_load

NAME = "cluster"
TITLE = "Three brokers, replication 3"
FRESH = False
ABOUT = (
    "Three KRaft nodes of Apache Kafka, each broker and controller with a heap of 1 GiB and "
    "broker.session.timeout.ms=6000, beside ZooKeeper and three brokers of ours with their defaults, as "
    "`barnabas up --brokers 3` starts them; min.insync.replicas=2, acks=all everywhere. CPU is that of all "
    "processes of a cluster, ZooKeeper's too. One record at a time: frames encoded beforehand, one request in "
    "flight on each connection, to one leader. Without an acknowledgement: the longest pause that a librdkafka "
    "writer of 200 records/s sees when the leader of its partition is killed (kill -9) or stopped (SIGTERM). "
    "Restart: clean stop and start, until every broker says that each partition has a leader and its full ISR."
)
METRICS = (
    Metric("produce_mb_s", "produce", "MB/s", more_is_better=True),
    Metric("cpu_s_gb", "CPU of the cluster a GB", "s"),
    Metric("per_s", "requests", "/s", more_is_better=True),
    Metric("p50_us", "p50", "us"),
    Metric("p99_us", "p99", "us"),
    Metric("e2e_p50_ms", "p50", "ms"),
    Metric("e2e_p99_ms", "p99", "ms"),
    Metric("silence_s", "without an acknowledgement", "s"),
    Metric("brokers_mb", "memory of three brokers", "MB"),
    Metric("cluster_mb", "memory with ZooKeeper", "MB"),
    Metric("restart_s", "until all is in sync", "s"),
)
RECORD_BYTES = 1024
PARTITIONS = 4
RATE, END_TO_END_BYTES = 1000, 100
WANTED = {
    "produce_mb_s": Wanted(2.0, at_least=True),
    "cpu_s_gb": Wanted(0.3, at_least=False),
    "per_s": Wanted(1.0, at_least=True),
    "p50_us": Wanted(0.5, at_least=False),
    "p99_us": Wanted(1.0, at_least=False),
    "e2e_p99_ms": Wanted(1.0, at_least=False),
    "brokers_mb": Wanted(1 / 10, at_least=False),
    "cluster_mb": Wanted(1 / 6, at_least=False),
    "restart_s": Wanted(1.0, at_least=False),
}
WANTED_SILENCE = {"kill": 0.2, "stop": 0.5}


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 5


def sides(brokers: Mapping[str, SideState]) -> Mapping[str, SideState]:
    """Clusters in place of the single brokers; a control run has Kafka's on both sides."""
    made = {}
    for name in (KAFKA, OURS):
        side = brokers[name]
        start = cluster.START.get(side.name, cluster.start_kafka)
        made[name] = SideState(side.name, start, side.directory / "cluster")
        made[name].on_start = warm_up
    return made


def warm_up(server: Server) -> None:
    """Kafka's JIT triples its speed in the first seconds."""
    shape = {"partitions": PARTITIONS, "records": 60_000, "record_bytes": RECORD_BYTES}
    with librdkafka.topic(server, "warm-up", PARTITIONS) as topic:
        for _ in range(2):
            librdkafka.run(server, "produce", topic=topic, codec="none", **shape)
        librdkafka.run(server, "consume", topic=topic, **shape)
    with librdkafka.topic(server, "warm-up", PARTITIONS, leader=1) as topic:
        loadgen.run(server, one_record_load(topic, PARTITIONS, 16, 3.0, acks=-1))


def cases(size: Size) -> Sequence[Case]:
    quick = size is Size.QUICK
    records, seconds = (60_000, 1.5) if quick else (300_000, 4.0)
    many = 400 if quick else 2_000
    return [
        *(
            Case(
                f"1 KiB, {n} partitions",
                4.0 if quick else 12.0,
                {"do": _produce, "partitions": n, "records": records},
            )
            for n in (4, 64)
        ),
        *(
            Case(
                f"one record, {n} connection{'s' if n > 1 else ''}",
                seconds + 2,
                {"do": _one_record, "connections": n, "seconds": seconds},
            )
            for n in (1, 16, 128)
        ),
        *(
            [Case("end to end, 1,000 records/s", seconds + 3, {"do": _end_to_end, "seconds": seconds})]
            if endtoend.is_there()
            else []
        ),
        Case("kill -9 of a leader", 25.0, {"do": _outage, "how": "kill"}),
        Case("clean stop of a leader", 20.0, {"do": _outage, "how": "stop"}),
        Case("memory, after the above", 2.0, {"do": _memory}),
        Case(
            f"{many:,} partitions, restart of one",
            30.0,
            {"do": _restart, "partitions": many, "nodes": 1},
            most_rounds=3,
        ),
        Case(
            f"{many:,} partitions, restart of all",
            40.0,
            {"do": _restart, "partitions": many, "nodes": BROKERS},
            most_rounds=3,
        ),
    ]


def run(side: SideState, case: Case) -> Measured:
    server = side.server
    assert isinstance(server, ClusterServer)
    settings = dict(case.settings)
    do: Callable[..., Measured] = settings.pop("do")
    return do(server, **settings)


def _produce(server: ClusterServer, partitions: int, records: int) -> Measured:
    shape = {"partitions": partitions, "records": records, "record_bytes": RECORD_BYTES}
    with librdkafka.topic(server, "replicated", partitions) as topic:
        sent = librdkafka.run(server, "produce", topic=topic, codec="none", **shape)
    values = {"produce_mb_s": sent.mb_per_s, "cpu_s_gb": sent.broker_cpu_s_per_gb}
    return Measured(values, {"produce_mb_s": sent.usage.limit}, sent.usage.others)


def _one_record(server: ClusterServer, connections: int, seconds: float) -> Measured:
    with librdkafka.topic(server, "one-record", PARTITIONS, leader=1) as topic:
        answered = loadgen.run(server, one_record_load(topic, PARTITIONS, connections, seconds, acks=-1))
    values = {
        "per_s": answered.requests / answered.seconds,
        "p50_us": answered.p50_ns / 1e3,
        "p99_us": answered.p99_ns / 1e3,
    }
    return Measured(values, {"per_s": answered.usage.limit}, answered.usage.others)


def _end_to_end(server: ClusterServer, seconds: float) -> Measured:
    with librdkafka.topic(server, "end-to-end", 1, leader=1) as topic:
        done = endtoend.run(server, topic, RATE, END_TO_END_BYTES, seconds)
    values = {"e2e_p50_ms": done.said["p50_ns"] / 1e6, "e2e_p99_ms": done.said["p99_ns"] / 1e6}
    return Measured(values, others=done.usage.others)


def _outage(server: ClusterServer, how: str) -> Measured:
    node = next(server.turns)
    with librdkafka.topic(server, "outage", 1, leader=node.number) as topic:
        try:
            silence_s = outage.run(server.bootstrap, topic, node.kill if how == "kill" else node.stop)
        finally:
            node.kill()
            server.start([node])
        server.until_well(topic)
    return Measured({"silence_s": silence_s})


def _memory(server: ClusterServer) -> Measured:
    brokers, whole = server.brokers_cost(), server.cost()
    return Measured({"brokers_mb": brokers.rss_bytes / 1e6, "cluster_mb": whole.rss_bytes / 1e6})


def _restart(server: ClusterServer, partitions: int, nodes: int) -> Measured:
    chosen = server.nodes[-nodes:]
    with librdkafka.topic(server, "many", partitions) as topic:
        server.until_well(topic)
        begun = time.monotonic()
        for node in chosen:
            node.stop()
        server.start(chosen)
        server.until_well(topic)
        took_s = time.monotonic() - begun
    return Measured({"restart_s": took_s})


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    if metric == "silence_s":
        return Wanted(WANTED_SILENCE[case.settings["how"]], at_least=False)
    return WANTED.get(metric)

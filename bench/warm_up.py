"""Warms a new broker up before anything is read: Kafka's JIT triples its speed in the first seconds.

Called by the sides when they start the broker that most workloads share. Both brokers get the same.
"""

from __future__ import annotations

from bench import librdkafka, loadgen
from bench.measure import Size
from bench.server import Server
from bench.workloads.one_mib import one_mib_load
from bench.workloads.one_record import one_record_load

SECONDS = {Size.QUICK: 12.0, Size.DEFAULT: 25.0, Size.FULL: 25.0}


def warm_up(server: Server, size: Size) -> None:
    quick = size is Size.QUICK
    with librdkafka.topic(server, "warm-up", 4) as topic:
        for codec in ("none", "lz4"):
            shape = {
                "topic": topic,
                "partitions": 4,
                "records": 150_000 if quick else 300_000,
                "record_bytes": 1024,
            }
            librdkafka.run(server, "produce", codec=codec, **shape)
            librdkafka.run(server, "consume", **shape)
        for connections in (1, 16, 128):
            loadgen.run(server, one_record_load(topic, 4, connections, 1.5 if quick else 4.0))
        loadgen.run(server, one_mib_load(topic, 200)[0])

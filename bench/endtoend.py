"""Runs the lean end-to-end client, a C program that sends and reads frames encoded beforehand, against one broker.

Called by the workload end_to_end. It costs some 10 us of CPU a record: what it reads is the broker's time and the
kernel's, where a client library would add its threads' to both sides.
"""

from __future__ import annotations

import tempfile
import time

from bench import loadgen, wire
from bench.librdkafka import Done
from bench.processes import Usage
from bench.server import Server

WARM_UP_S = 1.0


def is_there() -> bool:
    """Whether there is a compiler to make it."""
    return loadgen.built("endtoend") is not None


def run(server: Server, topic: str, rate: int, record_bytes: int, seconds: float) -> Done:
    """Partition 0 of a topic that is new and stays ours."""
    program = loadgen.built("endtoend")
    if program is None:
        raise loadgen.GeneratorFailedError("there is no C compiler for the end-to-end client")
    batch = wire.batch([b"x" * record_bytes], int(time.time() * 1000))
    produce = wire.produce_request(topic, 0, batch, acks=-1)
    error_offset = wire.error_offset(topic)
    loadgen.until_accepted(server, [produce], error_offset)
    with tempfile.NamedTemporaryFile(prefix="bench-frames-") as frames:
        frames.write(produce + wire.fetch_request(topic, 1))
        frames.flush()
        numbers = (
            server.port,
            rate,
            WARM_UP_S,
            seconds,
            error_offset,
            wire.fetch_offset_at(topic),
            len(batch),
            wire.empty_fetch_bytes(topic),
        )
        command = (program, *map(str, numbers), frames.name)
        said, spent, busy_s = loadgen.watched(server, command, WARM_UP_S + seconds)
    if said["errors"]:
        raise loadgen.GeneratorFailedError(f"{server.name} refused {said['errors']} records")
    usage = Usage(said["seconds"], said["cpu_s"], said["cpu_s"], spent, busy_s)
    return Done(said["records"] * record_bytes, usage, said)

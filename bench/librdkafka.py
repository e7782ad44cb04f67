"""Runs bench.client (librdkafka in its own process) against one broker, and makes and removes topics.

Called by the workloads. The broker's CPU is read when the client is ready and again when it has its result,
so connecting and preparing are not counted.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import Spent, Usage, machine_busy_s
from bench.server import Server

CLIENT_LIMIT_S = 150.0
ADMIN_LIMIT_S = 60.0
GONE_LIMIT_S = 10.0
_numbers = itertools.count(1)
ROOT = Path(__file__).resolve().parent.parent


class WorkFailedError(RuntimeError):
    """A client did not do its work; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a client did in the measured time, and who used the machine meanwhile."""

    payload_bytes: float
    usage: Usage
    said: dict[str, float]

    @property
    def seconds(self) -> float:
        return self.usage.seconds

    @property
    def broker(self) -> Spent:
        return self.usage.broker

    @property
    def mb_per_s(self) -> float:
        return self.payload_bytes / self.seconds / 1e6

    @property
    def broker_cpu_s_per_gb(self) -> float:
        return self.broker.cpu_s / (self.payload_bytes / 1e9)


def run(server: Server, do: str, **job: Any) -> Done:
    return run_program("bench.client", server, do, job)


def run_program(program: str, server: Server, do: str, job: Mapping[str, Any]) -> Done:
    order = json.dumps({"do": do, "bootstrap": server.bootstrap, **job})
    process = subprocess.Popen(
        (sys.executable, "-m", program, order),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(CLIENT_LIMIT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        ready = process.stdout.readline()
        before, busy_before = server.cost(), machine_busy_s()
        line = ""
        if ready:
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
        spent = server.cost().since(before)
        busy_s = machine_busy_s() - busy_before
        _, complaint = process.communicate()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if not line:
        why = complaint.strip()[-300:] or f"it was stopped after {CLIENT_LIMIT_S:.0f} s"
        raise WorkFailedError(f"{do} against {server.name} failed: {why}")
    said = json.loads(line)
    usage = Usage(said["seconds"], said["cpu_s"], said["busiest_thread_s"], spent, busy_s)
    return Done(said["bytes"], usage, said)


@contextmanager
def topic(
    server: Server,
    name: str,
    partitions: int,
    settings: Mapping[str, str] | None = None,
    *,
    leader: int | None = None,
) -> Iterator[str]:
    """A new topic that goes again afterwards. No name is used twice: the last may still be on its way out.

    In a cluster `leader` is the broker that leads all of its partitions; every replica is in sync when it begins.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    unique = f"{name}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
    # Deleted files go at once: a topic measured before must not fill the disk while the next one is measured.
    config = {"file.delete.delay.ms": "0", **(settings or {})}
    if leader is None:
        new = NewTopic(unique, partitions, server.replicas, config=config)
    else:
        others = [number for number in range(1, server.replicas + 1) if number != leader]
        new = NewTopic(unique, partitions, replica_assignment=[[leader, *others]] * partitions, config=config)
    try:
        admin.create_topics([new], request_timeout=ADMIN_LIMIT_S)[unique].result(ADMIN_LIMIT_S)
        _until_led(admin, unique, partitions)
        until_in_sync(admin, unique, server.replicas)
    except KafkaException as error:
        raise WorkFailedError(f"{server.name} did not create {unique}: {error}") from error
    try:
        yield unique
    finally:
        # A broker that has died cannot delete; what it died of is already on its way up.
        with suppress(KafkaException, TimeoutError):
            admin.delete_topics([unique], request_timeout=ADMIN_LIMIT_S)[unique].result(ADMIN_LIMIT_S)
        _until_gone(server, unique)
        # What either broker left to be written back must not be paid for by the next measurement.
        os.sync()


def _until_led(admin: Any, topic: str, partitions: int) -> None:
    """Created is not yet led: librdkafka backs off and retries, and that would be measured as produce.

    Without this wait Kafka took 8-17 s for 102 MB to 1,000 new partitions, with it 0.6-0.9 s: an advantage of
    25 times for us that was none.
    """
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    everywhere = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
    deadline = time.monotonic() + ADMIN_LIMIT_S
    while True:
        try:
            for asked in admin.list_offsets(everywhere, request_timeout=ADMIN_LIMIT_S).values():
                asked.result(ADMIN_LIMIT_S)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def until_in_sync(admin: Any, topic: str, replicas: int) -> None:
    """A replica that is still to come would be copied to in the measured time."""
    deadline = time.monotonic() + ADMIN_LIMIT_S
    while replicas > 1:
        found = admin.list_topics(topic, timeout=ADMIN_LIMIT_S).topics[topic].partitions.values()
        if all(len(partition.isrs) == replicas for partition in found):
            return
        if time.monotonic() > deadline:
            raise WorkFailedError(f"not all replicas of {topic} came in sync")
        time.sleep(0.02)


def _until_gone(server: Server, topic: str) -> None:
    """Waits for the files to go, so that deleting them does not disturb the other broker; not for ever."""
    deadline = time.monotonic() + GONE_LIMIT_S
    while any(server.data.glob(f"{topic}-*")) and time.monotonic() < deadline:
        time.sleep(0.02)

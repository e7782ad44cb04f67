"""Our data source for Spark beside Spark's own Kafka connector, on our own broker, in two warm sessions: one that
Barnabas starts, and a plain one with `register`, which is what most people have."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tools.spark_kafka_jars import jars

from bench import librdkafka
from bench.measure import KAFKA, OURS, Case, Measured, Metric, SharedSide, SideState, Size, Wanted
from bench.page_cache import take_pages
from bench.processes import Usage, cost, machine_busy_s, wait_for_rest
from bench.server import Server

NAME = "spark"
TITLE = "Spark: our data source beside Spark's Kafka connector"
FRESH = False
THEIRS = "Spark's connector"
PICTURE = "bench-spark.svg"
ABOUT = (
    "Two Spark sessions on local[2], warm, one after the other: each connector first reads, streams and writes 2,000 "
    "records 40 times (8 in a quick run), until Java has compiled most of Spark (before that its compilers take a "
    "fifth of the CPU), and does "
    "all of it once as it is measured; one Barnabas broker, 4 partitions; records without keys, written by "
    "librdkafka, an hour of timestamps. Read: count, length of all values, latest timestamp. Stream: the same log in "
    "three batches (Trigger.AvailableNow), values looked at, to nowhere; the start of the query counts. Write: rows "
    "from Spark's memory to a new topic; before it, as many bytes are written to a file and deleted, so that the "
    "host of a virtual machine has no part in it. The median of three, of 1 KiB of five, for once is half a second; "
    "each begins when the machine is at rest. Slice: count and length of the values of one minute, "
    "by startingTimestamp and endingTimestamp. "
    "The first session is one of start_session: Python workers are forked warm and reached over Unix sockets, and "
    "start_query writes the checkpoints of both; Spark's connector has no use for the rest. The plain session is "
    "SparkSession.builder.getOrCreate(), register, and writeStream.start()."
)
METRICS = (
    Metric("read_per_s", "batch read", "rows/s", more_is_better=True),
    Metric("stream_per_s", "streaming read", "rows/s", more_is_better=True),
    Metric("write_per_s", "write", "rows/s", more_is_better=True),
    Metric("slices_per_s", "one minute by timestamp", "queries/s", more_is_better=True),
    Metric("plain_read_per_s", "batch read, plain session", "rows/s", more_is_better=True),
    Metric("plain_stream_per_s", "streaming read, plain session", "rows/s", more_is_better=True),
    Metric("plain_write_per_s", "write, plain session", "rows/s", more_is_better=True),
    Metric("plain_slices_per_s", "one minute by timestamp, plain session", "queries/s", more_is_better=True),
)
SESSIONS = {"ours": "", "plain": "plain_"}
"""Each session, and what its metrics begin with."""
PARTITIONS = 4
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
BEGIN_MS = time.time_ns() // 1_000_000 - HOUR_MS
"""The last hour: what is older than a week would be deleted while it is measured."""

RECORDS = {100: 3_000_000, 1024: 300_000}
TIMES = {100: 3, 1024: 5}
SMALL_QUERIES = 40
FEW_RECORDS = 2_000
WARM_UP = "spark-warm-up"
LIMIT_S = 600.0
SLICES = 3
REST_S = 5
"""How long a reading waits at most for a machine that is at rest."""


def rounds(size: Size) -> int:
    return 2 if size is Size.QUICK else 5


def cases(size: Size) -> Sequence[Case]:
    share = 0.2 if size is Size.QUICK else 1.0
    return [
        Case(
            f"{bytes_} B",
            20 + 30 * share,
            {
                "bytes": bytes_,
                "records": int(count * share),
                "times": TIMES[bytes_],
                "small": int(SMALL_QUERIES * share),
                "rest_s": REST_S,
            },
        )
        for bytes_, count in RECORDS.items()
    ]


class Connector(SharedSide):
    """One of the two connectors, in the sessions that both share."""

    def __init__(self, name: str, connector: str, of: SideState, sessions: Sequence[SessionState]) -> None:
        super().__init__(name, of)
        self.connector = connector
        self.sessions = sessions

    def stop(self) -> None:
        for session in self.sessions:
            session.stop()


def sides(brokers: Mapping[str, SideState]) -> Mapping[str, SideState]:
    """Both sides read and write our broker."""
    sessions = [SessionState(which) for which in SESSIONS]
    return {
        KAFKA: Connector("Spark's connector", "kafka", brokers[OURS], sessions),
        OURS: Connector("ours", "barnabas", brokers[OURS], sessions),
    }


def run(side: SideState, case: Case) -> Measured:
    assert isinstance(side, Connector)
    found = [_run_in(side, session, case) for session in side.sessions]
    return Measured(
        {name: value for each in found for name, value in each.values.items()},
        {name: limit for each in found for name, limit in each.limits.items()},
        max(each.others for each in found),
    )


def _run_in(side: Connector, session: SessionState, case: Case) -> Measured:
    if session.is_cold(side.connector, WARM_UP):
        _warm_up(side, session, case.settings["small"])
    if session.is_cold(side.connector, case.name):
        _measure(
            side, session, case
        )  # Java compiles while it runs: what it has never done is slower by a third
    return _measure(side, session, case)


def _warm_up(side: Connector, session: SessionState, times: int) -> None:
    """Small queries until Spark's own code is compiled: it is the same for both, and hides what is compared."""
    count, size = FEW_RECORDS, 100
    server = side.server
    topic = session.filled(server, count, size)
    with librdkafka.topic(server, WARM_UP, PARTITIONS) as target:
        tasks: Sequence[Mapping[str, Any]] = (
            {"task": "read", "topic": topic},
            {"task": "stream", "topic": topic, "each": -(-count // 3)},
            {"task": "write", "topic": target, "rows": count, "size": size},
        )
        for _ in range(times):
            for task in tasks:
                session.ask({**task, "connector": side.connector})


def _measure(side: Connector, session: SessionState, case: Case) -> Measured:
    count, size = case.settings["records"], case.settings["bytes"]
    server = side.server
    topic = session.filled(server, count, size)
    minute = {"since_ms": BEGIN_MS + HOUR_MS // 2, "before_ms": BEGIN_MS + HOUR_MS // 2 + MINUTE_MS}
    wanted_minute = sum(
        1 for i in range(count) if minute["since_ms"] <= _time(i, count) < minute["before_ms"]
    )

    def ask(task: str, seen: int, *, stored: int = 0, **more: Any) -> Usage:
        wait_for_rest(case.settings["rest_s"])
        take_pages(server.data, stored)
        return session.measured(
            server, seen, {"task": task, "connector": side.connector, "topic": topic, **more}
        )

    def write() -> Usage:
        with librdkafka.topic(server, "spark-written", PARTITIONS) as target:
            return ask("write", count, stored=count * size, rows=count, size=size, topic=target)

    times = range(case.settings["times"])
    read = _median(ask("read", count) for _ in times)
    stream = _median(ask("stream", count, each=-(-count // 3)) for _ in times)
    slices = [ask("slice", wanted_minute, **minute) for _ in range(SLICES)]
    session.ask({"task": "prepare", "rows": count, "size": size})
    written = _median(write() for _ in times)
    begins = SESSIONS[session.which]
    return Measured(
        {
            f"{begins}read_per_s": count / read.seconds,
            f"{begins}stream_per_s": count / stream.seconds,
            f"{begins}write_per_s": count / written.seconds,
            f"{begins}slices_per_s": 1 / min(each.seconds for each in slices),
        },
        {
            f"{begins}read_per_s": read.limit,
            f"{begins}stream_per_s": stream.limit,
            f"{begins}write_per_s": written.limit,
        },
        max(each.others for each in (read, stream, written)),
    )


def _median(readings: Iterable[Usage]) -> Usage:
    found = sorted(readings, key=lambda each: each.seconds)
    return found[len(found) // 2]


def wanted(metric: str, case: Case, limits: Sequence[str]) -> Wanted | None:
    """What issue 6 asks for of our session, issue 18 of a plain one."""
    asked = {"read_per_s": 3.0, "stream_per_s": 2.0, "write_per_s": 2.0}
    asked |= {f"plain_{name}": 2.0 for name in asked}
    return Wanted(asked[metric], at_least=True) if metric in asked else None


class SessionState:
    """The process with the Spark session, started when it is first asked, and the topics that it reads."""

    def __init__(self, which: str) -> None:
        self.which = which
        self._process: subprocess.Popen[str] | None = None
        self._topics: dict[tuple[int, int], str] = {}
        self._done: set[tuple[str, str]] = set()
        self._kept = ExitStack()

    def is_cold(self, connector: str, case: str) -> bool:
        """Whether this session has not seen this connector at this before; it has from now on."""
        is_new = (connector, case) not in self._done
        self._done.add((connector, case))
        return is_new

    def stop(self) -> None:
        self._kept.close()
        self._topics.clear()
        self._done.clear()
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def filled(self, server: Server, count: int, size: int) -> str:
        """A topic with so many records, made once."""
        if (count, size) not in self._topics:
            topic = self._kept.enter_context(librdkafka.topic(server, "spark-read", PARTITIONS))
            _fill(server, topic, count, size)
            self._topics[count, size] = topic
        if self._process is None:
            self._start(server)
        return self._topics[count, size]

    def measured(self, server: Server, rows: int, task: Mapping[str, Any]) -> Usage:
        assert self._process is not None
        before, ours, busy = server.cost(), cost(self._process.pid), machine_busy_s()
        answer = self.ask(task)
        if answer["rows"] != rows:
            raise librdkafka.WorkFailedError(f"{task} saw {answer['rows']} rows of {rows}")
        spent = cost(self._process.pid).since(ours)
        return Usage(
            answer["seconds"],
            spent.cpu_s,
            spent.busiest_thread_s,
            server.cost().since(before),
            machine_busy_s() - busy,
        )

    def ask(self, task: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        with _in_time(process):
            line = process.stdout.readline()
        if not line:
            raise librdkafka.WorkFailedError(f"Spark ended, or took more than {LIMIT_S:.0f} s for {task}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise librdkafka.WorkFailedError(f"{task}: {answer['error']}")
        return answer

    def _start(self, server: Server) -> None:
        command = [
            sys.executable,
            "-m",
            "bench.spark_driver",
            self.which,
            server.bootstrap,
            *map(str, jars()),
        ]
        # A session of ours has a log of its own, a plain one speaks to stderr.
        stderr = subprocess.DEVNULL if self.which == "plain" else None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        assert self._process.stdout is not None
        with _in_time(self._process):
            ready = self._process.stdout.readline()
        if not ready:
            raise librdkafka.WorkFailedError(
                "Spark did not start; run `python -m bench.spark_driver` to see why"
            )


@contextmanager
def _in_time(process: subprocess.Popen[str]) -> Iterator[None]:
    """Whoever waits for an answer does not wait for ever: the process ends, and with it what it says."""
    from threading import Timer

    alarm = Timer(LIMIT_S, process.kill)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


def _time(number: int, count: int) -> int:
    return BEGIN_MS + number * HOUR_MS // count


def _fill(server: Server, topic: str, count: int, size: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 20, "acks": "all"})
    rest = b"x" * (size - 10)
    deadline = time.monotonic() + LIMIT_S
    for number in range(count):
        value = b"%010d" % number + rest
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS, timestamp=_time(number, count))
                break
            except BufferError:
                producer.poll(0.1)
                if time.monotonic() > deadline:
                    raise librdkafka.WorkFailedError(f"{topic} was not filled in {LIMIT_S:.0f} s") from None
        if not number % 10_000:
            producer.poll(0)
    if producer.flush(LIMIT_S):
        raise librdkafka.WorkFailedError(f"{topic} was not filled in {LIMIT_S:.0f} s")

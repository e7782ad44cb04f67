"""One client library at work in a process of its own, so that libraries can be compared on the same broker.

Started by bench.librdkafka as `python -m bench.contender JSON` and spoken to like bench.client: it gets ready,
prints "ready", waits for a line, does the measured work and prints one line of JSON. Every library runs the loop
its own documentation shows, one Python call a record (the columns: one a table), and looks at every value it reads.
All have acks=all, no compression and the same linger; what is not named here is the library's default.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from bench.processes import cost

if TYPE_CHECKING:
    from barnabas import Producer

LIMIT_S = 120.0
DISTINCT = 10_000
TABLE_ROWS = 100_000
WARM_UP = 20_000
Job = dict[str, Any]


class ContenderFailedError(Exception):
    """What was sent did not arrive, or not in time."""


class Contender(Protocol):
    """How one library produces, reads and waits for a single record."""

    def produce(self, count: int) -> Iterator[int]:
        """Sends so many records; yields how many it has sent so far, now and then, and at the end when all are in."""

    def consume(self, count: int) -> Generator[tuple[int, int], None, None]:
        """Reads so many records from the beginning; yields records and bytes of values read so far."""

    def send_one(self) -> None:
        """Sends one record and waits until it is acknowledged."""


def values(record_bytes: int) -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(record_bytes) for _ in range(DISTINCT)]


class Confluent:
    """confluent-kafka: produce() and poll(0) a record; consume(n)."""

    def __init__(self, job: Job) -> None:
        self._job, self._values = job, values(job["record_bytes"])
        self._acknowledged = 0
        self._failures: list[str] = []
        self._settings: dict[str, Any] = {}

    @cached_property
    def _producer(self) -> Any:
        from confluent_kafka import Producer

        job = self._job
        plain = {"bootstrap.servers": job["bootstrap"], "acks": "all", "linger.ms": job["linger_ms"]}
        return Producer(plain | self._settings)

    def produce(self, count: int) -> Iterator[int]:
        produce, poll, topic = self._producer.produce, self._producer.poll, self._job["topic"]
        for number, value in enumerate(itertools.islice(itertools.cycle(self._values), count)):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    poll(0.01)
            poll(0)
            if number % TABLE_ROWS == 0:
                yield number
        if self._producer.flush(LIMIT_S) or self._failures:
            raise ContenderFailedError(f"not all records were acknowledged {self._failures[:1]}")
        yield count

    def consume(self, count: int) -> Generator[tuple[int, int], None, None]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._job["bootstrap"],
                "group.id": "bench",
                "enable.auto.commit": False,
                # Never full: librdkafka stops fetching for up to 1 s then, and that would be measured.
                "queued.min.messages": 10_000_000,
                "queued.max.messages.kbytes": 2_000_000,
            }
        )
        topic = self._job["topic"]
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(self._job["partitions"])])
        records = size = 0
        while records < count:
            messages = consumer.consume(10_000, 5.0)
            for message in messages:
                if message.error():
                    raise ContenderFailedError(str(message.error()))
                size += len(message.value())
            records += len(messages)
            yield records, size
        consumer.close()

    def send_one(self) -> None:
        def delivered(error: object, _message: object) -> None:
            if error is not None:
                raise ContenderFailedError(str(error))
            self._acknowledged += 1

        wanted = self._acknowledged + 1
        self._producer.produce(self._job["topic"], self._values[0], on_delivery=delivered)
        while self._acknowledged < wanted:
            self._producer.poll(1.0)


class ConfluentTold(Confluent):
    """The same with a delivery report a record: its sender hears of each, as from a future."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # A setting and no argument of `produce`, so that both run the same loop.
        self._settings = {"on_delivery": self._delivered}

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))


class KafkaPython:
    """kafka-python: send(); poll()."""

    def __init__(self, job: Job) -> None:
        self._job, self._values = job, values(job["record_bytes"])

    @cached_property
    def _producer(self) -> Any:
        from kafka import KafkaProducer

        job = self._job
        return KafkaProducer(bootstrap_servers=job["bootstrap"], acks="all", linger_ms=job["linger_ms"])

    def produce(self, count: int) -> Iterator[int]:
        send, topic = self._producer.send, self._job["topic"]
        last = None
        for number, value in enumerate(itertools.islice(itertools.cycle(self._values), count)):
            last = send(topic, value)
            if number % TABLE_ROWS == 0:
                yield number
        self._producer.flush(LIMIT_S)
        if last is not None and not last.succeeded():
            raise ContenderFailedError("not all records were acknowledged")
        yield count

    def consume(self, count: int) -> Generator[tuple[int, int], None, None]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self._job["bootstrap"], enable_auto_commit=False)
        consumer.assign([TopicPartition(self._job["topic"], p) for p in range(self._job["partitions"])])
        consumer.seek_to_beginning()
        records = size = 0
        while records < count:
            for found in consumer.poll(timeout_ms=5000, max_records=10_000).values():
                for record in found:
                    size += len(record.value)
                records += len(found)
            yield records, size
        consumer.close()

    def send_one(self) -> None:
        self._producer.send(self._job["topic"], self._values[0]).get(LIMIT_S)


class Records:
    """barnabas, a record at a time: send(); poll()."""

    def __init__(self, job: Job) -> None:
        self._job, self._values = job, values(job["record_bytes"])

    @cached_property
    def _producer(self) -> Producer:
        return _our_producer(self._job)

    def produce(self, count: int) -> Iterator[int]:
        send, topic = self._producer.send, self._job["topic"]
        last = None
        for number, value in enumerate(itertools.islice(itertools.cycle(self._values), count)):
            last = send(topic, value)
            if number % TABLE_ROWS == 0:
                yield number
        self._producer.flush()
        if last is not None:
            last.result(0)
        yield count

    def consume(self, count: int) -> Generator[tuple[int, int], None, None]:
        from barnabas import Consumer, TopicPartition

        with Consumer(bootstrap_servers=self._job["bootstrap"], enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(self._job["topic"], p) for p in range(self._job["partitions"])])
            consumer.seek_to_beginning()
            records = size = 0
            while records < count:
                found = consumer.poll(timeout=5.0, max_records=10_000)
                for record in found:
                    size += len(record.value or b"")
                records += len(found)
                yield records, size

    def send_one(self) -> None:
        self._producer.send(self._job["topic"], self._values[0]).result(LIMIT_S)


class Columns:
    """barnabas, in columns: send_table() of so many rows; poll_arrow()."""

    def __init__(self, job: Job) -> None:
        import pyarrow as pa

        self._job = job
        rows = list(itertools.islice(itertools.cycle(values(job["record_bytes"])), TABLE_ROWS))
        self._table = pa.table({"value": pa.array(rows, pa.binary())})

    @cached_property
    def _producer(self) -> Producer:
        return _our_producer(self._job)

    def produce(self, count: int) -> Iterator[int]:
        sent = []
        for done in range(0, count, TABLE_ROWS):
            table = self._table.slice(0, min(TABLE_ROWS, count - done))
            sent.append(self._producer.send_table(self._job["topic"], table, value="value"))
            yield done
        self._producer.flush()
        for each in sent:
            each.result(0)
        yield count

    def consume(self, count: int) -> Generator[tuple[int, int], None, None]:
        import pyarrow.compute as pc

        from barnabas import Consumer, TopicPartition

        with Consumer(bootstrap_servers=self._job["bootstrap"], enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(self._job["topic"], p) for p in range(self._job["partitions"])])
            consumer.seek_to_beginning()
            records = size = 0
            while records < count:
                batch = consumer.poll_arrow(timeout=5.0)
                if batch is not None:
                    size += pc.sum(pc.binary_length(batch.column("value"))).as_py()
                    records += batch.num_rows
                yield records, size

    def send_one(self) -> None:
        raise NotImplementedError("a single record is not a table")


def _our_producer(job: Job) -> Producer:
    from barnabas import Producer

    return Producer(bootstrap_servers=job["bootstrap"], acks="all", linger_ms=job["linger_ms"])


CONTENDERS: dict[str, Callable[[Job], Contender]] = {
    "confluent-kafka": Confluent,
    "confluent-kafka with reports": ConfluentTold,
    "kafka-python": KafkaPython,
    "records": Records,
    "columns": Columns,
}


def produce(job: Job) -> dict[str, float]:
    contender = CONTENDERS[job["who"]](job)
    for _ in contender.produce(job.get("warm_up", WARM_UP)):
        pass
    with _Measured(job) as measured:
        for _ in contender.produce(job["records"]):
            measured.check_time()
    return measured.result


def consume(job: Job) -> dict[str, float]:
    contender = CONTENDERS[job["who"]](job)
    # What is imported when a library is first used is not what reading costs.
    for _ in contender.consume(1):
        pass
    reading = contender.consume(job["records"])
    with _Measured(job) as measured:
        first_s, read = 0.0, (0, 0)
        for read in reading:
            measured.check_time()
            if not first_s and read[0]:
                first_s = measured.seconds
            if read[0] >= job["records"]:
                break  # hanging up is not measured
    reading.close()
    if read != (job["records"], job["records"] * job["record_bytes"]):
        raise ContenderFailedError(f"read {read[1]} bytes in {read[0]} records: not what was sent")
    return measured.result | {"first_s": first_s}


def latency(job: Job) -> dict[str, float]:
    contender = CONTENDERS[job["who"]](job)
    for _ in range(job["records"] // 10):
        contender.send_one()
    took = []
    with _Measured(job) as measured:
        for _ in range(job["records"]):
            begun = time.perf_counter_ns()
            contender.send_one()
            took.append(time.perf_counter_ns() - begun)
            measured.check_time()
    took.sort()
    return measured.result | {"p50_ns": took[len(took) // 2], "p99_ns": took[len(took) * 99 // 100]}


def memory(job: Job) -> dict[str, float]:
    """Produces `records`, then reads them; resident memory at the start, and the most of it in each half of either.

    Peaks, because what waits in buffers at any moment is chance.
    """
    contender = CONTENDERS[job["who"]](job)
    for _ in contender.produce(WARM_UP):
        pass
    total = job["records"]
    with _Measured(job) as measured:
        start = _rss()
        sent = _peaks(contender.produce(total), total, measured)
        read = _peaks((done for done, _size in contender.consume(total)), total, measured)
    peaks = {"sent_first": sent[0], "sent_second": sent[1], "read_first": read[0], "read_second": read[1]}
    return measured.result | {"start": start} | peaks


def _peaks(progress: Iterator[int], total: int, measured: _Measured) -> tuple[float, float]:
    """The most memory while the first half was done, and while the second was."""
    halves = [0.0, 0.0]
    for done in progress:
        measured.check_time()
        half = done > total / 2
        halves[half] = max(halves[half], _rss())
    return halves[0], halves[1]


def _rss() -> float:
    return float(cost(os.getpid()).rss_bytes)


class _Measured:
    """Says ready, waits for the go, and tells afterwards what was used meanwhile."""

    def __init__(self, job: Job) -> None:
        self._payload = job["records"] * job["record_bytes"]
        self.result: dict[str, float] = {}

    def __enter__(self) -> _Measured:
        print("ready", flush=True)
        sys.stdin.readline()
        self._begun, self._before = time.monotonic(), cost(os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        seconds = self.seconds
        spent = cost(os.getpid()).since(self._before)
        self.result = {
            "bytes": self._payload,
            "seconds": seconds,
            "cpu_s": spent.cpu_s,
            "busiest_thread_s": spent.busiest_thread_s,
        }

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def check_time(self) -> None:
        if self.seconds > LIMIT_S:
            raise ContenderFailedError(f"not done after {LIMIT_S:.0f} s")


def main() -> None:
    job = json.loads(sys.argv[1])
    work = {"produce": produce, "consume": consume, "latency": latency, "memory": memory}[job["do"]]
    try:
        print(json.dumps(work(job)), flush=True)
    except ContenderFailedError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()

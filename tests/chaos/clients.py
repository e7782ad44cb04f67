"""Owns clients that write and read while things go wrong, and note all of it in a history: librdkafka's and ours.

Called by the chaos tests and the soak. Each client runs in a thread of its own from `with` on. Writers are idempotent,
ask for acks=all, keep an even pace and outlive any fault; readers begin at the beginning and are never told to reset.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

import barnabas
from barnabas.testing.history import UNTOLD, History
from barnabas.types import TopicPartition
from tests.deadline import Deadline

GIVE_UP_MS = 180_000
MOST_IN_FLIGHT = 1_000
BURST = 5
PACE_S = 0.02
"""5 records each 20 ms: 250 a second and writer, so that faults have the machine for themselves."""
SEND_WITHIN_S = 120.0

Partitions = Sequence[TopicPartition]


class Client(ABC):
    """A thread that works until it is stopped, and what went wrong with it."""

    def __init__(self, name: str, bootstrap: str, partitions: Partitions, history: History) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.partitions = list(partitions)
        self.history = history
        self.failures: list[str] = []
        self.moved = threading.Condition()
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join(SEND_WITHIN_S)

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.fail(repr(error))

    @abstractmethod
    def work(self) -> None: ...

    def fail(self, why: str) -> None:
        with self.moved:
            self.failures.append(f"{self.name}: {why}")
            self.moved.notify_all()

    def check(self) -> None:
        assert not self.failures, self.failures[:5]


class Writer(Client):
    """Sends numbered values round robin over the partitions."""

    def __init__(self, name: str, bootstrap: str, partitions: Partitions, history: History) -> None:
        super().__init__(name, bootstrap, partitions, history)
        self.sent = 0
        self.answered = 0
        self._newest = [-1] * len(self.partitions)
        """The largest number that was acknowledged in each partition."""
        self._heard = time.monotonic()
        self._silence_s = 0.0

    def work(self) -> None:
        while not self.stopping.wait(PACE_S):
            self.serve()
            for _ in range(BURST if self.sent - self.answered < MOST_IN_FLIGHT else 0):
                number, self.sent = self.sent, self.sent + 1
                place = self.partitions[number % len(self.partitions)]
                value = b"%s/%d" % (self.name.encode(), number)
                self.history.sent(self.name, place, value)
                self.send(place, value, number)
        self.finish()

    def wait_for_writes(self, within_s: float) -> None:
        """Wait until something that is sent from now on is acknowledged in every partition."""
        first = self.sent
        deadline = Deadline(within_s, f"{self.name} to write to all partitions")
        with self.moved:
            while min(self._newest) < first:
                self.check()
                self.moved.wait(deadline.left(1.0))

    def listen_anew(self) -> None:
        """Count the silence between acknowledgements from here on."""
        with self.moved:
            self._heard, self._silence_s = time.monotonic(), 0.0

    def silence_s(self) -> float:
        """The longest time without any acknowledgement since then."""
        return max(self._silence_s, time.monotonic() - self._heard)

    def stored(self, number: int, offset: int) -> None:
        self.history.acknowledged(b"%s/%d" % (self.name.encode(), number), offset)
        now = time.monotonic()
        with self.moved:
            self._silence_s = max(self._silence_s, now - self._heard)
            self._heard = now
            self.answered += 1
            at = number % len(self.partitions)
            self._newest[at] = max(self._newest[at], number)
            self.moved.notify_all()

    def refused(self, number: int, why: object, *, in_doubt: bool) -> None:
        value = b"%s/%d" % (self.name.encode(), number)
        if in_doubt:
            self.history.in_doubt(value)
        else:
            self.history.failed(value)
        with self.moved:
            self.answered += 1
        self.fail(f"record {number}: {why}")

    @abstractmethod
    def send(self, place: TopicPartition, value: bytes, number: int) -> None: ...

    @abstractmethod
    def finish(self) -> None:
        """Wait until all that was sent is answered."""

    def serve(self) -> None:
        """Let callbacks run, where the library has no thread for them."""


class LibrdkafkaWriter(Writer):
    def __init__(self, name: str, bootstrap: str, partitions: Partitions, history: History) -> None:
        super().__init__(name, bootstrap, partitions, history)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "request.timeout.ms": 5_000,
                "socket.timeout.ms": 6_000,
                "message.timeout.ms": GIVE_UP_MS,
                "topic.metadata.refresh.interval.ms": 2_000,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )

    def send(self, place: TopicPartition, value: bytes, number: int) -> None:
        def answered(error: Any, message: Any) -> None:
            if error is None:
                # None: only an answer that was lost had told it.
                self.stored(number, UNTOLD if message.offset() is None else message.offset())
            else:
                self.refused(number, error, in_doubt=True)

        self._producer.produce(place.topic, value, partition=place.partition, on_delivery=answered)

    def serve(self) -> None:
        self._producer.poll(0)

    def finish(self) -> None:
        left = self._producer.flush(SEND_WITHIN_S)
        if left:
            self.fail(f"{left} records were not answered")

    def _on_error(self, error: Any) -> None:
        # A lost connection is what these tests are made of; only an error that ends the producer counts.
        if error.fatal():
            self.fail(f"fatal: {error}")


class OurWriter(Writer):
    def __init__(self, name: str, bootstrap: str, partitions: Partitions, history: History) -> None:
        super().__init__(name, bootstrap, partitions, history)
        self._producer = barnabas.Producer(
            bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            retry_backoff_ms=20,
            request_timeout_ms=5_000,
            delivery_timeout_ms=GIVE_UP_MS,
            metadata_max_age_ms=2_000,
        )

    def send(self, place: TopicPartition, value: bytes, number: int) -> None:
        def answered(sent: barnabas.Sent) -> None:
            error = sent.exception()
            if error is None:
                self.stored(number, sent.result().offset)
            else:
                self.refused(number, error, in_doubt=error.may_be_stored)

        self._producer.send(place.topic, value, partition=place.partition).add_done_callback(answered)

    def finish(self) -> None:
        self._producer.flush(SEND_WITHIN_S)
        self._producer.close(SEND_WITHIN_S)


class Reader(Client):
    """Reads all partitions from the beginning on."""

    def __init__(self, name: str, bootstrap: str, partitions: Partitions, history: History) -> None:
        super().__init__(name, bootstrap, partitions, history)
        self.positions = dict.fromkeys(self.partitions, 0)
        for place in self.partitions:
            history.placed(name, place, 0)

    def saw(self, place: TopicPartition, offset: int, value: bytes, epoch: int | None) -> None:
        self.history.seen(self.name, place, offset, value, epoch)
        self.positions[place] = offset + 1

    def moved_on(self) -> None:
        with self.moved:
            self.moved.notify_all()

    def wait_for(self, ends: dict[TopicPartition, int], within_s: float) -> None:
        """Wait until all below these offsets is read."""
        deadline = Deadline(within_s, f"{self.name} to read up to {ends}; it is at {self.positions}")
        with self.moved:
            while any(self.positions[place] < end for place, end in ends.items()):
                self.check()
                self.moved.wait(deadline.left(1.0))


class LibrdkafkaReader(Reader):
    def work(self) -> None:
        consumer = librdkafka_consumer(self.bootstrap, self.name)
        consumer.assign([ConfluentPartition(place.topic, place.partition, 0) for place in self.partitions])
        while not self.stopping.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    place = TopicPartition(message.topic(), message.partition())
                    self.saw(place, message.offset(), message.value(), message.leader_epoch())
                elif not _passes(message.error()):
                    self.fail(str(message.error()))
                    return
            self.moved_on()
        consumer.close()


class GroupReader(Reader):
    """The one member of a group: reads on from what is committed, which never goes back."""

    def __init__(self, name: str, bootstrap: str, partitions: Partitions, history: History) -> None:
        super().__init__(name, bootstrap, partitions, history)
        self._committed = dict.fromkeys(self.partitions, 0)

    def work(self) -> None:
        settings = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
        consumer = librdkafka_consumer(self.bootstrap, self.name, settings)
        consumer.subscribe([self.partitions[0].topic], on_assign=self._assigned)
        while not self.stopping.is_set():
            read = 0
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    place = TopicPartition(message.topic(), message.partition())
                    self.saw(place, message.offset(), message.value(), message.leader_epoch())
                    read += 1
                elif not _passes(message.error()):
                    self.fail(str(message.error()))
                    return
            self.moved_on()
            if read:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Any) -> None:
        """A commit that fails is made good by a later one."""
        with suppress(KafkaException):
            for done in consumer.commit(asynchronous=False):
                if done.error is None:
                    self._committed[TopicPartition(done.topic, done.partition)] = done.offset

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        committed = self._ask_committed(consumer, partitions)
        for found in committed:
            place = TopicPartition(found.topic, found.partition)
            if found.offset < self._committed[place] > 0:
                self.fail(f"{place} goes back from {self._committed[place]} to {found.offset}")
            found.offset = max(found.offset, 0)
            self.history.placed(self.name, place, found.offset)
            self.positions[place] = found.offset
        consumer.assign(committed)

    def _ask_committed(self, consumer: Any, partitions: list[Any]) -> list[Any]:
        deadline = Deadline(SEND_WITHIN_S, f"{self.name} to be told what is committed")
        while True:
            try:
                found = consumer.committed(partitions, timeout=deadline.left(5.0))
            except KafkaException:
                continue
            if all(each.error is None for each in found):
                return list(found)


class OurReader(Reader):
    def work(self) -> None:
        with barnabas.Consumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="none",
            request_timeout_ms=5_000,
            retry_backoff_ms=20,
            metadata_max_age_ms=2_000,
        ) as consumer:
            consumer.assign(dict.fromkeys(self.partitions, 0))
            while not self.stopping.is_set():
                for record in self._poll(consumer):
                    place = TopicPartition(record.topic, record.partition)
                    self.saw(place, record.offset, record.value, None)
                self.moved_on()

    def _poll(self, consumer: barnabas.Consumer) -> list[barnabas.ConsumerRecord]:
        """What has come; that brokers cannot be reached for a while passes."""
        try:
            return consumer.poll(0.1)
        except barnabas.Refused as error:
            if not error.retriable:
                raise
            return []


def librdkafka_consumer(bootstrap: str, group: str, settings: Mapping[str, Any] | None = None) -> Any:
    return Consumer(
        {
            **(settings or {}),
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "fetch.error.backoff.ms": 20,
            "fetch.wait.max.ms": 100,
            "socket.timeout.ms": 6_000,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
        }
    )


def _passes(error: Any) -> bool:
    """Whether an error is one of a broker that is gone for a while; a position that is out of range is not."""
    return error.code() not in (KafkaError._AUTO_OFFSET_RESET, KafkaError._FATAL) and not error.fatal()


class Clients(ExitStack):
    """Writers and readers of one topic, of both libraries, and a group, in one history."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.bootstrap = bootstrap
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.history = History()
        shape = (bootstrap, self.partitions, self.history)
        self.writers: list[Writer] = [LibrdkafkaWriter("librdkafka", *shape), OurWriter("ours", *shape)]
        self.readers: list[Reader] = [
            LibrdkafkaReader("librdkafka-reader", *shape),
            OurReader("our-reader", *shape),
            GroupReader("group-reader", *shape),
        ]

    def __enter__(self) -> Self:
        super().__enter__()
        for client in (*self.writers, *self.readers):
            self.enter_context(client)
        return self

    def wait_for_writes(self, within_s: float) -> None:
        """Each writer writes to each partition; readers have met nothing that they may not."""
        for writer in self.writers:
            writer.wait_for_writes(within_s)
        for reader in self.readers:
            reader.check()

    def finish(self, within_s: float) -> History:
        """Stop writing, let readers come to the end, and note what lies in the partitions then."""
        for writer in self.writers:
            writer.__exit__()
            writer.check()
        rest = read_all(self.bootstrap, self.partitions, within_s)
        for place, records in rest.items():
            self.history.rests(place, 0, records)
        ends = {place: records[-1][0] + 1 for place, records in rest.items() if records}
        for reader in self.readers:
            reader.wait_for(ends, within_s)
        return self.history


def read_all(
    bootstrap: str, partitions: Partitions, within_s: float
) -> dict[TopicPartition, list[tuple[int, bytes, int | None]]]:
    """Everything that lies in these partitions below their high watermarks: offset, value, leader epoch."""
    deadline = Deadline(within_s, f"all of {len(partitions)} partitions to be read")
    consumer = librdkafka_consumer(bootstrap, "at-rest")
    try:
        found: dict[TopicPartition, list[tuple[int, bytes, int | None]]] = {}
        for place in partitions:
            at = ConfluentPartition(place.topic, place.partition, OFFSET_BEGINNING)
            _, end = consumer.get_watermark_offsets(at, timeout=deadline.left(30.0))
            consumer.assign([at])
            records = found[place] = []
            while end and (not records or records[-1][0] + 1 < end):
                records += [
                    (message.offset(), message.value(), message.leader_epoch())
                    for message in consumer.consume(1_000, deadline.left(0.5))
                    if message.error() is None
                ]
        return found
    finally:
        consumer.close()

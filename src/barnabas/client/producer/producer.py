"""Sends records: `send` puts them into batches, a network thread sends the batches to the partitions' leaders.

Settings have Kafka's names, with underscores. Any number of threads may use one producer. Always holds: of every
record one hears, by its future, its callback, or the exception that `flush` and `close` raise for failures that were
not looked at; with idempotence (the default with acks=all) a retry neither doubles nor reorders records.

    with Producer(bootstrap_servers="localhost:9092", linger_ms=5, compression_type="lz4") as producer:
        sent = producer.send("orders", b"paid", key=b"42", headers={"source": b"web"})
        print(sent.result().offset)
"""

import os
import random
import time
import weakref
from collections.abc import Callable, Iterable
from threading import TIMEOUT_MAX, Condition, RLock
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from barnabas.client.declared import BOOTSTRAP_SERVERS, ProducerSettings
from barnabas.client.network.failures import TimedOut
from barnabas.client.network.network import Network
from barnabas.client.partitioner import KeyedPartitions
from barnabas.client.producer.accumulator import Accumulator, size_of
from barnabas.client.producer.batches import Batch, Section, Sent, wait_for
from barnabas.client.producer.chooser import Chooser
from barnabas.client.producer.fast_send import FastSend, millis
from barnabas.client.producer.partition_state import PartitionState, TopicState
from barnabas.client.producer.sender import Sender
from barnabas.client.producer.sent_table import PartlySent, SentTable
from barnabas.client.producer.topic_wish import TopicWish
from barnabas.client.producer.transactional import Transactional, transactions_of
from barnabas.client.producer.transactor import Transactor
from barnabas.client.serializers import (
    GivenHeaders,
    as_bytes,
    header_pairs,
    serialize,
    serializer,
)
from barnabas.client.settings import SettingsSignature, Unique, can_be_written, checked, no_topic
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.batch import HEADER_SIZE
from barnabas.wire.compression import Compression

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_AT_EXIT_S = 5.0


class Producer(FastSend, Transactional, Unique):
    """Sends records to topics. For any number of threads."""

    __signature__ = SettingsSignature()

    @checked
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = BOOTSTRAP_SERVERS,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        acks, enable_idempotence = settings["acks"], settings["enable_idempotence"]
        max_in_flight, retries = settings["max_in_flight_requests_per_connection"], settings["retries"]
        if str(acks) not in _ACKS:
            raise Refused(Code.INVALID_REQUIRED_ACKS)
        to_all = _ACKS[str(acks)] == -1
        if enable_idempotence and not to_all:
            raise BarnabasError("An idempotent producer needs acks=all.")
        if enable_idempotence and max_in_flight > 5:
            raise BarnabasError(
                "An idempotent producer needs max_in_flight_requests_per_connection to be 5 or less."
            )
        can_be = to_all and max_in_flight <= 5 and retries > 0
        transactions = transactions_of(settings, can_be=can_be and enable_idempotence is not False)
        codec = Compression.named(settings["compression_type"])
        self._key_serializer = serializer(settings["key_serializer"], "key_serializer")
        self._value_serializer = serializer(settings["value_serializer"], "value_serializer")
        self._max_request_size = settings["max_request_size"]
        self._buffer_memory = settings["buffer_memory"]
        self._linger = settings["linger_ms"] / 1000
        self._max_block = min(settings["max_block_ms"] / 1000, TIMEOUT_MAX)
        keyed = KeyedPartitions()
        self._chooser = Chooser(settings["partitioner"], keyed)
        self._is_closed = False
        lock = RLock()  # which knows its holder: see `_refuse_in_the_midst`
        self._lock = lock
        self._room = Condition(lock)
        self._network = Network(
            bootstrap_servers,
            client_id=settings["client_id"],
            request_timeout_ms=settings["request_timeout_ms"],
            retry_backoff_ms=settings["retry_backoff_ms"],
            metadata_max_age_ms=settings["metadata_max_age_ms"],
            connections_max_idle_ms=settings["connections_max_idle_ms"],
            name="barnabas-producer",
        )
        self._accumulator = Accumulator(
            batch_size=settings["batch_size"],
            linger=self._linger,
            buffer_memory=settings["buffer_memory"],
            max_request_size=settings["max_request_size"],
            max_in_flight=max_in_flight,
            delivery_timeout=settings["delivery_timeout_ms"] / 1000,
            retry_backoff=settings["retry_backoff_ms"] / 1000,
            retries=retries,
            is_idempotent=can_be if enable_idempotence is None else enable_idempotence,
            is_transactional=transactions is not None,
        )
        self._transactor = None
        if transactions is not None:
            self._transactor = Transactor(self._network, transactions, self._accumulator, lock)
        self._sender = Sender(
            self._network,
            self._accumulator,
            lock,
            self._room,
            acks=_ACKS[str(acks)],
            codec=codec,
            request_timeout_ms=settings["request_timeout_ms"],
            transactor=self._transactor,
        )
        # Bytes without headers take the short way through `send`, unless a serializer or a partitioner has to see them.
        asked = settings["partitioner"] or self._key_serializer or self._value_serializer
        super().__init__({} if asked else self._accumulator.topics, keyed)
        self._is_forked = False
        self._finish = weakref.finalize(self, _finish, self._sender)
        _alive.add(self)
        self._network.start()
        try:
            # An unreachable broker is told of here, not after the time a delivery may take.
            self._network.wait_for(
                lambda done: self._network.refresh((), done), self._network.request_timeout + 1
            )
        except BaseException:
            self.close(0)
            raise

    if TYPE_CHECKING:
        # `FastSend.send` takes anything, to say in a sentence what is wrong with it; this is what it is meant for.
        def send(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            headers: GivenHeaders | None = None,
            partition: int | None = None,
            timestamp: int | None = None,
        ) -> Sent:
            """Queue a record; the future says where it is stored. Waits up to max.block.ms where there is no room."""

    def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: GivenHeaders | None,
        partition: int | None,
        timestamp: int | None,
    ) -> Sent:
        """The long way, for every kind of record."""
        self._refuse_if_gone()
        if self._key_serializer is not None:
            key = serialize(self._key_serializer, key, "key")
        elif type(key) is not bytes:
            key = as_bytes(key, "key")
        if self._value_serializer is not None:
            value = serialize(self._value_serializer, value, "value")
        elif type(value) is not bytes:
            value = as_bytes(value, "value")
        pairs = header_pairs(headers) if headers else ()
        size = size_of(value, key, pairs)
        if size + HEADER_SIZE > self._max_request_size:
            text = f"A record of {size} bytes is larger than max.request.size ({self._max_request_size})."
            raise Refused(Code.MESSAGE_TOO_LARGE, text)
        timestamp = time_ns() // 1_000_000 if timestamp is None else millis(timestamp)
        found = self._accumulator.topics.get(topic) or self._find(topic)
        chosen = self._chooser.choose(found, key, partition)
        now = time.monotonic()
        with self._lock:
            self._refuse_to_take()
            state = chosen or self._sticky(found, size)
            pair = self._accumulator.append(state, value, key, pairs, timestamp, size, now)
            if pair is None:
                pair = self._wait_for_room(
                    size, lambda: self._accumulator.append(state, value, key, pairs, timestamp, size, now)
                )
            batch, index = pair
            wakes = not index and self._has_reason_to_wake(state, now)
        if wakes:
            self._sender.wake(is_urgent=False)
        return Sent(batch, index)

    @checked
    def send_table(
        self,
        topic: str,
        table: Any,
        *,
        key: str | None = None,
        value: str = "value",
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
    ) -> SentTable:
        """Queue the rows of an Arrow table, a pandas or a polars frame; `key`, `value`... name its columns.

        One future stands for the whole table. What cannot be sent is refused before the first row is queued. Waits
        up to max.block.ms for room, time and again; where there is none in the middle of a table, PartlySent tells
        how many rows are on their way, and has their future.
        """
        from barnabas.client.columns.columns import encode

        self._refuse_if_gone()
        found = self._accumulator.topics.get(topic) or self._find(topic)
        most = min(self._max_request_size, self._buffer_memory) - HEADER_SIZE
        sections = encode(
            table,
            partitions=len(found.partitions),
            key=key,
            value=value,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            now_ms=time_ns() // 1_000_000,
            batch_bytes=most,
            largest=most,
            first_turn=found.sticky.partition.partition,
        )
        batches: list[Batch] = []
        counts: list[int] = []
        sent = SentTable(topic, batches, counts)
        try:
            for each in sections:
                section = Section(each.body, each.count, each.base_timestamp, each.max_timestamp)
                batches.append(self._put_section(found.partitions[each.partition], section))
                counts.append(each.count)
        except BarnabasError as why:
            if not batches:
                raise
            raise PartlySent(sent, why) from why
        with self._lock:
            found.move_on()
        return sent

    def _put_section(self, state: PartitionState, section: Section) -> Batch:
        size = len(section.body) + HEADER_SIZE
        now = time.monotonic()
        with self._lock:
            self._refuse_to_take()
            batch = self._accumulator.append_section(state, section, now)
            if batch is None:
                batch = self._wait_for_room(
                    size, lambda: self._accumulator.append_section(state, section, now)
                )
        self._sender.wake()
        return batch

    @checked
    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far has its outcome; raises the first failure that was not looked at.

        TimedOut after `timeout` seconds: what is still on its way then stays on its way.
        """
        if self._is_forked:
            raise _forked()
        self._refuse_in_the_midst()
        with self._lock:
            self._accumulator.flushing += 1
            batches = self._accumulator.unsettled()
        try:
            if batches:
                self._refuse_to_wait()
                self._sender.wake()
                wait_for(batches, timeout, "A record")
        finally:
            with self._lock:
                self._accumulator.flushing -= 1
        failure = self._sender.unseen_failure()
        if failure is not None:
            raise failure

    @checked
    def close(self, timeout: float | None = None) -> None:
        """Deliver everything, and hang up; what is not delivered after `timeout` seconds fails.

        A transaction that is open is aborted. Raises the first failure that was not looked at.
        """
        if self._is_forked:
            self._finish.detach()
            self._network.close(0)
            return
        self._refuse_in_the_midst()
        if not self._is_closed:
            self._abort_what_is_open(timeout)
        with self._lock:  # nothing is queued after this
            if self._is_closed:
                return
            self._is_closed = True
            self._accumulator.shut()
        try:
            self.flush(timeout)
        finally:
            self._finish.detach()
            self._sender.close(_AT_EXIT_S)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BarnabasError:
            if kind is None:  # what went wrong in the block is the better story
                raise

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic; the broker may create it, if it does so by itself."""
        return [state.partition for state in self._find(topic).partitions]

    def has_room(self, topic: str) -> bool:
        """Whether the next record of an ordinary size would not have to wait: the topic is known, there is memory."""
        accumulator = self._accumulator
        return (
            isinstance(topic, str)
            and topic in accumulator.topics
            and accumulator.free >= 2 * accumulator.batch_size
        )

    # Routing

    def _sticky(self, topic: TopicState, size: int) -> PartitionState:
        """Where keyless records go now; when its batch is full, the next partition that has a leader."""
        state = topic.sticky
        if state.open is not None and state.open.room >= size:
            return state
        snapshot = self._network.metadata.snapshot
        for _ in topic.partitions:
            state = topic.move_on()
            if snapshot.leader(state.partition) is not None:
                break
        return state

    def _find(self, topic: str) -> TopicState:
        """A topic that is used for the first time: wait until it is known, or max.block.ms are over."""
        self._refuse_if_gone()
        if not isinstance(topic, str) or not topic or not can_be_written(topic):
            raise no_topic(topic)
        if topic not in self._network.metadata.snapshot.topics:
            self._refuse_to_wait()
            wish = TopicWish(self._network, topic)
            try:
                self._network.wait_for(wish.start, self._max_block)
            except TimedOut:
                raise wish.failure() from None
        partitions = len(self._network.metadata.snapshot.topics[topic].partitions)
        with self._lock:
            return self._accumulator.topic(topic, partitions, random.randrange(partitions))

    # Waiting

    def _wait_for_room(self, size: int, append: Callable[[], Any]) -> Any:
        """Called with the lock: wait for memory, with the lock let go."""
        if size > self._buffer_memory:
            raise BarnabasError(f"{size} bytes are more than buffer.memory ({self._buffer_memory}) holds.")
        self._refuse_to_wait()
        deadline = time.monotonic() + self._max_block
        accumulator = self._accumulator
        accumulator.starving += 1
        try:
            while True:
                self._refuse_to_take()
                self._sender.wake()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimedOut(
                        f"There was no room for the record in {self._max_block:g} s (max.block.ms): all "
                        f"{self._buffer_memory} bytes of buffer.memory are on their way."
                    )
                self._room.wait(left)
                self._refuse_to_take()
                found = append()
                if found is not None:
                    return found
        finally:
            accumulator.starving -= 1

    def _refuse_to_take(self) -> None:
        """Called with the lock: no record may come now."""
        if self._is_closed:
            raise BarnabasError("The producer is closed.")
        if self._transactor is not None:
            self._transactor.machine.check_open()

    def _has_reason_to_wake(self, state: PartitionState, now: float) -> bool:
        """Called with the lock, after a batch was opened."""
        return self._accumulator.is_ready(state) or now + self._linger < self._accumulator.next_at

    def _refuse_if_gone(self) -> None:
        if self._is_forked:
            raise _forked()
        self._refuse_in_the_midst()
        if self._is_closed:
            raise BarnabasError("The producer is closed.")

    def _refuse_in_the_midst(self) -> None:
        """A signal's handler, or a destructor, may run while this thread has the lock: it would wait for itself."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise BarnabasError(
                "This thread is in the midst of a send: a signal's handler must not use the producer. "
                "Let it set a flag, or raise."
            )

    def leave_to_the_parent(self) -> None:
        """In a process that was just forked: there is no thread to send here, and the lock may be held for ever."""
        self._is_forked = True
        self._topics = {}
        self._finish.detach()

    def _refuse_to_wait(self) -> None:
        if self._network.is_current_thread:
            raise BarnabasError("A callback runs in the producer's own thread and must not wait there.")


_alive: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_alive):
        producer.leave_to_the_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _forked() -> BarnabasError:
    return BarnabasError("This producer was made before the process forked: make one in each process.")


def _finish(sender: Sender) -> None:
    """A producer that was not closed: what it still has gets a moment to be delivered."""
    try:
        sender.drain_for(_AT_EXIT_S)
    except BarnabasError:
        pass
    sender.close(_AT_EXIT_S)

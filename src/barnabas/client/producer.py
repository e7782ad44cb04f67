"""Sends records: collects them into a batch a partition, and sends the batches to the partitions' leaders.

Records wait until a batch is full or somebody asks for a result, `flush` or `close`; sending happens in the
caller's thread. Always holds: a partition's batches go out in order, one at a time, so a retry cannot reorder
them; with idempotence (the default with acks=all) a retry cannot double them either.

    with Producer("localhost:9092", compression_type="lz4") as producer:
        sent = producer.send("orders", b"paid", key=b"42", headers={"source": b"web"})
        print(sent.result().offset)
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

from barnabas.client.batches import BatchState, Sent
from barnabas.client.cluster import Cluster
from barnabas.client.delivery import Delivery
from barnabas.client.partitioner import StickyTurns, partition_of
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.batch import HEADER_SIZE, Record
from barnabas.wire.compression import Compression

Headers: TypeAlias = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_RECORD_OVERHEAD = 32
"""More than the lengths and deltas of a record take."""


class Producer:
    """Sends records to topics. Not for several threads at once."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        client_id: str = "barnabas-producer",
        acks: str | int = "all",
        enable_idempotence: bool | None = None,
        compression_type: str = "none",
        batch_size: int = 16_384,
        max_request_size: int = 1_048_576,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: int = 120_000,
        max_block_ms: int = 60_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        if str(acks) not in _ACKS:
            raise Refused(Code.INVALID_REQUIRED_ACKS)
        to_all = _ACKS[str(acks)] == -1
        idempotent = to_all if enable_idempotence is None else enable_idempotence
        if idempotent and not to_all:
            raise BarnabasError("An idempotent producer needs acks=all.")
        self._batch_size = batch_size
        self._max_request_size = max_request_size
        self._max_block = max_block_ms / 1000
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
        )
        self._delivery = Delivery(
            self._cluster,
            acks=_ACKS[str(acks)],
            idempotent=idempotent,
            codec=Compression.named(compression_type),
            max_request_size=max_request_size,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
        )
        self._turns = StickyTurns()
        self._open: dict[TopicPartition, BatchState] = {}
        self._is_closed = False
        self._cluster.any()  # an unreachable broker is told of here, not after the time a delivery may take

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Sent:
        """Queue a record; it goes out when its batch is full, or on `result`, `flush` or `close`."""
        if self._is_closed:
            raise BarnabasError("The producer is closed.")
        pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        size = _size_of(value, key, pairs)
        if size + HEADER_SIZE > self._max_request_size:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"A record of {size} bytes is larger than max.request.size ({self._max_request_size}).",
            )
        target = self._route(topic, key, partition)
        batch = self._open.get(target)
        if batch is not None and batch.size + size > self._batch_size:
            self._send_leader_of(target)
            if key is None and partition is None:
                target = self._route(topic, key, partition)
            batch = self._open.get(target)
        if batch is None:
            batch = self._open[target] = BatchState(target)
        index = len(batch.records)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        batch.records.append(Record(index, timestamp, key, value, pairs))
        batch.size += size
        return Sent(self._flush_partition, batch, index)

    def flush(self) -> None:
        """Send everything that waits. Raises the first failure, after everything was tried."""
        failure = self._deliver(list(self._open))
        if failure is not None:
            raise failure

    def _flush_partition(self, partition: TopicPartition) -> None:
        """Send what waits for one partition; failures are in the results."""
        if partition in self._open:
            self._deliver([partition])

    def close(self) -> None:
        """Send everything that waits, and hang up."""
        if self._is_closed:
            return
        try:
            self.flush()
        finally:
            self._is_closed = True
            self._cluster.close()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; the broker may create it if it does so by itself."""
        found = self._cluster.known_topic(topic)
        if found is None:
            found = self._cluster.retry(
                lambda: self._cluster.topic(topic, create=True), timeout=self._max_block, patient=True
            )
        return len(found.partitions)

    def _route(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        count = self.partitions_for(topic)
        if partition is not None:
            if not 0 <= partition < count:
                raise Refused(
                    Code.UNKNOWN_TOPIC_OR_PARTITION,
                    f"Topic {topic!r} has no partition {partition}, only {count}.",
                )
            return TopicPartition(topic, partition)
        if key is not None:
            return TopicPartition(topic, partition_of(key, count))
        return TopicPartition(topic, self._turns.current(topic, count))

    def _send_leader_of(self, full: TopicPartition) -> None:
        """A batch is full: what waits for the same broker goes with it, since a request costs the same."""
        leader = self._cluster.known_leader(full)
        going = [each for each in self._open if each == full or self._cluster.known_leader(each) == leader]
        failure = self._deliver(going)
        if failure is not None:
            raise failure

    def _deliver(self, partitions: Iterable[TopicPartition]) -> Refused | None:
        batches = [self._open.pop(partition) for partition in partitions]
        for topic in {batch.partition.topic for batch in batches}:
            self._turns.move_on(topic)
        return self._delivery.settle(batches)


def _size_of(value: bytes | None, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> int:
    """At least what a record takes in a batch."""
    size = _RECORD_OVERHEAD + len(value or b"") + len(key or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size

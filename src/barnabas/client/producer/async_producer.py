"""The producer for asyncio: the same core, awaited. Only what may wait leaves the event loop, in a thread.

async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
    sent = await producer.send("orders", b"paid", key=b"42")      # queued
    print((await sent).offset)                                    # stored
"""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Unpack

from barnabas.client.declared import BOOTSTRAP_SERVERS, ProducerSettings
from barnabas.client.group_offsets import GroupMetadata, NextOffset, Reader
from barnabas.client.producer.batches import Sent
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.sent_table import SentTable
from barnabas.client.producer.transaction_questions import PreparedTransaction
from barnabas.client.producer.transactional import OpenTransaction, offsets_of
from barnabas.client.serializers import GivenHeaders
from barnabas.client.settings import SettingsSignature, Unique
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition


class AsyncProducer(Unique):
    """Takes the settings of Producer; starts with `async with`, or `await start()`."""

    __signature__ = SettingsSignature()

    def __init__(
        self, bootstrap_servers: str | Iterable[str] = BOOTSTRAP_SERVERS, **settings: Unpack[ProducerSettings]
    ) -> None:
        self._bootstrap = bootstrap_servers
        self._settings = settings
        self._started: Producer | None = None

    async def start(self) -> None:
        """Connect. Raises where no broker answers. `async with` does it."""
        if self._started is not None:
            raise BarnabasError("This producer has been started.")
        self._started = await asyncio.to_thread(lambda: Producer(self._bootstrap, **self._settings))

    @property
    def _producer(self) -> Producer:
        if self._started is None:
            raise BarnabasError(
                "The producer is not started: use it with `async with`, or await its start()."
            )
        return self._started

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Sent:
        """Queue a record; the future it gives is awaited for where the record is stored."""
        producer = self._producer
        if producer.has_room(topic):
            return producer.send(
                topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
            )
        return await asyncio.to_thread(
            producer.send,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
        )

    async def send_table(self, topic: str, table: Any, **columns: str | None) -> SentTable:
        """Queue the rows of a table; the future it gives is awaited for where they are stored."""
        return await asyncio.to_thread(self._producer.send_table, topic, table, **columns)  # type: ignore[arg-type]

    # Transactions

    def transaction(self) -> "AsyncTransaction":
        """A transaction for an `async with` block, which commits where it ends and aborts where it raises."""
        return AsyncTransaction(self)

    async def init_transactions(
        self,
        *,
        keep_prepared: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> PreparedTransaction | None:
        """Become the one producer with this transactional id. See `Producer`, as for all that follows."""
        return await asyncio.to_thread(
            lambda: self._producer.init_transactions(keep_prepared=keep_prepared, timeout=timeout)
        )

    async def begin_transaction(self) -> None:
        """Open a transaction."""
        await asyncio.to_thread(self._producer.begin_transaction)

    async def commit_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Store what was sent, and let it count."""
        await asyncio.to_thread(self._producer.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Let nothing count of what was sent."""
        await asyncio.to_thread(self._producer.abort_transaction, timeout)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:  # noqa: ASYNC109
        """Store what was sent, and leave its end to be decided."""
        return await asyncio.to_thread(self._producer.prepare_transaction, timeout)

    async def complete_transaction(
        self,
        prepared: PreparedTransaction | str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> bool:
        """Commit a prepared transaction if it is this one, or else abort it."""
        return await asyncio.to_thread(self._producer.complete_transaction, prepared, timeout)

    async def send_offsets(
        self,
        read: Mapping[TopicPartition, int | NextOffset] | Reader,
        group: str | GroupMetadata | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Commit, with the transaction, what a consumer has given so far; or these offsets of next records."""
        if not isinstance(read, Mapping):
            found = offsets_of(read)  # here, in the task that the consumer belongs to
            read, group = found.offsets, found.group
        await asyncio.to_thread(lambda: self._producer.send_offsets(read, group, timeout=timeout))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until everything sent so far has its outcome; raises the first failure that was not looked at."""
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Deliver everything, and hang up."""
        if self._started is not None:
            # A producer is closed even where the caller no longer waits for it.
            await asyncio.shield(asyncio.to_thread(self._started.close, timeout))

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        return await asyncio.to_thread(self._producer.partitions_for, topic)

    async def __aenter__(self) -> "AsyncProducer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except BarnabasError:
            if kind is None:  # what went wrong in the block is the better story
                raise


class AsyncTransaction:
    """A transaction in an `async with` block: what is sent in it counts together, or not at all."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer
        self._open = OpenTransaction(producer._producer)
        self.send = producer.send
        self.send_table = producer.send_table
        self.send_offsets = producer.send_offsets
        self.commit = producer.commit_transaction
        self.abort = producer.abort_transaction
        self.prepare = producer.prepare_transaction

    async def __aenter__(self) -> "AsyncTransaction":
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It is ended even where the caller no longer waits for it.
        await asyncio.shield(asyncio.to_thread(self._open.__exit__, kind, error, trace))

"""The producer for asyncio: the same core, awaited. Only what may wait leaves the event loop, in a thread.

async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
    sent = await producer.send("orders", b"paid", key=b"42")      # queued
    print((await sent).offset)                                    # stored
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Unpack

from barnabas.client.declared import BOOTSTRAP_SERVERS, ProducerSettings
from barnabas.client.producer.batches import Sent
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.sent_table import SentTable
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

"""The consumer for asyncio: the same machines and the same network thread, awaited instead of waited for.

    async with AsyncConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        async for record in consumer: ...

What needs no waiting runs on the event loop; what a broker has to answer, and what a rebalance asks of the user, runs
in a worker thread. Listeners may be coroutine functions; they run on the loop. Not for several tasks at once.
"""

import asyncio
import inspect
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from barnabas.client.consumer.consumer import Consumer, ConsumerRecord
from barnabas.client.consumer.offsets import OffsetAt
from barnabas.client.declared import ConsumerSettings
from barnabas.client.group_offsets import GroupMetadata, GroupOffsets
from barnabas.client.settings import SettingsSignature, Unique, sound
from barnabas.errors import BarnabasError
from barnabas.types import Offset, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_PATIENCE_S = 1.0
"""For the goodbye of a consumer that was cancelled while it was made."""


class AsyncConsumer(Unique):
    """Reads records, in one task. The settings are those of `Consumer`."""

    __signature__ = SettingsSignature()

    def __init__(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> None:
        self._topics = topics
        self._settings = settings
        self._core: Consumer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Connect, and subscribe to the topics given. `async with` does it."""
        if self._core is not None:
            raise BarnabasError("This consumer has been started.")
        self._loop = asyncio.get_running_loop()
        # Two: while a listener is heard, it may commit.
        self._worker = ThreadPoolExecutor(2, "barnabas-async-consumer")
        made = self._worker.submit(Consumer, *self._topics, **self._settings)
        try:
            self._core = await asyncio.wrap_future(made)
        except BaseException:
            # Cancelled: a consumer that is made nevertheless is closed here.
            self._worker.submit(lambda: made.result().close(_PATIENCE_S, commit=False))
            self._worker.shutdown(wait=False)
            raise
        self._core.listen(self._tell)

    async def close(self, timeout: float | None = None, *, commit: bool = True) -> None:  # noqa: ASYNC109
        """Commit what polls have given, if commits are automatic, and leave the group."""
        if self._core is not None and self._worker is not None:
            # A consumer is closed even where the caller no longer waits for it.
            closed = self._worker.submit(self._core.close, timeout, commit=commit)
            try:
                await asyncio.shield(asyncio.wrap_future(closed))
            finally:
                self._core = None
                self._worker.shutdown(wait=False)

    async def __aenter__(self) -> "AsyncConsumer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=error is None)

    # What is read

    async def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """As `Consumer.subscribe`; the listener's methods may be coroutine functions."""
        heard = None if listener is None else _OnTheLoop(listener, self._on_the_loop)
        await self._run(partial(self._started.subscribe, topics, pattern=pattern, listener=heard))

    async def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        await self._run(partial(self._started.assign, partitions))

    async def unsubscribe(self) -> None:
        await self._run(self._started.unsubscribe)

    def assignment(self) -> set[TopicPartition]:
        return self._started.assignment()

    def subscription(self) -> set[str]:
        return self._started.subscription()

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        return await self._run(partial(self._started.partitions_for, topic))

    def pause(self, *partitions: TopicPartition) -> None:
        self._started.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._started.resume(*partitions)

    def paused(self) -> set[TopicPartition]:
        return self._started.paused()

    # Where it is read from

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._started.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._started.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._started.seek_to_end(*partitions)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        self._started.seek_to_committed(*partitions)

    def seek_to_time(self, timestamp: int, *partitions: TopicPartition) -> None:
        self._started.seek_to_time(timestamp, *partitions)

    async def position(self, partition: TopicPartition) -> Offset:
        return await self._run(partial(self._started.position, partition))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAt | None]:
        return await self._run(partial(self._started.offsets_for_times, times))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return await self._run(partial(self._started.beginning_offsets, partitions))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return await self._run(partial(self._started.end_offsets, partitions))

    # Reading

    async def poll(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """The next records, waiting up to `timeout` seconds for the first; an empty list when none came."""
        return await self._wait_for(timeout, partial(self._started.poll, 0.0, max_records)) or []

    async def poll_arrow(
        self,
        timeout: float = 0.0,  # noqa: ASYNC109
        *,
        columns: Collection[str] | None = None,
        max_bytes: int = 1 << 20,
    ) -> "pa.RecordBatch | None":
        """The next records as an Arrow batch; None when none came."""
        take = partial(self._started.poll_arrow, 0.0, columns=columns, max_bytes=max_bytes)
        return await self._wait_for(timeout, take)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record by record, for ever, or until none came for consumer.timeout.ms."""
        core = self._started
        while await self._wait_for(core.idle_timeout, core.is_ready):
            for record in core.ready():
                yield record

    # The group

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        await self._run(partial(self._started.commit, offsets))

    def group_metadata(self) -> GroupMetadata:
        """As `Consumer.group_metadata`."""
        return self._started.group_metadata()

    def offsets_to_send(self) -> GroupOffsets:
        """As `Consumer.offsets_to_send`."""
        return self._started.offsets_to_send()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return await self._run(partial(self._started.committed, partitions))

    # How it waits

    @property
    def _started(self) -> Consumer:
        if self._core is None:
            raise BarnabasError("This consumer is not started, or is closed: use it in `async with`.")
        return self._core

    async def _wait_for(self, seconds: float, take: Callable[[], T]) -> T | None:
        """What `take` finds, as soon as it finds something. It waits for nothing, unless a rebalance is to be done."""
        core = self._started
        deadline = time.monotonic() + sound("poll: timeout", float, seconds)
        while True:
            self._news.clear()
            found = await self._run(take) if core.has_work else take()
            left = deadline - time.monotonic()
            if found or left <= 0:
                # Others on the loop have their turn, however fast records come.
                await asyncio.sleep(0)
                return found
            try:
                async with asyncio.timeout(None if left == float("inf") else left):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _run(self, action: Callable[[], T]) -> T:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._worker, action)

    def _tell(self) -> None:
        """In the network's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    def _on_the_loop(self, call: Coroutine[Any, Any, None]) -> None:
        """In the worker's thread."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(call, self._loop).result()


class _OnTheLoop:
    """A listener whose methods run on the event loop, also those that are coroutine functions."""

    def __init__(self, listener: object, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        for name in ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"):
            method = getattr(listener, name, None)
            if method is not None:
                setattr(self, name, partial(self._call, run, method))

    @staticmethod
    def _call(
        run: Callable[[Coroutine[Any, Any, None]], None], method: Callable[[Any], Any], partitions: Any
    ) -> None:
        async def call() -> None:
            outcome = method(partitions)
            if inspect.isawaitable(outcome):
                await outcome

        run(call())

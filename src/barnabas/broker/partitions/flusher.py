"""Forces partitions to disk, off the event loop, one flush of a partition at a time.

Called by partitions whose records wait for the disk, by Produce for the answers that wait with them, and by
housekeeping. Callers that arrive during a flush share the next one: a hundred producers cost one fsync, not a hundred.

Always holds: a partition that has asked is flushed until nothing waits, or its directory is offline.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from barnabas.broker.partitions.partition import Partition
from barnabas.errors import Refused
from barnabas.log.log import Log
from barnabas.types import Offset

RETRY_SECONDS = 1.0
"""After what a flush is tried again that failed for a reason that passes, such as too many open files."""


class Flusher:
    """Mutable: the flushes under way, by partition.

    `failed` is told of every flush that fails, and says whether the partition is gone with its directory.
    """

    def __init__(self, failed: Callable[[Partition, Exception], bool]) -> None:
        self._failed = failed
        self._running: dict[Partition, asyncio.Task[None]] = {}
        self._wanted: dict[Partition, asyncio.Task[None]] = {}
        self._held: dict[Log, asyncio.Event] = {}
        """Logs that are not to be flushed for now; set when they may be again."""

    async def flush(self, partition: Partition, upto: Offset) -> None:
        """Come back when all below `upto` is on the disk; raises KAFKA_STORAGE_ERROR when it cannot be."""
        # A truncation meanwhile can take away what was waited for.
        while partition.log.recovery_point < min(upto, partition.log.end):
            held = self._held.get(partition.log)
            if held is not None:
                await held.wait()
                continue
            running = self._running.get(partition)
            if running is None:
                running = self._running[partition] = asyncio.create_task(self._flush(partition))
                running.add_done_callback(_heard)
            await asyncio.shield(running)

    def want(self, partition: Partition) -> None:
        """Flush for as long as flush.messages asks for it; the caller waits for nothing."""
        if partition not in self._wanted:
            self._wanted[partition] = asyncio.create_task(self._flush_while_wanted(partition))

    @asynccontextmanager
    async def held(self, log: Log) -> AsyncIterator[None]:
        """No flush of this log is under way, and none begins: those that are asked for wait. One holder at a time."""
        assert log not in self._held
        free = self._held[log] = asyncio.Event()
        try:
            while running := [task for each, task in self._running.items() if each.log is log]:
                await asyncio.wait(running)
            yield
        finally:
            del self._held[log]
            free.set()

    async def stop(self) -> None:
        """Come back when no flush is under way, with whatever outcome; none is begun by itself any more."""
        for task in self._wanted.values():
            task.cancel()
        await asyncio.gather(*self._wanted.values(), *self._running.values(), return_exceptions=True)

    async def _flush_while_wanted(self, partition: Partition) -> None:
        try:
            while partition.must_flush:
                try:
                    await self.flush(partition, partition.log.end)
                except Refused as refused:
                    if self._failed(partition, refused):
                        break
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            del self._wanted[partition]

    async def _flush(self, partition: Partition) -> None:
        stored = partition.log
        try:
            flush = stored.begin_flush()
            if flush is None:
                return
            try:
                await asyncio.get_running_loop().run_in_executor(None, flush.run)
            except OSError as error:
                raise stored.fail_flush(error) from error
            partition.finish_flush(flush)
        except Refused as refused:
            # At once, waited for or not: the next flush may well succeed, without what this one has lost.
            self._failed(partition, refused)
            raise
        finally:
            # Here and not in a callback, which comes a turn later: waiting for a task that is done takes no turn
            # of the loop, so a waiter that found it then would find it for ever.
            del self._running[partition]


def _heard(task: asyncio.Task[None]) -> None:
    """Marks a failure as seen: the task may have no waiter left."""
    if not task.cancelled():
        task.exception()

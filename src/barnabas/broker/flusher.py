"""Forces partitions to disk, off the event loop, one flush of a partition at a time.

Called by Produce where flush.messages asks for it, and by housekeeping. Whoever waits while a flush is under way
shares the next one: a hundred producers cost one fsync, not a hundred.
"""

import asyncio
import logging
from collections.abc import Callable

from barnabas.broker.partition import Partition
from barnabas.errors import Code, Refused
from barnabas.types import Offset

log = logging.getLogger("barnabas.flusher")


class Flusher:
    """Mutable: the flushes under way, by partition."""

    def __init__(self, failed: Callable[[Partition, OSError], object]) -> None:
        self._failed = failed
        self._running: dict[Partition, asyncio.Task[None]] = {}
        self._unasked: set[asyncio.Task[None]] = set()

    async def flush(self, partition: Partition, upto: Offset) -> None:
        """Come back when all below `upto` is on the disk; raises KAFKA_STORAGE_ERROR when it cannot be."""
        # A truncation meanwhile can take away what was waited for.
        while partition.log.recovery_point < min(upto, partition.log.end):
            running = self._running.get(partition)
            if running is None:
                running = self._running[partition] = asyncio.create_task(self._flush(partition))
                running.add_done_callback(_heard)
            await asyncio.shield(running)

    def flush_unasked(self, partition: Partition) -> None:
        """The same where nobody waits for it."""
        task = asyncio.create_task(self.flush(partition, partition.log.end))
        self._unasked.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._unasked.discard(task)
        _heard(task)

    async def _flush(self, partition: Partition) -> None:
        try:
            flush = partition.log.begin_flush()
            if flush is None:
                return
            await asyncio.get_running_loop().run_in_executor(None, flush.run)
            partition.log.finish_flush(flush)
        except OSError as error:
            log.error("cannot force %s to disk: %s", partition.tp, error)
            # Whether anybody waits or not: the next flush may well succeed, without what this one has lost.
            self._failed(partition, error)
            raise Refused(Code.KAFKA_STORAGE_ERROR) from error
        finally:
            # Here and not in a callback, which comes a turn later: waiting for a task that is done takes no turn
            # of the loop, so whoever found it then would find it for ever.
            del self._running[partition]


def _heard(task: asyncio.Task[None]) -> None:
    """Who waited for it may be gone: then nobody misses its failure."""
    if not task.cancelled():
        task.exception()

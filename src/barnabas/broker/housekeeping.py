"""What a broker does by itself: retention, flushing, checkpoints, compaction, forgetting producers.

Owned by the broker. Each chore has its own task and rhythm; what fails is logged and tried again, and a
chore that walks over many partitions lets requests in between.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from barnabas.broker.partitions.partition import Partition
from barnabas.errors import BarnabasError, Refused

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

PRODUCER_EXPIRY_CHECK_MS = 600_000
SLICE_PARTITIONS = 16
"""Partitions that a chore looks at before requests have their turn."""

log = logging.getLogger("barnabas.housekeeping")


class Housekeeping:
    """Mutable: the running chores."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._last_flush: dict[Partition, int] = {}

    def start(self) -> None:
        config = self._broker.config
        chores: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.retain, config.log_retention_check_interval_ms),
            (self.flush, config.log_flush_scheduler_interval_ms),
            (self.checkpoint, config.log_flush_offset_checkpoint_interval_ms),
            (self.expire_producers, PRODUCER_EXPIRY_CHECK_MS),
        ]
        if config.log_cleaner_enable:
            chores.append((self.clean, max(1, config.log_cleaner_backoff_ms)))
        self._tasks = [asyncio.create_task(_repeat(chore, interval)) for chore, interval in chores]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def retain(self) -> None:
        """Roll segments that are old enough and drop what retention no longer wants."""
        now = self._broker.clock.now()
        async for partition in self._partitions():
            try:
                partition.log.roll_if_due(now)
                partition.log.retain(now, partition.high_watermark)
            except Refused as refused:
                self._broker.note_refusal("Retention", refused, *partition.tp)

    async def flush(self) -> None:
        """Force to disk what flush.ms wants there, and segments that are no longer written to."""
        now = self._broker.clock.now()
        async for partition in self._partitions():
            active = partition.log.segments[-1]
            since = self._last_flush.setdefault(partition, now)
            due = partition.log.unflushed > 0 and now - since >= partition.log.config.flush_ms
            if due or partition.log.recovery_point < active.base:
                try:
                    await self._broker.flusher.flush(partition, partition.log.end if due else active.base)
                except Refused as refused:
                    self._broker.note_refusal("Flush", refused, *partition.tp)
            if due or not partition.log.unflushed:
                self._last_flush[partition] = now
        present = set(self._broker.replicas)
        self._last_flush = {
            partition: at for partition, at in self._last_flush.items() if partition in present
        }

    async def checkpoint(self) -> None:
        """Write indexes, recovery points, log starts and high watermarks down; make what there was no room for."""
        async for partition in self._partitions():
            try:
                partition.log.write_indexes()
            except Refused as refused:
                self._broker.note_refusal("Checkpoint", refused, *partition.tp)
        self._broker.directories.checkpoint(self._broker.replicas.high_watermarks())
        if self._broker.metadata.owed:
            await self._broker.metadata.settle()
        if self._broker.replicas.incomplete:
            await self._broker.metadata.follow_again()

    async def expire_producers(self) -> None:
        now = self._broker.clock.now()
        async for partition in self._partitions():
            partition.log.producers.expire(now, self._broker.config.producer_id_expiration_ms)

    async def clean(self) -> None:
        """Compact the logs that have earned it, round by round, in a worker thread."""
        from barnabas.log.cleaner import Cleaner

        broker = self._broker
        cleaner = Cleaner(broker.directories.cleaned, broker.config.log_cleaner_dedupe_buffer_size)
        async for partition in self._partitions():
            if "compact" not in partition.log.config.cleanup_policy:
                continue
            try:
                now = broker.clock.now()
                cleaning = cleaner.begin(partition.tp, partition.log, now, below=partition.last_stable)
                while cleaning is not None and not cleaning.is_done:
                    try:
                        await asyncio.to_thread(cleaning.run)
                    except asyncio.CancelledError:
                        # The thread cannot be cancelled: it is told to stop at the next batch.
                        cleaning.abandon()
                        raise
                    cleaning.finish()
            except Refused as refused:
                broker.note_refusal("Compaction", refused, *partition.tp)

    async def _partitions(self) -> AsyncIterator[Partition]:
        for number, partition in enumerate(list(self._broker.replicas)):
            if number % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                await asyncio.sleep(0)
            if self._broker.replicas.find(*partition.tp) is partition:
                yield partition


async def _repeat(chore: Callable[[], Awaitable[None]], interval_ms: int) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await chore()
        except (OSError, BarnabasError) as error:
            log.error("a chore failed and is tried again later: %s", error)
        except Exception:
            log.exception("a chore failed and is tried again later")

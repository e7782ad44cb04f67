"""Flushes are shared: whoever comes while one is under way gets the next, and nobody keeps the loop for himself."""

import asyncio
import errno
from dataclasses import replace

import pytest

from barnabas.broker.partitions.flusher import Flusher
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.disk import SyncFailed
from barnabas.errors import Refused
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Offset, TopicPartition
from tests.log.batches import NOW, SMALL, append, batch, open_log


def test_a_caller_that_comes_just_as_a_flush_is_done_gets_the_next_one() -> None:
    async def come_at_each_turn() -> None:
        flusher = Flusher(lambda partition, error: True)
        log = open_log()
        partition = Leader(TopicPartition("t", 0), log, LeaderEpoch(0), flusher.want)
        append(log, b"first")
        first = asyncio.create_task(flusher.flush(partition, log.end))
        await asyncio.sleep(0)
        (running,) = flusher._running.values()
        # One turn of the loop at a time: so this goes on in the very turn in which the flush ends.
        while not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        append(log, b"second")
        await flusher.flush(partition, log.end)
        assert log.unflushed == 0
        await first
        assert not flusher._running

    asyncio.run(come_at_each_turn())


def flushed_each_time(disk: SimulatedDisk) -> tuple[Leader, Flusher, asyncio.Queue[Exception]]:
    """A partition with flush.messages=1, what flushes it, and the failures that it tells of."""
    told: asyncio.Queue[Exception] = asyncio.Queue()

    def failed(partition: Partition, error: Exception) -> bool:
        told.put_nowait(error)
        return isinstance(error.__cause__, SyncFailed)

    flusher = Flusher(failed)
    log = open_log(replace(SMALL, flush_messages=1), disk)
    return Leader(TopicPartition("t", 0), log, LeaderEpoch(0), flusher.want), flusher, told


def test_a_flush_that_fails_is_reported_with_and_without_a_waiter() -> None:
    """The next may succeed, without what this one has lost: it must not be the first that anybody hears of."""

    async def append_only() -> None:
        disk = SimulatedDisk()
        partition, flusher, told = flushed_each_time(disk)
        disk.fail_at = disk.operations + 2
        partition.append(batch(b"lost"), NOW)
        async with asyncio.timeout(30):
            error = await told.get()
        assert isinstance(error.__cause__, SyncFailed)
        await flusher.stop()
        with pytest.raises(Refused):
            await flusher.flush(partition, Offset(1))
        assert partition.high_watermark == partition.log.recovery_point == 0

    asyncio.run(append_only())


def test_a_flush_that_fails_for_now_is_tried_again_without_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas.broker.partitions.flusher.RETRY_SECONDS", 0)

    async def append_on_a_full_disk() -> None:
        disk = SimulatedDisk()
        partition, flusher, told = flushed_each_time(disk)
        seen = asyncio.Event()
        partition.watch(Seeing(seen))
        made = batch(b"waits")
        disk.capacity = disk.used() + len(made)
        partition.append(made, NOW)
        async with asyncio.timeout(30):
            assert (await told.get()).__cause__.errno == errno.ENOSPC  # type: ignore[union-attr]
            assert partition.high_watermark == 0
            disk.capacity = None
            await seen.wait()
        assert partition.high_watermark == 1
        await flusher.stop()

    asyncio.run(append_on_a_full_disk())


class Seeing:
    """Waits for a partition to grow."""

    def __init__(self, seen: asyncio.Event) -> None:
        self._seen = seen

    def wake(self, partition: Partition) -> None:
        self._seen.set()

"""Flushes are shared: whoever comes while one is under way gets the next, and nobody keeps the loop for himself."""

import asyncio
import errno

import pytest

from barnabas.broker.flusher import Flusher
from barnabas.broker.partition import Partition
from barnabas.log.flush import Flush
from barnabas.types import LeaderEpoch, TopicPartition
from tests.log.batches import append, open_log


def test_who_comes_just_as_a_flush_is_done_gets_the_next_one() -> None:
    async def come_at_each_turn() -> None:
        partition = Partition(TopicPartition("t", 0), open_log(), LeaderEpoch(0))
        flusher = Flusher(lambda partition, error: None)
        log = partition.log
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


def test_a_flush_that_fails_is_told_of_whether_anybody_waits_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next may succeed, without what this one has lost: it must not be the first that anybody hears of."""

    def fail(self: Flush) -> None:
        raise OSError(errno.EIO, "gone")

    async def flush_unasked() -> None:
        told: asyncio.Queue[OSError] = asyncio.Queue()
        flusher = Flusher(lambda partition, error: told.put_nowait(error))
        log = open_log()
        append(log, b"first")
        flusher.flush_unasked(Partition(TopicPartition("t", 0), log, LeaderEpoch(0)))
        async with asyncio.timeout(30):
            assert (await told.get()).errno == errno.EIO

    monkeypatch.setattr(Flush, "run", fail)
    asyncio.run(flush_unasked())

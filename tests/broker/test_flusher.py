"""Flushes are shared: whoever comes while one is under way gets the next, and nobody keeps the loop for himself."""

import asyncio

from barnabas.broker.flusher import Flusher
from barnabas.broker.partition import Partition
from barnabas.types import LeaderEpoch, TopicPartition
from tests.log.batches import append, open_log


def test_who_comes_just_as_a_flush_is_done_gets_the_next_one() -> None:
    async def come_at_each_turn() -> None:
        partition = Partition(TopicPartition("t", 0), open_log(), LeaderEpoch(0))
        flusher = Flusher()
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

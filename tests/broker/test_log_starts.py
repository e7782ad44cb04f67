"""Where a log starts is on the disk before DeleteRecords answers, and many requests share a writing."""

import asyncio
import errno
import threading
from uuid import UUID

import pytest

from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.log_starts import LogStarts
from barnabas.clock import SystemClock
from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log.checkpoint import START_OFFSETS, read_offsets
from barnabas.log.directories import Directories
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tests.log.batches import append

DEADLINE_S = 30.0
FILE = f"data/{START_OFFSETS}"


class SlowDisk(SimulatedDisk):
    """One whose renames wait to be let through, and tell that they have begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    def rename(self, source: str, target: str) -> None:
        if target == FILE:
            self.begun.release()
            assert self.go.wait(DEADLINE_S)
        super().rename(source, target)

    def writings(self) -> int:
        return self.history.count(("rename", FILE + ".tmp"))


def _partitions(disk: SimulatedDisk, count: int) -> tuple[Directories, list[Leader]]:
    directories = Directories.open(disk, ["data"], node_id=BrokerId(1), clock=SystemClock())
    partitions = []
    for number in range(count):
        tp = TopicPartition("t", number)
        log = directories.create(tp, TopicConfig(), UUID(int=1), new=True)
        for _ in range(5):
            append(log, b"x")
        partitions.append(Leader(tp, log, LeaderEpoch(0), lambda partition: None))
    return directories, partitions


def test_requests_that_come_during_a_writing_share_the_next_one() -> None:
    disk = SlowDisk()
    directories, (first, *others) = _partitions(disk, 20)
    starts = LogStarts(directories)

    async def delete() -> None:
        disk.go.clear()
        first.delete_records(Offset(3))
        writing = asyncio.create_task(starts.write(first))
        assert await asyncio.to_thread(disk.begun.acquire, timeout=DEADLINE_S)
        for partition in others:
            partition.delete_records(Offset(4))
        later = asyncio.gather(*map(starts.write, others))
        await asyncio.sleep(0)
        assert not writing.done()
        disk.go.set()
        async with asyncio.timeout(DEADLINE_S):
            await writing
            await later

    asyncio.run(delete())
    assert disk.writings() == 2
    wanted = {partition.tp: partition.log.start for partition in (first, *others)}
    assert read_offsets(disk.crash(), FILE) == wanted
    asyncio.run(starts.write(first))
    assert disk.writings() == 2, "what is written down already is not written again"


def test_a_start_that_cannot_be_written_is_refused_and_the_directory_goes() -> None:
    disk = SimulatedDisk()
    directories, (partition,) = _partitions(disk, 1)
    partition.delete_records(Offset(3))
    disk.broken = OSError(errno.EIO, "broken")
    with pytest.raises(Refused) as caught:
        asyncio.run(LogStarts(directories).write(partition))
    assert caught.value.code is Code.KAFKA_STORAGE_ERROR
    assert not directories.online()


def test_an_older_writing_that_comes_late_changes_nothing() -> None:
    """A topic that was deleted and made again must not start where a late writing says that the old one did."""
    disk = SimulatedDisk()
    directories, (partition,) = _partitions(disk, 1)
    partition.delete_records(Offset(3))
    (directory,) = directories.online()
    late = directories.begin_starts(directory)
    directories.delete(partition.tp)
    directories.create(partition.tp, TopicConfig(), UUID(int=2), new=True)
    late()
    assert directories.owes_start(partition.tp) is None
    assert not disk.exists(FILE) or read_offsets(disk, FILE) == {}

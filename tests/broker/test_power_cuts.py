"""The power goes at every operation of the disk, or an fsync fails, while a reader follows a flushed partition.

What the reader has seen, and what a producer was told is stored, is held against what is there afterwards. The bugs
that this is to find are planted, one after the other, and found.
"""

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.broker.partitions.flusher import Flusher
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.disk import passes
from barnabas.errors import Refused
from barnabas.log.log import Log
from barnabas.testing.disk import PowerCut, SimulatedDisk, Survival
from barnabas.types import LeaderEpoch, Millis, Offset, TopicPartition
from barnabas.wire.batch import headers
from tests.log.batches import FOLDER, NOW, SMALL, batch, check_files, stored_batches

STEPS = 45
TURNS = 8
"""Rounds of the loop after which all that can go on without the disk has gone on."""


class SteppedLoop(asyncio.SelectorEventLoop):
    """A loop whose workers work when they are told to: so one seed is one story."""

    def __init__(self) -> None:
        super().__init__()
        self._work: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        self._work.append((future, lambda: func(*args)))
        return future

    def work(self) -> None:
        """Do what a worker was given first; its failure is told, a power cut ends everything."""
        if self._work:
            future, func = self._work.pop(0)
            try:
                future.set_result(func())
            except OSError as error:
                future.set_exception(error)


class Life:
    """A seeded life of one partition, its reader and its producers."""

    def __init__(self, disk: SimulatedDisk, seed: int, flush_messages: int) -> None:
        self.disk = disk
        self.flush_messages = flush_messages
        self._random = Random(seed)
        self._loop = SteppedLoop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_offline = False
        self._checkpoint = Offset(0)
        self._position = Offset(0)
        self._told: dict[Offset, bytes] = {}
        """Batches that the reader has seen, or that were acknowledged, by their first offset."""
        disk.make_dir(FOLDER)
        disk.sync_dir("data")
        disk.sync_dir("")
        self._config = replace(SMALL, flush_messages=flush_messages)
        log = Log.open(disk, FOLDER, self._config, now=NOW)
        self._flusher = Flusher(self._failed)
        self._partition = Leader(TopicPartition("topic", 0), log, LeaderEpoch(0), self._flusher.want)
        self._partition.watch(self)

    def live(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    async def _live(self) -> None:
        deeds = [self._produce] * 4 + [self._produce_unasked] * 2 + [self._loop.work] * 4
        deeds += [self._write_checkpoint, self._read_newest]
        for _ in range(STEPS):
            self._random.choice(deeds)()
            for _ in range(self._random.randint(0, TURNS)):
                await asyncio.sleep(0)
            self._read()
            if self._is_offline:
                break
        # Whatever is still hoped for comes now, or never.
        for _ in range(STEPS):
            self._loop.work()
            for _ in range(TURNS):
                await asyncio.sleep(0)
        self._read()
        self._write_checkpoint()

    # Deeds

    def _produce(self) -> None:
        """As a request with acks=1 does: append, and be told when that is safe."""
        appended = self._append()
        if appended is not None:
            task = self._loop.create_task(self._acknowledge(*appended))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _produce_unasked(self) -> None:
        self._append()

    def _append(self) -> tuple[Offset, bytes] | None:
        values = [bytes(self._random.randint(1, 60)) for _ in range(self._random.randint(1, 3))]
        made = batch(*values, timestamp=NOW + self.disk.operations)
        try:
            first = self._partition.append(made, Millis(NOW)).first
        except Refused:
            return None
        return first, bytes(made)

    async def _acknowledge(self, first: Offset, made: bytes) -> None:
        _, header = next(iter(headers(made)))
        if header.last_offset >= self._partition.high_watermark:
            try:
                await self._flusher.flush(self._partition, header.next_offset)
            except Refused:
                return
        self._told[first] = made

    def _write_checkpoint(self) -> None:
        self._checkpoint = self._partition.log.recovery_point

    def wake(self, partition: Partition) -> None:
        self._read()

    def _read(self) -> None:
        while (piece := self._partition.read(self._position, 500, committed=False)) is not None:
            self._see(piece.read())

    def _read_newest(self) -> None:
        newest = self._partition.read_newest(self._position, 1 << 20, committed=False)
        if newest is not None:
            self._see(newest)

    def _see(self, data: bytes) -> None:
        for at, header in headers(data):
            self._told[Offset(header.base_offset)] = data[at : at + header.size]
            self._position = header.next_offset

    def _failed(self, partition: Partition, error: Exception) -> bool:
        """As the broker has it: a failure that does not pass takes the directory offline."""
        if not passes(error.__cause__):
            self._is_offline = True
        return self._is_offline

    # Afterwards

    def check_after_crash(self, disk: SimulatedDisk) -> None:
        log = Log.open(disk, FOLDER, self._config, now=NOW, recovery_point=self._checkpoint)
        assert log.end >= self._checkpoint, "the recovery point has passed what is there"
        try:
            found = {next(iter(headers(data)))[1].base_offset: data for data in stored_batches(log)}
        except Refused as damage:
            raise AssertionError("what was flushed cannot be read") from damage
        end = max((next(iter(headers(data)))[1].next_offset for data in self._told.values()), default=0)
        assert log.end > end - self.flush_messages, "more is gone than flush.messages allows"
        for first, data in self._told.items():
            if first < log.end:
                assert found[first] == data, "an offset that was told of is written anew"
        check_files(log)


def _cut_everywhere(seed: int, flush_messages: int) -> Iterator[Life]:
    whole = SimulatedDisk()
    life = Life(whole, seed, flush_messages)
    begun = whole.operations
    life.live()
    for operation in range(begun + 1, whole.operations + 1):
        disk = SimulatedDisk()
        life = Life(disk, seed, flush_messages)
        disk.stop_at = operation
        with suppress(PowerCut):
            life.live()
        yield life


def _hold_against_cuts(seed: int, flush_messages: int) -> None:
    for life in _cut_everywhere(seed, flush_messages):
        for survival in (Survival.NOTHING, Survival.PREFIX, Survival.SECTORS):
            life.check_after_crash(life.disk.crash(survival, seed=life.disk.operations))


def _hold_against_failed_syncs(seed: int, flush_messages: int, number: int) -> None:
    whole = SimulatedDisk()
    life = Life(whole, seed, flush_messages)
    begun = whole.operations
    life.live()
    for operation in range(begun + 1, whole.operations + 1):
        if not whole.history[operation - 1][0].startswith("sync"):
            continue
        disk = SimulatedDisk()
        life = Life(disk, seed, flush_messages)
        disk.fail_at, disk.error = operation, number
        life.live()
        life.check_after_crash(disk.crash())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.partitions.flusher.RETRY_SECONDS", 0)


@pytest.mark.parametrize("flush_messages", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_operation_takes_nothing_that_was_seen_or_acknowledged(
    seed: int, flush_messages: int
) -> None:
    _hold_against_cuts(seed, flush_messages)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO])
@pytest.mark.parametrize("flush_messages", [1, 3])
def test_an_fsync_that_fails_takes_nothing_that_was_seen_or_acknowledged(
    number: int, flush_messages: int
) -> None:
    for seed in range(3):
        _hold_against_failed_syncs(seed, flush_messages, number)


def test_a_high_watermark_that_moves_with_the_append_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: Leader) -> None:
        self.high_watermark = self.log.end
        self.wake()
        if self.must_flush:
            self._want_flush(self)

    monkeypatch.setattr(Leader, "_advance", advance)
    with pytest.raises(AssertionError, match=r"more is gone|written anew"):
        _hold_against_cuts(0, 1)


def test_an_fsync_whose_failure_is_passed_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.testing.disk.SyncFailed", OSError)
    with pytest.raises(AssertionError, match=r"more is gone|written anew|has passed|cannot be read"):
        _hold_against_failed_syncs(0, 1, errno.ENOSPC)

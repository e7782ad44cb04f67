"""The power goes at every single operation: what was flushed is there, the rest is a prefix of what was written."""

from collections.abc import Iterator
from random import Random

import pytest

from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log import log as log_module
from barnabas.log.log import Log
from barnabas.log.producers import StoredBatch
from barnabas.log.segment import CLEANED, Segment
from barnabas.log.transactions.markers import marker_batch
from barnabas.testing.disk import PowerCut, SimulatedDisk, Survival
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.batch import BatchHeader, read_header
from tests.log.batches import (
    NOW,
    SMALL,
    append,
    batch,
    check_files,
    check_producers,
    check_transactions,
    stored_batches,
)

FOLDER = "data/topic-0"
SURVIVALS = [Survival.NOTHING, Survival.PREFIX, Survival.SECTORS]
RETENTION = TopicConfig(
    segment_bytes=SMALL.segment_bytes,
    index_interval_bytes=SMALL.index_interval_bytes,
    retention_bytes=2500,
    retention_ms=500,
)


class Story:
    """A seeded life of one log, and what must be true of it whenever the power goes."""

    def __init__(self, disk: SimulatedDisk, seed: int, *, is_transactional: bool = False) -> None:
        self.disk = disk
        self.is_transactional = is_transactional
        self.random = Random(seed)
        self.now = NOW
        self.epoch = 0
        self.sequences = [0, 0, 0]
        self.history: list[bytes] = []
        """Every batch of the log, retained or not, as it was stored."""
        self.earlier: list[bytes] = []
        """What it was before a truncation that is still under way."""
        self.flushed = Offset(0)
        self.start = Offset(0)
        self.checkpoint = (Offset(0), Offset(0))
        """Recovery point and start, as written down by the data directory's checkpoints."""
        disk.make_dir(FOLDER)
        disk.sync_dir("data")
        disk.sync_dir("")
        self.log = Log.open(disk, FOLDER, RETENTION, now=self.now)

    def live(self, steps: int) -> None:
        deeds = [self.append] * 11 + [self.flush] * 3 + [self.write_checkpoint] * 2
        deeds += [
            self.retain,
            self.delete_records,
            self.truncate,
            self.stop_and_start,
            self.replicate,
            self.lead,
        ]
        if self.is_transactional:
            deeds += [self.write_in_transaction] * 6 + [self.end_transaction] * 5
        for _ in range(steps):
            self.now = Millis(self.now + self.random.randint(0, 30))
            self.random.choice(deeds)()

    def append(self) -> None:
        values = [bytes(self.random.randint(1, 60)) for _ in range(self.random.randint(1, 4))]
        producer = self.random.randint(0, 3)
        timestamp = self.now - self.random.randint(0, 50)
        if producer == 3:
            made = batch(*values, timestamp=timestamp)
        else:
            made = batch(*values, timestamp=timestamp, pid=producer, sequence=self.sequences[producer])
            self.sequences[producer] += len(values)
        end = self.log.end
        try:
            self.log.append(made, epoch=LeaderEpoch(self.epoch), now=self.now)
        finally:
            # What is being written when the power goes may be there afterwards.
            if read_header(made).base_offset == end:
                self.history.append(bytes(made))

    def write_in_transaction(self) -> None:
        pid = self.random.randint(10, 12)
        state = self.log.producers.by_id.get(pid)
        sequence = state.next_sequence if state else 0
        made = batch(
            bytes(self.random.randint(1, 60)),
            timestamp=self.now,
            pid=pid,
            sequence=sequence,
            transactional=True,
        )
        end = self.log.end
        try:
            self.log.append(made, epoch=LeaderEpoch(self.epoch), now=self.now)
        finally:
            if read_header(made).base_offset == end:
                self.history.append(bytes(made))

    def end_transaction(self) -> None:
        """Also one that has no transaction to end: coordinators repeat markers."""
        pid, commit = self.random.randint(10, 12), self.random.random() < 0.3
        made = memoryview(marker_batch(pid, 0, 0, commit=commit, now=self.now))
        end = self.log.end
        try:
            self.log.append_marker(made, epoch=LeaderEpoch(self.epoch), now=self.now)
        finally:
            if read_header(made).base_offset == end:
                self.history.append(bytes(made))

    def replicate(self) -> None:
        """As a follower: two batches at once, with the leader's offsets and epoch."""
        offset, data = self.log.end, b""
        for _ in range(2):
            made = batch(bytes(30), bytes(5), timestamp=self.now)
            made[0:8] = offset.to_bytes(8, "big")
            made[12:16] = self.epoch.to_bytes(4, "big")
            offset = Offset(offset + 2)
            data += made
            self.history.append(bytes(made))
        self.log.append_replicated(memoryview(data), now=self.now)

    def lead(self) -> None:
        self.epoch += 1

    def flush(self) -> None:
        flush = self.log.begin_flush()
        if flush is None:
            return
        if self.random.random() < 0.3:
            self.append()
        flush.run()
        self.log.finish_flush(flush)
        self.flushed = self.log.recovery_point

    def write_checkpoint(self) -> None:
        self.checkpoint = self.log.recovery_point, self.log.start

    def retain(self) -> None:
        self.log.retain(self.now, self.log.end)
        self.start = self.log.start

    def delete_records(self) -> None:
        self.log.advance_start(Offset(self.random.randint(self.log.start, self.log.end)))
        self.start = self.log.start

    def truncate(self) -> None:
        if self.log.end == self.log.start:
            return
        target = Offset(self.random.randint(max(self.log.start + 1, self.log.end - 20), self.log.end))
        self.flushed = min(self.flushed, self.log.start)
        self.earlier = self.history
        self.history = [data for data in self.history if read_header(data).next_offset <= target]
        # The checkpoint falls before the log does, and as far: a batch that reaches over the target goes, too.
        dropped = self.earlier[len(self.history) :]
        end = read_header(dropped[0]).base_offset if dropped else target
        self.checkpoint = min(self.checkpoint[0], Offset(end)), self.checkpoint[1]
        self.log.truncate_to(target)
        self.earlier = []
        assert self.checkpoint[0] <= self.log.recovery_point
        if self.log.start == self.log.end:
            self.start = self.log.start
        for producer in range(3):
            state = self.log.producers.by_id.get(producer)
            self.sequences[producer] = state.next_sequence if state else 0
        self.flushed = self.log.recovery_point

    def stop_and_start(self) -> None:
        self.log.close()
        self.flushed = self.log.end
        self.write_checkpoint()
        rescued = self.reopen(self.disk.crash(), clean=True)
        assert rescued.end == self.log.end
        assert stored_batches(rescued) == stored_batches(self.log)
        check_files(rescued)
        check_producers(rescued)
        check_transactions(rescued)
        assert _recent(rescued) == _recent(self.log)
        self.log = self.reopen(self.disk, clean=True)

    def reopen(self, disk: SimulatedDisk, *, clean: bool = False) -> Log:
        point, start = self.checkpoint
        return Log.open(
            disk, FOLDER, RETENTION, now=self.now, recovery_point=point, start_offset=start, clean=clean
        )

    def check_after_crash(self, disk: SimulatedDisk) -> None:
        log = self.reopen(disk)
        assert log.end >= self.flushed, "what was flushed is lost"
        assert self.checkpoint[1] <= log.start <= max(self.start, log.end)
        found = stored_batches(log)
        histories = [self.history, self.earlier] if self.earlier else [self.history]
        assert any(found == _between(history, log.start, log.end) for history in histories)
        check_files(log)
        check_producers(log)
        check_transactions(log)
        end = log.end
        assert append(log, b"goes on", epoch=self.epoch + 1, now=self.now) == end
        assert len(stored_batches(log)) == len(found) + 1
        check_files(log)


def _recent(log: Log) -> dict[int, tuple[Millis, list[StoredBatch]]]:
    return {pid: (state.appended, state.batches) for pid, state in log.producers.by_id.items()}


def _between(history: list[bytes], start: Offset, end: Offset) -> list[bytes]:
    if start == end:
        return []
    found: list[tuple[BatchHeader, bytes]] = [(read_header(data), data) for data in history]
    return [data for header, data in found if header.next_offset > start and header.base_offset < end]


def _lives(seed: int, steps: int, *, is_transactional: bool = False) -> Iterator[Story]:
    """The same story again and again, cut off at each operation in turn."""
    whole = Story(SimulatedDisk(), seed, is_transactional=is_transactional)
    whole.live(steps)
    for operation in range(whole.disk.operations, 8, -1):
        disk = SimulatedDisk()
        story = Story(disk, seed, is_transactional=is_transactional)
        disk.stop_at = operation
        with pytest.raises(PowerCut):
            story.live(steps)
        yield story


@pytest.fixture(params=["now and then", "always"])
def noted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often a flush syncs and notes the indexes of the active segment: these logs are far too small for it."""
    if request.param == "always":
        monkeypatch.setattr(log_module, "_NOTE_EVERY", 1)
        monkeypatch.setattr(log_module, "_NOTE_EVERY_PRODUCER", 0)


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_operation_loses_nothing_that_was_flushed(seed: int) -> None:
    for story in _lives(seed, steps=60):
        for survival in SURVIVALS:
            story.check_after_crash(story.disk.crash(survival, seed=seed * 1000 + story.disk.operations))


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("seed", range(10, 12))
def test_a_crash_at_any_operation_leaves_transactions_as_their_batches_say(seed: int) -> None:
    for story in _lives(seed, steps=70, is_transactional=True):
        for survival in SURVIVALS:
            story.check_after_crash(story.disk.crash(survival, seed=seed * 1000 + story.disk.operations))


@pytest.mark.usefixtures("noted")
def test_a_crash_during_recovery_changes_nothing_about_what_is_recovered() -> None:
    for number, story in enumerate(_lives(seed=5, steps=60)):
        if number % 9:
            continue
        crashed = story.disk.crash(Survival.PREFIX, seed=number)
        story.reopen(crashed)
        for operation in range(1, crashed.operations + 1):
            again = story.disk.crash(Survival.PREFIX, seed=number)
            again.stop_at = operation
            with pytest.raises(PowerCut):
                story.reopen(again)
            for survival in SURVIVALS:
                story.check_after_crash(again.crash(survival, seed=operation))


@pytest.mark.usefixtures("noted")
def test_what_was_lost_does_not_come_back_under_what_was_written_instead() -> None:
    for number, story in enumerate(_lives(seed=6, steps=40)):
        disk = story.disk.crash(Survival.PREFIX, seed=number)
        log = story.reopen(disk)
        assert log.recovery_point >= story.checkpoint[0]
        written = stored_batches(log)
        for _ in range(6):
            made = batch(b"after the first crash", timestamp=story.now)
            log.append(made, epoch=LeaderEpoch(story.epoch + 1), now=story.now)
            written.append(bytes(made))
        for survival in SURVIVALS:
            rescued = story.reopen(disk.crash(survival, seed=number))
            assert stored_batches(rescued) == _between(written, rescued.start, rescued.end)
            check_files(rescued)
            check_producers(rescued)


def _cleaned_log(disk: SimulatedDisk) -> tuple[Log, list[Segment], list[Segment]]:
    """A log of several segments, three neighbours among them, and what a cleaner would make of those."""
    disk.make_dir(FOLDER)
    disk.sync_dir("data")
    disk.sync_dir("")
    log = Log.open(disk, FOLDER, SMALL, now=NOW)
    for number in range(60):
        append(log, b"%d" % number * 30, timestamp=NOW + number)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.finish_flush(flush)
    old = list(log.segments[1:4])
    new = []
    for base, sources in ((old[0].base, old[:2]), (old[2].base, old[2:])):
        cleaned = Segment.create(disk, FOLDER, base, NOW, CLEANED)
        for segment in sources:
            for position, header in list(segment.headers())[:-1:2]:
                data = segment.read_batch(position, header.size)
                cleaned.append(data, header.last_offset, Millis(header.max_timestamp), 150)
        cleaned.seal()
        for file in cleaned.files():
            file.sync()
        new.append(cleaned)
    return log, old, new


def test_a_crash_while_cleaned_segments_are_swapped_in_leaves_the_old_or_the_new() -> None:
    disk = SimulatedDisk()
    log, old, new = _cleaned_log(disk)
    before = stored_batches(log)
    begun = disk.operations
    log.replace_segments(old, new)
    after = stored_batches(log)
    assert len(after) < len(before)
    check_files(log)
    outcomes = set()
    for operation in range(begun + 1, disk.operations + 1):
        disk_then = SimulatedDisk()
        log_then, old, new = _cleaned_log(disk_then)
        disk_then.stop_at = operation
        with pytest.raises(PowerCut):
            log_then.replace_segments(old, new)
        for survival in [*SURVIVALS, Survival.EVERYTHING]:
            for point in (Offset(0), log.recovery_point):
                crashed = disk_then.crash(survival, seed=operation)
                rescued = Log.open(crashed, FOLDER, SMALL, now=NOW, recovery_point=point)
                found = stored_batches(rescued)
                assert found in (before, after)
                outcomes.add(len(found))
                check_files(rescued)
                assert not any(name.endswith((".cleaned", ".swap")) for name in crashed.list(FOLDER))
    assert outcomes == {len(before), len(after)}


def test_a_swap_that_fails_half_way_is_finished_when_the_log_is_opened_again() -> None:
    disk = SimulatedDisk()
    log, old, new = _cleaned_log(disk)
    begun = disk.operations
    log.replace_segments(old, new)
    after = stored_batches(log)
    for operation in range(begun + 1, disk.operations + 1):
        failing = SimulatedDisk()
        log_then, old, new = _cleaned_log(failing)
        before = stored_batches(log_then)
        failing.fail_at = operation
        try:
            log_then.replace_segments(old, new)
        except Refused as refused:
            assert refused.code is Code.KAFKA_STORAGE_ERROR  # noqa: PT017
        assert stored_batches(log_then) in (before, after)
        reopened = Log.open(failing, FOLDER, SMALL, now=NOW)
        assert stored_batches(reopened) in (before, after)
        check_files(reopened)

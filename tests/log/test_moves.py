"""Replicas that move to another data directory, step by step on a disk that forgets: whole in one of the two."""

# mypy: disable-error-code="arg-type,dict-item"
# Offsets and times are plain numbers in here.

import errno
import logging
from random import Random
from uuid import UUID

import pytest

from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log.cleaner import Cleaner
from barnabas.log.copying import SourceFailed
from barnabas.log.directories import Directories
from barnabas.log.log import Log
from barnabas.log.moves import FUTURE, LAST_BYTES, Move
from barnabas.testing.disk import PowerCut, SimulatedDisk, SimulatedFile, Survival
from barnabas.types import LeaderEpoch, Millis, Offset, TopicPartition
from barnabas.wire.batch import Record, encode_batch, read_header
from tests.log.batches import (
    NOW,
    append,
    batch,
    check_files,
    check_producers,
    check_transactions,
    end_transaction,
    stored_batches,
    values_of,
    write_in_transaction,
)

TOPIC, OTHER = UUID(int=7), UUID(int=8)
T0 = TopicPartition("t", 0)
SMALL = TopicConfig(segment_bytes=700, index_interval_bytes=150, max_message_bytes=600)
SURVIVALS = [Survival.NOTHING, Survival.PREFIX, Survival.SECTORS, Survival.EVERYTHING]


class FixedClock:
    def now(self) -> Millis:
        return NOW


def open_all(disk: SimulatedDisk, *paths: str) -> Directories:
    directories = Directories.open(disk, paths or ("/a", "/b"), node_id=1, clock=FixedClock())
    directories.set_aside_strays({T0: TOPIC})
    for log in directories.logs.values():
        log.config = SMALL
    return directories


def made(disk: SimulatedDisk | None = None, count: int = 30) -> Directories:
    """Two directories, and a partition of several segments in the first."""
    directories = open_all(disk or SimulatedDisk())
    log = directories.create(T0, SMALL, TOPIC)
    for number in range(count):
        append(log, b"%d" % number * 20, timestamp=NOW + number)
    return directories


def asked(directories: Directories, path: str = "/b") -> Move:
    move = directories.moves.ask(T0, path)
    assert move is not None
    directories.moves.make(move, TOPIC)
    directories.moves.made(move)
    return move


def settle(directories: Directories, move: Move) -> bool:
    """What the broker does while it keeps flushes away; whether the copy is the log now."""
    move.is_arriving = True
    settling = move.copy.begin_settling()
    checkpoints = directories.begin_checkpoints(move.target, {T0: move.log.end})
    settling.run()
    for write in checkpoints:
        write()
    move.copy.finish_settling(settling)
    return directories.moves.swap(move)


def finish(directories: Directories, move: Move, slice_bytes: int = 500) -> None:
    while (piece := move.copy.begin(slice_bytes)) is not None:
        piece.run()
        move.copy.finish(piece)
    assert settle(directories, move)
    clear_up(directories)


def clear_up(directories: Directories) -> None:
    work = directories.moves.begin_clearing_up()
    if work is not None:
        work()


def folders(disk: SimulatedDisk, path: str) -> list[str]:
    return [name for name in disk.list(path) if name.startswith("t-")]


def test_a_moved_log_is_the_same_log_in_another_folder() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    log = directories.logs[T0]
    before, producers = stored_batches(log), dict(log.producers.by_id)
    finish(directories, asked(directories))
    assert directories.find(T0) is log
    assert log.directory == "/b/t-0"
    assert stored_batches(log) == before
    assert log.producers.by_id == producers
    check_files(log)
    assert folders(disk, "/a") == []
    assert folders(disk, "/b") == ["t-0"]
    append(log, b"after")
    log.flush()
    assert values_of(log)[-1] == b"after"
    again = open_all(disk.crash())
    assert values_of(again.logs[T0])[-1] == b"after"
    assert again.home(T0) is again.named("/b")


def test_what_was_aborted_goes_along() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    log = directories.logs[T0]

    def transactions(count: int) -> None:
        for number in range(count):
            write_in_transaction(log, b"no", pid=number % 3)
            end_transaction(log, number % 3, commit=False)

    transactions(15)
    write_in_transaction(log, b"open", pid=9)
    move = asked(directories)
    while (piece := move.copy.begin(500)) is not None:
        piece.run()
        move.copy.finish(piece)
    transactions(3)
    finish(directories, move)
    transactions(3)
    log.flush()
    wanted = [each for segment in log.segments for each in segment.aborted]
    assert len(wanted) == 21
    check_transactions(log)
    for crashed in (disk.crash(), disk.reopened()):
        again = open_all(crashed).logs[T0]
        assert [each for segment in again.segments for each in segment.aborted] == wanted
        for each in (log, again):
            each.producers.acknowledge(log.end)
            assert each.producers.first_unstable == 60, "what is open"
        check_transactions(again)


def test_what_is_written_while_a_log_is_copied_is_in_the_copy() -> None:
    directories = made()
    log, move = directories.logs[T0], asked(directories)
    number = 0
    while (piece := move.copy.begin(300)) is not None:
        if number < 40:
            append(log, b"new %d" % number)
        number += 1
        piece.run()
        move.copy.finish(piece)
    before = stored_batches(log)
    assert settle(directories, move)
    assert stored_batches(log) == before
    check_files(log)


def test_what_comes_between_the_settling_and_the_swap_is_in_the_copy() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    log, move = directories.logs[T0], asked(directories)
    move.is_arriving = True
    settling = move.copy.begin_settling()
    for write in (settling.run, *directories.begin_checkpoints(move.target, {})):
        append(log, b"between" * 20)
        write()
    move.copy.finish_settling(settling)
    before = stored_batches(log)
    assert directories.moves.swap(move)
    assert stored_batches(log) == before
    check_files(log)
    # All of it was written, and none of the last part was flushed: a kill costs nothing.
    assert stored_batches(open_all(disk.reopened()).logs[T0]) == before


def test_a_log_that_is_flushed_beyond_what_lasts_in_the_copy_does_not_move_yet() -> None:
    directories = made()
    log, move = directories.logs[T0], asked(directories)
    settling = move.copy.begin_settling()
    settling.run()
    move.copy.finish_settling(settling)
    append(log, b"flushed")
    log.flush()
    assert not directories.moves.swap(move)
    assert log.directory == "/a/t-0"
    assert settle(directories, move)


def test_a_log_with_too_much_to_copy_at_the_end_does_not_move_yet() -> None:
    directories = made()
    move = asked(directories)
    assert not move.copy.catch_up(LAST_BYTES)
    settling = move.copy.begin_settling()
    settling.run()
    move.copy.finish_settling(settling)
    append(directories.logs[T0], b"more")
    assert not move.copy.catch_up(1)
    assert move.copy.catch_up(LAST_BYTES)


def test_records_deleted_during_the_move_stay_deleted() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    log, move = directories.logs[T0], asked(directories)
    log.advance_start(5)
    move.is_arriving = True
    settling = move.copy.begin_settling()
    checkpoints = directories.begin_checkpoints(move.target, {})
    for write in (settling.run, *checkpoints):
        write()
    move.copy.finish_settling(settling)
    log.advance_start(12)
    assert not directories.moves.swap(move), "the new directory would bring records back"
    assert settle(directories, move)
    assert open_all(disk.crash()).logs[T0].start == 12


@pytest.mark.parametrize("cut_at", [3, 14, 29])
def test_a_cut_of_the_log_is_a_cut_of_the_copy(cut_at: int) -> None:
    directories = made()
    log, move = directories.logs[T0], asked(directories)
    while (piece := move.copy.begin(100_000)) is not None:
        piece.run()
        move.copy.finish(piece)
    log.lower_recovery_point(cut_at)
    log.truncate_to(cut_at)
    for number in range(20):
        append(log, b"other %d" % number * 10, epoch=1)
    before = stored_batches(log)
    finish(directories, move)
    assert stored_batches(log) == before
    assert log.epochs.latest == 1
    check_files(log)


def test_a_cut_while_a_slice_is_under_way_voids_the_slice() -> None:
    directories = made()
    log, move = directories.logs[T0], asked(directories)
    piece = move.copy.begin(100_000)
    assert piece is not None
    log.truncate_to(2)
    for number in range(40):
        append(log, b"other %d" % number * 10)
    piece.run()
    move.copy.finish(piece)
    before = stored_batches(log)
    finish(directories, move)
    assert stored_batches(log) == before


def test_a_log_that_starts_over_is_copied_anew() -> None:
    directories = made()
    log, move = directories.logs[T0], asked(directories)
    piece = move.copy.begin(100_000)
    assert piece is not None
    piece.run()
    log.start_over_at(100)
    move.copy.finish(piece)
    append(log, b"new")
    finish(directories, move)
    assert (log.start, log.end, values_of(log)) == (100, 101, [b"new"])
    check_files(log)


def test_what_retention_and_the_cleaner_take_leaves_the_copy() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    log, move = directories.logs[T0], asked(directories)
    while (piece := move.copy.begin(1000)) is not None:
        piece.run()
        move.copy.finish(piece)
    log.config = TopicConfig(
        segment_bytes=700, index_interval_bytes=150, max_message_bytes=600, retention_bytes=1500
    )
    assert log.retain(NOW, log.end)
    before = stored_batches(log)
    finish(directories, move)
    assert stored_batches(log) == before
    assert len([name for name in disk.list("/b/t-0") if name.endswith(".log")]) == len(log.segments)


def test_a_cleaning_that_a_swap_overtakes_changes_nothing() -> None:
    config = TopicConfig(
        segment_bytes=700, index_interval_bytes=150, max_message_bytes=600, cleanup_policy=("compact",)
    )
    directories = open_all(SimulatedDisk())
    log = directories.create(T0, config, TOPIC)
    for number in range(60):
        made_batch = encode_batch([Record(0, NOW, b"k%d" % (number % 3), b"%d" % number * 10)])
        log.append(memoryview(bytearray(made_batch)), epoch=LeaderEpoch(0), now=NOW)
    before = stored_batches(log)
    cleaning = Cleaner(directories.cleaned).begin(T0, log, NOW, below=log.end)
    assert cleaning is not None
    cleaning.run()
    finish(directories, asked(directories))
    cleaning.finish()
    assert cleaning.is_done
    assert stored_batches(log) == before
    again = Cleaner(directories.cleaned).begin(T0, log, NOW, below=log.end)
    assert again is not None
    while not again.is_done:
        again.run()
        again.finish()
    assert len(stored_batches(log)) < len(before)
    check_files(log)


def test_a_flush_that_a_swap_overtakes_says_nothing() -> None:
    directories = made()
    log = directories.logs[T0]
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    finish(directories, asked(directories))
    log.finish_flush(flush)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == log.end


def test_checkpoints_go_along() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    log = directories.logs[T0]
    log.flush()
    log.advance_start(4)
    directories.cleaned[T0] = Offset(7)
    finish(directories, asked(directories))
    again = open_all(disk.crash())
    assert again.logs[T0].start == 4
    assert again.logs[T0].recovery_point == 30
    assert again.high_watermarks == {T0: 30}
    assert again.cleaned == {T0: 7}


def test_a_move_is_shown_with_what_is_missing() -> None:
    directories = made()
    move = asked(directories)
    assert directories.usage()[1].futures[T0] == (0, 30)
    while (piece := move.copy.begin(600)) is not None:
        piece.run()
        move.copy.finish(piece)
        size, lag = directories.usage()[1].futures[T0]
        assert 0 <= lag < 30
        assert 0 < size <= move.log.size
    assert directories.usage()[1].futures[T0] == (move.log.size, 0)
    assert directories.usage()[0].partitions == {T0: move.log.size}
    assert directories.usage()[1].partitions == {}


# What is refused, cancelled, remembered


def test_directories_and_partitions_that_there_are_not_are_refused_with_kafkas_codes() -> None:
    directories = made()
    for tp, path, code in (
        (T0, "/c", Code.LOG_DIR_NOT_FOUND),
        (TopicPartition("u", 0), "/b", Code.REPLICA_NOT_AVAILABLE),
        (TopicPartition("x" * 249, 0), "/b", Code.INVALID_TOPIC_EXCEPTION),
    ):
        with pytest.raises(Refused) as refused:
            directories.moves.ask(tp, path)
        assert refused.value.code is code
    directories.offline("/b", OSError(errno.EIO, "gone"))
    with pytest.raises(Refused) as refused:
        directories.moves.ask(T0, "/b")
    assert refused.value.code is Code.KAFKA_STORAGE_ERROR


def test_a_partition_that_is_not_here_yet_is_made_where_it_was_wished() -> None:
    directories = made()
    for number in range(1, 5):
        with pytest.raises(Refused):
            directories.moves.ask(TopicPartition("t", number), "/a")
        directories.create(TopicPartition("t", number), SMALL, TOPIC)
    assert len(directories.usage()[0].partitions) == 5
    with pytest.raises(Refused):
        directories.moves.ask(TopicPartition("t", 9), "/a")
    for make in directories.begin_making([(TopicPartition("t", 9), TOPIC)]):
        make()
    assert directories.create(TopicPartition("t", 9), SMALL, TOPIC).directory == "/a/t-9"


def test_a_wish_for_the_directory_that_a_replica_is_in_ends_its_move() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    move = asked(directories)
    piece = move.copy.begin(100)
    assert piece is not None
    assert directories.moves.ask(T0, "/b") is None, "it is on its way there"
    assert directories.moves.ask(T0, "/a") is None
    assert move.is_over
    with pytest.raises(FileNotFoundError):
        piece.run()
    clear_up(directories)
    assert folders(disk, "/b") == []
    assert directories.moves.under_way == {}
    assert directories.logs[T0].on_cut is None


def test_another_directory_takes_the_place_of_the_first() -> None:
    disk = SimulatedDisk()
    directories = open_all(disk, "/a", "/b", "/c")
    append(directories.create(T0, SMALL, TOPIC), b"v")
    first = asked(directories)
    second = asked(directories, "/c")
    assert first.is_over
    finish(directories, second)
    assert [folders(disk, path) for path in ("/a", "/b", "/c")] == [[], [], ["t-0"]]


def test_a_replica_moves_there_and_back_and_there() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    before = stored_batches(directories.logs[T0])
    for path in ("/b", "/a", "/b"):
        finish(directories, asked(directories, path))
    assert stored_batches(directories.logs[T0]) == before
    assert stored_batches(open_all(disk.crash()).logs[T0]) == before


def test_a_deletion_removes_both() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    move = asked(directories)
    piece = move.copy.begin(1000)
    assert piece is not None
    piece.run()
    directories.delete(T0)
    clear_up(directories)
    assert move.is_over
    assert folders(disk, "/a") == folders(disk, "/b") == []
    directories.create(T0, SMALL, OTHER)


# Failures


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_target_that_is_full_or_fails_costs_the_partition_nothing(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """At each of its operations, one after the other."""
    failed = 0
    for at in range(1, 1000):
        disk = SimulatedDisk()
        directories = made(disk)
        log, before = directories.logs[T0], stored_batches(directories.logs[T0])
        log.flush()
        directories.checkpoint()
        move = directories.moves.ask(T0, "/b")
        assert move is not None
        disk.fail_at, disk.error = disk.operations + at, number
        caplog.clear()
        try:
            directories.moves.make(move, TOPIC)
            directories.moves.made(move)
            finish(directories, move)
            is_done = True
        except (OSError, SourceFailed) as error:
            directories.moves.made(move)
            directories.moves.fail(move, error)
            failed += 1
            is_done = False
        assert disk.fail_at is not None
        if disk.operations < disk.fail_at:
            break
        if disk.history[disk.fail_at - 1][1].startswith("/b"):
            assert directories.find(T0) is log
            assert stored_batches(log) == before
            if not is_done:
                assert log.directory == "/a/t-0"
                told = [
                    each
                    for each in caplog.records
                    if each.levelno >= logging.ERROR and "moved" in each.message
                ]
                assert len(told) == 1
        if directories.find(T0) is log:
            append(log, b"after")
            log.flush()
            after = stored_batches(log)
            directories.checkpoint()
            again = open_all(disk.crash(Survival.EVERYTHING))
            assert stored_batches(again.logs[T0]) == after, disk.history[disk.fail_at - 1]
    assert failed > 20


def test_a_failed_source_ends_the_move(caplog: pytest.LogCaptureFixture) -> None:
    directories = made()
    move = asked(directories)
    directories.offline("/a", OSError(errno.EIO, "gone"))
    assert move.is_over
    assert "t-0 is not moved to /b" in caplog.text


# Restarts


def test_a_move_goes_on_after_a_restart() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    before = stored_batches(directories.logs[T0])
    move = asked(directories)
    piece = move.copy.begin(2000)
    assert piece is not None
    piece.run()
    again = open_all(disk.reopened())
    (resumed,) = again.moves.resume()
    assert resumed.tp == T0
    finish(again, resumed)
    assert stored_batches(again.logs[T0]) == before
    assert again.logs[T0].directory == "/b/t-0"


def test_what_is_left_of_a_move_that_nothing_can_come_of_goes() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    target = directories.named("/b")
    assert target is not None
    for name, topic, number in (("u-0", TOPIC, 1), ("t-0", OTHER, 1), ("t-0", TOPIC, 0)):
        target.make_future(f"{name}.{topic.int:031x}{number}{FUTURE}", topic, number)
    after = disk.reopened()
    again = open_all(after)
    assert again.moves.resume() == []
    clear_up(again)
    assert [name for name in after.list("/b") if "-0" in name] == []


class WithoutA(SimulatedDisk):
    """One whose first directory does not work."""

    def lock(self, path: str) -> SimulatedFile:
        if path.startswith("/a"):
            raise OSError(errno.EIO, "gone", path)
        return super().lock(path)


def test_nothing_goes_while_the_log_may_be_in_a_directory_that_is_offline() -> None:
    disk = SimulatedDisk()
    directories = made(disk)
    asked(directories)
    after = WithoutA()
    after._root = disk.reopened()._root
    again = open_all(after)
    assert again.moves.resume() == []
    clear_up(again)
    assert [name.endswith(FUTURE) for name in folders(after, "/b")] == [True]


# Power cuts


class Story:
    """A log that is written, flushed, trimmed and cut while it moves back and forth."""

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.random = Random(seed)
        self.history: list[bytes] = []
        self.flushed = 0
        self.sequence = 0
        self.directories = open_all(disk)
        self.log: Log = self.directories.create(T0, SMALL, TOPIC)
        self.moved = 0

    def append(self) -> None:
        size = self.random.randint(1, 3)
        made_batch = batch(
            *(bytes(self.random.randint(1, 60)) for _ in range(size)), pid=5, sequence=self.sequence
        )
        self.sequence += size
        end = self.log.end
        try:
            self.log.append(made_batch, epoch=LeaderEpoch(self.moved), now=NOW)
        finally:
            if read_header(made_batch).base_offset == end:
                self.history.append(bytes(made_batch))

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point

    def checkpoint(self) -> None:
        self.directories.checkpoint({T0: Offset(self.flushed)})

    def live(self, moves: int) -> None:
        for number in range(moves):
            for _ in range(self.random.randint(3, 10)):
                self.append()
            move = asked(self.directories, "/a" if number % 2 else "/b")
            while True:
                self.random.choice([self.append, self.append, self.flush, self.checkpoint])()
                piece = move.copy.begin(self.random.randint(1, 900))
                if piece is None or self.random.random() < 0.1:
                    if settle(self.directories, move):
                        break
                    continue
                self.random.choice([self.append, lambda: None])()
                piece.run()
                move.copy.finish(piece)
            self.moved += 1
            self.random.choice([self.append, self.flush, lambda: None])()
            clear_up(self.directories)

    def check(self, disk: SimulatedDisk) -> None:
        directories = open_all(disk)
        log = directories.logs[T0]
        found = stored_batches(log)
        assert found == self.history[: len(found)]
        assert log.end >= self.flushed
        assert log.recovery_point <= log.end
        check_files(log)
        check_producers(log)
        for move in directories.moves.resume():
            finish(directories, move)
            assert stored_batches(directories.logs[T0]) == found
        clear_up(directories)
        names = folders(disk, "/a") + folders(disk, "/b")
        assert names == ["t-0"], names


@pytest.mark.parametrize("seed", range(3))
def test_the_power_goes_at_every_operation_of_a_move(seed: int) -> None:
    disk = SimulatedDisk()
    story = Story(disk, seed)
    begin = disk.operations
    story.live(3)
    story.check(disk.reopened())
    for stop_at in range(begin + 1, disk.operations + 1):
        disk_of_this = SimulatedDisk()
        broken = Story(disk_of_this, seed)
        disk_of_this.stop_at = stop_at
        with pytest.raises(PowerCut):
            broken.live(3)
        survival = SURVIVALS[stop_at % len(SURVIVALS)]
        broken.check(disk_of_this.crash(survival, seed=stop_at))


@pytest.mark.parametrize("seed", range(3))
def test_the_process_dies_at_every_operation_of_a_move_and_nothing_is_lost(seed: int) -> None:
    disk = SimulatedDisk()
    story = Story(disk, seed)
    begin = disk.operations
    story.live(2)
    for stop_at in range(begin + 1, disk.operations + 1):
        disk_of_this = SimulatedDisk()
        broken = Story(disk_of_this, seed)
        disk_of_this.stop_at = stop_at
        with pytest.raises(PowerCut):
            broken.live(2)
        after = disk_of_this.reopened()
        directories = open_all(after)
        found = stored_batches(directories.logs[T0])
        # The last may have been on its way when the process died.
        assert found in (broken.history, broken.history[:-1])

"""Index files beside the active segment, and notes of them: little is read again, no lost entry is believed."""

from struct import pack

import pytest

from barnabas.config import TopicConfig
from barnabas.disk import read_whole
from barnabas.log import log as log_module
from barnabas.log.index_notes import NAME, IndexNote, IndexNotes
from barnabas.log.log import Log
from barnabas.log.segment import name_of
from barnabas.testing.disk import SimulatedDisk, SimulatedFile, Survival
from barnabas.types import LeaderEpoch, Millis, Offset
from tests.log.batches import NOW, append, batch, check_files, stored_batches

FOLDER = "data/topic-0"
WIDE = TopicConfig(segment_bytes=20_000, index_interval_bytes=500)


class CountedFile(SimulatedFile):
    def pread(self, size: int, position: int) -> bytes:
        data = super().pread(size, position)
        assert isinstance(self._disk, CountingDisk)
        self._disk.bytes_read += len(data)
        return data


class CountingDisk(SimulatedDisk):
    """Counts the bytes that are read from it."""

    bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        return CountedFile(self, path, super().open(path, create=create)._use())


def _made(disk: SimulatedDisk) -> SimulatedDisk:
    disk.make_dir(FOLDER)
    disk.sync_dir("data")
    disk.sync_dir("")
    return disk


def _flush(log: Log) -> None:
    flush = log.begin_flush()
    if flush is not None:
        flush.run()
        log.finish_flush(flush)


def _sizes(disk: SimulatedDisk, base: int = 0) -> dict[str, int]:
    return {
        ending: len(read_whole(disk, f"{FOLDER}/{name_of(base, ending)}"))
        for ending in (".index", ".timeindex")
    }


def test_a_new_segment_has_its_index_files_at_once() -> None:
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, WIDE, now=NOW)
    assert _sizes(disk) == {".index": 0, ".timeindex": 0}
    while len(log.segments) == 1:
        append(log, bytes(200))
    assert _sizes(disk, log.segments[-1].base) == {".index": 0, ".timeindex": 0}


def test_a_checkpoint_brings_the_index_files_up_to_date() -> None:
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, WIDE, now=NOW)
    for _ in range(2):
        for _ in range(20):
            append(log, bytes(200), timestamp=log.end)
        log.write_indexes()
        active = log.segments[0]
        assert _sizes(disk) == {".index": 8 * len(active.offsets), ".timeindex": 12 * len(active.times)}
        assert len(active.offsets) > 5
        check_files(log)
    operations = disk.operations
    log.write_indexes()
    assert disk.operations == operations, "where nothing is new nothing is written"


def _large(disk: SimulatedDisk) -> Log:
    """A log of one large segment, flushed, with something behind that."""
    log = Log.open(disk, FOLDER, TopicConfig(), now=NOW)
    for number in range(600):
        made = batch(bytes(64_000), timestamp=NOW + number, pid=7, sequence=number)
        log.append(made, epoch=LeaderEpoch(number // 50), now=NOW)
        if number % 10 == 9 and number < 595:
            _flush(log)
    return log


def test_of_a_large_active_segment_only_what_follows_its_last_note_is_read() -> None:
    disk = _made(CountingDisk())
    log = _large(disk)
    before, point, size = stored_batches(log, 1 << 20), log.recovery_point, log.size
    assert len(log.segments) == 1
    assert size > 38_000_000
    for seed, survival in enumerate([Survival.EVERYTHING, Survival.PREFIX, Survival.NOTHING]):
        crashed = disk.crash(survival, seed)
        counting = CountingDisk()
        counting._root = crashed._root
        opened = Log.open(counting, FOLDER, TopicConfig(), now=NOW, recovery_point=point)
        if survival is Survival.EVERYTHING:
            # kill -9: at most 4 MiB before the last flush and what came behind it, once whole and once for producers.
            assert counting.bytes_read < 2 * (5_000_000 + size - point * 64_000) < size // 3
        assert opened.end >= point
        assert opened.epochs.entries == log.epochs.entries
        assert stored_batches(opened, 1 << 20) == before[: opened.end]
        check_files(opened)
        assert opened.producers.by_id[7].next_sequence == opened.end


def test_notes_survive_what_a_crash_leaves_of_them() -> None:
    disk = _made(SimulatedDisk())
    notes = IndexNotes(disk, FOLDER)
    made = [IndexNote(Offset(0), Offset(n), n * 100, n * 8, n * 12) for n in range(1, 5)]
    for note in made:
        notes.add([note], [Offset(0)])
    whole = read_whole(disk, f"{FOLDER}/{NAME}")
    for length in range(len(whole) + 1):
        file = disk.open(f"{FOLDER}/{NAME}")
        file.truncate(0)
        file.append(whole[:length])
        found = IndexNotes(disk, FOLDER)
        kept = made[: length // (len(whole) // 4)]
        assert found.newest(Offset(0)) == (kept[-1] if kept else None)
        found.add([made[3]], [Offset(0)])
        assert IndexNotes(disk, FOLDER).newest(Offset(0)) == made[3]
    damaged = bytearray(whole)
    damaged[-3] ^= 1
    file = disk.open(f"{FOLDER}/{NAME}")
    file.truncate(0)
    file.append(damaged)
    assert IndexNotes(disk, FOLDER).newest(Offset(0)) == made[2]


def test_a_note_above_the_recovery_point_does_not_count() -> None:
    disk = _made(SimulatedDisk())
    notes = IndexNotes(disk, FOLDER)
    made = [IndexNote(Offset(0), Offset(n * 10), n * 100, n * 8, n * 12) for n in range(1, 5)]
    notes.add(made, [Offset(0)])
    assert notes.newest_below(Offset(0), Offset(25)) == made[1]
    assert notes.newest_below(Offset(0), Offset(5)) is None
    assert notes.newest_below(Offset(7), Offset(25)) is None
    notes.drop_above(Offset(35))
    assert notes.newest(Offset(0)) == IndexNotes(disk.crash(), FOLDER).newest(Offset(0)) == made[2]


def test_the_file_of_notes_does_not_grow_for_ever() -> None:
    disk = _made(SimulatedDisk())
    notes = IndexNotes(disk, FOLDER)
    for base in range(10_000):
        bases = [Offset(each) for each in range(max(0, base - 5), base + 1)]
        notes.add([IndexNote(Offset(base), Offset(base + 1), 100, 8, 12)], bases)
    assert len(read_whole(disk, f"{FOLDER}/{NAME}")) < 60_000
    again = IndexNotes(disk, FOLDER)
    for base in range(9_995, 10_000):
        assert again.newest(Offset(base)) == (base, base + 1, 100, 8, 12, 0)


def _jumping(disk: SimulatedDisk) -> Log:
    """A closed log of several segments whose timestamps go back in the second half of each."""
    log = Log.open(disk, FOLDER, WIDE, now=NOW)
    for number in range(600):
        made = batch(b"x" * 40, timestamp=NOW + (number % 50 if number % 100 < 50 else -number))
        log.append(made, epoch=LeaderEpoch(0), now=NOW)
    log.close()
    return log


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("point", [None, 600])
def test_an_index_cut_between_two_entries_is_made_again(ending: str, which: int, point: int | None) -> None:
    disk = SimulatedDisk()
    log = _jumping(disk)
    assert len(log.segments) > 2
    segment = log.segments[which]
    path = f"{FOLDER}/{name_of(segment.base, ending)}"
    whole, newest = read_whole(disk, path), segment.max_timestamp
    entry = 8 if ending == ".index" else 12
    for kept in range(0, len(whole) - entry, entry):
        disk.open(path).truncate(kept)
        opened = Log.open(disk, FOLDER, WIDE, now=NOW, clean=point is None, recovery_point=Offset(point or 0))
        assert opened.segments[which].max_timestamp == newest
        check_files(opened)
        opened.close()
        assert read_whole(disk, path) == whole


def test_without_a_note_the_last_batches_tell_of_a_cut_time_index() -> None:
    """As in a folder that Kafka wrote, or we before there were notes."""
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, WIDE, now=NOW)
    for number in range(600):
        append(log, b"x" * 40, timestamp=NOW + number)
    log.close()
    path = f"{FOLDER}/{name_of(0, '.timeindex')}"
    whole = read_whole(disk, path)
    disk.open(path).truncate(len(whole) - 12)
    disk.remove(f"{FOLDER}/{NAME}")
    opened = Log.open(disk, FOLDER, WIDE, now=NOW, clean=True)
    assert read_whole(disk, path) == whole
    check_files(opened)


def test_notes_of_what_was_truncated_are_not_believed_of_what_came_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "_NOTE_EVERY", 1)
    disk = _made(SimulatedDisk())
    log = Log.open(disk, FOLDER, WIDE, now=NOW)
    for number in range(60):
        append(log, bytes(100), timestamp=NOW + number)
        _flush(log)
    log.truncate_to(Offset(30))
    for number in range(40):
        append(log, bytes(100), timestamp=NOW + 1000 - number)
    monkeypatch.setattr(log_module, "_NOTE_EVERY", 1 << 30)
    _flush(log)
    written = stored_batches(log)
    for seed in range(30):
        rescued = Log.open(
            disk.crash(Survival.SECTORS, seed), FOLDER, WIDE, now=NOW, recovery_point=log.recovery_point
        )
        assert stored_batches(rescued) == written
        check_files(rescued)


def test_an_index_entry_that_was_never_synced_is_not_believed() -> None:
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, WIDE, now=NOW)
    for number in range(60):
        append(log, bytes(100), timestamp=NOW + number)
    _flush(log)
    disk.open(f"{FOLDER}/{name_of(0, '.index')}").append(pack(">ii", 59, 1) + bytes(40))
    opened = Log.open(disk, FOLDER, WIDE, now=Millis(NOW), recovery_point=log.recovery_point)
    check_files(opened)
    assert len(stored_batches(opened)) == 60

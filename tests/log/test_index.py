"""A sparse index: Kafka's bytes, found by halves, in memory or in its file, and never wrong after a cut."""

import errno
from bisect import bisect_right
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from barnabas.disk import read_whole
from barnabas.log.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from barnabas.testing.disk import SimulatedDisk

ENTRIES = st.lists(st.integers(0, 5000), unique=True, max_size=1500).map(sorted)


def _filled(firsts: list[int], written: int) -> SparseIndex:
    """An index whose first `written` entries are in its file; the second number is ten times the first."""
    index = SparseIndex(SimulatedDisk(), "x.index", OFFSET_ENTRY)
    for number, first in enumerate(firsts):
        if number == written:
            index.write()
        index.append(first, first * 10)
    return index


@given(ENTRIES, st.integers(0, 1500), st.lists(st.integers(-1, 5001), max_size=20))
def test_the_last_entry_not_above_is_found_wherever_it_is_kept(
    firsts: list[int], written: int, wanted: list[int]
) -> None:
    index = _filled(firsts, written)
    for first in wanted:
        number = bisect_right(firsts, first)
        assert index.find(first) == ((firsts[number - 1], firsts[number - 1] * 10) if number else None)


@given(ENTRIES, st.integers(0, 1500), st.integers(0, 50_000))
def test_a_cut_leaves_exactly_what_lies_before_it(firsts: list[int], written: int, second: int) -> None:
    index = _filled(firsts, written)
    index.cut(second)
    kept = [(first, first * 10) for first in firsts if first * 10 < second]
    assert [index[i] for i in range(len(index))] == kept
    assert index.last == (kept[-1] if kept else None)
    index.append(6000, 60_000)
    index.write()
    index.release()
    assert [index[i] for i in range(len(index))] == [*kept, (6000, 60_000)]


def test_the_bytes_are_kafkas() -> None:
    disk = SimulatedDisk()
    offsets = SparseIndex(disk, "0.index", OFFSET_ENTRY)
    offsets.append(41, 4097)
    offsets.write()
    times = SparseIndex(disk, "0.timeindex", TIME_ENTRY)
    times.append(1_700_000_000_000, 41)
    times.write()
    assert read_whole(disk, "0.index") == pack(">ii", 41, 4097)
    assert read_whole(disk, "0.timeindex") == pack(">qi", 1_700_000_000_000, 41)


def test_an_index_comes_back_from_its_file() -> None:
    disk = SimulatedDisk()
    index = SparseIndex(disk, "0.index", OFFSET_ENTRY)
    for number in range(2000):
        index.append(number, number * 2)
    index.write()
    loaded = SparseIndex.load(disk, "0.index", OFFSET_ENTRY)
    assert loaded is not None
    assert len(loaded) == 2000
    assert loaded.find(1234) == (1234, 2468)


def test_a_file_that_ends_inside_an_entry_is_not_believed() -> None:
    disk = SimulatedDisk()
    disk.open("0.index", create=True).append(bytes(12))
    assert SparseIndex.load(disk, "0.index", OFFSET_ENTRY) is None
    assert SparseIndex.load(disk, "1.index", OFFSET_ENTRY) is None


def test_memory_stays_small_however_many_entries_there_are() -> None:
    disk = SimulatedDisk()
    index = SparseIndex(disk, "0.index", OFFSET_ENTRY)
    for number in range(20_000):
        index.append(number, number)
    # 64 KiB at most wait in memory: the file has the others.
    assert disk.open("0.index").size >= 20_000 * 8 - 65_536
    assert index.find(3) == (3, 3)
    assert index.find(19_999) == (19_999, 19_999)


def test_a_full_disk_does_not_fail_an_entry() -> None:
    disk = SimulatedDisk()
    disk.capacity = 0
    index = SparseIndex(disk, "0.index", OFFSET_ENTRY)
    for number in range(10_000):
        index.append(number, number)
    assert index.find(9_999) == (9_999, 9_999)
    disk.capacity = None
    assert index.write().size == 80_000


def test_what_a_namesake_left_behind_is_not_taken_over() -> None:
    disk = SimulatedDisk()
    disk.open("0.index", create=True).append(bytes(800))
    index = SparseIndex(disk, "0.index", OFFSET_ENTRY)
    index.append(1, 1)
    assert index.write().size == 8


def test_a_write_that_fails_can_be_tried_again() -> None:
    disk = SimulatedDisk()
    index = SparseIndex(disk, "0.index", OFFSET_ENTRY)
    index.append(1, 1)
    disk.broken = OSError(errno.EIO, "broken")
    try:
        index.write()
    except OSError as error:
        assert error.errno == errno.EIO  # noqa: PT017
    disk.broken = None
    assert index.write().size == 8

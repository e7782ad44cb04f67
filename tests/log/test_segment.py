"""One segment: batches found by offset and by time, indexes in step with the file, cuts that leave no trace."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import Code, Refused
from barnabas.log.segment import DELETED, Segment, name_of
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import Millis, Offset
from barnabas.wire.batch import Record, encode_batch, read_header
from tests.log.batches import NOW

INTERVAL = 200


def _put(segment: Segment, first: int, count: int = 1, *, timestamp: int = NOW, size: int = 20) -> bytes:
    records = [Record(first + i, timestamp, None, bytes(size)) for i in range(count)]
    data = encode_batch(records, base_offset=first)
    segment.append(data, Offset(first + count - 1), Millis(timestamp), INTERVAL)
    return data


def _segment(base: int = 0) -> Segment:
    return Segment.create(SimulatedDisk(), "", Offset(base), NOW)


def test_names_have_twenty_digits() -> None:
    assert name_of(42, ".log") == "00000000000000000042.log"
    assert _segment(7).path.endswith("/00000000000000000007.log")


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 300)), min_size=1, max_size=60)
)
def test_every_offset_leads_to_the_batch_that_has_it_or_follows_it(shape: list[tuple[int, int, int]]) -> None:
    segment = _segment(100)
    following: list[tuple[int, int]] = []
    offset = 100
    for count, gap, size in shape:
        position = segment.size
        data = _put(segment, offset + gap, count, size=size)
        following += [(position, len(data))] * (gap + count)
        offset += gap + count
    for number, place in enumerate(following):
        assert segment.locate(Offset(100 + number)) == place
    assert segment.locate(Offset(offset)) is None
    assert segment.end == offset


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(-1, 41), st.integers(0, 70))
def test_batches_are_found_by_time(timestamps: list[int], wanted: int, start: int) -> None:
    segment = _segment()
    for offset, timestamp in enumerate(timestamps):
        _put(segment, offset, timestamp=timestamp)
    found = [header.base_offset for _, header in segment.reaching(Millis(wanted), Offset(start))]
    due = [offset for offset, timestamp in enumerate(timestamps) if timestamp >= wanted and offset >= start]
    assert found[:1] == due[:1]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 59), st.booleans())
def test_after_a_cut_nothing_tells_that_there_ever_was_more(
    timestamps: list[int], keep: int, sealed: bool
) -> None:
    cut, never = _segment(), _segment()
    for offset, timestamp in enumerate(timestamps):
        _put(cut, offset, timestamp=timestamp)
        if offset < keep:
            _put(never, offset, timestamp=timestamp)
    if sealed:
        cut.seal()
    place = cut.locate(Offset(keep))
    if place is not None:
        cut.cut(place[0])
    for segment in (cut, never):
        _put(segment, keep, timestamp=20)
        _put(segment, keep + 1, timestamp=50)
    if place is None:
        return
    assert (cut.size, cut.end) == (never.size, never.end)
    assert (cut.max_timestamp, cut.max_timestamp_offset) == (never.max_timestamp, never.max_timestamp_offset)
    assert cut.first_timestamp == never.first_timestamp
    assert [cut.offsets[i] for i in range(len(cut.offsets))] == [
        never.offsets[i] for i in range(len(never.offsets))
    ]


def test_a_sealed_time_index_ends_with_the_largest_timestamp() -> None:
    segment = _segment()
    for offset, timestamp in enumerate([5, 9, 7, 8]):
        _put(segment, offset, timestamp=timestamp)
    segment.seal()
    assert segment.times.last == (9, 1)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (9, 1)


def test_entries_lie_an_interval_apart() -> None:
    segment = _segment()
    for offset in range(50):
        _put(segment, offset)
    entries = [segment.offsets[i] for i in range(len(segment.offsets))]
    assert len(entries) > 5
    for (_, before), (relative, position) in zip([(0, 0), *entries], entries, strict=False):
        assert position - before > INTERVAL
        assert read_header(segment.read_batch(position, 61)).last_offset == relative


def test_a_write_that_fails_leaves_no_trace() -> None:
    disk = SimulatedDisk()
    segment = Segment.create(disk, "", Offset(0), NOW)
    _put(segment, 0)
    before = segment.size, segment.end, segment.max_timestamp
    disk.capacity = disk.used() + 10
    with pytest.raises(OSError, match="No space left") as full:
        _put(segment, 1, timestamp=NOW + 9)
    assert full.value.errno == errno.ENOSPC
    assert (segment.size, segment.end, segment.max_timestamp) == before
    disk.capacity = None
    _put(segment, 1)
    assert segment.locate(Offset(1)) is not None


def test_a_slice_of_a_removed_segment_can_still_be_read() -> None:
    segment = _segment()
    data = _put(segment, 0)
    segment.seal()
    file = segment.file
    segment.remove()
    assert file.pread(len(data), 0) == data
    assert segment.disk.list("") == []


def test_a_removed_segment_is_gone_at_once_even_if_its_files_cannot_be() -> None:
    disk = SimulatedDisk()
    segment = Segment.create(disk, "", Offset(0), NOW)
    segment.seal()
    disk.fail_at = disk.operations + 2
    segment.remove()
    assert disk.list("") == [name_of(0, ".log") + DELETED]


def test_a_place_without_a_batch_is_a_storage_error() -> None:
    segment = _segment()
    _put(segment, 0)
    segment.file.append(bytes(100))
    segment.size += 100
    with pytest.raises(Refused) as refused:
        segment.locate(Offset(5))
    assert refused.value.code is Code.KAFKA_STORAGE_ERROR


def test_a_filled_segment_reaches_the_next() -> None:
    segment = _segment()
    _put(segment, 0)
    segment.fill_to(Offset(10), INTERVAL)
    assert segment.end == 10
    headers = [header for _, header in segment.headers()]
    assert [(header.base_offset, header.last_offset, header.count) for header in headers] == [
        (0, 0, 1),
        (1, 9, 0),
    ]

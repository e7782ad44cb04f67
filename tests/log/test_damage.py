"""A damaged header below the recovery point costs its own batch: nothing behind it is cut, and readers get past it."""

import logging

import pytest

from barnabas.config import TopicConfig
from barnabas.disk import read_whole
from barnabas.errors import Refused
from barnabas.log.log import Log
from barnabas.log.segment import name_of
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Offset
from barnabas.wire.batch import BatchHeader, read_header
from tests.log.batches import NOW, append, batch, check_files, stored_batches

FOLDER = "data/topic-7"
CONFIG = TopicConfig(segment_bytes=1 << 20, index_interval_bytes=500)
HARM = {
    "length": (8, b"\xff"),
    "small length": (8, bytes(4)),
    "another length": (10, b"\x01"),
    "magic": (16, b"\x07"),
    "offset": (0, b"\x70"),
    "older offset": (7, b"\x00"),
    "count of offsets": (23, b"\x00\x00\x20\x00"),
    "everything": (0, bytes(61)),
    "more than one": (0, b"\xee" * 200),
}


def _filled(disk: SimulatedDisk, *, flush: bool = True) -> tuple[list[bytes], list[tuple[int, BatchHeader]]]:
    """One segment of forty batches of three records, on the disk, left by a crash; the batches and where they are."""
    log = Log.open(disk, FOLDER, CONFIG, now=NOW)
    for number in range(40):
        made = batch(b"a%d" % number, b"b", b"c", timestamp=NOW + number, pid=8, sequence=number * 3)
        log.append(made, epoch=LeaderEpoch(number // 20), now=NOW)
    if flush:
        trip = log.begin_flush()
        assert trip is not None
        trip.run()
        log.finish_flush(trip)
    return stored_batches(log), list(log.segments[0].headers())


def _overwrite(disk: SimulatedDisk, position: int, data: bytes) -> None:
    path = f"{FOLDER}/{name_of(0, '.log')}"
    old = read_whole(disk, path)
    file = disk.open(path)
    file.truncate(position)
    file.append(data + old[position + len(data) :])


def _open(disk: SimulatedDisk, point: int) -> Log:
    return Log.open(disk, FOLDER, CONFIG, now=NOW, recovery_point=Offset(point))


def _readable(log: Log, offset: int) -> bytes | None:
    """The batch that answers a read of an offset, if one that holds it is found."""
    try:
        piece = log.read(Offset(offset), 1, log.end)
        data = piece.read() if piece else b""
    except (Refused, OSError):
        return None
    return data if len(data) >= 61 and read_header(data).base_offset <= offset else None


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("which", [0, 1, 17, 38])
@pytest.mark.parametrize("point", [120, 117])
def test_a_damaged_header_costs_its_batch(
    harm: str, which: int, point: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    before, places = _filled(disk)
    at, data = HARM[harm]
    _overwrite(disk, places[which][0] + at, data)
    lost = {which, *(n for n in range(40) if places[which][0] <= places[n][0] < places[which][0] + len(data))}
    with caplog.at_level(logging.ERROR, "barnabas.log"):
        log = _open(disk, point)
    end = 117 if 39 in lost and point == 117 else 120
    assert (log.start, log.end) == (0, end)
    if lost != {which} or harm not in ("older offset",):
        assert "cannot be read" in caplog.text
    for number in set(range(40)) - lost:
        for offset in range(number * 3, number * 3 + 3):
            assert _readable(log, offset) == before[number], (number, offset)
    if 39 not in lost:
        assert log.producers.by_id[8].next_sequence == 120
    assert append(log, b"on", epoch=2) == end
    log.close()
    again = Log.open(disk, FOLDER, CONFIG, now=NOW, clean=True)
    assert again.end == end + 1
    for number in set(range(40)) - lost:
        assert _readable(again, number * 3 + 1) == before[number]
    assert again.find_timestamp(NOW, again.end) is not None


@pytest.mark.parametrize("torn", [0, 40, 300])
def test_damage_up_to_the_end_ends_the_segment_at_the_recovery_point(torn: int) -> None:
    """Offsets that were acknowledged and flushed are not given to other records, though their own are lost."""
    disk = SimulatedDisk()
    before, places = _filled(disk)
    _overwrite(disk, places[39][0], bytes(61))
    disk.open(f"{FOLDER}/{name_of(0, '.log')}").append(bytes(torn))
    size = len(read_whole(disk, f"{FOLDER}/{name_of(0, '.log')}"))
    log = _open(disk, 120)
    assert [(segment.base, segment.end) for segment in log.segments] == [(0, 120), (120, 120)]
    assert len(read_whole(disk, f"{FOLDER}/{name_of(0, '.log')}")) == size, "nothing is cut"
    assert [_readable(log, number * 3) for number in range(39)] == before[:39]
    assert _readable(log, 118) is None
    assert append(log, b"on", epoch=2) == 120
    for clean in (False, True):
        again = Log.open(disk, FOLDER, CONFIG, now=NOW, recovery_point=Offset(120), clean=clean)
        assert again.end == 121
        again.close()


def test_above_the_recovery_point_damage_still_ends_the_log() -> None:
    disk = SimulatedDisk()
    before, places = _filled(disk, flush=False)
    _overwrite(disk, places[20][0], bytes(61))
    log = _open(disk, 60)
    assert log.end == 60
    assert stored_batches(log) == before[:20]
    check_files(log)


def test_a_gap_that_reaches_over_the_recovery_point_ends_the_log_there() -> None:
    """What lies behind it may have come to the disk before what was lost."""
    disk = SimulatedDisk()
    before, places = _filled(disk, flush=False)
    _overwrite(disk, places[20][0], bytes(places[25][0] - places[20][0]))
    log = _open(disk, 63)
    assert (log.end, len(log.segments)) == (63, 2)
    assert [_readable(log, number * 3) for number in range(20)] == before[:20]

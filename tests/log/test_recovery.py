"""Opening a log again: a torn tail is cut and never served, what was flushed is not even read, nothing is left over."""

import logging
import tracemalloc
from pathlib import Path
from struct import pack

import pytest

from barnabas.config import TopicConfig
from barnabas.disk import RealDisk, read_whole
from barnabas.errors import Refused
from barnabas.log.log import Log
from barnabas.log.segment import name_of
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.batch import Record, encode_batch, read_header
from tests.log.batches import (
    NOW,
    SMALL,
    append,
    batch,
    check_files,
    check_producers,
    stored_batches,
    values_of,
)

FOLDER = "data/topic-7"


def _filled(disk: SimulatedDisk, count: int = 60) -> Log:
    """A closed log of several segments, written by a producer under two epochs."""
    log = Log.open(disk, FOLDER, SMALL, now=NOW)
    for number in range(count):
        made = batch(b"%d" % number * 20, timestamp=NOW + number, pid=8, sequence=number)
        log.append(made, epoch=LeaderEpoch(number // 30), now=NOW)
    log.close()
    return log


def _open(disk: SimulatedDisk, *, clean: bool = False, point: int = 0, start: int = 0) -> Log:
    return Log.open(
        disk,
        FOLDER,
        SMALL,
        now=NOW,
        clean=clean,
        recovery_point=Offset(point),
        start_offset=Offset(start),
    )


def _overwrite(disk: SimulatedDisk, name: str, position: int, data: bytes) -> None:
    path = f"{FOLDER}/{name}"
    old = read_whole(disk, path)
    file = disk.open(path)
    file.truncate(position)
    file.append(data + old[position + len(data) :])


def _check(log: Log) -> None:
    check_files(log)
    check_producers(log)


@pytest.mark.parametrize("torn", [1, 11, 60, 61, 62, 90])
def test_a_torn_tail_is_cut(torn: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    disk.open(log.segments[-1].path).append(before[-1][:torn])
    with caplog.at_level(logging.WARNING, "barnabas.log"):
        log = _open(disk)
    assert stored_batches(log) == before
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"topic-7: cut {torn} torn or corrupt bytes")
    assert line.endswith("goes on at offset 60")
    _check(log)


def test_everything_behind_a_corrupt_batch_goes(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    third = log.segments[2]
    _, (position, header) = list(third.headers())[:2]
    _overwrite(disk, name_of(third.base, ".log"), position + 70, b"\xff")
    with caplog.at_level(logging.WARNING, "barnabas.log"):
        log = _open(disk)
    assert log.end == header.base_offset
    assert stored_batches(log) == before[: header.base_offset]
    assert "segments removed behind it" in caplog.records[-1].getMessage()
    assert log.epochs.entries == [(0, 0)]
    _check(log)
    assert append(log, b"on") == header.base_offset
    _check(_open(disk))


def test_what_lies_below_the_recovery_point_is_not_read() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    first = log.segments[0]
    _overwrite(disk, name_of(0, ".log"), first.size - 5, b"\xff\xff")
    log = _open(disk, point=first.end + 1)
    assert log.end == 60


def test_after_a_clean_stop_nothing_is_checked_or_written() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    operations = disk.operations
    log = _open(disk, clean=True)
    assert stored_batches(log) == before
    log.close()
    assert disk.operations == operations
    _check(log)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["missing", "odd", "beyond"])
def test_an_index_that_cannot_be_right_is_made_again(clean: bool, ending: str, harm: str) -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    size = {segment.base: segment.size for segment in log.segments}
    for segment in log.segments:
        path = f"{FOLDER}/{name_of(segment.base, ending)}"
        if harm == "missing":
            disk.remove(path)
        elif harm == "odd":
            disk.open(path).append(b"abc")
        elif ending == ".index":
            disk.open(path).append(pack(">ii", 2**30, size[segment.base]))
        else:
            disk.open(path).append(pack(">qi", NOW * 2, 2**30))
    log = _open(disk, clean=clean, point=60)
    assert log.end == 60
    _check(log)


def test_a_clean_stop_is_not_believed_against_all_appearances() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    disk.open(log.segments[-1].path).append(bytes(200))
    log = _open(disk, clean=True)
    assert stored_batches(log) == before
    _check(log)


def test_without_snapshots_the_producers_are_read_from_the_batches() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    _keep_folder(disk)
    for name in disk.list(FOLDER):
        if name.endswith(".snapshot"):
            disk.remove(f"{FOLDER}/{name}")
    log = _open(disk, clean=True)
    assert log.producers.by_id[8].next_sequence == 60
    assert len(log.producers.by_id[8].batches) == 5
    _check(log)


def test_a_broken_snapshot_gives_way_to_an_older_one() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    _overwrite(disk, name_of(60, ".snapshot"), 20, b"\xff\xff")
    log = _open(disk, clean=True)
    assert name_of(60, ".snapshot") not in disk.list(FOLDER)
    assert name_of(log.segments[-1].base, ".snapshot") in disk.list(FOLDER)
    _check(log)


def test_a_snapshot_of_what_is_no_more_is_not_believed() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    last = log.segments[-1]
    disk.open(last.path).truncate(0)
    log = _open(disk)
    assert log.end == last.base
    assert not [name for name in disk.list(FOLDER) if name > name_of(log.end, ".snapshot") and "snap" in name]
    _check(log)


@pytest.mark.parametrize("harm", ["missing", "corrupt"])
def test_leader_epochs_are_read_from_the_batches(harm: str) -> None:
    disk = SimulatedDisk()
    _filled(disk)
    disk.remove(f"{FOLDER}/leader-epoch-checkpoint")
    if harm == "corrupt":
        disk.open(f"{FOLDER}/leader-epoch-checkpoint", create=True).append(b"\0\0\0\0")
    assert _open(disk).epochs.entries == [(0, 0), (1, 30)]


def test_a_segment_that_does_not_follow_goes() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    lost = log.segments[3]
    disk.remove(lost.path)
    log = _open(disk)
    assert log.end == lost.base
    _check(log)


def test_batches_of_an_older_epoch_behind_newer_ones_go() -> None:
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, SMALL, now=NOW)
    append(log, b"a", epoch=5)
    stale = encode_batch([Record(1, NOW, None, b"stale")], base_offset=1, leader_epoch=4)
    disk.open(log.segments[-1].path).append(stale)
    assert values_of(_open(disk)) == [b"a"]


def test_leftovers_are_swept_up() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    names = disk.list(FOLDER)
    for name in (
        name_of(0, ".log.deleted"),
        name_of(3, ".index.deleted"),
        name_of(0, ".log.cleaned"),
        name_of(0, ".index.cleaned"),
        name_of(30, ".log.swap"),
        name_of(77, ".index"),
        name_of(77, ".timeindex"),
        name_of(2, ".timeindex.swap"),
        "leader-epoch-checkpoint.tmp",
    ):
        disk.open(f"{FOLDER}/{name}", create=True).append(b"left over")
    log = _open(disk)
    assert disk.list(FOLDER) == names
    assert log.end == 60
    _check(log)


def test_a_log_whose_start_is_behind_its_end_begins_there() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    log = _open(disk, start=100)
    assert (log.start, log.end, log.size) == (100, 100, 0)
    assert append(log, b"next") == 100
    _check(log)


def test_what_was_deleted_stays_deleted() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    log = _open(disk, start=25)
    assert log.start == 25
    assert len(values_of(log)) == 35


def test_a_new_partition_may_begin_anywhere() -> None:
    disk = SimulatedDisk()
    assert (_open(disk, start=5).start, _open(disk, start=5).end) == (5, 5)
    assert disk.list(FOLDER) == [name_of(5, ending) for ending in (".index", ".log", ".timeindex")]


def test_recovery_needs_little_memory_whatever_the_batches_claim(tmp_path: Path) -> None:
    disk, folder = RealDisk(), str(tmp_path / "topic-7")
    config = TopicConfig(max_message_bytes=20_000_000)
    log = Log.open(disk, folder, config, now=NOW)
    for _ in range(2):
        append(log, bytes(9_000_000))
        append(log, b"small")
    torn = bytearray(encode_batch([Record(4, NOW, None, b"x")], base_offset=4))
    torn[8:12] = (2**31 - 1).to_bytes(4, "big")
    log.segments[-1].file.append(torn)
    tracemalloc.start()
    try:
        log = Log.open(disk, folder, config, now=NOW)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert log.end == 4
    check_files(log)


def test_a_corrupt_batch_larger_than_a_read_is_found() -> None:
    disk = SimulatedDisk()
    config = TopicConfig(max_message_bytes=20_000_000)
    log = Log.open(disk, FOLDER, config, now=NOW)
    append(log, b"small")
    append(log, bytes(3_000_000))
    _overwrite(disk, name_of(0, ".log"), 2_500_000, b"\xff")
    log = Log.open(disk, FOLDER, config, now=NOW)
    assert log.end == 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["record", "length"])
def test_what_is_damaged_below_the_recovery_point_takes_nothing_with_it(
    clean: bool, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its index was to be made again, and the first bad sum was once taken for the end of the log."""
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    bases = [segment.base for segment in log.segments]
    second = log.segments[1]
    _, (position, header) = list(second.headers())[:2]
    place = position + (70 if harm == "record" else 8)
    _overwrite(disk, name_of(second.base, ".log"), place, b"\xff")
    disk.remove(f"{FOLDER}/{name_of(second.base, '.index')}")
    log = _open(disk, clean=clean, point=60)
    assert [segment.base for segment in log.segments] == bases
    assert (log.start, log.end) == (0, 60)
    third = log.segments[2]
    piece = log.read(third.base, 10_000, log.end)
    assert piece is not None
    assert piece.read().startswith(before[third.base])
    assert ("cannot be read" in caplog.text) == (harm == "length")
    assert log.read(Offset(0), 1, log.end) is not None
    if harm == "length":
        with pytest.raises(Refused, match="holds no record batch"):
            log.read(Offset(header.base_offset), 1, log.end)
    following = log.read(Offset(header.base_offset + 1), 1, log.end)
    assert following is not None
    assert following.read() == before[header.base_offset + 1]
    assert append(log, b"on") == 60


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_an_index_that_was_emptied_is_made_again(ending: str) -> None:
    disk = SimulatedDisk()
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=500)
    log = Log.open(disk, FOLDER, config, now=NOW)
    for number in range(600):
        log.append(batch(b"x" * 40, timestamp=NOW + number), epoch=LeaderEpoch(0), now=NOW)
    log.close()
    assert len(log.segments) > 2
    whole = {}
    for segment in log.segments[:-1]:
        path = f"{FOLDER}/{name_of(segment.base, ending)}"
        whole[path] = read_whole(disk, path)
        assert whole[path]
        disk.open(path).truncate(0)
    log = Log.open(disk, FOLDER, config, now=NOW, clean=True)
    assert log.find_timestamp(Millis(NOW + 10), log.end) == (NOW + 10, 10)
    assert {path: read_whole(disk, path) for path in whole} == whole


def _stored_up_to(log: Log, end: int) -> list[bytes]:
    """The batches of a log that can be read one after the other from its start to this offset."""
    found, offset = [], log.start
    while offset < end and (piece := log.read(offset, 1, log.end)) is not None:
        data = bytes(piece.read())
        if read_header(data).base_offset >= end:
            break
        found.append(data)
        offset = read_header(data).next_offset
    return found


def _keep_folder(disk: SimulatedDisk) -> None:
    """Let the folder itself outlive a power cut, as the data directories do."""
    disk.sync_dir("data")
    disk.sync_dir("")


def _lose(disk: SimulatedDisk, log: Log, loss: str) -> tuple[int, int]:
    """Take the end of the last segment away; the first offset that is gone, and the size of the file then."""
    last = log.segments[-1]
    places = list(last.headers())
    path = f"{FOLDER}/{name_of(last.base, '.log')}"
    number = {"all": 0, "some": len(places) // 2, "zeroed": len(places) // 2}.get(loss, len(places) - 1)
    position, header = places[number]
    match loss:
        case "torn":
            disk.open(path).truncate(last.size - 30)
        case "zeroed":
            _overwrite(disk, name_of(last.base, ".log"), position, bytes(last.size - position))
        case "header":
            _overwrite(disk, name_of(last.base, ".log"), position + 8, b"\x7f\xff\xff\xff")
        case "file":
            disk.remove(path)
            return last.base, -1
        case _:
            disk.open(path).truncate(position)
    return header.base_offset, len(read_whole(disk, path))


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("loss", ["torn", "last", "some", "all", "file", "zeroed", "header"])
def test_a_log_that_lost_flushed_records_goes_on_at_the_recovery_point(
    loss: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """After a clean stop as after a crash: offsets that were flushed are never given to other records."""
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    _keep_folder(disk)
    first, size = _lose(disk, log, loss)
    path = log.segments[-1].path
    with caplog.at_level(logging.ERROR, "barnabas.log"):
        log = _open(disk, clean=clean, point=60)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"records from offset {first} to 59 " in line
    if loss in ("last", "some", "all", "file"):
        assert line.endswith("of topic-7 are gone: the file is shorter than what was flushed")
    assert size < 0 or len(read_whole(disk, path)) == size, "nothing is cut"
    assert (log.end, log.recovery_point, log.segments[-1].base) == (60, 60, 60)
    assert _stored_up_to(log, first) == before[:first]
    assert append(log, b"on", epoch=2) == 60
    log.flush()
    for number, disk_then in enumerate([disk.crash(), disk.crash(), disk]):
        again = _open(disk_then, clean=number == 1, point=60 + number // 2)
        assert again.end == 61
        assert _stored_up_to(again, first) == before[:first]
        piece = again.read(Offset(60), 1, again.end)
        assert piece is not None
        assert read_header(bytes(piece.read())).base_offset == 60


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("start", [0, 20, 60, 70])
def test_a_log_whose_files_are_all_gone_goes_on_at_the_recovery_point(start: int, clean: bool) -> None:
    disk = SimulatedDisk()
    _filled(disk)
    _keep_folder(disk)
    for name in disk.list(FOLDER):
        disk.remove(f"{FOLDER}/{name}")
    log = _open(disk, clean=clean, point=60, start=start)
    assert log.end == log.start == max(start, 60)
    assert append(log, b"on") == max(start, 60)
    log.flush()
    assert _open(disk.crash(), point=60, start=start).end == max(start, 60) + 1


def test_a_last_segment_that_lost_its_end_is_cut_where_no_recovery_point_is_known() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    last = log.segments[-1]
    disk.open(last.path).truncate(last.size - 30)
    log = _open(disk, clean=True)
    assert stored_batches(log) == before[:59]
    assert append(log, b"on") == 59
    _check(_open(disk))


def test_a_batch_whose_offset_no_segment_could_hold_is_not_believed() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    last = log.segments[-1]
    *_, (position, _) = last.headers()
    _overwrite(disk, name_of(last.base, ".log"), position, b"\x00\x00\x01")
    log = _open(disk)
    assert stored_batches(log) == before[:59]
    assert append(log, b"on") == 59


@pytest.mark.parametrize("point", [0, 57, 60])
def test_a_record_damaged_below_the_recovery_point_ends_nothing(point: int) -> None:
    """In the segment of the recovery point, too: what was forced to disk behind it is there."""
    disk = SimulatedDisk()
    log = _filled(disk)
    before = stored_batches(log)
    last = log.segments[-1]
    (position, header), *_ = last.headers()
    assert header.base_offset < 57 < log.end
    _overwrite(disk, name_of(last.base, ".log"), position + 70, b"\xff")
    log = _open(disk, point=point)
    assert log.end == (60 if point else header.base_offset)
    if point:
        piece = log.read(Offset(59), 1, log.end)
        assert piece is not None
        assert piece.read() == before[-1]
    assert append(log, b"on") == log.end - 1


def test_a_record_damaged_after_a_clean_stop_ends_nothing_though_an_index_is_gone() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)
    last = log.segments[-1]
    (position, _), *_ = last.headers()
    _overwrite(disk, name_of(last.base, ".log"), position + 70, b"\xff")
    disk.remove(f"{FOLDER}/{name_of(last.base, '.index')}")
    assert _open(disk, clean=True).end == 60


def test_all_five_batches_of_a_producer_are_known_after_a_clean_stop() -> None:
    disk = SimulatedDisk()
    _filled(disk)
    log = _open(disk, clean=True)
    for number in range(55, 60):
        again = batch(b"%d" % number * 20, timestamp=NOW + number, pid=8, sequence=number)
        assert log.append(again, epoch=LeaderEpoch(1), now=NOW) == (number, number, -1, True)
    with pytest.raises(Refused, match="sequence 54 where 60 is due"):
        log.append(batch(pid=8, sequence=54), epoch=LeaderEpoch(1), now=NOW)


@pytest.mark.parametrize("harm", ["missing", "cut", "damaged", "empty", "of another version"])
def test_without_our_file_kafkas_snapshot_counts(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    _filled(disk)
    name = name_of(60, ".producers")
    if harm == "missing":
        disk.remove(f"{FOLDER}/{name}")
    elif harm == "damaged":
        _overwrite(disk, name, 40, b"\xff\xff")
    elif harm == "of another version":
        _overwrite(disk, name, 0, b"\x00\x63")
    else:
        disk.open(f"{FOLDER}/{name}").truncate(50 if harm == "cut" else 0)
    log = _open(disk, clean=True)
    assert [stored.first for stored in log.producers.by_id[8].batches] == [59]
    assert ("only the last batch is known" in caplog.text) == (harm != "missing")
    _check(log)
    log.close()
    assert name_of(60, ".producers") in disk.list(FOLDER)
    assert not [each for each in caplog.records if each.levelno > logging.WARNING]


def test_a_producer_of_old_records_is_known_over_a_restart_for_as_long_as_it_was_to_be() -> None:
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, SMALL, now=NOW)
    log.append(batch(timestamp=NOW - 10**9, pid=8), epoch=LeaderEpoch(0), now=NOW)
    log.close()
    log = Log.open(disk, FOLDER, SMALL, now=Millis(NOW + 500), clean=True)
    assert log.producers.expire(Millis(NOW + 999), expiration_ms=1000) == 0
    assert log.producers.expire(Millis(NOW + 1000), expiration_ms=1000) == 1


@pytest.mark.parametrize("left", ["snapshot", "nothing"])
def test_an_append_whose_time_nothing_tells_counts_as_of_the_recovery(left: str) -> None:
    disk = SimulatedDisk()
    log = Log.open(disk, FOLDER, SMALL, now=NOW)
    log.append(batch(timestamp=NOW - 10**9, pid=8), epoch=LeaderEpoch(0), now=NOW)
    if left == "snapshot":
        log.close()
        disk.remove(f"{FOLDER}/{name_of(1, '.producers')}")
    log = Log.open(disk, FOLDER, SMALL, now=Millis(NOW + 500))
    assert log.producers.expire(Millis(NOW + 1499), expiration_ms=1000) == 0
    assert log.producers.expire(Millis(NOW + 1500), expiration_ms=1000) == 1


def test_our_file_goes_with_kafkas_snapshot() -> None:
    disk = SimulatedDisk()
    log = _filled(disk)

    def offsets(ending: str) -> list[int]:
        return [int(name.removesuffix(ending)) for name in disk.list(FOLDER) if name.endswith(ending)]

    assert offsets(".snapshot") == offsets(".producers") == [*(s.base for s in log.segments[1:]), 60]
    log = _open(disk, clean=True)
    log.truncate_to(Offset(41))
    assert offsets(".snapshot") == offsets(".producers")
    assert max(offsets(".producers")) <= 41
    log.advance_start(Offset(25))
    log.retain(NOW, log.end)
    assert offsets(".snapshot") == offsets(".producers")
    assert min(offsets(".producers")) >= log.segments[0].base
    disk.open(f"{FOLDER}/{name_of(77, '.producers')}", create=True).append(b"left over")
    log.close()
    log = _open(disk, clean=True)
    assert offsets(".snapshot") == offsets(".producers")
    log.start_over_at(Offset(100))
    assert offsets(".snapshot") == offsets(".producers") == []

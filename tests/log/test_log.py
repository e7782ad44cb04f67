"""One partition's log: what goes in comes out, in order and at its offset, whatever happens in between."""

import errno
from dataclasses import replace
from random import Random
from struct import pack_into

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config import TopicConfig
from barnabas.disk import RealDisk, SyncFailed
from barnabas.errors import Code, Refused
from barnabas.log.log import Log
from barnabas.log.records import record_section
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.batch import (
    MAX_TIMESTAMP_AT,
    BatchHeader,
    Record,
    decode_batch,
    encode_batch,
    headers,
    read_header,
    seal,
)
from barnabas.wire.compression import Compression
from tests.log.batches import (
    FOLDER,
    NOW,
    SMALL,
    append,
    batch,
    check_files,
    check_producers,
    filled_log,
    open_log,
    stored_batches,
    values_of,
)

EPOCH = LeaderEpoch(3)


def test_offsets_are_dense_and_written_into_the_batches() -> None:
    log = open_log()
    assert log.append(batch(b"a", b"b"), epoch=EPOCH, now=NOW) == (0, 1, -1, False)
    assert log.append(batch(b"c"), epoch=EPOCH, now=NOW) == (2, 2, -1, False)
    assert [(h.base_offset, h.leader_epoch) for h in map(read_header, stored_batches(log))] == [
        (0, 3),
        (2, 3),
    ]
    assert values_of(log) == [b"a", b"b", b"c"]
    assert (log.start, log.end, log.unflushed) == (0, 3, 3)


def test_a_refused_batch_leaves_no_trace() -> None:
    log = open_log()
    append(log, b"good")
    files = {name: log._disk.open(f"{FOLDER}/{name}").size for name in log._disk.list(FOLDER)}
    broken = batch(b"bad", pid=4)
    broken[70] ^= 1
    for bad in (broken, batch(b"x" * 5000), memoryview(bytearray(10))):
        with pytest.raises(Refused):
            log.append(bad, epoch=EPOCH, now=NOW)
    assert (log.end, log.epochs.latest, len(log.producers)) == (1, 0, 0)
    assert {name: log._disk.open(f"{FOLDER}/{name}").size for name in log._disk.list(FOLDER)} == files


def own(log: Log, *values: bytes) -> bytes:
    """A batch as the leader makes it: at its place."""
    records = [Record(log.end + n, NOW, b"key", value) for n, value in enumerate(values)]
    return encode_batch(records, base_offset=log.end, leader_epoch=EPOCH)


def test_the_leaders_own_batches_are_stored_like_those_of_producers() -> None:
    one, other = open_log(), open_log()
    for number in range(40):
        values = [b"%d" % number] * (1 + number % 3)
        one.append_own(own(one, *values), len(values), epoch=EPOCH, now=NOW)
        other.append(memoryview(bytearray(own(other, *values))), epoch=EPOCH, now=NOW, internal=True)
    assert stored_batches(one) == stored_batches(other)
    assert (one.end, one.size, one.epochs.entries) == (other.end, other.size, other.epochs.entries)
    assert len(one.segments) == len(other.segments) > 1
    check_files(one)


def test_the_leaders_own_batches_obey_the_topics_settings() -> None:
    config = replace(SMALL, message_timestamp_type="LogAppendTime", compression_type="gzip")
    log = open_log(config)
    log.append_own(own(log, b"a" * 200), 1, epoch=EPOCH, now=Millis(NOW + 5))
    header = read_header(stored_batches(log)[0])
    assert (header.is_log_append_time, header.max_timestamp, header.codec) == (
        True,
        NOW + 5,
        Compression.GZIP,
    )
    with pytest.raises(Refused) as refused:
        open_log().append_own(own(open_log(), b"x" * 5000), 1, epoch=EPOCH, now=NOW)
    assert refused.value.code is Code.MESSAGE_TOO_LARGE


def test_a_retried_batch_is_stored_once_and_answered_with_its_first_offset() -> None:
    log = open_log()
    append(log, b"somebody else")
    first = log.append(batch(b"a", b"b", pid=9), epoch=EPOCH, now=NOW)
    log.append(batch(b"c", pid=9, sequence=2), epoch=EPOCH, now=NOW)
    again = log.append(batch(b"a", b"b", pid=9), epoch=EPOCH, now=NOW)
    assert (again.first, again.last, again.duplicate) == (first.first, first.last, True)
    assert values_of(log) == [b"somebody else", b"a", b"b", b"c"]
    with pytest.raises(Refused) as refused:
        log.append(batch(b"z", pid=9, sequence=7), epoch=EPOCH, now=NOW)
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end == 4


def test_log_append_time_is_the_brokers() -> None:
    log = open_log(TopicConfig(message_timestamp_type="LogAppendTime"))
    assert log.append(batch(b"a", timestamp=5), epoch=EPOCH, now=NOW).append_time == NOW
    assert log.max_timestamp(log.end) == (NOW, 0)


def test_a_new_leader_epoch_begins_where_it_first_writes() -> None:
    log = open_log()
    append(log, b"a", epoch=1)
    append(log, b"b", epoch=1)
    append(log, b"c", epoch=4)
    assert log.epochs.entries == [(1, 0), (4, 2)]


def test_a_replica_is_byte_for_byte_the_same() -> None:
    leader, follower = filled_log(), open_log()
    while (part := leader.read(follower.end, 900, leader.end)) is not None:
        follower.append_replicated(memoryview(bytearray(part.read())), now=NOW)
    assert stored_batches(follower) == stored_batches(leader)
    assert follower.epochs.entries == leader.epochs.entries
    check_files(follower)


@pytest.mark.parametrize("harm", ["crc", "gap back"])
def test_a_replica_refuses_what_does_not_follow(harm: str) -> None:
    log = open_log()
    append(log, b"here")
    data = bytearray(encode_batch([Record(1, NOW, None, b"x")], base_offset=1 if harm == "crc" else 0))
    if harm == "crc":
        data[65] ^= 1
    with pytest.raises(Refused):
        log.append_replicated(memoryview(data), now=NOW)
    assert log.end == 1


@pytest.mark.parametrize("offset", [9, 61, -1])
def test_outside_the_log_there_is_nothing_to_read(offset: int) -> None:
    log = filled_log()
    log.advance_start(Offset(10))
    with pytest.raises(Refused) as refused:
        log.read(Offset(offset), 1000, log.end)
    assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
    assert log.read(log.end, 1000, log.end) is None


def test_nothing_at_or_above_the_watermark_is_ever_read() -> None:
    log = filled_log()
    for below in range(log.end + 1):
        for offset in range(log.end + 1):
            part = log.read(Offset(offset), 5000, Offset(below))
            if offset >= below:
                assert part is None
                continue
            assert part is not None
            found = [header for _, header in headers(part.read())]
            assert found[0].base_offset == offset
            assert found[-1].last_offset < below


def test_the_first_batch_comes_whole_however_little_was_asked_for() -> None:
    log = filled_log()
    for offset in range(log.end):
        part = log.read(Offset(offset), 1, log.end)
        assert part is not None
        (found,) = decode_batch(part.read())
        assert found.offset == offset


def test_a_read_begins_with_the_batch_that_has_the_offset() -> None:
    log = open_log()
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    part = log.read(Offset(2), 10_000, log.end)
    assert part is not None
    assert [header.base_offset for _, header in headers(part.read())] == [0, 3]


def test_the_first_record_not_older_than_a_time_is_found() -> None:
    random = Random(7)
    log = open_log()
    stamps: list[int] = []
    while len(stamps) < 200:
        first = NOW + len(stamps) + random.randint(-40, 40)
        count = random.randint(1, 4)
        append(log, *[b"v" * random.randint(1, 60)] * count, timestamp=first)
        stamps += range(first, first + count)
    for wanted in range(NOW - 50, NOW + 260):
        for start, below in ((0, log.end), (57, log.end), (0, 120), (57, 120)):
            log.start = Offset(start)
            due = [(stamp, o) for o, stamp in enumerate(stamps) if stamp >= wanted and start <= o < below]
            assert log.find_timestamp(Millis(wanted), Offset(below)) == (due[0] if due else None)
    log.start = Offset(0)
    assert log.max_timestamp(log.end) == (max(stamps), stamps.index(max(stamps)))


def test_the_largest_time_is_sought_from_the_start_of_the_log_on() -> None:
    log = open_log(TopicConfig())
    for offset, timestamp in enumerate([5, 9, 7, 8]):
        append(log, b"x", timestamp=timestamp)
        assert log.end == offset + 1
    log.advance_start(Offset(2))
    assert log.max_timestamp(log.end) == (8, 3)
    assert open_log().max_timestamp(Offset(0)) is None


def test_a_flush_makes_everything_before_it_last() -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    disk.sync_dir("data")
    disk.sync_dir("")
    for number in range(30):
        append(log, b"x" * 40, timestamp=NOW + number, epoch=number // 10)
    flush = log.begin_flush()
    assert flush is not None
    append(log, b"late")
    flush.run()
    log.finish_flush(flush)
    assert (log.recovery_point, log.unflushed) == (30, 1)
    rescued = open_log(disk=disk.crash(), recovery_point=30)
    assert rescued.end == 30
    assert rescued.epochs.entries == [(0, 0), (1, 10), (2, 20)]
    check_files(rescued)


def test_a_flush_of_what_was_truncated_meanwhile_says_nothing() -> None:
    log = filled_log()
    flush = log.begin_flush()
    assert flush is not None
    log.truncate_to(Offset(40))
    for _ in range(30):
        append(log, b"other")
    flush.run()
    log.finish_flush(flush)
    assert log.recovery_point == 0


def test_what_is_flushed_is_not_flushed_again() -> None:
    log = filled_log()
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.finish_flush(flush)
    assert log.begin_flush() is None


def test_a_full_disk_refuses_writes_and_nothing_else() -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    for number in range(20):
        append(log, b"%d" % number * 20)
    before = stored_batches(log)
    disk.capacity = disk.used()
    for _ in range(30):
        with pytest.raises(Refused) as refused:
            log.append(batch(b"x" * 100, pid=3), epoch=EPOCH, now=NOW)
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        assert isinstance(refused.value.__cause__, OSError)
    assert stored_batches(log) == before
    disk.capacity = None
    assert log.append(batch(b"x" * 100, pid=3), epoch=EPOCH, now=NOW).first == 20
    check_files(log)
    check_producers(log)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EIO])
def test_the_recovery_point_never_passes_what_a_failed_fsync_has_lost(number: int) -> None:
    """The next fsync would succeed: the kernel may call the pages clean that it could not write."""
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    for folder in ("data", ""):
        disk.sync_dir(folder)
    append(log, b"flushed")
    log.flush()
    append(log, b"lost")
    disk.fail_at, disk.error = disk.operations + 1, number
    with pytest.raises(Refused) as failed:
        log.flush()
    assert isinstance(failed.value.__cause__, SyncFailed)
    append(log, b"behind it")
    for flush in (log.flush, log.close):
        with pytest.raises(Refused) as refused:
            flush()
        assert isinstance(refused.value.__cause__, SyncFailed)
    assert log.recovery_point == 1
    after = open_log(disk=disk.crash(), recovery_point=log.recovery_point)
    assert values_of(after) == [b"flushed"]


def test_a_flush_that_finds_no_room_for_the_epochs_is_tried_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    append(log, b"first")
    disk.capacity = disk.used()
    with pytest.raises(Refused):
        log.flush()
    assert log.unflushed == 1
    disk.capacity = None
    log.flush()
    assert log.unflushed == 0


def test_after_any_single_failure_of_the_disk_the_next_append_works() -> None:
    whole = SimulatedDisk()
    log = open_log(disk=whole)
    begun = whole.operations
    for sequence in range(25):
        log.append(batch(b"x" * 60, pid=1, sequence=sequence), epoch=EPOCH, now=NOW)
    for operation in range(begun + 1, whole.operations + 1):
        disk = SimulatedDisk()
        log = open_log(disk=disk)
        disk.fail_at = operation
        refusals = 0
        for sequence in range(25):
            made = batch(b"x" * 60, pid=1, sequence=sequence)
            try:
                log.append(made, epoch=EPOCH, now=NOW)
            except Refused:
                refusals += 1
                log.append(batch(b"x" * 60, pid=1, sequence=sequence), epoch=EPOCH, now=NOW)
        assert (log.end, refusals) == (25, 1)
        check_files(log)
        check_producers(log)
        check_files(open_log(disk=disk))


def test_a_deleted_log_leaves_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    append(log, b"x")
    log.delete()
    assert disk.list("data") == []


def test_an_idle_partition_costs_one_descriptor_at_most(tmp_path: object) -> None:
    import os

    before = len(os.listdir("/proc/self/fd"))
    logs = []
    for partition in range(20):
        log = Log.open(RealDisk(), f"{tmp_path}/t-{partition}", SMALL, now=NOW)
        for number in range(40):
            append(log, b"x" * 50, timestamp=NOW + number)
        assert len(log.segments) > 5
        logs.append(log)
    for log in logs:
        assert len(stored_batches(log)) == 40
    # A sealed segment that was just read keeps its files open, too.
    assert len(os.listdir("/proc/self/fd")) - before <= 20 * 4
    for log in logs:
        log.close()
    assert len(os.listdir("/proc/self/fd")) == before


DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 100)),
        st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 100)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("retain"), st.integers(0, 300), st.just(0)),
        st.tuples(st.just("reopen"), st.booleans(), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 100), st.integers(1, 2000)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("start over"), st.integers(0, 300), st.just(0)),
    ),
    min_size=15,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(DEEDS)
def test_a_log_is_a_list_with_a_first_index(deeds: list[tuple[str, int, int]]) -> None:
    """The model: a list of (offset of its batch's end, value), of which the log has those from `start` on."""
    config = TopicConfig(segment_bytes=800, index_interval_bytes=120, retention_ms=100)
    disk = SimulatedDisk()
    log = open_log(config, disk)
    now = int(NOW)
    model: list[tuple[int, bytes]] = []
    first = start = last = 0
    for deed, number, extra in deeds:
        now += 5
        end = first + len(model)
        if deed == "append":
            values = [b"%d" % now + bytes(extra)] * number
            assert append(log, *values, timestamp=now, now=now) == end
            last = end
            assert log.read_newest(Offset(last), 1000) is not None
            model += [(end + number, value) for value in values]
        elif deed == "truncate":
            target = start + (end - start) * number // 100
            log.truncate_to(Offset(target))
            if target <= start and target < end:
                model, first, start = [], target, target
            else:
                model = [(until, value) for until, value in model if until <= target or target >= end]
                if first + len(model) < start:
                    model, first = [], start
        elif deed == "delete":
            start = start + (end - start) * number // 100
            log.advance_start(Offset(start))
        elif deed == "retain":
            log.retain(Millis(now + number), log.end)
            assert start <= log.start <= end
            start = log.start
        elif deed == "reopen":
            if number:
                log.close()
            log = Log.open(
                disk,
                FOLDER,
                config,
                now=Millis(now),
                recovery_point=log.recovery_point,
                start_offset=log.start,
                clean=bool(number),
            )
        elif deed == "flush":
            flush = log.begin_flush()
            if flush is not None:
                flush.run()
                log.finish_flush(flush)
        elif deed == "start over":
            log.start_over_at(Offset(number))
            model, first, start = [], number, number
        else:
            part = log.read(Offset(start + (end - start) * number // 100), extra, log.end)
            assert (part is None) == (number == 100 or start == end)
        assert (log.start, log.end) == (start, first + len(model))
        newest = log.read_newest(Offset(last), 1000)
        if newest is not None:
            found = log.read(Offset(last), 1, log.end)
            assert found is not None
            assert newest == found.read()
    assert values_of(log) == [value for _, value in model[start - first :]]
    check_files(log)


def test_batches_that_lie_about_their_times_are_not_all_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may unpack to a hundred megabytes, while everybody waits."""
    log = open_log()
    for _ in range(40):
        made = bytearray(encode_batch([Record(0, 1000, None, b"x", ())]))
        pack_into(">q", made, MAX_TIMESTAMP_AT, NOW)
        seal(made, 0, len(made))
        log.append(memoryview(made), epoch=LeaderEpoch(0), now=NOW)
    looked: list[int] = []

    def section(batch: bytes, header: BatchHeader) -> bytes:
        looked.append(header.base_offset)
        return record_section(batch, header)

    monkeypatch.setattr("barnabas.log.chain.record_section", section)
    assert log.find_timestamp(Millis(2000), log.end) == (NOW, 0)
    assert log.max_timestamp(log.end) == (NOW, 0)
    log.advance_start(Offset(7))
    assert log.max_timestamp(log.end) == (NOW, 7)
    assert len(looked) == 3


@pytest.mark.parametrize("seed", range(30))
def test_the_largest_timestamp_is_found_wherever_the_log_starts(seed: int) -> None:
    chance = Random(seed)
    log = open_log()
    stamps: list[int] = []
    while len(stamps) < 60:
        some = [chance.choice((-1, chance.randrange(1000))) for _ in range(chance.randrange(1, 5))]
        records = [Record(i, each, None, b"x" * 30, ()) for i, each in enumerate(some)]
        log.append(memoryview(bytearray(encode_batch(records))), epoch=LeaderEpoch(0), now=NOW)
        stamps += some
    for start in sorted(chance.sample(range(len(stamps)), 20)):
        log.advance_start(Offset(start))
        newest = max(stamps[start:])
        expected = (newest, stamps.index(newest, start)) if newest >= 0 else None
        assert log.max_timestamp(log.end) == expected

"""Compaction: the newest value of each key stays, offsets never change, and no crash loses anything."""

# mypy: disable-error-code="arg-type,dict-item,assignment"
# Offsets and times are plain numbers in here.

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log.cleaner import Cleaner, Cleaning
from barnabas.log.compaction import KEY_COST
from barnabas.log.log import Log
from barnabas.testing.disk import PowerCut, SimulatedDisk, Survival
from barnabas.types import Offset, TopicPartition
from barnabas.wire.batch import (
    DELETE_HORIZON,
    BatchHeader,
    Record,
    crc_of,
    decode_batch,
    encode_batch,
    headers,
)
from barnabas.wire.compression import Compression
from tests.log.batches import committed_records

NOW = 1_700_000_000_000
DAY = 86_400_000
HOME = "/data/t-0"
TP = TopicPartition("t", 0)
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=700,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    max_message_bytes=700,
)


def open_log(disk: SimulatedDisk, config: TopicConfig = CONFIG, **more: int) -> Log:
    return Log.open(disk, HOME, config, now=NOW, **more)


def append(log: Log, *pairs: tuple[bytes | None, bytes | None], now: int = NOW, **more: object) -> int:
    """One batch; the offset of its first record."""
    records = [Record(i, now, key, value, (("h", b"1"),)) for i, (key, value) in enumerate(pairs)]
    batch = encode_batch(records, **more)
    return log.append(memoryview(bytearray(batch)), epoch=0, now=now).first


def end_transaction(log: Log, pid: int, *, commit: bool) -> None:
    record = Record(0, NOW, pack(">hh", 0, int(commit)), pack(">hi", 0, 0))
    batch = encode_batch([record], producer_id=pid, producer_epoch=0, transactional=True, control=True)
    log.append_marker(memoryview(bytearray(batch)), epoch=0, now=NOW)


def fill(log: Log, count: int = 60, keys: int = 5) -> None:
    for number in range(count):
        append(log, (b"key %d" % (number % keys), b"value %d" % number))


def roll(log: Log) -> None:
    """Let all that was written lie in sealed segments."""
    before = len(log.segments)
    while len(log.segments) == before:
        append(log, (b"filler", b"x" * 300))


def drive(cleaning: Cleaning | None) -> bool:
    if cleaning is None:
        return False
    while not cleaning.is_done:
        cleaning.run()
        cleaning.finish()
    return True


def clean(log: Log, cleaned: dict[TopicPartition, Offset] | None = None, now: int = NOW, **more: int) -> bool:
    cleaner = Cleaner({} if cleaned is None else cleaned, **more)
    return drive(cleaner.begin(TP, log, now, below=log.end))


def batches(log: Log) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches as a consumer gets them: by reading on from the end of the last one."""
    offset = log.start
    while (found := log.read(offset, 300, log.end)) is not None:
        data = found.read()
        for at, header in headers(data):
            batch = data[at : at + header.size]
            assert crc_of(batch, 0, header.size) == header.crc
            yield header, batch
            offset = header.next_offset


def records(log: Log) -> list[Record]:
    return [r for header, batch in batches(log) if not header.is_control for r in decode_batch(batch)]


def newest(found: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in found}


def check_chain(log: Log) -> None:
    """Every segment ends where the next begins."""
    segments = list(log.segments)
    assert all(a.end == b.base for a, b in pairwise(segments))
    assert segments[-1].end == log.end
    assert log.size == sum(segment.size for segment in segments)


def test_only_the_newest_value_of_a_key_stays_in_its_old_place() -> None:
    log = open_log(SimulatedDisk())
    fill(log)
    before = records(log)
    clean(log)
    after = records(log)
    sealed = log.segments[-1].base
    assert set(after) < set(before)
    assert [r for r in after if r.offset >= sealed] == [r for r in before if r.offset >= sealed]
    kept = [r for r in after if r.offset < sealed]
    assert kept == sorted({r.key: r for r in before if r.offset < sealed}.values())
    check_chain(log)


def test_a_read_inside_a_hole_goes_on_with_the_next_batch() -> None:
    log = open_log(SimulatedDisk())
    fill(log)
    clean(log)
    there = [header for header, _ in batches(log)]
    for offset in range(log.end):
        found = log.read(offset, 10_000, log.end)
        assert found is not None
        first = next(headers(found.read()))[1]
        expected = next(header for header in there if header.last_offset >= offset)
        assert first.base_offset == expected.base_offset


def test_the_active_segment_is_never_touched() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, (b"k", b"1"))
    append(log, (b"k", b"2"))
    assert clean(log) is False
    assert [r.value for r in records(log)] == [b"1", b"2"]


def test_nothing_above_the_high_watermark_is_touched() -> None:
    log = open_log(SimulatedDisk())
    fill(log)
    middle = log.segments[2].base
    before = records(log)
    drive(Cleaner({}).begin(TP, log, NOW, below=middle))
    after = records(log)
    assert len(after) < len(before)
    assert [r for r in after if r.offset >= middle] == [r for r in before if r.offset >= middle]


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    log = open_log(SimulatedDisk(), replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    fill(log)
    assert clean(log) is False


def test_a_cleaning_remembers_where_it_ended_and_goes_on_there() -> None:
    log = open_log(SimulatedDisk())
    fill(log)
    cleaned: dict[TopicPartition, Offset] = {}
    clean(log, cleaned)
    assert cleaned == {TP: log.segments[-1].base}
    assert clean(log, cleaned) is False
    fill(log)
    assert clean(log, cleaned) is True


def test_a_checkpoint_of_another_history_is_not_believed() -> None:
    log = open_log(SimulatedDisk())
    fill(log)
    assert clean(log, {TP: log.end + 1}) is True


def test_a_log_is_cleaned_when_enough_of_it_is_dirty() -> None:
    log = open_log(SimulatedDisk(), replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    fill(log, keys=1000)
    cleaned: dict[TopicPartition, Offset] = {}
    clean(log, cleaned)
    fill(log, 20)
    roll(log)
    assert clean(log, cleaned) is False
    fill(log, 100)
    assert clean(log, cleaned) is True


def test_young_records_wait() -> None:
    log = open_log(SimulatedDisk(), replace(CONFIG, min_compaction_lag_ms=1000))
    fill(log)
    assert clean(log, now=NOW + 999) is False
    assert clean(log, now=NOW + 1000) is True


def test_old_records_do_not_wait_for_the_ratio() -> None:
    log = open_log(
        SimulatedDisk(), replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    )
    fill(log)
    assert clean(log, now=NOW + 5000) is False
    assert clean(log, now=NOW + 5001) is True


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"gone", b"1"), (b"here", b"2"))
    append(log, (b"other", b"3"), (b"gone", None))
    roll(log)
    clean(log)
    found = {r.key: r for r in records(log)}
    assert found[b"gone"].value is None
    assert found[b"gone"].timestamp == NOW
    assert found[b"gone"].headers == (("h", b"1"),)
    header = next(header for header, _ in batches(log) if header.base_offset == 2)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW + DAY
    assert header.max_timestamp == NOW
    roll(log)
    clean(log, now=NOW + DAY - 1)
    assert b"gone" in newest(records(log))
    roll(log)
    clean(log, now=NOW + DAY)
    assert b"gone" not in newest(records(log))
    assert newest(records(log))[b"here"] == b"2"
    check_chain(log)


def test_an_empty_value_is_no_tombstone() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"k", b""))
    roll(log)
    for round_ in range(3):
        clean(log, now=NOW + round_ * 2 * DAY)
        roll(log)
    assert newest(records(log))[b"k"] == b""


def test_records_without_a_key_go_as_in_kafka() -> None:
    log = open_log(SimulatedDisk(), replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    append(log, (None, b"1"), (b"k", b"2"))
    roll(log)
    log.config = CONFIG
    clean(log)
    assert [r.value for r in records(log) if r.offset < 2] == [b"2"]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_compressed_topic_stays_compressed(codec: Compression) -> None:
    log = open_log(SimulatedDisk())
    for number in range(40):
        pairs = [(b"key %d" % (number * 3 % 7 + i), b"v%d" % number) for i in range(3)]
        append(log, *pairs, codec=codec)
    before = newest(records(log))
    size = log.size
    clean(log)
    assert log.size < size
    assert newest(records(log)) == before
    assert {header.codec for header, _ in batches(log) if header.count} == {codec}


def test_log_append_time_stays_what_it_was() -> None:
    log = open_log(SimulatedDisk(), replace(CONFIG, message_timestamp_type="LogAppendTime"))
    for number in range(40):
        append(log, (b"a", b"1"), (b"b%d" % number, None), now=NOW + number)
    before = {r.offset: r for r in records(log)}
    clean(log)
    assert all(before[r.offset] == r for r in records(log))


def test_small_segments_are_put_together() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 400)
    many = len(log.segments)
    clean(log)
    fill(log, 20)
    clean(log)
    assert len(log.segments) < many / 5
    assert all(segment.size <= CONFIG.segment_bytes for segment in log.segments)
    check_chain(log)


def test_segments_of_which_nothing_is_left_become_one() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 500, keys=1)
    clean(log)
    sealed = [segment for segment in log.segments if segment is not log.segments[-1]]
    assert len(sealed) == 1
    # A reader that gets nothing but empty batches again and again takes it for an error (librdkafka does).
    assert [header.count for header, _ in batches(log)][:2].count(0) <= 1


def test_what_does_not_fit_into_one_segment_goes_into_two() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 40, keys=1)
    fill(log, 40, keys=1000)
    before = newest(records(log))
    clean(log)
    assert newest(records(log)) == before
    assert all(segment.size <= CONFIG.segment_bytes for segment in log.segments)
    check_chain(log)


def test_a_cleaning_that_is_given_up_stops_at_the_next_batch() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    cleaning = begun(log)
    cleaning.abandon()
    cleaning.run()
    cleaning.finish()
    assert cleaning.is_done
    assert leftovers(disk) == []


def test_a_segment_with_nothing_to_drop_is_not_written_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log, keys=1000)
    segments = list(log.segments)
    clean(log)
    assert list(log.segments) == segments
    assert [name for name in disk.list(HOME) if "cleaned" in name or "deleted" in name] == []


def test_keys_longer_than_a_digest_are_told_apart() -> None:
    log = open_log(SimulatedDisk())
    for number in range(60):
        append(log, (b"k" * 40 + b"%d" % (number % 3), b"%d" % number))
    before = newest(records(log))
    clean(log)
    assert newest(records(log)) == before


def test_a_full_map_cleans_as_far_as_it_reaches_and_the_next_round_goes_on() -> None:
    log = open_log(SimulatedDisk())
    fill(log, 200, keys=20)
    before = newest(records(log))
    cleaned: dict[TopicPartition, Offset] = {}
    ends = []
    while clean(log, cleaned, dedupe_bytes=4 * KEY_COST):
        ends.append(cleaned[TP])
        assert newest(records(log)) == before
    assert len(ends) > 5
    assert ends == sorted(set(ends))
    assert ends[-1] == log.segments[-1].base


def test_a_producer_goes_on_after_its_records_are_gone() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for number in range(10):
        append(log, (b"k", b"%d" % number), producer_id=7, producer_epoch=2, base_sequence=number)
    fill(log, 30, keys=1)
    append(log, (b"k", b"last"))
    roll(log)
    clean(log)
    roll(log)
    clean(log)
    assert b"9" not in [r.value for r in records(log)]
    log.close()
    for name in disk.list(HOME):
        if name.endswith(".snapshot"):
            disk.remove(f"{HOME}/{name}")
    again = open_log(disk)
    state = again.producers.by_id[7]
    assert (state.epoch, state.last_sequence) == (2, 9)
    append(again, (b"k", b"on"), producer_id=7, producer_epoch=2, base_sequence=10)


def test_a_committed_transaction_is_kept_and_its_marker_goes_after_its_records() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"k", b"1"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 1, commit=True)
    append(log, (b"x", b"1"), producer_id=1, producer_epoch=0, base_sequence=1)
    roll(log)

    def markers() -> list[BatchHeader]:
        return [header for header, _ in batches(log) if header.is_control and header.count]

    clean(log)
    assert newest(records(log))[b"k"] == b"1"
    append(log, (b"k", b"2"))
    roll(log)
    clean(log)
    assert len(markers()) == 1
    assert not markers()[0].attributes & DELETE_HORIZON
    roll(log)
    clean(log)
    assert markers()[0].attributes & DELETE_HORIZON
    roll(log)
    clean(log, now=NOW + DAY)
    assert markers() == []


def test_an_aborted_value_replaces_nothing() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"k", b"committed"))
    append(log, (b"k", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 1, commit=False)
    roll(log)
    clean(log)
    assert newest(records(log))[b"k"] == b"committed"


def test_readers_hear_of_an_aborted_transaction_for_as_long_as_its_marker_is_there() -> None:
    """Without the marker they would skip what the producer has committed since."""
    disk = SimulatedDisk()
    log = open_log(disk)
    append(log, (b"k", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 1, commit=False)
    append(log, (b"k", b"kept"), producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    end_transaction(log, 1, commit=True)
    for days in range(4):
        roll(log)
        clean(log, now=NOW + days * DAY)
        (kept,) = [r for r in committed_records(log, log.end) if r.key == b"k"]
        assert kept.value == b"kept"
        log = open_log(disk)
    assert not any(header.is_control and header.count for header, _ in batches(log) if header.base_offset < 2)
    assert not any(len(segment.aborted) for segment in log.segments)


def test_what_was_aborted_behind_the_cleaned_part_is_not_shown() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"k", b"older"), (b"k", b"newer"))
    append(log, (b"x", b"aborted"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 1, commit=False)
    roll(log)
    assert clean(log, dedupe_bytes=KEY_COST), "with room for one key"
    assert [r.value for r in records(log) if r.key in (b"k", b"x")] == [b"newer", b"aborted"]
    assert [r.value for r in committed_records(log, log.end) if r.key != b"filler"] == [b"newer"]


def test_an_undecided_value_replaces_nothing() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"k", b"1"))
    append(log, (b"k", b"2"))
    first = append(log, (b"k", b"?"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    roll(log)
    end_transaction(log, 1, commit=False)
    cleaned: dict[TopicPartition, Offset] = {}
    clean(log, cleaned)
    assert cleaned[TP] == first
    assert [r.value for r in records(log) if r.key == b"k"] == [b"2", b"?"]
    roll(log)
    clean(log, cleaned)
    assert [r.value for r in records(log) if r.key == b"k"] == [b"2"]


def test_a_transaction_that_is_undecided_from_the_first_offset_on_stops_everything() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"k", b"?"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, (b"k", b"1"))
    roll(log)
    before = records(log)
    cleaned: dict[TopicPartition, Offset] = {}
    clean(log, cleaned)
    assert cleaned == {TP: 0}
    assert records(log) == before


TRANSACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "plain", "commit", "abort", "clean"]),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    min_size=10,
    max_size=80,
)


@settings(max_examples=80, deadline=None)
@given(TRANSACTIONS)
def test_whatever_is_aborted_readers_of_committed_records_miss_nothing(
    steps: list[tuple[str, int, int]],
) -> None:
    log, now = open_log(SimulatedDisk()), NOW
    written: dict[int, Record] = {}
    pending: dict[int, list[int]] = {}
    sequences = dict.fromkeys(range(4), 0)
    aborted: set[int] = set()
    cleaned: dict[TopicPartition, Offset] = {}
    for number, (what, pid, key) in enumerate(steps):
        now += 1
        pair = (b"%d" % key, b"value %d" % number)
        if what in ("write", "plain"):
            facts: dict[str, object] = {}
            if what == "write":
                facts = {"producer_id": pid, "producer_epoch": 0, "transactional": True}
                facts["base_sequence"] = sequences[pid]
                sequences[pid] += 1
            offset = append(log, pair, now=now, **facts)
            written[offset] = Record(offset, now, *pair, (("h", b"1"),))
            if what == "write":
                pending.setdefault(pid, []).append(offset)
        elif what in ("commit", "abort") and pid in pending:
            end_transaction(log, pid, commit=what == "commit")
            offsets = pending.pop(pid)
            if what == "abort":
                aborted.update(offsets)
        elif what == "clean":
            log.producers.acknowledge(log.end)
            unstable = log.producers.first_unstable
            stable = log.end if unstable is None else unstable
            # Also with room for few keys: what was aborted behind these is still there, and must not be shown.
            drive(Cleaner(cleaned, KEY_COST * (1 + key)).begin(TP, log, now, below=stable))
        undecided = {offset for offsets in pending.values() for offset in offsets}
        found = [r for r in records(log) if r.offset not in aborted | undecided]
        assert all(written[r.offset] == r for r in found)
        wanted = [r for offset, r in written.items() if offset not in aborted | undecided]
        assert newest(found) == newest(wanted)
        open_from = min(undecided, default=log.end)
        assert committed_records(log, open_from, max_bytes=1) == [r for r in found if r.offset < open_from]
        check_chain(log)


def leftovers(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list(HOME) if name.endswith((".cleaned", ".swap", ".deleted"))]


def begun(log: Log) -> Cleaning:
    cleaning = Cleaner({}).begin(TP, log, NOW, below=log.end)
    assert cleaning is not None
    return cleaning


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate_to(log.segments[1].base + 1),
        lambda log: log.start_over_at(1000),
        lambda log: (log.advance_start(log.segments[2].base), log.retain(NOW, log.end)),
    ],
)
def test_what_was_made_of_a_log_that_changed_meanwhile_is_dropped(change: Callable[[Log], object]) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    cleaning = begun(log)
    cleaning.run()
    change(log)
    there = records(log)
    drive(cleaning)
    assert records(log) == there
    assert leftovers(disk) == []
    check_chain(log)


def test_a_log_deleted_meanwhile_stays_deleted() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    cleaning = begun(log)
    cleaning.run()
    disk.rename(HOME, "/data/t-0.x-delete")
    drive(cleaning)
    assert not disk.exists(HOME)
    gone = begun(log)
    gone.run()
    gone.finish()
    assert gone.is_done


def test_a_cleaning_that_is_not_finished_leaves_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    before = records(log)
    cleaning = begun(log)
    cleaning.run()
    cleaning.abandon()
    assert cleaning.is_done
    assert leftovers(disk) == []
    assert records(log) == before


def test_a_broken_batch_is_not_written_anew() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    file = log.segments[0].file
    data = bytearray(file.pread(file.size, 0))
    data[80] ^= 1
    file.truncate(0)
    file.append(data)
    cleaning = begun(log)
    with pytest.raises(Refused) as caught:
        cleaning.run()
    assert caught.value.code is Code.CORRUPT_MESSAGE
    assert cleaning.is_done
    assert leftovers(disk) == []


def test_a_full_disk_stops_a_cleaning_and_loses_nothing() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    before = records(log)
    disk.capacity = disk.used()
    cleaning = begun(log)
    with pytest.raises(Refused) as caught:
        cleaning.run()
    assert caught.value.code is Code.KAFKA_STORAGE_ERROR
    assert records(log) == before
    assert leftovers(disk) == []
    disk.capacity = None
    assert clean(log)
    assert newest(records(log)) == newest(before)


def test_a_cleaned_log_is_the_same_when_opened_again() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    fill(log)
    clean(log)
    after = records(log)
    log.close()
    assert records(open_log(disk, clean=True)) == after
    assert records(open_log(disk)) == after


def disk_with_home() -> SimulatedDisk:
    """A disk on which the partition's folder lasts: that is the data directory's business."""
    disk = SimulatedDisk()
    disk.make_dir(HOME)
    disk.sync_dir("/data")
    disk.sync_dir("/")
    return disk


def crash_script(log: Log, flushed: list[int]) -> None:
    cleaned: dict[TopicPartition, Offset] = {}
    for number in range(30):
        append(log, (b"%d" % (number % 4), b"v%d" % number), (b"t%d" % (number % 3), None))
        if number % 10 == 9:
            flush = log.begin_flush()
            assert flush is not None
            flush.run()
            log.finish_flush(flush)
            flushed[:] = [log.end]
            clean(log, cleaned)


@pytest.mark.parametrize("survival", list(Survival))
def test_a_power_cut_at_any_moment_of_a_cleaning_loses_no_newest_value(survival: Survival) -> None:
    whole = disk_with_home()
    begun_at = whole.operations
    crash_script(open_log(whole), [])
    original = {
        number * 2 + i: pair
        for number in range(30)
        for i, pair in enumerate([(b"%d" % (number % 4), b"v%d" % number), (b"t%d" % (number % 3), None)])
    }
    for stop_at in range(begun_at + 1, whole.operations + 1):
        disk = disk_with_home()
        disk.stop_at = stop_at
        flushed: list[int] = []
        with pytest.raises(PowerCut):
            crash_script(open_log(disk), flushed)
        after = disk.crash(survival, stop_at)
        # The checkpoint of the recovery point may be as old as the log itself.
        point = (flushed or [0])[0] if stop_at % 2 else 0
        log = open_log(after, recovery_point=point)
        found = records(log)
        assert all(original[r.offset] == (r.key, r.value) for r in found)
        assert log.end >= (flushed or [0])[0]
        for key in {key for offset, (key, _) in original.items() if offset < log.end}:
            last = max(offset for offset, pair in original.items() if pair[0] == key and offset < log.end)
            assert any(r.offset == last for r in found), (stop_at, key)
        check_chain(log)
        assert leftovers(after) == []
        fill(log, 10)
        clean(log)


def transactional_script(log: Log, flushed: list[int]) -> None:
    """Every third transaction is committed; producers 1 and 2 take turns, with their transactions open side by side."""
    cleaned: dict[TopicPartition, Offset] = {}
    for number in range(40):
        pid, state = 1 + number % 2, log.producers.by_id.get(1 + number % 2)
        sequence = state.next_sequence if state else 0
        value = b"yes" if (number // 2) % 3 == 0 else b"no"
        facts: dict[str, object] = {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequence}
        append(log, (b"k%d" % number, value), transactional=True, **facts)
        if number % 2:
            end_transaction(log, 1, commit=value == b"yes")
            end_transaction(log, 2, commit=value == b"yes")
        if number % 8 == 7:
            log.flush()
            flushed[:] = [log.end]
            clean(log, cleaned, now=NOW + number * DAY)


@pytest.mark.parametrize("survival", list(Survival))
def test_a_power_cut_at_any_moment_of_a_cleaning_shows_nothing_that_was_aborted(survival: Survival) -> None:
    whole = disk_with_home()
    begun_at = whole.operations
    transactional_script(open_log(whole), [])
    for stop_at in range(begun_at + 1, whole.operations + 1):
        disk = disk_with_home()
        disk.stop_at = stop_at
        flushed: list[int] = []
        with pytest.raises(PowerCut):
            transactional_script(open_log(disk), flushed)
        point = (flushed or [0])[0] if stop_at % 2 else 0
        log = open_log(disk.crash(survival, stop_at), recovery_point=point)
        log.producers.acknowledge(log.end)
        unstable = log.producers.first_unstable
        stable = log.end if unstable is None else unstable
        seen = committed_records(log, stable, max_bytes=1)
        assert {r.value for r in seen} <= {b"yes"}, stop_at
        assert [r for r in records(log) if r.offset < stable and r.value == b"yes"] == seen
        clean(log)
        assert {r.value for r in committed_records(log, stable)} <= {b"yes"}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=4)
        ),
        st.tuples(st.just("clean"), st.integers(1, 8)),
        st.tuples(st.just("wait"), st.sampled_from([1, DAY // 2, 2 * DAY])),
        st.tuples(st.just("reopen"), st.booleans()),
    ),
    min_size=5,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([Compression.NONE, Compression.GZIP]), st.integers(0, 2**32))
def test_whatever_happens_readers_end_with_the_newest_values(
    steps: list[tuple[str, object]], codec: Compression, seed: int
) -> None:
    random = Random(seed)
    disk, now, sequence = SimulatedDisk(), NOW, 0
    log = open_log(disk)
    model: dict[bytes, bytes | None] = {}
    written: dict[int, Record] = {}
    cleaned: dict[TopicPartition, Offset] = {}
    for what, how in steps:
        if what == "write":
            assert isinstance(how, list)
            pairs = [
                (b"%d" % key if key % 2 else b"a key that is longer than a digest %d" % key, value)
                for key, value in ((k, random.randbytes(9) if full else None) for k, full in how)
            ]
            first = append(
                log, *pairs, now=now, codec=codec, producer_id=3, producer_epoch=0, base_sequence=sequence
            )
            sequence += len(pairs)
            model.update(pairs)
            for i, (key, value) in enumerate(pairs):
                written[first + i] = Record(first + i, now, key, value, (("h", b"1"),))
        elif what == "clean":
            clean(log, cleaned, now, dedupe_bytes=int(str(how)) * KEY_COST)
        elif what == "wait":
            now += int(str(how))
        else:
            log.close()
            log = open_log(disk, clean=bool(how))
        found = records(log)
        assert all(written[record.offset] == record for record in found)
        assert [r.offset for r in found] == sorted({r.offset for r in found})
        values = newest(found)
        assert {k: v for k, v in values.items() if v is not None} == {
            k: v for k, v in model.items() if v is not None
        }
        assert values.keys() <= model.keys()
        check_chain(log)
    state = log.producers.by_id.get(3)
    assert (state.next_sequence if state else 0) == sequence or now > NOW

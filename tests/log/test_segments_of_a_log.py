"""How a log begins segments and loses them: rolling, retention, deleted records, truncation."""

import pytest

from barnabas.config import TopicConfig
from barnabas.errors import Refused
from barnabas.log.log import Log
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.batch import Record, encode_batch
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


def test_a_segment_rolls_by_size() -> None:
    log = filled_log()
    assert len(log.segments) > 5
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    check_files(log)


def test_a_segment_rolls_by_the_age_of_its_records() -> None:
    log = open_log(TopicConfig(segment_ms=1000))
    for timestamp in (NOW, NOW + 1000, NOW + 1001):
        append(log, b"x", timestamp=timestamp)
    assert [segment.base for segment in log.segments] == [0, 2]


def test_an_idle_segment_rolls() -> None:
    log = open_log(TopicConfig(segment_ms=1000))
    assert not log.roll_if_due(Millis(NOW + 5000))
    append(log, b"x")
    assert not log.roll_if_due(Millis(NOW + 1000))
    assert log.roll_if_due(Millis(NOW + 1001))
    assert [segment.base for segment in log.segments] == [0, 1]


def test_a_compacted_log_rolls_in_time_for_max_compaction_lag() -> None:
    """The active segment is never compacted: without this a quiet topic would keep old values for segment.ms."""
    policy = frozenset({"compact"})
    log = open_log(TopicConfig(segment_ms=100_000, max_compaction_lag_ms=1000))
    append(log, b"x")
    assert not log.roll_if_due(Millis(NOW + 1001))
    log.config = TopicConfig(cleanup_policy=policy, segment_ms=100_000, max_compaction_lag_ms=1000)
    assert not log.roll_if_due(Millis(NOW + 1000))
    assert log.roll_if_due(Millis(NOW + 1001))


def test_jitter_lets_logs_roll_apart_but_never_late() -> None:
    config = TopicConfig(segment_ms=10_000, segment_jitter_ms=5_000)
    rolled = set()
    for partition in range(20):
        log = Log.open(SimulatedDisk(), f"data/topic-{partition}", config, now=NOW)
        append(log, b"x")
        rolled.add(next(age for age in range(5_000, 10_002, 50) if log.roll_if_due(Millis(NOW + age))))
    assert len(rolled) > 5
    assert max(rolled) <= 10_050


def test_a_segment_rolls_when_an_index_is_full() -> None:
    log = filled_log(200, TopicConfig(segment_index_bytes=60, index_interval_bytes=100))
    assert len(log.segments) > 5
    assert all(len(segment.offsets) * 8 <= 60 and len(segment.times) * 12 <= 60 for segment in log.segments)


def test_a_segment_rolls_before_relative_offsets_overflow() -> None:
    log = open_log()
    append(log, b"x")
    far = encode_batch([Record(2**31, NOW, None, b"far")], base_offset=2**31, leader_epoch=0)
    log.append_replicated(memoryview(far), now=NOW)
    assert [segment.base for segment in log.segments] == [0, 1]
    assert log.end == 2**31 + 1
    check_files(log)


def test_old_segments_go_by_time_but_never_above_the_watermark() -> None:
    log = filled_log(config=TopicConfig(segment_bytes=700, retention_ms=1000))
    assert log.retain(Millis(NOW + 900), log.end) == []
    watermark = Offset(log.segments[3].base + 1)
    gone = log.retain(Millis(NOW + 5000), watermark)
    assert [removed.base for removed in gone] == [0, *[removed.end for removed in gone[:-1]]]
    assert log.start == log.segments[0].base == gone[-1].end <= watermark
    assert len(gone) == 3
    assert "retention.ms" in gone[0].reason
    assert len(values_of(log)) == log.end - log.start


def test_when_all_has_expired_the_log_is_empty_but_goes_on_at_its_offset() -> None:
    disk = SimulatedDisk()
    config = TopicConfig(segment_bytes=700, retention_ms=1000)
    log = open_log(config, disk)
    for number in range(20):
        append(log, b"x" * 30, timestamp=NOW + number)
    log.retain(Millis(NOW + 9000), log.end)
    assert (log.start, log.end, log.size) == (20, 20, 0)
    log.close()
    log = open_log(config, disk)
    assert (log.start, log.end) == (20, 20)
    assert append(log, b"next") == 20
    assert disk.list(FOLDER) == sorted(disk.list(FOLDER))


def test_old_segments_go_by_size() -> None:
    log = filled_log(config=TopicConfig(segment_bytes=700, retention_bytes=1500))
    log.retain(NOW, log.end)
    assert 1500 <= log.size < 1500 + 700
    assert log.start == log.segments[0].base > 0


def test_a_compacted_topic_keeps_old_segments_unless_told_otherwise() -> None:
    log = filled_log(config=TopicConfig(segment_bytes=700, retention_ms=1000))
    log.config = TopicConfig(retention_ms=1000, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    assert log.retain(Millis(NOW + 10**9), log.end) == []
    log.config = TopicConfig(retention_ms=1000, cleanup_policy=frozenset({"compact", "delete"}))
    assert log.retain(Millis(NOW + 10**9), log.end)


def test_deleted_records_are_not_served_and_their_segments_go() -> None:
    log = filled_log()
    middle = Offset(log.segments[2].base + 1)
    log.advance_start(middle)
    assert log.retain(NOW, log.end)[-1].end <= middle
    assert log.start == middle
    assert log.segments[0].base < middle
    assert len(values_of(log)) == log.end - middle
    with pytest.raises(Refused):
        log.advance_start(Offset(log.end + 1))


def test_a_slice_outlives_the_segment_it_is_of() -> None:
    log = filled_log()
    part = log.read(Offset(0), 10_000, log.end)
    assert part is not None
    before = part.read()
    log.advance_start(log.end)
    log.retain(NOW, log.end)
    assert part.read() == before


@pytest.mark.parametrize("target", [59, 58, 31, 30, 1])
def test_a_truncated_log_ends_before_the_batch_and_goes_on_there(target: int) -> None:
    log = filled_log()
    kept = stored_batches(log)[:target]
    log.truncate_to(Offset(target))
    assert log.end == target
    assert stored_batches(log) == kept
    check_files(log)
    assert append(log, b"other", epoch=9) == target
    check_files(log)
    assert log.epochs.entries == [(0, 0), (9, target)]


def test_truncation_takes_whole_batches() -> None:
    log = open_log()
    append(log, b"a", b"b")
    append(log, b"c", b"d")
    log.truncate_to(Offset(3))
    assert (log.end, values_of(log)) == (2, [b"a", b"b"])


def test_truncation_takes_back_what_producers_did() -> None:
    log = open_log()
    for sequence in range(20):
        log.append(batch(b"x" * 40, pid=5, sequence=sequence), epoch=EPOCH, now=NOW)
    log.truncate_to(Offset(11))
    check_producers(log)
    assert log.append(batch(b"y", pid=5, sequence=11), epoch=EPOCH, now=NOW).first == 11


def test_starting_over_leaves_an_empty_log_at_the_offset() -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    for number in range(30):
        log.append(batch(b"x" * 40, pid=1, sequence=number), epoch=EPOCH, now=NOW)
    for offset in (500, 500, 0):
        log.start_over_at(Offset(offset))
        assert (log.start, log.end, log.size, len(log.producers)) == (offset, offset, 0, 0)
        assert append(log, b"again") == offset
        check_files(log)
    assert open_log(disk=disk).end == 1

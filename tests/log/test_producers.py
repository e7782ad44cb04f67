"""What a partition remembers of its producers: a retried batch is stored once, in order."""
# mypy: disable-error-code="arg-type"
# Offsets and times are plain numbers in here.

import random
from struct import pack

import pytest
from fastcrc.crc32 import iscsi as crc32c

from barnabas.errors import Code, Refused
from barnabas.log import recent_batches
from barnabas.log.producers import CorruptSnapshot, ProducerStates
from barnabas.log.transactions.markers import Marker, read_marker
from barnabas.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, Record, encode_batch, read_header

DAY = 86_400_000
NOW = 1_700_000_000_000


def batch(
    sequence: int, count: int = 1, *, pid: int = 9, epoch: int = 0, offset: int = 0, **more: int
) -> BatchHeader:
    facts = {"timestamp": NOW, "attributes": 0} | more
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=facts["attributes"],
        last_offset_delta=count - 1,
        base_timestamp=facts["timestamp"],
        max_timestamp=facts["timestamp"],
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def append(states: ProducerStates, header: BatchHeader, first: int, now: int = NOW) -> int:
    assert states.check(header) is None
    states.note(header, first, now)
    return first + header.count


def marker_batch(
    *, commit: bool, pid: int = 9, epoch: int = 0, offset: int = 0, coordinator_epoch: int = 0
) -> bytes:
    record = Record(offset, NOW, pack(">hh", 0, int(commit)), pack(">hi", 0, coordinator_epoch))
    return encode_batch(
        [record], base_offset=offset, producer_id=pid, producer_epoch=epoch, transactional=True, control=True
    )


def refusal(states: ProducerStates, header: BatchHeader) -> Code:
    with pytest.raises(Refused) as caught:
        states.check(header)
    return caught.value.code


def test_a_batch_sent_twice_is_answered_with_where_it_is() -> None:
    states = ProducerStates()
    append(states, batch(0, 3), 100)
    append(states, batch(3, 2), 103)
    first = states.check(batch(0, 3))
    assert first is not None
    assert (first.first, first.last, first.timestamp) == (100, 102, NOW)


def test_the_last_five_batches_are_remembered_and_no_more() -> None:
    states = ProducerStates()
    for number in range(6):
        append(states, batch(number), number)
    assert all(states.check(batch(number)) is not None for number in range(1, 6))
    assert refusal(states, batch(0)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order() -> None:
    states = ProducerStates()
    append(states, batch(0, 3), 0)
    assert refusal(states, batch(4)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_part_of_a_stored_batch_is_not_a_duplicate() -> None:
    states = ProducerStates()
    append(states, batch(0, 3), 0)
    assert refusal(states, batch(0, 2)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refused_batch_changes_nothing() -> None:
    states = ProducerStates()
    append(states, batch(0, 3), 0)
    before = states.to_bytes()
    refusal(states, batch(7))
    refusal(states, batch(0, epoch=-1))
    assert states.to_bytes() == before
    assert states.check(batch(3)) is None


def test_a_forgotten_producer_may_begin_anywhere() -> None:
    states = ProducerStates()
    append(states, batch(777), 0)
    append(states, batch(778), 1)


def test_an_old_epoch_is_fenced() -> None:
    states = ProducerStates()
    append(states, batch(0, epoch=3), 0)
    assert refusal(states, batch(1, epoch=2)) is Code.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    states = ProducerStates()
    append(states, batch(0, 5), 0)
    assert refusal(states, batch(5, epoch=1)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, batch(0, epoch=1), 5)
    append(states, batch(1, epoch=1), 6)


def test_batches_of_an_old_epoch_are_no_duplicates_in_a_new_one() -> None:
    states = ProducerStates()
    append(states, batch(0), 0)
    append(states, batch(1), 1)
    append(states, batch(0, epoch=1), 2)
    assert [stored.first for stored in states.by_id[9].batches] == [2]


@pytest.mark.parametrize(("count", "following"), [(1, 0), (3, 2)])
def test_sequences_wrap_after_the_largest(count: int, following: int) -> None:
    states = ProducerStates()
    last = 2**31 - 1
    append(states, batch(last, count), 0)
    append(states, batch(following), count)
    stored = states.check(batch(last, count))
    assert stored is not None
    assert stored.first == 0


def test_producers_do_not_see_one_another() -> None:
    states = ProducerStates()
    append(states, batch(0, pid=1), 0)
    append(states, batch(0, pid=2), 1)
    append(states, batch(1, pid=1), 2)
    assert len(states) == 2


def test_a_silent_producer_is_forgotten_after_a_day() -> None:
    states = ProducerStates()
    append(states, batch(0, pid=1), 0)
    append(states, batch(0, pid=2), 1, now=NOW + 5)
    assert states.expire(NOW + DAY - 1) == 0
    assert states.expire(NOW + DAY) == 1
    assert list(states.by_id) == [2]


@pytest.mark.parametrize("timestamp", [-1, NOW - 30 * DAY, NOW + 30 * DAY])
def test_how_old_its_records_are_does_not_matter_to_how_long_a_producer_is_known(timestamp: int) -> None:
    states = ProducerStates()
    append(states, batch(0, timestamp=timestamp), 0)
    assert states.expire(NOW + DAY - 1) == 0
    assert states.expire(NOW + DAY) == 1


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    states = ProducerStates()
    append(states, batch(0, attributes=TRANSACTIONAL), 0)
    assert states.expire(NOW + 100 * DAY) == 0


def test_the_snapshot_has_kafkas_bytes() -> None:
    states = ProducerStates()
    append(states, batch(0, 3, pid=5, epoch=2), 40)
    entries = pack(">i", 1) + pack(">qhiqiqiq", 5, 2, 2, 42, 2, NOW, -1, -1)
    assert states.to_bytes() == pack(">hI", 1, crc32c(entries)) + entries


def test_a_snapshot_brings_the_last_batch_and_the_epoch_back() -> None:
    states = ProducerStates()
    append(states, batch(0, 3, epoch=4), 40)
    append(states, batch(3, 2, epoch=4), 43)
    loaded = ProducerStates()
    loaded.load(states.to_bytes(), 45, NOW)
    assert loaded.end == 45
    assert loaded.check(batch(3, 2, epoch=4)) == (3, 4, 43, 44, NOW)
    assert loaded.check(batch(5, epoch=4)) is None
    assert refusal(loaded, batch(6, epoch=4)) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(loaded, batch(5, epoch=3)) is Code.INVALID_PRODUCER_EPOCH
    assert loaded.to_bytes() == states.to_bytes()


def test_how_long_a_producer_is_known_after_a_restart_is_for_the_broker_to_say() -> None:
    """The snapshot was once read with the default of a day, whatever producer.id.expiration.ms was."""
    states = ProducerStates()
    append(states, batch(0), 0)
    loaded = ProducerStates()
    loaded.load(states.to_bytes(), 1, NOW)
    assert loaded.expire(NOW + 2 * DAY, expiration_ms=7 * DAY) == 0
    assert loaded.check(batch(0)) is not None
    assert loaded.expire(NOW + 7 * DAY, expiration_ms=7 * DAY) == 1


def _two_producers() -> ProducerStates:
    states = ProducerStates()
    for number in range(7):
        append(states, batch(number * 2, 2, pid=9, epoch=4), number * 10, now=NOW + number)
    append(states, batch(0, pid=3, timestamp=-1), 75, now=NOW - DAY)
    return states


def test_all_batches_and_the_times_of_appends_come_back_with_the_snapshot() -> None:
    states = _two_producers()
    snapshot = states.to_bytes()
    data = recent_batches.encode(states, snapshot)
    loaded = ProducerStates()
    loaded.load(snapshot, 76, NOW + 99)
    recent_batches.restore(loaded, data, snapshot)
    for pid, state in states.by_id.items():
        assert loaded.by_id[pid].batches == state.batches
        assert loaded.by_id[pid].appended == state.appended
    assert loaded.check(batch(4, 2, epoch=4)) == (4, 5, 20, 21, NOW)
    assert recent_batches.encode(loaded, loaded.to_bytes()) == data


@pytest.mark.parametrize("seed", range(40))
def test_damaged_recent_batches_are_refused_and_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    states = _two_producers()
    snapshot = states.to_bytes()
    data = bytearray(recent_batches.encode(states, snapshot))
    if seed % 2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        del data[chance.randrange(len(data)) :]
    states.load(snapshot, 76, NOW)
    with pytest.raises(CorruptSnapshot):
        recent_batches.restore(states, bytes(data), snapshot)
    assert [len(state.batches) for state in states.by_id.values()] == [1, 1]


def test_recent_batches_of_another_snapshot_are_refused() -> None:
    states = _two_producers()
    data = recent_batches.encode(states, states.to_bytes())
    append(states, batch(1, pid=3), 76)
    snapshot = states.to_bytes()
    with pytest.raises(CorruptSnapshot, match="another snapshot"):
        recent_batches.restore(states, data, snapshot)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_snapshot_is_refused_and_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    states = ProducerStates()
    for pid in range(3):
        append(states, batch(0, pid=pid), pid)
    data = bytearray(states.to_bytes())
    if seed % 2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        del data[chance.randrange(len(data)) :]
    before = states.to_bytes()
    with pytest.raises(CorruptSnapshot):
        states.load(bytes(data), 0, NOW)
    assert states.to_bytes() == before


def test_replay_leads_to_the_state_that_appending_led_to() -> None:
    chance = random.Random(1)
    states, again, offset = ProducerStates(), ProducerStates(), 0
    sequences: dict[int, int] = {}
    for _ in range(200):
        pid, count = chance.randrange(5), chance.randrange(1, 9)
        header = batch(sequences.get(pid, 0), count, pid=pid, offset=offset)
        sequences[pid] = header.base_sequence + count
        again.replay(header, b"", NOW)
        offset = append(states, header, offset)
    assert states.to_bytes() == again.to_bytes()
    assert {pid: state.batches for pid, state in states.by_id.items()} == {
        pid: state.batches for pid, state in again.by_id.items()
    }


def test_batches_without_a_producer_leave_no_trace() -> None:
    states = ProducerStates()
    states.replay(batch(-1, pid=-1), b"", NOW)
    assert len(states) == 0


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    states = ProducerStates()
    append(states, batch(0, pid=1, attributes=TRANSACTIONAL), 10)
    append(states, batch(0, pid=2, attributes=TRANSACTIONAL), 11)
    append(states, batch(1, pid=1, attributes=TRANSACTIONAL), 12)
    assert states.first_unstable == 10
    control = marker_batch(commit=True, pid=1, offset=13)
    ended = states.replay(read_header(control), control, NOW)
    assert ended == (1, 10, 13, False, 11)
    assert states.first_unstable == 10
    states.acknowledge(13)
    assert states.first_unstable == 10
    states.acknowledge(14)
    assert states.first_unstable == 11
    control = marker_batch(commit=False, pid=2, offset=14)
    ended = states.replay(read_header(control), control, NOW)
    assert ended is not None
    assert ended.aborted
    states.acknowledge(15)
    assert states.first_unstable is None


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    states = ProducerStates()
    append(states, batch(0, attributes=TRANSACTIONAL), 0)
    assert refusal(states, batch(1)) is Code.INVALID_TXN_STATE


def test_after_its_transaction_a_producer_goes_on_with_its_sequences() -> None:
    states = ProducerStates()
    append(states, batch(0, attributes=TRANSACTIONAL), 0)
    control = marker_batch(commit=True, offset=1)
    states.replay(read_header(control), control, NOW)
    append(states, batch(1), 2)


def test_a_marker_of_a_deposed_coordinator_is_refused() -> None:
    states = ProducerStates()
    states.note_marker(batch(-1, attributes=TRANSACTIONAL | CONTROL), 0, Marker(True, 7), NOW)
    with pytest.raises(Refused) as caught:
        states.check_marker(batch(-1), Marker(True, 6))
    assert caught.value.code is Code.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(Refused) as caught:
        states.check_marker(batch(-1, epoch=-1), Marker(True, 7))
    assert caught.value.code is Code.INVALID_PRODUCER_EPOCH
    states.check_marker(batch(-1), Marker(True, 7))


def test_open_transactions_survive_in_the_snapshot() -> None:
    states = ProducerStates()
    append(states, batch(0, pid=7, attributes=TRANSACTIONAL), 5)
    append(states, batch(0, pid=3, attributes=TRANSACTIONAL), 6)
    loaded = ProducerStates()
    loaded.load(states.to_bytes(), 7, NOW)
    assert loaded.expire(NOW + 100 * DAY) == 0
    assert loaded.first_unstable == 5
    control = marker_batch(commit=True, pid=7, offset=7)
    loaded.replay(read_header(control), control, NOW)
    loaded.acknowledge(8)
    assert loaded.first_unstable == 6


def test_a_marker_says_commit_or_abort_and_whose_it_is() -> None:
    assert read_marker(marker_batch(commit=True, coordinator_epoch=4)) == Marker(True, 4)
    assert read_marker(marker_batch(commit=False)) == Marker(False, 0)
    assert read_marker(encode_batch([], last_offset_delta=0, control=True, transactional=True)) is None
    with pytest.raises(Refused):
        read_marker(encode_batch([Record(0, 0, b"\x00", b"")], control=True))

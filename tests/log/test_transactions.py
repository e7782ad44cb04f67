"""Transactions in a log: what is open, what was aborted, what readers of committed records are told."""

# mypy: disable-error-code="arg-type"
# Offsets are plain numbers in here.

from collections.abc import Sequence
from random import Random

import pytest

from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log.log import Log
from barnabas.log.producers import ProducerStates
from barnabas.log.snapshots import Snapshots, replayed
from barnabas.log.transactions.aborted import ABORTED, ENTRY_SIZE, AbortedIndex, AbortedTransaction
from barnabas.log.transactions.markers import marker_batch
from barnabas.log.transactions.verifications import ONGOING, Verifications
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import LeaderEpoch, Millis, Offset
from tests.log.batches import (
    FOLDER,
    NOW,
    SMALL,
    append,
    batch,
    check_files,
    check_transactions,
    committed_records,
    end_transaction,
    open_log,
    stored_batches,
    write_in_transaction,
)


def committed_values(log: Log, max_bytes: int = 500) -> list[bytes | None]:
    log.producers.acknowledge(log.end)
    unstable = log.producers.first_unstable
    return [
        each.value for each in committed_records(log, log.end if unstable is None else unstable, max_bytes)
    ]


def aborted(log: Log) -> list[tuple[int, int, int]]:
    return [(each.producer_id, each.first, each.last) for segment in log.segments for each in segment.aborted]


# Aborted transactions


def test_readers_skip_what_was_aborted_and_nothing_else() -> None:
    log = open_log()
    write_in_transaction(log, b"no", pid=1)
    write_in_transaction(log, b"yes", pid=2)
    append(log, b"plain")
    end_transaction(log, 1, commit=False)
    end_transaction(log, 2, commit=True)
    write_in_transaction(log, b"again", pid=1)
    end_transaction(log, 1, commit=True)
    for max_bytes in (1, 200, 10_000):
        assert committed_values(log, max_bytes) == [b"yes", b"plain", b"again"]


def test_a_transaction_that_spans_segments_is_told_of_in_each_of_them() -> None:
    log = open_log()
    first = write_in_transaction(log, b"no", pid=1)
    for number in range(40):
        append(log, b"%d" % number * 20)
        if number % 8 == 0:
            write_in_transaction(log, b"no", pid=1)
    marker = end_transaction(log, 1, commit=False)
    assert aborted(log) == [(1, first, marker)]
    assert len(log.segments) > 3
    assert b"no" not in committed_values(log)
    check_files(log)


def test_a_reader_is_told_of_what_overlaps_with_its_records_only() -> None:
    log = open_log()
    for pid in range(60):
        write_in_transaction(log, b"no" * 20, pid=pid)
        end_transaction(log, pid, commit=False)
    part = log.read(Offset(40), 100, log.end)
    assert part is not None
    told = log.aborted_in(Offset(40), part)
    assert told[0].first == 40
    assert len(told) < 6


def test_followers_have_the_index_that_their_leader_has() -> None:
    leader, follower = open_log(), open_log()
    for pid in (1, 2, 1, 3):
        write_in_transaction(leader, b"no", pid=pid)
        end_transaction(leader, pid, commit=pid == 2)
    follower.append_replicated(memoryview(b"".join(stored_batches(leader))), now=NOW)
    assert aborted(follower) == aborted(leader)
    assert len(aborted(leader)) == 3


def test_the_index_has_a_file_only_where_something_was_aborted() -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    write_in_transaction(log, b"yes", pid=1)
    end_transaction(log, 1, commit=True)
    log.close()
    assert not [name for name in disk.list(FOLDER) if name.endswith(ABORTED)]
    log = open_log(disk=disk)
    write_in_transaction(log, b"no", pid=1)
    end_transaction(log, 1, commit=False)
    log.close()
    (name,) = [name for name in disk.list(FOLDER) if name.endswith(ABORTED)]
    assert disk.open(f"{FOLDER}/{name}").size == ENTRY_SIZE


@pytest.mark.parametrize("ending", [ABORTED, ".index", ".timeindex"])
def test_an_index_that_is_lost_or_broken_is_made_again(ending: str) -> None:
    disk = SimulatedDisk()
    log = open_log(disk=disk)
    for number in range(50):
        write_in_transaction(log, b"no" * 10, pid=number % 3)
        if number % 4 == 0:
            end_transaction(log, number % 3, commit=False)
    log.close()
    wanted = aborted(log)
    point = log.recovery_point
    names = [name for name in disk.list(FOLDER) if name.endswith(ending)]
    assert len(names) > 2
    for number, name in enumerate(names):
        file = disk.open(f"{FOLDER}/{name}")
        file.truncate(0 if number % 2 else file.size // 2 + 1)
    for clean in (True, False):
        log = Log.open(disk, FOLDER, SMALL, now=NOW, recovery_point=point, clean=clean)
        assert aborted(log) == wanted
        check_transactions(log)
        check_files(log)
        log.close()


def test_retention_takes_the_index_with_its_segment() -> None:
    disk = SimulatedDisk()
    log = open_log(TopicConfig(segment_bytes=700, max_message_bytes=600, retention_bytes=1000), disk)
    for number in range(50):
        write_in_transaction(log, b"no" * 10, pid=number % 3)
        end_transaction(log, number % 3, commit=False)
    log.write_indexes()
    log.retain(NOW, log.end)
    bases = {name[:20] for name in disk.list(FOLDER) if name.endswith(".log")}
    assert {name[:20] for name in disk.list(FOLDER) if name.endswith(ABORTED)} <= bases
    assert committed_values(log) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_index_finds_what_a_full_search_finds(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk()
    disk.make_dir("data")
    index = AbortedIndex(disk, "data/x.txnindex")
    entries: list[AbortedTransaction] = []
    last = 0
    for number in range(300):
        last += random.randint(1, 9)
        first = random.randint(max(0, last - 60), last - 1)
        open_since = min(last + 1, *(each.last for each in entries[-2:])) if entries else last + 1
        entries.append(AbortedTransaction(number % 7, first, last, max(open_since, 0)))
        index.append(entries[-1])
        if random.random() < 0.02:
            index.write()
            index.release()
    assert list(index) == entries
    for _ in range(100):
        offset = random.randint(0, last)
        upper = offset + random.randint(1, 80)
        found, goes_on = index.overlapping(offset, upper)
        wanted: Sequence[AbortedTransaction] = [each for each in entries if each.last >= offset]
        stop = next((n for n, each in enumerate(wanted) if each.last_stable >= upper), None)
        wanted = wanted if stop is None else wanted[: stop + 1]
        assert found == [each for each in wanted if each.first < upper]
        assert goes_on == (stop is None)
    index.cut(last // 2)
    assert list(index) == [each for each in entries if each.last < last // 2]


# Truncation


def _open_again(log: Log) -> tuple[Offset, Offset]:
    """A transaction whose end is cut off: where it began, and where it had ended."""
    first = write_in_transaction(log, b"?", pid=1)
    for number in range(30):
        append(log, b"%d" % number * 20)
    marker = end_transaction(log, 1, commit=False)
    append(log, b"behind")
    log.producers.acknowledge(log.end)
    assert log.producers.first_unstable is None
    log.truncate_to(marker)
    return first, marker


def test_a_transaction_whose_marker_is_cut_off_is_open_again() -> None:
    log = open_log()
    first, marker = _open_again(log)
    assert log.end == marker
    assert log.producers.first_unstable == first
    assert aborted(log) == []
    assert committed_values(log) == []
    check_transactions(log)
    assert end_transaction(log, 1, commit=True) == marker
    assert committed_values(log)[0] == b"?"


def test_an_lso_that_passes_an_open_transaction_after_a_truncation_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: what producers had open is not looked for again when the log is cut."""

    def careless(
        self: Snapshots, producers: ProducerStates, segments: object, start: Offset, end: Offset, now: Millis
    ) -> None:
        producers.end = end

    log = open_log()
    monkeypatch.setattr(Snapshots, "restore", careless)
    _open_again(log)
    with pytest.raises(AssertionError):
        check_transactions(log)


def test_a_snapshot_that_is_newer_than_the_cut_is_not_gone_by() -> None:
    """Planted: the snapshot behind the cut says that nothing is open."""
    log = open_log()
    write_in_transaction(log, b"?", pid=1)
    marker = end_transaction(log, 1, commit=True)
    for number in range(30):
        append(log, b"%d" % number * 20)
    log.truncate_to(marker)
    assert log.producers.first_unstable == 0
    check_transactions(log)


@pytest.mark.parametrize("seed", range(15))
def test_cuts_and_restarts_leave_transactions_as_the_batches_say(seed: int) -> None:
    random, disk = Random(seed), SimulatedDisk()
    log = open_log(disk=disk)
    for _ in range(120):
        what, pid = random.random(), random.randint(1, 4)
        if what < 0.5:
            write_in_transaction(log, b"x" * random.randint(1, 90), pid=pid)
        elif what < 0.75:
            end_transaction(log, pid, commit=random.random() < 0.4)
        elif what < 0.85:
            append(log, b"plain")
        elif what < 0.92 and log.end > 3:
            log.truncate_to(Offset(random.randint(log.end - 3, log.end)))
        elif what < 0.96:
            log.close()
            log = Log.open(disk, FOLDER, SMALL, now=NOW, recovery_point=log.recovery_point, clean=True)
        else:
            log = Log.open(disk, FOLDER, SMALL, now=NOW, recovery_point=min(log.recovery_point, log.end))
        check_transactions(log)


# What may enter (KIP-890)


def refusal(log: Log, made: memoryview, **more: object) -> Code:
    before = log.end
    with pytest.raises(Refused) as caught:
        log.append(made, epoch=LeaderEpoch(0), now=NOW, **more)
    assert log.end == before
    return caught.value.code


def test_a_batch_outside_of_any_known_transaction_is_refused() -> None:
    log = open_log()
    made = batch(pid=1, transactional=True)
    assert refusal(log, made, verified=None) is Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refusal(log, made, verified=ONGOING) is Code.INVALID_TXN_STATE
    write_in_transaction(log, b"x", pid=1)
    log.append(batch(pid=1, transactional=True, sequence=1), epoch=LeaderEpoch(0), now=NOW, verified=ONGOING)
    end_transaction(log, 1, commit=False)
    late = batch(pid=1, transactional=True, sequence=2)
    assert refusal(log, late, verified=ONGOING) is Code.INVALID_TXN_STATE


def test_what_was_verified_counts_for_one_transaction() -> None:
    log = open_log()
    begin = log.producers.verifications.begin
    verified = begin(1, 0, 0, bumps_epochs=False, now=NOW)
    end_transaction(log, 1, commit=False)
    made = batch(pid=1, transactional=True)
    assert refusal(log, made, verified=verified) is Code.INVALID_TXN_STATE
    again = begin(1, 0, 0, bumps_epochs=False, now=NOW)
    assert refusal(log, made, verified=verified) is Code.INVALID_TXN_STATE
    log.append(made, epoch=LeaderEpoch(0), now=NOW, verified=again)
    assert len(log.producers.verifications) == 0


def test_a_batch_does_not_overtake_one_that_could_not_be_verified() -> None:
    log = open_log()
    begin = log.producers.verifications.begin
    begin(1, 0, 4, bumps_epochs=False, now=NOW)
    second = begin(1, 0, 5, bumps_epochs=False, now=NOW)
    made = batch(pid=1, transactional=True, sequence=5)
    assert refusal(log, made, verified=second) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    first = begin(1, 0, 4, bumps_epochs=False, now=NOW)
    log.append(batch(pid=1, transactional=True, sequence=4), epoch=LeaderEpoch(0), now=NOW, verified=first)
    log.append(made, epoch=LeaderEpoch(0), now=NOW, verified=second)


def test_a_producer_that_bumps_epochs_begins_with_sequence_0() -> None:
    log = open_log()
    verified = log.producers.verifications.begin(1, 3, 7, bumps_epochs=True, now=NOW)
    made = batch(pid=1, producer_epoch=3, transactional=True, sequence=7)
    assert refusal(log, made, verified=verified) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_question_of_an_older_epoch_lets_nothing_in() -> None:
    verifications = Verifications()
    older = verifications.begin(1, 0, 0, bumps_epochs=True, now=NOW)
    newer = verifications.begin(1, 1, 0, bumps_epochs=True, now=NOW)
    assert verifications.get(1) is newer is not older
    assert verifications.begin(1, 0, 0, bumps_epochs=True, now=NOW) is not newer
    assert verifications.get(1) is newer


def test_questions_without_a_batch_are_forgotten() -> None:
    verifications = Verifications()
    verifications.begin(1, 0, 0, bumps_epochs=True, now=NOW)
    verifications.expire(NOW)
    assert len(verifications) == 0


# Markers


def _marker(log: Log, *, producer_epoch: int, version: int) -> Offset:
    made = memoryview(marker_batch(1, producer_epoch, 0, commit=False, now=NOW))
    return log.append_marker(made, epoch=LeaderEpoch(0), now=NOW, transaction_version=version)


def test_a_late_marker_does_not_end_a_later_transaction() -> None:
    log = open_log()
    write_in_transaction(log, b"first", pid=1, producer_epoch=0)
    _marker(log, producer_epoch=1, version=2)
    _marker(log, producer_epoch=1, version=2)  # again, as after a lost answer
    write_in_transaction(log, b"second", pid=1, producer_epoch=1)
    for epoch in (0, 1):
        with pytest.raises(Refused) as caught:
            _marker(log, producer_epoch=epoch, version=2)
        assert caught.value.code is Code.INVALID_PRODUCER_EPOCH
    assert log.producers.by_id[1].transaction >= 0
    _marker(log, producer_epoch=2, version=2)
    assert log.producers.by_id[1].transaction < 0


def test_a_batch_of_the_epoch_before_its_marker_is_refused() -> None:
    log = open_log()
    write_in_transaction(log, b"first", pid=1)
    _marker(log, producer_epoch=1, version=2)
    late = batch(pid=1, sequence=1, transactional=True)
    assert refusal(log, late) is Code.INVALID_PRODUCER_EPOCH
    fresh = batch(pid=1, producer_epoch=1, sequence=0, transactional=True)
    log.append(fresh, epoch=LeaderEpoch(0), now=NOW)


def test_what_the_broker_writes_in_a_producers_name_has_no_sequence_number() -> None:
    log = open_log()
    made = batch(b"offset", pid=1, sequence=-1, transactional=True)
    log.append(made, epoch=LeaderEpoch(0), now=NOW, internal=True)
    log.append(made, epoch=LeaderEpoch(0), now=NOW, internal=True)
    assert log.end == 2
    end_transaction(log, 1, commit=True, producer_epoch=1)
    with pytest.raises(Refused) as caught:
        log.append(made, epoch=LeaderEpoch(0), now=NOW, internal=True)
    assert caught.value.code is Code.INVALID_PRODUCER_EPOCH


def test_replaying_a_log_tells_what_ended_in_it() -> None:
    log = open_log()
    write_in_transaction(log, b"x", pid=1)
    end_transaction(log, 1, commit=False)
    states = ProducerStates()
    (ended,) = replayed(states, log.segments[0], NOW)
    assert (ended.first, ended.last, ended.aborted) == (0, 1, True)

"""One partition as its follower drives it."""

import pytest

from barnabas.errors import Code
from barnabas.replication.following import (
    AdvanceStart,
    Append,
    Effect,
    FetchAnswer,
    FetchPosition,
    Following,
    StartOver,
    Truncate,
)
from barnabas.replication.histories import Divergence
from barnabas.types import LeaderEpoch, Millis, Offset
from tests.replication.test_histories import History, history

NOW = Millis(1_000_000)
BACKOFF = 1000


def following(log: History, watermark: int = 0, epoch: int = 5) -> Following:
    return Following(log, LeaderEpoch(epoch), Offset(watermark), stored=log.end, backoff_ms=BACKOFF)


def position(machine: Following, now: int = NOW) -> FetchPosition:
    found = machine.next_fetch(Millis(now))
    assert found is not None
    return found


def answered(machine: Following, answer: FetchAnswer) -> list[Effect]:
    return machine.answered(position(machine), answer, NOW)


def test_a_follower_begins_at_its_own_end_with_the_epoch_of_its_last_record() -> None:
    machine = following(history(0, 0, 3))
    assert machine.begin() == []
    assert position(machine) == FetchPosition(Offset(3), LeaderEpoch(3), LeaderEpoch(5), Offset(0))


def test_without_any_epoch_what_is_not_committed_goes_first() -> None:
    log = History(Offset(10))
    assert following(log, watermark=6).begin() == [Truncate(Offset(6))]
    assert following(log, watermark=10).begin() == []


def test_records_are_stored_under_the_epoch_that_they_were_fetched_in() -> None:
    machine = following(history(0, 0, 3))
    assert answered(machine, FetchAnswer(Code.NONE, Offset(3), records=b"batches")) == [
        Append(b"batches", LeaderEpoch(5))
    ]


def test_the_watermark_is_the_leaders_as_far_as_the_log_reaches() -> None:
    log = history(0, 0, 3)
    machine = following(log, watermark=1)
    answered(machine, FetchAnswer(Code.NONE, Offset(9), records=b"batches"))
    log.end = Offset(6)
    assert machine.stored(Offset(6))
    assert machine.high_watermark == 6
    answered(machine, FetchAnswer(Code.NONE, Offset(4)))
    assert not machine.stored(Offset(6)), "it never falls"


def test_a_follower_is_caught_up_with_what_its_leader_has_told_to_be_committed() -> None:
    log = history(0, 0, 3)
    machine = following(log, watermark=3)
    states = [machine.is_caught_up]
    answered(machine, FetchAnswer(Code.NONE, Offset(6), records=b"batches"))
    states.append(machine.is_caught_up)
    log.end = Offset(6)
    machine.stored(Offset(6))
    states.append(machine.is_caught_up)
    answered(machine, FetchAnswer(Code.NONE, Offset(7)))
    states.append(machine.is_caught_up)
    assert states == [False, False, True, False], "not before the leader has said anything"


def test_what_is_not_flushed_is_neither_reported_nor_committed() -> None:
    log = history(0, 0, 3)
    machine = following(log)
    answered(machine, FetchAnswer(Code.NONE, Offset(9), records=b"batches"))
    log.end = Offset(6)
    machine.stored(Offset(3))
    assert machine.high_watermark == 3
    assert machine.next_fetch(NOW) is None
    machine.stored(Offset(6))
    assert machine.high_watermark == 6
    assert position(machine).offset == 6


@pytest.mark.parametrize(
    ("mine", "leaders", "cut"),
    [
        ((0, 0, 3), (0, 2), 2),
        ((0, 0, 3, 3), (3, 3), 3),
        ((0, 0, 1, 3, 3), (2, 4), 3),
        ((4, 4), (4, 0), 0),
    ],
)
def test_what_the_leader_does_not_have_is_cut(
    mine: tuple[int, ...], leaders: tuple[int, int], cut: int
) -> None:
    parted = Divergence(LeaderEpoch(leaders[0]), Offset(leaders[1]))
    machine = following(history(*mine))
    assert answered(machine, FetchAnswer(Code.NONE, Offset(9), diverging=parted)) == [Truncate(Offset(cut))]


def test_a_cut_below_the_watermark_takes_the_watermark_along() -> None:
    log = history(0, 0, 3)
    machine = following(log, watermark=3)
    log.end = Offset(1)
    assert machine.stored(Offset(1))
    assert machine.high_watermark == 1


def test_the_log_starts_where_the_leaders_does() -> None:
    machine = following(history(0, 0, 3))
    assert answered(machine, FetchAnswer(Code.NONE, Offset(3), Offset(2))) == [AdvanceStart(Offset(2))]
    assert answered(machine, FetchAnswer(Code.NONE, Offset(3), Offset(0))) == []


def test_what_was_deleted_goes_before_new_records_come_where_it_is_here() -> None:
    """On a full disk that is what makes room for them."""
    log = history(0, 0, 3)
    append = Append(b"batches", LeaderEpoch(5))
    answer = FetchAnswer(Code.NONE, Offset(3), Offset(2), records=b"batches")
    assert answered(following(log), answer) == [AdvanceStart(Offset(2)), append]
    beyond = answer._replace(log_start=Offset(4))
    assert answered(following(log), beyond) == [append, AdvanceStart(Offset(4))]


def test_a_log_that_ends_below_the_leaders_start_starts_over_there() -> None:
    machine = following(history(0, 0, 3))
    assert answered(machine, FetchAnswer(Code.OFFSET_OUT_OF_RANGE, Offset(50), Offset(40))) == [
        StartOver(Offset(40))
    ]


def test_an_empty_log_beyond_the_leaders_end_goes_back_to_what_is_committed() -> None:
    log = History(Offset(100), start=Offset(100))
    assert answered(following(log), FetchAnswer(Code.OFFSET_OUT_OF_RANGE, Offset(50), Offset(40))) == [
        Truncate(Offset(50))
    ]


@pytest.mark.parametrize(
    "code",
    [
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.KAFKA_STORAGE_ERROR,
        Code.CORRUPT_MESSAGE,
        Code.OFFSET_OUT_OF_RANGE,
        Code.UNKNOWN_TOPIC_ID,
    ],
)
def test_errors_cost_a_pause_that_grows_to_the_configured_one(code: Code) -> None:
    machine = following(history(0, 0, 3))
    now, pauses = NOW, []
    for _ in range(10):
        assert machine.answered(position(machine, now), FetchAnswer(code), now) == []
        assert machine.next_fetch(Millis(machine.retry_at - 1)) is None
        pauses.append(machine.retry_at - now)
        now = machine.retry_at
    assert pauses[:3] == [20, 40, 80]
    assert pauses[-1] == BACKOFF
    machine.answered(position(machine, now), FetchAnswer(Code.NONE, Offset(3)), now)
    machine.failed(now)
    assert machine.retry_at - now == 20, "a success forgets the failures before it"


def test_an_answer_to_anything_but_the_next_fetch_is_passed_over() -> None:
    log = history(0, 0, 3)
    machine = following(log)
    asked = position(machine)
    parted = FetchAnswer(Code.NONE, Offset(9), diverging=Divergence(LeaderEpoch(0), Offset(1)))
    older = asked._replace(epoch=LeaderEpoch(4))
    assert machine.answered(older, parted, NOW) == []
    log.end = Offset(2)
    log.epochs.truncate_from_end(Offset(2))
    machine.stored(Offset(2))
    assert machine.answered(asked, parted, NOW) == []
    log.end = Offset(3)
    log.epochs.assign(LeaderEpoch(4), Offset(2))
    machine.stored(Offset(3))
    assert machine.answered(asked, parted, NOW) == [], "another record lies at the same place"

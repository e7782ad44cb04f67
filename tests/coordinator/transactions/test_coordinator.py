"""What producers may do with a transactional id, one step after the other, and what a coordinator makes of it."""

import pytest

from barnabas.coordinator.effects import TopicChanges
from barnabas.coordinator.transactions.coordinator import PATIENCE_MS
from barnabas.coordinator.transactions.requests import Add, Describe, End, Init, List, Marked
from barnabas.coordinator.transactions.transaction import (
    LAST_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Producer,
    TransactionState,
)
from barnabas.errors import Code, Refused
from tests.coordinator.shell import config
from tests.coordinator.transactions.host import ID, ORDERS, PARCELS, Host

S = TransactionState


def with_producer(epoch: int = 0) -> tuple[Host, Producer]:
    host = Host()
    producer = host.init()
    while producer.epoch < epoch:
        producer = host.init()
    return host, producer


def exhausted() -> tuple[Host, Producer]:
    """A producer with the last epoch that producers get."""
    host, _ = with_producer()
    last = host.transaction._replace(epoch=LAST_EPOCH - 1)
    host.coordinator.transactions[ID] = last
    return host, last.producer


# --- beginning


def test_a_new_transactional_id_gets_a_producer_id_and_each_producer_after_it_another_epoch() -> None:
    host = Host()
    assert [host.init(), host.init(), host.init()] == [Producer(100, 0), Producer(100, 1), Producer(100, 2)]


def test_a_producer_that_goes_on_gets_the_next_epoch_and_a_retry_of_it_the_same() -> None:
    host, producer = with_producer()
    following = host.init(producer)
    assert following == Producer(100, 1)
    assert host.init(producer) == following
    host.crash()
    assert host.init(producer) == following


def test_a_producer_that_goes_on_is_fenced_when_another_has_come_in_between() -> None:
    host, producer = with_producer()
    host.init()
    assert host.code(Init(ID, 60_000, producer)) is Code.PRODUCER_FENCED


def test_another_producer_id_follows_the_last_epoch() -> None:
    host, producer = exhausted()
    assert host.init(producer) == Producer(101, 0)
    assert host.init(producer) == Producer(101, 0)  # the same again, asked for again
    assert host.init() == Producer(101, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, NO_TIMEOUT_MS])
def test_a_timeout_that_is_not_possible_is_refused(timeout_ms: int) -> None:
    with pytest.raises(Refused, match=r"transaction\.max\.timeout\.ms, 900000") as refused:
        Host().ask(Init(ID, timeout_ms))
    assert refused.value.code is Code.INVALID_TRANSACTION_TIMEOUT


def test_an_empty_transactional_id_is_refused() -> None:
    host = Host()
    assert host.code(Init("", 1000)) is Code.INVALID_REQUEST
    assert host.code(End("", Producer(1, 0), True, 2)) is Code.INVALID_REQUEST


# --- committing and aborting


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_when_every_partition_has_its_marker(commit: bool) -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS)
    host.begin(producer, PARCELS)
    assert host.end(producer, commit=commit) == Producer(100, 1)
    (markers,) = host.sends
    assert (markers.producer, markers.commit) == (Producer(100, 1), commit)
    assert markers.partitions == {ORDERS, PARCELS}
    host.mark(ORDERS)
    assert host.state() is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    host.mark(PARCELS)
    assert host.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)


def test_an_older_client_keeps_its_epoch() -> None:
    host, producer = with_producer()
    host.begin(producer, version=0)
    assert host.end(producer, version=0) == producer
    assert host.sends[0].producer == producer
    host.mark()
    assert host.end(producer, version=0) == producer
    assert host.code(End(ID, producer, False, 0)) is Code.INVALID_TXN_STATE


def test_an_end_that_is_asked_for_again_is_answered_as_the_first_time() -> None:
    host, producer = with_producer()
    host.begin(producer)
    following = host.end(producer)
    repeated = host.send(End(ID, producer, True, 2))
    assert repeated not in host.answers
    host.mark()
    assert host.answers[repeated] == following
    host.crash()
    assert host.end(producer) == following
    assert len(host.sends) == 1


def test_a_late_end_does_not_touch_a_later_transaction() -> None:
    host, producer = with_producer()
    host.begin(producer)
    following = host.end(producer)
    host.mark()
    host.begin(following)
    for commit in (True, False):
        assert host.code(End(ID, producer, commit, 2)) is Code.PRODUCER_FENCED
    assert host.state() is S.ONGOING


def test_an_end_that_contradicts_the_first_changes_nothing() -> None:
    host, producer = with_producer()
    host.begin(producer)
    host.end(producer)
    assert host.code(End(ID, producer, False, 2)) is Code.INVALID_TXN_STATE
    host.mark()
    assert host.code(End(ID, producer, False, 2)) is Code.INVALID_TXN_STATE
    assert host.state() is S.COMPLETE_COMMIT


def test_a_transaction_without_partitions_can_be_aborted_and_not_committed() -> None:
    host, producer = with_producer()
    assert host.code(End(ID, producer, True, 2)) is Code.INVALID_TXN_STATE
    assert host.end(producer, commit=False) == Producer(100, 1)
    assert host.state() is S.COMPLETE_ABORT
    assert host.sends == []
    assert host.end(producer, commit=False) == Producer(100, 1)
    assert host.code(End(ID, Producer(100, 1), False, 0)) is Code.NONE  # an older client, of the same epoch


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    host, producer = exhausted()
    host.begin(producer)
    following = host.end(producer)
    assert following == Producer(101, 0)
    assert host.sends[0].producer == Producer(100, LAST_EPOCH)
    next_one = host.send(Add(ID, following, frozenset({ORDERS}), 2))
    host.mark()
    assert next_one in host.answers
    assert host.transaction.producer == following


def test_the_end_over_a_producer_id_may_be_asked_for_again() -> None:
    host, producer = exhausted()
    host.begin(producer)
    following = host.end(producer)
    host.mark()
    assert host.end(producer) == following
    host.begin(following)
    assert host.code(End(ID, producer, True, 2)) is Code.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (Producer(100, 0), Code.PRODUCER_FENCED),
        (Producer(100, 2), Code.PRODUCER_FENCED),
        (Producer(7, 1), Code.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_another_producer_than_the_last_is_refused(producer: Producer, code: Code) -> None:
    host, _ = with_producer(1)
    assert host.code(Add(ID, producer, frozenset({ORDERS}), 2)) is code
    assert host.code(End(ID, producer, True, 2)) is code
    with pytest.raises(Refused) as refused:
        host.verify(producer, ORDERS)
    assert refused.value.code is code


def test_a_transactional_id_that_was_never_heard_of_is_refused() -> None:
    host = Host()
    assert host.code(Add(ID, Producer(1, 0), frozenset({ORDERS}), 2)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert host.code(End(ID, Producer(1, 0), True, 2)) is Code.INVALID_PRODUCER_ID_MAPPING
    assert host.code(Describe(ID)) is Code.TRANSACTIONAL_ID_NOT_FOUND


# --- fencing


def test_a_new_producer_aborts_the_transaction_of_the_one_before_and_waits_for_it() -> None:
    host, producer = with_producer()
    host.begin(producer)
    waiting = host.send(Init(ID, 60_000))
    (markers,) = host.sends
    assert (markers.producer, markers.commit) == (Producer(100, 1), False)
    assert host.code(End(ID, producer, True, 2)) is Code.PRODUCER_FENCED
    assert host.code(End(ID, producer, False, 2)) is Code.PRODUCER_FENCED
    assert waiting not in host.answers
    host.mark()
    assert host.answers[waiting].producer == Producer(100, 2)
    assert host.code(Init(ID, 60_000, producer)) is Code.PRODUCER_FENCED


def test_an_old_producer_cannot_abort_the_transaction_of_a_newer_one() -> None:
    host, producer = with_producer()
    newer = host.init()
    host.begin(newer)
    assert host.code(Init(ID, 60_000, producer)) is Code.PRODUCER_FENCED
    assert host.state() is S.ONGOING


def test_two_new_producers_at_once_both_get_an_epoch_of_their_own() -> None:
    host, producer = with_producer()
    host.begin(producer)
    waiting = [host.send(Init(ID, 60_000)) for _ in range(3)]
    host.mark()
    assert [host.answers[token].producer.epoch for token in waiting] == [2, 3, 4]


# --- waiting for markers


def test_the_next_transaction_begins_when_the_markers_are_written() -> None:
    host, producer = with_producer()
    host.begin(producer)
    following = host.end(producer)
    waiting = host.send(Add(ID, following, frozenset({PARCELS}), 2))
    assert waiting not in host.answers
    host.mark()
    assert waiting in host.answers
    assert host.transaction.partitions == {PARCELS}
    assert host.state() is S.ONGOING


def test_a_request_waits_no_longer_than_its_client_would() -> None:
    host, producer = with_producer()
    host.begin(producer)
    following = host.end(producer)
    waiting = host.send(Add(ID, following, frozenset({PARCELS}), 2))
    host.sleep(PATIENCE_MS)
    assert host.answers[waiting].code is Code.CONCURRENT_TRANSACTIONS
    host.mark()
    assert host.state() is S.COMPLETE_COMMIT


def test_what_waits_is_told_when_another_coordinator_takes_over() -> None:
    host, producer = with_producer()
    host.begin(producer)
    host.end(producer)
    host.send(Init(ID, 60_000))
    effects = host.coordinator.resign(Code.NOT_COORDINATOR)
    assert [answer.code for _, answer in effects.replies] == [Code.NOT_COORDINATOR]


def test_a_marker_of_another_transaction_does_not_count() -> None:
    host, producer = with_producer()
    host.begin(producer)
    following = host.end(producer)
    host.mark()
    (first,) = host.sends
    host.begin(following)
    host.end(following)
    host.mark(of=first)
    assert host.state() is S.PREPARE_COMMIT


# --- crashes


def test_what_was_decided_is_carried_out_by_the_next_coordinator() -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS, PARCELS)
    host.end(producer)
    host.mark(ORDERS)
    host.sends.clear()
    host.crash()
    (markers,) = host.sends
    assert markers.commit
    assert markers.partitions == {ORDERS, PARCELS}
    host.mark()
    assert host.state() is S.COMPLETE_COMMIT


def test_a_replay_gives_the_coordinator_as_it_was() -> None:
    host, producer = with_producer()
    for commit in (True, False, True):
        host.begin(producer)
        producer = host.end(producer, commit=commit)
        host.mark()
    host.begin(producer, PARCELS)
    before = dict(host.coordinator.transactions)
    host.crash()
    assert host.coordinator.transactions == before


def test_a_log_that_takes_nothing_delays_the_end_and_loses_nothing() -> None:
    host, producer = with_producer()
    host.begin(producer)
    host.end(producer)
    host.refusing = True
    host.mark()
    assert host.state() is S.PREPARE_COMMIT
    host.refusing = False
    host.tick()
    assert host.state() is S.COMPLETE_COMMIT


def test_an_end_that_the_log_has_refused_has_not_happened() -> None:
    host, producer = with_producer()
    host.begin(producer)
    host.refusing = True
    assert host.code(End(ID, producer, True, 2)) is Code.COORDINATOR_NOT_AVAILABLE
    assert host.sends == []
    host.refusing = False
    assert host.end(producer, commit=False) == Producer(100, 1)


# --- time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_may_go_on() -> None:
    host, producer = with_producer()
    host.begin(producer)
    host.sleep(59_000)
    assert host.state() is S.ONGOING
    host.sleep(11_000)
    assert host.state() is S.PREPARE_ABORT
    assert host.sends[0].producer == Producer(100, 1)
    assert host.code(End(ID, producer, True, 2)) is Code.TRANSACTION_ABORTABLE
    host.mark()
    assert host.code(End(ID, producer, True, 2)) is Code.TRANSACTION_ABORTABLE
    assert host.end(producer, commit=False) == Producer(100, 1)
    assert host.init(producer) == Producer(100, 1)


def test_an_older_client_whose_transaction_took_too_long_is_fenced() -> None:
    host, producer = with_producer()
    host.begin(producer, version=0)
    host.sleep(70_000)
    host.mark()
    assert host.code(End(ID, producer, True, 0)) is Code.PRODUCER_FENCED
    assert host.init() == Producer(100, 2)


def test_a_timeout_at_the_last_epoch_is_followed_by_another_producer_id() -> None:
    host, producer = exhausted()
    host.begin(producer)
    host.sleep(70_000)
    assert host.sends[0].producer == Producer(100, LAST_EPOCH)
    host.mark()
    assert host.code(End(ID, producer, False, 2)) is Code.PRODUCER_FENCED
    assert host.init() == Producer(101, 0)


def test_a_transactional_id_that_is_not_used_is_forgotten_and_one_with_a_transaction_is_not() -> None:
    host = Host(config(transactional_id_expiration_ms=60_000, transaction_max_timeout_ms=10_000_000))
    producer = host.ask(Init(ID, 10_000_000)).producer
    other = host.ask(Init("other", 10_000_000)).producer
    host.begin(other, name="other")
    host.sleep(3_600_000)
    assert set(host.coordinator.transactions) == {"other"}
    assert host.code(Add(ID, producer, frozenset({ORDERS}), 2)) is Code.INVALID_PRODUCER_ID_MAPPING
    host.crash()
    assert set(host.coordinator.transactions) == {"other"}


# --- partitions


def test_a_partition_is_verified_only_in_the_open_transaction() -> None:
    host, producer = with_producer()
    assert host.verify(producer, ORDERS) == {ORDERS}
    host.begin(producer, ORDERS)
    assert host.verify(producer, ORDERS, PARCELS) == {PARCELS}
    following = host.end(producer)
    with pytest.raises(Refused) as refused:
        host.verify(producer, ORDERS)
    assert refused.value.code is Code.PRODUCER_FENCED
    with pytest.raises(Refused) as refused:
        host.verify(following, ORDERS)
    assert refused.value.code is Code.CONCURRENT_TRANSACTIONS


def test_a_partition_that_is_there_already_costs_no_record() -> None:
    host, producer = with_producer()
    host.begin(producer)
    length = len(host.log)
    host.begin(producer)
    assert len(host.log) == length


def test_a_partition_of_a_topic_that_is_gone_needs_no_marker() -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS, PARCELS)
    host.end(producer)
    host.mark(ORDERS)
    gone = TopicChanges(frozenset({"parcels"}), frozenset())
    host.coordinator.topics_changed({}, host.now, gone)
    host.tick()
    assert host.state() is S.COMPLETE_COMMIT


def test_a_partition_whose_topic_goes_before_the_end_gets_no_marker() -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS, PARCELS)
    gone = TopicChanges(frozenset({"parcels"}), frozenset())
    host.coordinator.topics_changed({}, host.now, gone)
    host.end(producer)
    assert host.sends[0].partitions == {ORDERS}
    host.mark(ORDERS)
    assert host.state() is S.COMPLETE_COMMIT


def test_a_partition_of_a_topic_that_was_made_anew_gets_its_marker() -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS)
    host.coordinator.topics_changed({}, host.now, TopicChanges(frozenset({"orders"}), frozenset({"orders"})))
    host.begin(producer, ORDERS)
    host.end(producer)
    assert host.sends[0].partitions == {ORDERS}


def test_a_transaction_whose_topics_are_all_gone_ends_by_itself() -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS)
    host.coordinator.topics_changed({}, host.now, TopicChanges(frozenset({"orders"}), frozenset()))
    host.end(producer)
    assert host.state() is S.COMPLETE_COMMIT


# --- two-phase commit


def two_phase() -> tuple[Host, Producer]:
    host = Host(config(transaction_two_phase_commit_enable="true"))
    return host, host.init(two_phase=True)


def test_two_phase_commit_has_to_be_switched_on() -> None:
    host = Host()
    for asked in (Init(ID, 1000, two_phase=True), Init(ID, 1000, keep=True)):
        assert host.code(asked) is Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_prepared_transaction_has_no_timeout() -> None:
    host, producer = two_phase()
    host.begin(producer)
    host.sleep(100_000_000)
    assert host.state() is S.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_kept_and_ended_by_another_producer(commit: bool) -> None:
    host, producer = two_phase()
    host.begin(producer)
    first = host.ask(Init(ID, 0, two_phase=True, keep=True))
    second = host.ask(Init(ID, 0, two_phase=True, keep=True))
    assert first.ongoing == second.ongoing == producer
    assert first.producer != second.producer
    host.crash()
    for old in (producer, first.producer):
        assert host.code(End(ID, old, commit, 2)) is Code.PRODUCER_FENCED
    assert host.code(Add(ID, second.producer, frozenset({PARCELS}), 2)) is Code.INVALID_TXN_STATE
    following = host.end(second.producer, commit=commit)
    (markers,) = host.sends
    assert markers.commit is commit
    assert producer < markers.producer < following
    host.mark()
    assert host.end(second.producer, commit=commit) == following
    host.begin(following)


def test_without_a_wish_to_keep_it_a_prepared_transaction_is_aborted() -> None:
    host, producer = two_phase()
    host.begin(producer)
    kept = host.ask(Init(ID, 0, two_phase=True, keep=True))
    waiting = host.send(Init(ID, 0, two_phase=True))
    assert not host.sends[0].commit
    host.mark()
    answer = host.answers[waiting]
    assert answer.ongoing == NO_PRODUCER
    assert answer.producer.epoch > kept.producer.epoch
    assert host.code(End(ID, kept.producer, True, 2)) is Code.PRODUCER_FENCED


def test_nothing_is_kept_where_nothing_is_open() -> None:
    host, _ = two_phase()
    assert host.ask(Init(ID, 0, two_phase=True, keep=True)).ongoing == NO_PRODUCER


# --- looking


def test_transactions_are_described_and_listed() -> None:
    host, producer = with_producer()
    host.begin(producer, ORDERS, PARCELS)
    host.ask(Init("idle", 1000))
    row = host.ask(Describe(ID))
    assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", 100, 0)
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("orders", [0]), ("parcels", [1])]
    host.end(producer)
    host.mark(ORDERS)
    assert [topic.topic for topic in host.ask(Describe(ID)).topics] == ["parcels"]

    def names(asked: List) -> set[str]:
        return {row.transactional_id for row in host.ask(asked)}

    nothing: frozenset[str] = frozenset()
    assert names(List(nothing, frozenset(), -1)) == {ID, "idle"}
    assert names(List(frozenset({"PrepareCommit"}), frozenset(), -1)) == {ID}
    assert names(List(nothing, frozenset({101}), -1)) == {"idle"}
    assert names(List(nothing, frozenset(), 0)) == set()


def test_a_marker_of_an_unknown_transaction_is_passed_over() -> None:
    host = Host()
    host.coordinator.handle(Marked(ID, Producer(1, 1), frozenset({ORDERS})), None, host.now, None)  # type: ignore[arg-type]
    assert host.log == []

"""Promises of the machine of a producer's transactions."""

from typing import Any

import pytest

from barnabas import errors
from barnabas.client.group_offsets import GroupMetadata, NextOffset
from barnabas.client.network.failures import Unreachable
from barnabas.client.producer.partition_state import ProducerIdentity
from barnabas.client.producer.transaction import Phase, Transactions
from barnabas.client.producer.transaction_questions import PreparedTransaction, Question
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.producer.transaction_simulation import story

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def machine(*, is_two_phase: bool = False) -> Transactions:
    return Transactions("x", timeout_ms=1000, is_two_phase=is_two_phase, retry_backoff=0.1)


def ready(**settings: bool) -> Transactions:
    found = machine(**settings)
    found.init()
    assert asked(found, InitProducerIdRequest)
    found.take(InitProducerIdResponse(0, 0, 7, 0), 0.0)
    return found


def begun(version: int, **settings: bool) -> Transactions:
    found = ready(**settings)
    found.begin(version)
    return found


def asked(found: Transactions, kind: type, now: float = 0.0, *, is_drained: bool = True) -> Question:
    question = found.next_question(now, is_drained=is_drained)
    assert question is not None
    assert isinstance(question.request, kind)
    return question


def added(*codes: int) -> AddPartitionsToTxnResponse:
    rows = [AddPartitionsToTxnPartitionResult(number, code) for number, code in enumerate(codes)]
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", rows)]
    )


def offsets_taken(code: int = 0) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponsePartition(0, code)
    return TxnOffsetCommitResponse(0, [TxnOffsetCommitResponseTopic("t", [row])])


def with_a_record(version: int) -> Transactions:
    """Open, with a partition in it."""
    found = begun(version)
    if version == 1:
        assert not found.admits(PLACE)
        assert asked(found, AddPartitionsToTxnRequest).versions == (0, 3)
        found.take(added(0), 0.0)
    assert found.admits(PLACE)
    return found


def test_the_older_way_adds_a_partition_before_its_first_batch() -> None:
    found = with_a_record(1)
    assert not found.admits(OTHER)
    question = asked(found, AddPartitionsToTxnRequest)
    request: Any = question.request
    assert [(each.name, each.partitions) for each in request.v3_and_below_topics] == [("t", [1])]


def test_the_newer_way_adds_none_and_goes_on_in_the_epoch_that_the_end_gives() -> None:
    found = with_a_record(2)
    assert found.next_question(0.0, is_drained=True) is None
    found.end(commits=True)
    assert asked(found, EndTxnRequest).versions == (5, 5)
    found.take(EndTxnResponse(0, 0, 7, 1), 0.0)
    assert (found.phase, found.identity) == (Phase.READY, ProducerIdentity(7, 1))


@pytest.mark.parametrize("version", [1, 2])
def test_the_end_waits_for_every_record(version: int) -> None:
    found = with_a_record(version)
    found.end(commits=True)
    assert found.next_question(0.0, is_drained=False) is None
    assert asked(found, EndTxnRequest, is_drained=True)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_without_a_record_asks_nothing(version: int, commits: bool) -> None:
    found = begun(version)
    found.end(commits=commits)
    assert found.next_question(0.0, is_drained=True) is None
    assert (found.phase, found.identity) == (Phase.READY, ProducerIdentity(7, 0))


def test_after_a_record_failed_a_transaction_can_only_be_aborted() -> None:
    found = with_a_record(2)
    found.record_failed(Refused(Code.MESSAGE_TOO_LARGE))
    for refused in (found.check_open, lambda: found.end(commits=True), lambda: found.begin(2)):
        with pytest.raises(errors.TransactionAbortable, match="Abort the transaction"):
            refused()
    assert not found.admits(PLACE)
    found.end(commits=False)
    request: Any = asked(found, EndTxnRequest).request
    assert not request.committed


def test_the_older_way_asks_for_another_epoch_after_a_failure() -> None:
    found = with_a_record(1)
    found.record_failed(Refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER))
    found.end(commits=False)
    asked(found, EndTxnRequest)
    found.take(EndTxnResponse(), 0.0)
    request: Any = asked(found, InitProducerIdRequest).request
    assert (request.producer_id, request.producer_epoch) == (7, 0)
    found.take(InitProducerIdResponse(0, 0, 7, 1), 0.0)
    assert (found.phase, found.identity) == (Phase.READY, ProducerIdentity(7, 1))


def test_the_older_way_keeps_its_epoch_otherwise() -> None:
    found = with_a_record(1)
    found.end(commits=True)
    asked(found, EndTxnRequest)
    found.take(EndTxnResponse(), 0.0)
    assert (found.phase, found.identity) == (Phase.READY, ProducerIdentity(7, 0))
    found.begin(1)
    assert not found.admits(PLACE), "each transaction has partitions of its own"


@pytest.mark.parametrize("code", [Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_can_do_nothing_more(code: Code) -> None:
    found = with_a_record(2)
    found.end(commits=True)
    asked(found, EndTxnRequest)
    found.take(EndTxnResponse(error_code=code), 0.0)
    for refused in (lambda: found.begin(2), lambda: found.end(commits=False), found.check_open, found.init):
        with pytest.raises(errors.ProducerFenced, match="Close this producer"):
            refused()
    assert found.next_question(1e9, is_drained=True) is None


@pytest.mark.parametrize(
    ("code", "version", "phase"),
    [
        (Code.TRANSACTION_ABORTABLE, 2, Phase.BROKEN),
        (Code.UNKNOWN_PRODUCER_ID, 2, Phase.BROKEN),
        (Code.INVALID_TXN_STATE, 2, Phase.BROKEN),
        (Code.INVALID_TXN_STATE, 1, Phase.OVER),
        (Code.INVALID_PRODUCER_ID_MAPPING, 2, Phase.OVER),
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 2, Phase.OVER),
        (Code.UNKNOWN_SERVER_ERROR, 2, Phase.OVER),
    ],
)
def test_what_a_refused_commit_means(code: Code, version: int, phase: Phase) -> None:
    found = with_a_record(version)
    found.end(commits=True)
    asked(found, EndTxnRequest)
    found.take(EndTxnResponse(error_code=code), 0.0)
    assert found.phase is phase


def test_an_abort_that_is_refused_is_the_end() -> None:
    found = with_a_record(2)
    found.end(commits=False)
    asked(found, EndTxnRequest)
    found.take(EndTxnResponse(error_code=Code.TRANSACTION_ABORTABLE), 0.0)
    assert found.phase is Phase.OVER


@pytest.mark.parametrize(
    "code", [Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.REQUEST_TIMED_OUT]
)
def test_what_may_pass_is_asked_again_after_a_pause_that_grows(code: Code) -> None:
    found = with_a_record(2)
    found.end(commits=True)
    now, pauses = 0.0, []
    for _ in range(6):
        asked(found, EndTxnRequest, now)
        assert found.take(EndTxnResponse(error_code=code), now) is code
        assert found.next_question(now, is_drained=True) is None
        pauses.append(round(found.due - now, 3))
        now = found.due
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_end_of_the_last_transaction_is_waited_for_in_small_steps() -> None:
    found = begun(1)
    found.admits(PLACE)
    asked(found, AddPartitionsToTxnRequest)
    found.take(added(Code.CONCURRENT_TRANSACTIONS), 5.0)
    assert 5.0 < found.due <= 5.01
    assert asked(found, AddPartitionsToTxnRequest, found.due)


def test_an_answer_that_got_lost_is_asked_for_again() -> None:
    found = with_a_record(2)
    found.end(commits=True)
    first = asked(found, EndTxnRequest)
    found.lost(Unreachable("gone"), 0.0)
    assert asked(found, EndTxnRequest, found.due).request == first.request


def test_an_abort_after_a_lost_question_ends_what_it_may_have_begun() -> None:
    found = begun(1)
    found.admits(PLACE)
    asked(found, AddPartitionsToTxnRequest)
    found.end(commits=False)
    assert found.next_question(0.0, is_drained=True) is None, "one question at a time"
    found.lost(Unreachable("gone"), 0.0)
    asked(found, EndTxnRequest, found.due)
    found.take(EndTxnResponse(error_code=Code.INVALID_TXN_STATE), 1.0)  # it had not arrived
    asked(found, InitProducerIdRequest, 1.0)
    found.take(InitProducerIdResponse(0, 0, 7, 1), 1.0)
    assert found.phase is Phase.READY


def test_of_several_partitions_the_one_that_was_refused_is_named() -> None:
    found = begun(1)
    found.admits(PLACE)
    found.admits(OTHER)
    asked(found, AddPartitionsToTxnRequest)
    found.take(added(Code.OPERATION_NOT_ATTEMPTED, Code.TOPIC_AUTHORIZATION_FAILED), 0.0)
    with pytest.raises(errors.TransactionAbortable, match="partition t-1: Not allowed") as caught:
        found.check_open()
    assert isinstance(caught.value.__cause__, errors.TopicAuthorizationFailed)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_go_before_the_end(version: int) -> None:
    found = begun(version)
    member = GroupMetadata("g", 3, "me", "name")
    wish = found.add_offsets(member, {PLACE: NextOffset(5, 2)})
    found.end(commits=True)
    if version == 1:
        request: Any = asked(found, AddOffsetsToTxnRequest).request
        assert request.group_id == "g"
        found.take(AddOffsetsToTxnResponse(), 0.0)
    question = asked(found, TxnOffsetCommitRequest)
    request = question.request
    assert (question.group, question.versions) == ("g", (3, 4) if version == 1 else (5, 5))
    assert (request.generation_id, request.member_id, request.group_instance_id) == (3, "me", "name")
    (row,) = request.topics[0].partitions
    assert (row.committed_offset, row.committed_leader_epoch) == (5, 2)
    found.take(offsets_taken(), 0.0)
    assert wish.is_done
    assert asked(found, EndTxnRequest)


@pytest.mark.parametrize(
    "code",
    [Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID, Code.STALE_MEMBER_EPOCH],
)
def test_offsets_of_a_member_that_its_group_has_left_behind_break_the_transaction(code: Code) -> None:
    found = begun(2)
    wish = found.add_offsets(GroupMetadata("g"), {PLACE: NextOffset(5)})
    asked(found, TxnOffsetCommitRequest)
    found.take(offsets_taken(code), 0.0)
    assert found.phase is Phase.BROKEN
    assert wish.is_done
    assert wish.failure is not None
    assert wish.failure.code is code


def test_offsets_that_wait_are_dropped_by_an_abort() -> None:
    found = begun(2)
    wish = found.add_offsets(GroupMetadata("g"), {PLACE: NextOffset(5)})
    asked(found, TxnOffsetCommitRequest)
    found.end(commits=False)
    assert wish.is_done
    found.take(offsets_taken(), 0.0)
    assert asked(found, EndTxnRequest)


def test_a_prepared_transaction_waits_for_its_end() -> None:
    found = begun(2, is_two_phase=True)
    found.admits(PLACE)
    found.prepare()
    assert found.next_question(0.0, is_drained=False) is None
    assert found.phase is Phase.PREPARING
    assert found.next_question(0.0, is_drained=True) is None
    assert (found.phase, found.prepared) == (Phase.PREPARED, PreparedTransaction(7, 0))
    with pytest.raises(BarnabasError, match="is prepared"):
        found.check_open()
    found.end(commits=True)
    assert asked(found, EndTxnRequest)


def test_a_prepared_transaction_is_kept_by_the_next_producer() -> None:
    found = machine(is_two_phase=True)
    found.init(keep_prepared=True)
    question = asked(found, InitProducerIdRequest)
    request: Any = question.request
    assert (question.versions, request.enable2_pc, request.keep_prepared_txn) == ((6, 6), True, True)
    found.take(InitProducerIdResponse(0, 0, 8, 0, 7, 4), 0.0)
    assert (found.phase, found.prepared) == (Phase.PREPARED, PreparedTransaction(7, 4))
    found.end(commits=False)
    end: Any = asked(found, EndTxnRequest).request
    assert (end.producer_id, end.producer_epoch) == (8, 0)


@pytest.mark.parametrize("action", [lambda x: x.prepare(), lambda x: x.init(keep_prepared=True)])
def test_two_phases_are_asked_for_in_the_settings(action: Any) -> None:
    with pytest.raises(BarnabasError, match="transaction_two_phase_commit_enable"):
        action(machine())


def test_a_prepared_transaction_is_written_down_and_read_again() -> None:
    there = PreparedTransaction(4000, 7)
    assert PreparedTransaction.parse(str(there)) == there
    for wrong in ("", "4000", "a:b", "1:2:3"):
        with pytest.raises(BarnabasError, match="such as 4000:7"):
            PreparedTransaction.parse(wrong)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda x: x.check_open(), "A record cannot be sent: no transaction is open"),
        (lambda x: x.end(commits=True), "cannot be committed: no transaction is open"),
        (lambda x: x.end(commits=False), "cannot be aborted: no transaction is open"),
        (lambda x: x.add_offsets(GroupMetadata("g"), {}), "Offsets cannot be sent: no transaction is open"),
        (lambda x: x.init(), "cannot be initialised again: it has its identity"),
        (lambda x: (x.begin(2), x.begin(2)), "cannot begin: a transaction is open"),
        (lambda x: (x.begin(2), x.end(commits=True), x.end(commits=False)), "is being committed"),
    ],
)
def test_what_cannot_be_done_now_says_what_can(action: Any, words: str) -> None:
    with pytest.raises(BarnabasError, match=words):
        action(ready())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seeds", range(10))
def test_what_is_told_of_a_transaction_is_what_became_of_it(seeds: int, version: int) -> None:
    for seed in range(seeds * 50, seeds * 50 + 50):
        story(seed, version)

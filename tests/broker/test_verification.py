"""A partition takes a batch of a transaction that its coordinator knows, and no other: the older way, and KIP-890's."""

from typing import Any

import pytest

from barnabas.errors import Code
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from tests.broker.speaking import batch, create, produce_request
from tests.broker.test_transactions import offsets_in, read_committed
from tests.deadline import eventually
from tests.raw import RawConnection

TRANSACTIONS = 1
TRANSIENT = frozenset(
    {Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR}
)
AGAIN = frozenset({Code.CONCURRENT_TRANSACTIONS, Code.NOT_ENOUGH_REPLICAS, *TRANSIENT})


class Member:
    """A producer with a transactional id, request by request."""

    def __init__(self, connection: RawConnection, topic: str, produce_version: int, end_version: int) -> None:
        self.connection, self.topic, self.name = connection, topic, f"id of {topic}"
        self._produce, self._end = produce_version, end_version
        self._patiently(FindCoordinatorRequest(self.name, TRANSACTIONS), 3)
        self.init()

    def _patiently(self, request: Any, version: int) -> Any:
        """Ask again while the answer says so."""

        def answered() -> Any:
            answer = self.connection.ask(request, version)
            return answer if answer.error_code not in AGAIN else None

        answer = eventually(answered, "the coordinator")
        assert answer.error_code == 0, Code.of(answer.error_code)
        return answer

    def init(self) -> None:
        given = self._patiently(InitProducerIdRequest(self.name, 60_000), 4)
        self.id, self.epoch = given.producer_id, given.producer_epoch

    def add(self, *partitions: int) -> None:
        topics = [AddPartitionsToTxnTopic(self.topic, list(partitions))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

        def codes() -> set[int]:
            (topic,) = self.connection.ask(request, 3).results_by_topic_v3_and_below
            found = {row.partition_error_code for row in topic.results_by_partition}
            return found if not found & AGAIN else set()

        assert eventually(codes, "the coordinator") == {0}

    def send(self, sequence: int, partition: int = 0, epoch: int | None = None) -> Code:
        facts = {"producer_id": self.id, "producer_epoch": self.epoch if epoch is None else epoch}
        records = batch(b"x", base_sequence=sequence, transactional=True, **facts)
        request = produce_request(self.topic, records, partition)
        request.transactional_id = self.name
        answer = self.connection.ask(request, self._produce)
        return Code.of(answer.responses[0].partition_responses[0].error_code)

    def end(self, *, commit: bool) -> None:
        answer = self._patiently(EndTxnRequest(self.name, self.id, self.epoch, commit), self._end)
        if self._end >= 5:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def read(self, count: int) -> list[int]:
        """The offsets of what is committed, once that is `count` batches."""

        def found() -> list[int]:
            offsets = offsets_in(read_committed(self.connection, self.topic, max_wait_ms=100))
            return offsets if len(offsets) >= count else []

        return eventually(found, f"{count} batches")

    def send_when_ended(self, sequence: int) -> Code:
        """The same once the transaction before is over."""
        (code,) = eventually(lambda: {self.send(sequence)} - AGAIN, "the end of the transaction before")
        return code


@pytest.fixture
def older(connection: RawConnection, topic: str) -> Member:
    create(connection, topic, 2)
    return Member(connection, topic, produce_version=11, end_version=3)


@pytest.fixture
def newer(connection: RawConnection, topic: str) -> Member:
    create(connection, topic, 2)
    return Member(connection, topic, produce_version=12, end_version=5)


def test_a_partition_that_was_added_takes_records(older: Member) -> None:
    older.add(0)
    assert older.send(0) is Code.NONE
    assert older.send(1) is Code.NONE
    older.end(commit=True)
    assert older.read(3) == [0, 1, 2]


@pytest.mark.parametrize(("version", "code"), [(9, Code.INVALID_TXN_STATE), (11, Code.TRANSACTION_ABORTABLE)])
def test_a_partition_that_was_never_added_takes_none(
    connection: RawConnection, topic: str, version: int, code: Code
) -> None:
    create(connection, topic, 2)
    member = Member(connection, topic, produce_version=version, end_version=3)
    assert member.send(0) is code, "no transaction at all"
    member.add(1)
    assert member.send(0) is code
    assert member.send(0, partition=1) is Code.NONE


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_that_comes_after_the_end_opens_no_transaction(older: Member, commit: bool) -> None:
    older.add(0)
    assert older.send(0) is Code.NONE
    older.end(commit=commit)
    assert older.read(2) == [0, 1]
    assert older.send(1) in (Code.INVALID_TXN_STATE, Code.TRANSACTION_ABORTABLE)
    assert read_committed(older.connection, older.topic).last_stable_offset == 2


def test_a_batch_adds_its_partition_by_itself(newer: Member) -> None:
    epoch = newer.epoch
    assert newer.send(0) is Code.NONE
    assert newer.send(0, partition=1) is Code.NONE
    newer.end(commit=True)
    assert newer.epoch == epoch + 1
    assert newer.read(2) == [0, 1]
    assert newer.send_when_ended(0) is Code.NONE, "the next transaction begins with sequence 0"
    newer.end(commit=False)
    assert newer.read(4) == [0, 1, 2, 3]


def test_a_late_batch_touches_no_later_transaction(newer: Member) -> None:
    late = newer.epoch
    assert newer.send(0) is Code.NONE
    newer.end(commit=True)
    assert newer.read(2) == [0, 1]
    assert newer.send(1, epoch=late) is Code.INVALID_PRODUCER_EPOCH
    assert newer.send(0, partition=1, epoch=late) is Code.INVALID_PRODUCER_EPOCH, (
        "which it had not written to"
    )
    assert newer.send_when_ended(0) is Code.NONE
    assert newer.send(1, epoch=late) is Code.INVALID_PRODUCER_EPOCH
    assert read_committed(newer.connection, newer.topic).last_stable_offset == 2


def test_a_zombie_is_told_so(newer: Member) -> None:
    zombie = newer.epoch
    assert newer.send(0) is Code.NONE
    newer.init()
    assert newer.epoch > zombie
    assert newer.send(1, epoch=zombie) is Code.INVALID_PRODUCER_EPOCH
    assert newer.read(2) == [0, 1], "its transaction was aborted"


def test_a_producer_id_of_another_is_refused(newer: Member) -> None:
    newer.id += 1000
    assert newer.send(0) is Code.INVALID_PRODUCER_ID_MAPPING

"""Owns a world for the pure machine of a producer's transactions: a coordinator with Kafka's rules, a bad network.

One seed is one story: what is sent, which question or answer is lost or comes late, which record fails. What the user
was told of each transaction is compared with what the coordinator has made of it.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.group_offsets import GroupMetadata, NextOffset
from barnabas.client.network.failures import Unreachable
from barnabas.client.producer.partition_state import ProducerIdentity
from barnabas.client.producer.transaction import Phase, Transactions
from barnabas.client.producer.transaction_questions import Question
from barnabas.errors import Code, Refused, TransactionAbortable
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

NOBODY = ProducerIdentity(7, -1)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]


@dataclass
class Coordinator:
    """What a transaction coordinator, its group coordinator and the leaders keep between them, in one version."""

    version: int
    rng: random.Random
    identity: ProducerIdentity = NOBODY
    retried: ProducerIdentity | None = None
    """The identity before the last end: an end that is asked for again under it is the same one."""
    is_ongoing: bool = False
    last: bool | None = None
    values: list[str] = field(default_factory=list)
    """Of the transaction that is open."""
    added: set[TopicPartition] = field(default_factory=set)
    has_group: bool = False
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    def answer(self, request: Any) -> Any:
        busy = self.rng.random() < 0.1
        if isinstance(request, InitProducerIdRequest):
            return (
                self._init(request) if not busy else InitProducerIdResponse(error_code=Code.NOT_COORDINATOR)
            )
        if isinstance(request, AddPartitionsToTxnRequest):
            return self._add(request, busy)
        if isinstance(request, EndTxnRequest):
            return EndTxnResponse(error_code=Code.CONCURRENT_TRANSACTIONS) if busy else self._end(request)
        if isinstance(request, AddOffsetsToTxnRequest):
            code = self._code(request.producer_id, request.producer_epoch)
            if not code:
                self.is_ongoing = self.has_group = True
            return AddOffsetsToTxnResponse(error_code=code)
        assert isinstance(request, TxnOffsetCommitRequest)
        return self._offsets(request, busy)

    def _code(self, identity: int, epoch: int) -> Code:
        return Code.NONE if (identity, epoch) == self.identity else Code.PRODUCER_FENCED

    def _init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        is_known = request.producer_id >= 0
        known = ProducerIdentity(request.producer_id, request.producer_epoch)
        if is_known and known not in (self.identity, self.retried):
            return InitProducerIdResponse(error_code=Code.PRODUCER_FENCED)
        if self.is_ongoing:
            self._finish(commits=False)
        if not (is_known and known == self.retried):
            self.retried = self.identity
            self.identity = ProducerIdentity(7, self.identity.epoch + 1)
        self.last = None
        return InitProducerIdResponse(0, 0, *self.identity)

    def _add(self, request: AddPartitionsToTxnRequest, busy: bool) -> AddPartitionsToTxnResponse:
        code = self._code(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        code = code or (Code.CONCURRENT_TRANSACTIONS if busy else Code.NONE)
        rows = []
        for topic in request.v3_and_below_topics:
            results = [AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions]
            rows.append(AddPartitionsToTxnTopicResult(topic.name, results))
            if not code:
                self.is_ongoing = True
                self.added.update(TopicPartition(topic.name, number) for number in topic.partitions)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)

    def _offsets(self, request: TxnOffsetCommitRequest, busy: bool) -> TxnOffsetCommitResponse:
        code = self._code(request.producer_id, request.producer_epoch)
        code = code or (Code.COORDINATOR_LOAD_IN_PROGRESS if busy else Code.NONE)
        if not code:
            assert self.has_group or self.version == 2, "a group that is not added has no offsets of it"
            self.is_ongoing = True
            given = [f"offset {row.committed_offset}" for topic in request.topics for row in topic.partitions]
            self.values += [each for each in given if each not in self.values]
        rows = [
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitResponse(0, rows)

    def _end(self, request: EndTxnRequest) -> EndTxnResponse:
        known = ProducerIdentity(request.producer_id, request.producer_epoch)
        if self.version == 2 and known == self.retried and self.last is request.committed:
            return EndTxnResponse(0, 0, *self.identity)
        if known != self.identity:
            return EndTxnResponse(error_code=Code.PRODUCER_FENCED)
        if not self.is_ongoing:
            is_again = self.version == 1 and self.last is request.committed
            is_empty = self.version == 2 and not request.committed
            if not (is_again or is_empty):
                return EndTxnResponse(error_code=Code.INVALID_TXN_STATE)
        self._finish(commits=request.committed)
        if self.version == 1:
            return EndTxnResponse()
        self.retried = self.identity
        self.identity = ProducerIdentity(7, self.identity.epoch + 1)
        return EndTxnResponse(0, 0, *self.identity)

    def _finish(self, *, commits: bool) -> None:
        (self.committed if commits else self.aborted).extend(self.values)
        self.values, self.added, self.is_ongoing, self.has_group = [], set(), False, False
        self.last = commits

    def produce(self, partition: TopicPartition, value: str, identity: ProducerIdentity) -> Code:
        if identity != self.identity:
            return Code.INVALID_PRODUCER_EPOCH
        if self.version == 1 and partition not in self.added:
            return Code.INVALID_TXN_STATE
        self.is_ongoing = True
        self.values.append(value)
        return Code.NONE


class World:
    """A user of transactions, its machine, and all that can go wrong on the way to the coordinator."""

    def __init__(self, seed: int, *, version: int, losses: float = 0.2, failures: float = 0.05) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 0.0
        self.losses = losses
        self.failures = failures
        self.coordinator = Coordinator(version, rng)
        self.machine = Transactions("x", timeout_ms=1000, is_two_phase=False, retry_backoff=0.1)
        self.late: list[Any] = []
        """Questions that got no answer, and have not arrived yet."""
        self.waiting: list[tuple[TopicPartition, str]] = []
        self.told_committed: list[str] = []
        self.told_aborted: list[str] = []
        self._number = 0

    def run(self, transactions: int) -> None:
        self.machine.init()
        self._until(lambda: self.machine.phase is not Phase.STARTING)
        for _ in range(transactions):
            self._one_transaction()

    def _one_transaction(self) -> None:
        machine, rng = self.machine, self.rng
        machine.begin(self.coordinator.version)
        values: list[str] = []
        try:
            for _ in range(rng.randint(0, 4)):
                self._number += 1
                if rng.random() < 0.2:
                    wish = machine.add_offsets(GroupMetadata("g"), {PARTITIONS[0]: NextOffset(self._number)})
                    values.append(f"offset {self._number}")
                    self._until(lambda wish=wish: wish.is_done)
                else:
                    machine.check_open()
                    values.append(f"record {self._number}")
                    self.waiting.append((rng.choice(PARTITIONS), values[-1]))
                if rng.random() < 0.5:
                    self._turn()
            commits = rng.random() < 0.7
            machine.end(commits=commits)
            self._ends(values, commits=commits)
        except TransactionAbortable:
            self.waiting.clear()
            machine.end(commits=False)
            self._ends(values, commits=False)

    def _ends(self, values: list[str], *, commits: bool) -> None:
        if not commits:
            self.waiting.clear()
        self._until(lambda: self.machine.phase not in (Phase.COMMITTING, Phase.ABORTING))
        self.machine.raise_failure("It cannot end")
        assert self.machine.phase is Phase.READY
        assert not self.coordinator.is_ongoing, "a reader of committed records waits for nothing"
        (self.told_committed if commits else self.told_aborted).extend(values)

    def _until(self, is_over: Any) -> None:
        for _ in range(10_000):
            if is_over():
                return
            self._turn()
        raise AssertionError(f"stuck: {self.machine.phase}")

    def _turn(self) -> None:
        self.now += 0.01
        self._send_records()
        question = self.machine.next_question(self.now, is_drained=not self.waiting)
        if question is not None:
            self._carry(question)
        if self.late and self.rng.random() < 0.3:
            self.coordinator.answer(self.late.pop(self.rng.randrange(len(self.late))))

    def _send_records(self) -> None:
        for each in list(self.waiting):
            partition, value = each
            if not self.machine.admits(partition) or self.rng.random() < 0.3:
                continue
            self.waiting.remove(each)
            assert self.machine.identity is not None
            code = self.coordinator.produce(partition, value, self.machine.identity)
            assert code is not Code.INVALID_TXN_STATE, "a partition that was never added"
            if self.rng.random() < self.failures:
                code = Code.REQUEST_TIMED_OUT  # it is stored, and that is not known
            if code:
                self.machine.record_failed(Refused(code))
                self.waiting.clear()
                return

    def _carry(self, question: Question) -> None:
        fate = self.rng.random()
        if fate < self.losses / 2:
            # Only what an epoch guards may come at any time: that is what the rules are for.
            is_guarded = self.coordinator.version == 2 and not isinstance(
                question.request, InitProducerIdRequest
            )
            if is_guarded and self.rng.random() < 0.5:
                self.late.append(question.request)
            self.machine.lost(Unreachable("lost"), self.now)
        else:
            answer = self.coordinator.answer(question.request)
            if fate < self.losses:
                self.machine.lost(Unreachable("lost"), self.now)
            else:
                self.machine.take(answer, self.now)


def story(seed: int, version: int) -> World:
    """Twenty transactions; what was said of them is true."""
    world = World(seed, version=version)
    world.run(20)
    assert sorted(world.coordinator.committed) == sorted(world.told_committed), seed
    assert not set(world.told_aborted) & set(world.coordinator.committed), seed
    return world

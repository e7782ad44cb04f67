"""The transactions of one transactional id: what may be done now, what coordinators are asked, what they say. PURE.

Driven by `transactor`; time is an argument, in seconds. A transaction goes one of two ways, which its cluster has
agreed on (`transaction.version`). In the older, version 1, each partition is added before the first batch goes there,
and all transactions of a producer may share an epoch. In version 2 (KIP-890) the leader adds the partition when it sees
the first batch, and the answer to the end brings another epoch: what comes late of one transaction never touches the
next.

Always holds: one question is under way at a time. A transaction is committed only if every record and every offset of
it was taken; after the first that was not, it can only be aborted, and goes on in another epoch.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from math import inf
from typing import Any

from barnabas.client.group_offsets import GroupMetadata, NextOffset
from barnabas.client.network.failures import RETRIABLE, refusal
from barnabas.client.producer.partition_state import NO_IDENTITY, ProducerIdentity
from barnabas.client.producer.transaction_questions import (
    OffsetsWish,
    PreparedTransaction,
    Question,
    end_question,
    group_question,
    init_question,
    offsets_question,
    partitions_question,
)
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.setting import INT_MAX
from barnabas.types import TopicPartition
from barnabas.wire.messages.producers import InitProducerIdResponse
from barnabas.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)

_LONGEST_PAUSE_S = 1.0
_FIRST_LOOK_S = 0.002
"""The pause while the end of the transaction before is being written: that takes milliseconds."""

_FENCED = frozenset({Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH})
_FATAL_FOR_RECORDS = frozenset(
    {
        Code.PRODUCER_FENCED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.UNSUPPORTED_VERSION,
    }
)
_ABORTABLE = frozenset({Code.TRANSACTION_ABORTABLE, Code.UNKNOWN_PRODUCER_ID})
_ABORTED_BEFORE = frozenset({Code.TRANSACTION_ABORTABLE, Code.INVALID_TXN_STATE})
"""What our brokers and Apache Kafka's say to a commit in version 2 that comes too late. An abort puts it right."""
_ABORTABLE_PARTITIONS = _ABORTABLE | {
    Code.OPERATION_NOT_ATTEMPTED,
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.INVALID_TOPIC_EXCEPTION,
}
_ABORTABLE_OFFSETS = (
    _ABORTABLE
    | {
        Code.INVALID_TXN_STATE,  # a group's coordinator that took over may say so of one that it was not asked about
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.INVALID_GROUP_ID,
        Code.GROUP_ID_NOT_FOUND,
        Code.FENCED_INSTANCE_ID,
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.STALE_MEMBER_EPOCH,
        Code.FENCED_MEMBER_EPOCH,
        Code.REBALANCE_IN_PROGRESS,
        Code.OFFSET_METADATA_TOO_LARGE,
        Code.INVALID_COMMIT_OFFSET_SIZE,
        Code.TOPIC_AUTHORIZATION_FAILED,
    }
)


class Phase(Enum):
    """Where a producer stands; the value ends the sentence that says why something cannot be done now."""

    NEW = "no transaction has begun: write `with producer.transaction():`, or call begin_transaction"
    STARTING = "this producer is asking for its identity: call init_transactions again to wait for it"
    READY = "no transaction is open: write `with producer.transaction():`, or call begin_transaction"
    OPEN = "a transaction is open: commit or abort it first"
    PREPARING = "the transaction is being prepared: call prepare_transaction again to wait for it"
    PREPARED = "the transaction is prepared: commit, abort or complete it"
    COMMITTING = "the transaction is being committed: call commit_transaction again to wait for it"
    ABORTING = "the transaction is being aborted: call abort_transaction again to wait for it"
    BROKEN = "the transaction can only be aborted"
    OVER = "this producer can do nothing more"


class Transactions:
    """Mutable: a producer with a transactional id, from one transaction to the next."""

    def __init__(
        self, transactional_id: str, *, timeout_ms: int, is_two_phase: bool, retry_backoff: float
    ) -> None:
        self.id = transactional_id
        self.phase = Phase.NEW
        self.identity: ProducerIdentity | None = None
        self.failure: Refused | None = None
        """Why it is broken, or over."""
        self.version = 1
        """Of the protocol, for the transaction in hand."""
        self.prepared: PreparedTransaction | None = None
        self.due = 0.0
        """No question before this moment."""
        self.is_two_phase = is_two_phase
        self._timeout_ms = INT_MAX if is_two_phase else timeout_ms
        self._retry_backoff = retry_backoff
        self._keeps_prepared = False
        self._asked: Question | None = None
        self._failures = 0
        self._wanted: dict[TopicPartition, None] = {}
        self._adding: tuple[TopicPartition, ...] = ()
        self._added: set[TopicPartition] = set()
        self._wishes: deque[OffsetsWish] = deque()
        self._is_started = False
        """The coordinator knows of the transaction, or may."""
        self._is_in_doubt = False
        """That it does was not heard: a question got lost."""
        self._needs_epoch = False
        self._is_ended = False
        """The end was taken; only another epoch is still due."""

    # What users do

    def init(self, *, keep_prepared: bool = False) -> None:
        """Ask for an identity: others with this transactional id are fenced, what they left open is aborted."""
        if self.phase is Phase.STARTING:
            return
        if self.phase is not Phase.NEW:
            raise self._cannot("The producer cannot be initialised again", already="it has its identity")
        if keep_prepared and not self.is_two_phase:
            raise BarnabasError(
                "A prepared transaction is kept only with transaction_two_phase_commit_enable=True."
            )
        self._keeps_prepared = keep_prepared
        self.phase = Phase.STARTING

    def begin(self, version: int) -> None:
        """Open a transaction, which goes the way of this version."""
        if self.phase is not Phase.READY:
            raise self._cannot("A transaction cannot begin")
        self.version = version
        self.phase = Phase.OPEN

    def check_open(self) -> None:
        """Raises where records cannot be sent now."""
        if self.phase is not Phase.OPEN:
            raise self._cannot("A record cannot be sent")

    def add_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, NextOffset]) -> OffsetsWish:
        """Commit these with the transaction; the wish tells what came of it."""
        if self.phase is not Phase.OPEN:
            raise self._cannot("Offsets cannot be sent")
        wish = OffsetsWish(group, offsets)
        wish.is_done = not offsets
        if offsets:
            self._wishes.append(wish)
        return wish

    def prepare(self) -> None:
        """No more records: once all are stored, only the end is left to be decided."""
        if not self.is_two_phase:
            raise BarnabasError(
                "A transaction is prepared only with transaction_two_phase_commit_enable=True."
            )
        if self.phase not in (Phase.PREPARING, Phase.PREPARED):
            if self.phase is not Phase.OPEN:
                raise self._cannot("The transaction cannot be prepared")
            self.phase = Phase.PREPARING

    def end(self, *, commits: bool) -> None:
        """No more records: commit what there is, or let none of it count."""
        phase = Phase.COMMITTING if commits else Phase.ABORTING
        if self.phase is phase:
            return
        may_end = {Phase.OPEN, Phase.PREPARED} | (set() if commits else {Phase.BROKEN, Phase.PREPARING})
        if self.phase not in may_end:
            raise self._cannot(
                "The transaction cannot be committed" if commits else "The transaction cannot be aborted"
            )
        self.phase = phase
        if not commits:
            self._wanted.clear()
            self._drop_wishes(Refused(Code.TRANSACTION_ABORTABLE, "The transaction is being aborted."))

    @property
    def is_open(self) -> bool:
        """Whether there is something to be aborted."""
        return self.phase in (Phase.OPEN, Phase.PREPARING, Phase.BROKEN)

    def raise_failure(self, what: str) -> None:
        """Say why it is broken or over, if it is."""
        if self.phase in (Phase.BROKEN, Phase.OVER):
            raise self._cannot(what)

    # Records

    def admits(self, partition: TopicPartition) -> bool:
        """Whether batches of a partition may go now; where it must be added first, that is asked next."""
        if self.phase not in (Phase.OPEN, Phase.PREPARING, Phase.COMMITTING, Phase.ABORTING):
            return False
        if self.version > 1:
            self._is_started = True
            return True
        if partition in self._added:
            return True
        if self.phase is not Phase.ABORTING and partition not in self._adding:
            self._wanted[partition] = None
        return False

    def record_failed(self, failure: BarnabasError) -> None:
        """A record of the transaction is not stored, or may not be."""
        code = failure.code if isinstance(failure, Refused) else Code.UNKNOWN_SERVER_ERROR
        self._needs_epoch = True
        if self.phase in (Phase.OPEN, Phase.PREPARING, Phase.COMMITTING):
            why = failure if isinstance(failure, Refused) else Refused(code, str(failure))
            if code in _FATAL_FOR_RECORDS:
                self._end_for_good(why)
            else:
                self._break(why)

    # What is asked

    def next_question(self, now: float, *, is_drained: bool) -> Question | None:
        """What is to be asked now; `is_drained` says that no record is on its way."""
        if self._asked is None and now >= self.due:
            self._asked = self._question(is_drained)
            return self._asked
        return None

    def _question(self, is_drained: bool) -> Question | None:
        if self.phase is Phase.STARTING:
            return self._init(NO_IDENTITY)
        if self.phase in (Phase.OPEN, Phase.PREPARING, Phase.COMMITTING):
            if self._wanted:
                return self._add_partitions()
            if self._wishes:
                return self._commit_offsets(self._wishes[0])
        if not is_drained:
            return None
        if self.phase is Phase.PREPARING:
            assert self.identity is not None
            self.prepared = PreparedTransaction(*self.identity)
            self.phase = Phase.PREPARED
        elif self.phase in (Phase.COMMITTING, Phase.ABORTING):
            return self._end()
        return None

    def _init(self, known: ProducerIdentity) -> Question:
        return init_question(
            self.id, self._timeout_ms, known, two_phase=self.is_two_phase, keeps_prepared=self._keeps_prepared
        )

    def _add_partitions(self) -> Question:
        assert self.identity is not None
        self._adding = tuple(self._wanted)
        self._wanted.clear()
        return partitions_question(self.id, self.identity, self._adding)

    def _commit_offsets(self, wish: OffsetsWish) -> Question:
        assert self.identity is not None
        if self.version == 1 and not wish.is_added:
            return group_question(self.id, self.identity, wish)
        self._is_started = True
        return offsets_question(self.id, self.identity, wish, self.version)

    def _end(self) -> Question | None:
        assert self.identity is not None
        if self._is_started and not self._is_ended:
            return end_question(self.id, self.identity, self.phase is Phase.COMMITTING, self.version)
        if self._needs_epoch:
            return self._init(self.identity)
        self._finish()
        return None

    # What is heard

    def take(self, answer: Any, now: float) -> Code:
        """The answer to what was asked; gives the code that says whether its broker is the coordinator."""
        asked, self._asked = self._asked, None
        assert asked is not None
        if isinstance(answer, AddPartitionsToTxnResponse):
            return self._took_partitions(answer, now)
        if isinstance(answer, TxnOffsetCommitResponse):
            return self._took_offsets(answer, now)
        code = Code.of(answer.error_code)
        if code:
            self._refused(asked, refusal(answer.error_code, self._about), now)
            return code
        self._failures = 0
        if isinstance(answer, InitProducerIdResponse):
            self._initialised(answer)
        elif isinstance(answer, AddOffsetsToTxnResponse):
            self._is_started = True
            if self._wishes:
                self._wishes[0].is_added = True
        else:
            self._ended(answer)
        return code

    def lost(self, failure: Refused, now: float) -> None:
        """What was asked got no answer."""
        asked, self._asked = self._asked, None
        assert asked is not None
        if isinstance(asked.request, AddPartitionsToTxnRequest):
            self._wanted = dict.fromkeys((*self._adding, *self._wanted))
            self._adding = ()
        if isinstance(asked.request, (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)):
            # The coordinator may have heard it: then there is something to end.
            self._is_started = self._is_in_doubt = True
        if failure.code in RETRIABLE:
            self._pause(failure.code, now)
        elif failure.code is Code.UNSUPPORTED_VERSION and self.is_two_phase:
            text = f"{self._about}: two-phase commit is not offered. {failure.message}"
            self._end_for_good(Refused(failure.code, text))
        else:
            self._end_for_good(failure)

    @property
    def _about(self) -> str:
        return f"Transactional id {self.id!r}"

    def _initialised(self, answer: InitProducerIdResponse) -> None:
        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self._keeps_prepared = False
        if answer.ongoing_txn_producer_id >= 0:
            self.prepared = PreparedTransaction(
                answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
            )
            self._is_started = True
            self.phase = Phase.PREPARED
        else:
            self._finish()

    def _took_partitions(self, answer: AddPartitionsToTxnResponse, now: float) -> Code:
        adding, self._adding = self._adding, ()
        codes = [
            (TopicPartition(topic.name, row.partition_index), Code.of(row.partition_error_code))
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
        refused = [(partition, code) for partition, code in codes if code]
        if not refused:
            self._failures = 0
            self._is_started = True
            self._added.update(adding)
            return Code.NONE
        # One that was not tried for the sake of another says nothing.
        partition, code = min(refused, key=lambda row: row[1] is Code.OPERATION_NOT_ATTEMPTED)
        why = refusal(code, f"{self._about}, partition {partition}")
        if self.phase is not Phase.ABORTING:
            self._wanted = dict.fromkeys((*adding, *self._wanted))
        self._refuse(why, now, _ABORTABLE_PARTITIONS)
        return code

    def _took_offsets(self, answer: TxnOffsetCommitResponse, now: float) -> Code:
        if not self._wishes:  # dropped meanwhile: the transaction is being aborted
            return Code.NONE
        wish = self._wishes[0]
        first: tuple[TopicPartition, Code] | None = None
        for topic in answer.topics:
            for row in topic.partitions:
                partition, code = TopicPartition(topic.name, row.partition_index), Code.of(row.error_code)
                if not code:
                    wish.left.pop(partition, None)
                elif first is None or first[1] in RETRIABLE:
                    first = partition, code
        if first is None:
            self._failures = 0
            self._wishes.popleft().is_done = True
            return Code.NONE
        partition, code = first
        why = refusal(code, f"Group {wish.group.group_id!r}, partition {partition}")
        self._refuse(why, now, _ABORTABLE_OFFSETS)
        return code

    def _refused(self, asked: Question, why: Refused, now: float) -> None:
        is_end = isinstance(asked.request, EndTxnRequest)
        if is_end and self._is_in_doubt and why.code is Code.INVALID_TXN_STATE:
            # The question that might have begun it never arrived. In another epoch it is too late for it.
            self._is_ended = self._needs_epoch = True
        elif is_end and self.version > 1 and why.code in _ABORTED_BEFORE and self.phase is Phase.COMMITTING:
            text = "it was open for longer than transaction.timeout.ms, and was aborted by its coordinator."
            self._break(Refused(why.code, f"{self._about}: {text}"))
        elif isinstance(asked.request, AddOffsetsToTxnRequest):
            self._refuse(why, now, _ABORTABLE_OFFSETS)
        elif self.is_two_phase and why.code is Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            text = "not allowed, or the broker does not set transaction.two.phase.commit.enable."
            self._end_for_good(Refused(why.code, f"{self._about}: {text}"))
        else:
            self._refuse(why, now, _ABORTABLE if is_end else frozenset())

    def _refuse(self, why: Refused, now: float, abortable: Iterable[Code]) -> None:
        if why.code in RETRIABLE:
            self._pause(why.code, now)
        elif why.code in abortable and self.phase is not Phase.ABORTING:
            self._needs_epoch = True
            self._break(why)
        else:
            self._end_for_good(why)

    def _ended(self, answer: EndTxnResponse) -> None:
        if answer.producer_id >= 0:
            self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            self._needs_epoch = False
        self._is_ended = True
        if not self._needs_epoch:
            self._finish()

    def _finish(self) -> None:
        self.phase = Phase.READY
        self.failure = self.prepared = None
        self._added.clear()
        self._wanted.clear()
        self._is_started = self._is_in_doubt = self._needs_epoch = self._is_ended = False
        self._failures, self.due = 0, 0.0

    # What goes wrong

    def _pause(self, code: Code, now: float) -> None:
        first, longest = self._retry_backoff, max(_LONGEST_PAUSE_S, self._retry_backoff)
        if code is Code.CONCURRENT_TRANSACTIONS:
            first, longest = _FIRST_LOOK_S, self._retry_backoff
        self.due = now + min(first * 2.0 ** min(self._failures, 20), longest)
        self._failures += 1

    def _break(self, why: Refused) -> None:
        self.failure = why
        self.phase = Phase.BROKEN
        self._drop_wishes(why)

    def _end_for_good(self, why: Refused) -> None:
        self.failure = why
        self.phase = Phase.OVER
        self.due = inf
        self._drop_wishes(why)

    def _drop_wishes(self, why: Refused) -> None:
        for wish in self._wishes:
            wish.failure, wish.is_done = why, True
        self._wishes.clear()

    def _cannot(self, what: str, already: str | None = None) -> BarnabasError:
        why = self.failure
        if why is None:
            is_ready = self.phase is not Phase.NEW and already is not None
            return BarnabasError(f"{what}: {already if is_ready else self.phase.value}.")
        if self.phase is Phase.BROKEN:
            error = Refused(
                Code.TRANSACTION_ABORTABLE,
                f"{what}: {why.message} Abort the transaction, then begin it anew.",
            )
        elif why.code in _FENCED:
            error = Refused(
                Code.PRODUCER_FENCED,
                f"{what}: {self._about} was taken over by a newer producer, or its transaction was open for longer "
                "than transaction.timeout.ms and was aborted. Close this producer; make another only if none has "
                "taken its place.",
            )
        else:
            error = Refused(why.code, f"{what}: {why.message} Close this producer, and make another.")
        error.__cause__ = why
        return error

"""Asks the transaction coordinator whether a producer's batch is part of a transaction that it knows (KIP-890).

Called by `handlers.produce` before the first batch of a transaction enters a partition, and by whatever else writes in
a producer's name. Without it a batch that comes after its transaction's end would open another one that never ends.
Where the producer has a transaction open in the partition, the coordinator knows of it, and is not asked.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.errors import Code, Refused
from barnabas.log.transactions.verifications import ONGOING, TRUSTED, Verification
from barnabas.types import Millis, ProducerId, TopicPartition
from barnabas.wire.batch import HEADER_SIZE, TRANSACTIONAL, read_header

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

ADDS_SINCE = 12
"""The version of Produce from which on a batch adds its partition to the transaction (transaction.version 2)."""

ABORTABLE_SINCE = 11
"""The version of Produce from which on clients know TRANSACTION_ABORTABLE."""

_COME_AGAIN = frozenset(
    {
        Code.CONCURRENT_TRANSACTIONS,
        Code.NETWORK_EXCEPTION,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
    }
)
"""What a coordinator says for the moment. Producers do not expect it in an answer to Produce."""


class Verifier(Protocol):
    """The way to the coordinator of a transactional id, on this broker or on another: `broker.transactions`."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, Code]:
        """Whether the partitions are in the transaction that this producer has open: `Code.NONE` each, or why not.

        With `add` they are put into it first, and a transaction begins if none is open (transaction.version 2). Then
        an answer waits for the end of the transaction before, as long as that takes less than a request may. Raises
        nothing: a coordinator that cannot be reached, or is loading, is a code as well.
        """
        ...


class Verifying:
    """Mutable: one request's batches, and what each of them may be appended with."""

    __slots__ = ("_asked", "_epoch", "_producer_id", "_transactional_id", "_verdicts", "_version")

    def __init__(
        self,
        broker: "Broker",
        transactional_id: str,
        batches: Iterable[tuple[TopicPartition, memoryview | None]],
        version: int,
        now: Millis,
    ) -> None:
        """Begin with the batches of a Produce of this version; raises Refused where they are of several producers."""
        self._transactional_id = transactional_id
        self._version = version
        self._producer_id, self._epoch = ProducerId(-1), -1
        self._asked: list[TopicPartition] = []
        self._verdicts: dict[TopicPartition, Verification | Refused] = {}
        must_ask = broker.config.transaction_partition_verification_enable or version >= ADDS_SINCE
        for tp, records in batches:
            if records is not None and len(records) >= HEADER_SIZE:
                self._verdicts[tp] = self._begin(broker, tp, records, now) if must_ask else TRUSTED

    def _begin(self, broker: "Broker", tp: TopicPartition, records: memoryview, now: Millis) -> Verification:
        header = read_header(records)
        if not header.attributes & TRANSACTIONAL or header.producer_id < 0:
            return ONGOING
        producer_id, epoch = ProducerId(header.producer_id), header.producer_epoch
        if self._producer_id >= 0 and (producer_id, epoch) != (self._producer_id, self._epoch):
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING, "a request has batches of one producer only")
        self._producer_id, self._epoch = producer_id, epoch
        leader = broker.replicas.find_leader(*tp)
        if leader is None:
            return ONGOING  # the append is refused, and says why
        verification = leader.verification(
            producer_id, epoch, header.base_sequence, bumps_epochs=self._version >= ADDS_SINCE, now=now
        )
        if verification is not ONGOING:
            self._asked.append(tp)
        return verification

    @property
    def must_ask(self) -> bool:
        """Whether the coordinator has to be asked before anything is appended."""
        return bool(self._asked)

    async def ask(self, verifier: Verifier) -> None:
        """Wait for the coordinator's word."""
        adds = self._version >= ADDS_SINCE
        codes = await verifier.verify(
            self._transactional_id, self._producer_id, self._epoch, self._asked, add=adds
        )
        for tp in self._asked:
            code = codes.get(tp, Code.NONE)
            if code is not Code.NONE:
                self._verdicts[tp] = _refused(code, self._version)

    def verified(self, tp: TopicPartition) -> Verification:
        """What the partition's batch may be appended with; raises Refused where the coordinator said no."""
        verdict = self._verdicts.get(tp, ONGOING)
        if isinstance(verdict, Refused):
            raise verdict
        return verdict


def _refused(code: Code, version: int) -> Refused:
    """What a producer is told of a coordinator's no, in codes that it expects in an answer to Produce."""
    if code in _COME_AGAIN:
        # Any producer sends the batch again for this, and without fresh metadata.
        return Refused(
            Code.NOT_ENOUGH_REPLICAS, f"The transaction could not be verified for now: {code.name}."
        )
    if code is Code.PRODUCER_FENCED:
        return Refused(Code.INVALID_PRODUCER_EPOCH)
    if code is Code.INVALID_TXN_STATE or (code is Code.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE):
        return Refused(
            Code.INVALID_TXN_STATE, "The partition was not added to the transaction, or it has ended."
        )
    return Refused(code)

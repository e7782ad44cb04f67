"""What is known of one transactional id, as the log keeps it, and the words for it. PURE.

`rules` decides what becomes of it, `records` has its bytes, `coordinator` keeps all of them.
"""

from enum import IntEnum
from typing import NamedTuple, TypeAlias

NO_ID, NO_EPOCH, NO_TIME = -1, -1, -1

LAST_EPOCH = 2**15 - 1
"""The largest epoch there is. No producer gets it: it is for markers that end the transaction of the one before."""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer whose transactions are ended from outside (KIP-939): they wait for as long as it takes."""

TopicIndex: TypeAlias = tuple[str, int]
"""A partition."""


class TransactionState(IntEnum):
    """Where a transactional id is, by the numbers of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """As Kafka's tools name it: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """The outcome is decided, and markers are on their way."""
        return self is TransactionState.PREPARE_COMMIT or self is TransactionState.PREPARE_ABORT


SHOWN = {state.shown: state for state in TransactionState}


class Producer(NamedTuple):
    """An id and an epoch: one life of a producer, or with KIP-890 one transaction of it."""

    id: int
    epoch: int


NO_PRODUCER = Producer(NO_ID, NO_EPOCH)


class Transaction(NamedTuple):
    """A transactional id: its producer, and the transaction that is open or was the last."""

    state: TransactionState
    producer_id: int
    epoch: int
    timeout_ms: int
    updated: int
    last_epoch: int = NO_EPOCH
    """The epoch before, for as long as a producer that still has it may be told of the new one."""
    previous_id: int = NO_ID
    """The producer id before the last change."""
    next_id: int = NO_ID
    """What the producer goes on with when this transaction has ended, where it is not its id and epoch."""
    next_epoch: int = NO_EPOCH
    partitions: frozenset[TopicIndex] = frozenset()
    started: int = NO_TIME
    version: int = 0
    """The transaction.version of the client: from 2 on each transaction has an epoch of its own."""

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def follower(self) -> Producer:
        """The producer that may act next: while a transaction is being ended, the one of the transaction after it."""
        if self.next_id == NO_ID:
            return self.producer
        return Producer(self.next_id, max(self.next_epoch, 0))

    @property
    def is_kept(self) -> bool:
        """Open, and in the hands of another producer than began it: that one can only end it."""
        return self.state is TransactionState.ONGOING and self.next_id != NO_ID

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS


def is_exhausted(epoch: int) -> bool:
    """Whether a producer id has no epoch left that a producer could be given."""
    return epoch >= LAST_EPOCH - 1

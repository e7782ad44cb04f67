"""One partition's records from `send` to their outcome: what waits, what flies, what must be sent again. PURE.

Kept by `accumulator`, which says what may happen to them. Nothing here decides anything.

Always holds: a batch that takes records is in one pair of hands. `Producer.send` gets it without the producer's lock,
by popping it from its claim, which Python does in one step, and puts it back; under the lock it is got in the same way.
A batch in hand is not sent, and no thread waits for it: other records open another batch behind it.
"""

from collections import deque
from typing import NamedTuple

from barnabas.client.producer.batches import Batch, Section
from barnabas.errors import Refused
from barnabas.types import BrokerId, Buffer, TopicPartition
from barnabas.wire.batch import HEADER_SIZE, BatchInTwo


class ProducerIdentity(NamedTuple):
    """What makes a batch known to brokers; -1 where there is no idempotence."""

    id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)


class WireBatch:
    """Batches of a partition that travel, are numbered and are answered as one."""

    __slots__ = (
        "_count",
        "attempts",
        "base_sequence",
        "batches",
        "encoded",
        "is_in_doubt",
        "is_over",
        "owner",
        "producer",
        "section",
        "size",
        "was_sent",
    )

    def __init__(self, owner: "PartitionState", batches: list[Batch]) -> None:
        self.owner = owner
        self.batches = batches
        self._count = len(batches[0])
        self.size = batches[0].size
        for batch in batches[1:]:
            self._count += len(batch)
            self.size += batch.size - HEADER_SIZE
        self.producer = NO_IDENTITY
        self.base_sequence = -1
        self.attempts = 0
        self.is_over = False
        """Its records were given up; only its answer is still due."""
        self.was_sent = False
        """A broker may have seen it, by this attempt or one before."""
        self.is_in_doubt = False
        """A broker may have stored it: an attempt was sent, and no answer said that it was not stored."""
        self.section: Section | None = None
        self.encoded: Buffer | BatchInTwo | None = None
        """The batch as it went out, for the next attempt: it must be the same."""

    def __len__(self) -> int:
        return self._count

    @property
    def created(self) -> float:
        return self.batches[0].created


class PartitionState:
    """One partition's records from `send` to their outcome."""

    __slots__ = (
        "claim",
        "flying",
        "idle_since",
        "is_hurried",
        "is_known",
        "is_listed",
        "limit",
        "needs_epoch",
        "not_before",
        "open",
        "partition",
        "producer",
        "queue",
        "resend",
        "sequence",
        "trouble",
    )

    def __init__(self, partition: TopicPartition, limit: int) -> None:
        self.partition = partition
        self.open: Batch | None = None
        """The last of the queue, while it takes more records."""
        self.claim: list[Batch] = []
        """The claim of the open batch: it is in there while no thread has it in hand. Without one, nothing is."""
        self.queue: deque[Batch] = deque()
        self.resend: deque[WireBatch] = deque()
        """To be sent again, in the order of their numbers."""
        self.flying: list[WireBatch] = []
        self.producer = NO_IDENTITY
        self.sequence = 0
        self.needs_epoch = False
        self.is_known = False
        """The broker has stored a batch of this producer and epoch."""
        self.not_before = 0.0
        self.limit = limit
        """What a wire batch may take; smaller once the broker found one too large."""
        self.idle_since = 0.0
        self.is_hurried = False
        self.is_listed = False
        self.trouble: Refused | None = None
        """Why the last attempt failed; None when the last one succeeded."""

    @property
    def is_idle(self) -> bool:
        return not (self.queue or self.resend or self.flying)

    # Called with the producer's lock

    def begin(self, batch: Batch) -> None:
        """Records go into this batch from now on. It is in the hands of the caller."""
        self.open = batch
        batch.claim = self.claim = []

    def take_open(self) -> Batch | None:
        """The open batch, now in the hands of the caller; None where there is none, or another caller has it.

        It is never waited for: its holder may be the calling thread, interrupted by a signal in the midst of a send.
        """
        batch = self.open
        if batch is not None and batch.claim is not None:
            try:
                return batch.claim.pop()
            except IndexError:
                self.shut()
                return None
        return batch

    def give_back(self, batch: Batch) -> None:
        """More may come into the open batch; into one with headers only under the lock."""
        if batch.headers is not None:
            batch.claim, self.claim = None, []
        if batch.claim is not None:
            batch.claim.append(batch)

    def shut(self) -> None:
        """Nothing more comes into the open batch, but for a record that is in hand."""
        self.open = None
        self.claim = []

    def can_take(self, batch: Batch) -> bool:
        """Whether a batch of the queue is in no thread's hands; then it stays as it is from now on."""
        if batch is self.open:
            self.shut()
        if batch.claim is not None:
            try:
                batch.claim.pop()
            except IndexError:
                return False
        if batch.section is None:
            batch.finish()
        return True


class TopicState:
    """A topic's partitions, and the one that records without a key go to now."""

    __slots__ = ("name", "partitions", "sticky")

    def __init__(self, name: str, partitions: list[PartitionState], first: int) -> None:
        self.name = name
        self.partitions = partitions
        self.sticky = partitions[first % len(partitions)]

    def move_on(self) -> PartitionState:
        """Records without a key fill one partition's batch, then the next one's: full batches, even load."""
        following = (self.sticky.partition.partition + 1) % len(self.partitions)
        self.sticky = self.partitions[following]
        return self.sticky


class BatchRequest(NamedTuple):
    """Wire batches for one broker, at most one a partition."""

    node: BrokerId
    batches: list[WireBatch]

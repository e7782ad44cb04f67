"""What a transaction coordinator is asked and told, one transactional id at a time. Handlers make these of messages."""

from collections.abc import Set
from typing import NamedTuple

from barnabas.coordinator.transactions.transaction import NO_ID, Producer, TopicIndex

EPOCH_A_TRANSACTION = 2
"""The transaction.version from which on every transaction has an epoch of its own (KIP-890)."""


class Init(NamedTuple):
    """A producer begins, or begins again as the one that it was. Answered with `Initialised`."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    """What it has been until now, where it goes on (KIP-360)."""
    two_phase: bool = False
    keep: bool = False
    """An open transaction stays open, to be ended by this producer (KIP-939)."""
    fresh_id: int = NO_ID
    """A producer id that was never given, where the last answer was that one is needed."""


class Initialised(NamedTuple):
    """What a producer is from here on, and the transaction that it has to end first."""

    producer: Producer
    ongoing: Producer


class Add(NamedTuple):
    """Partitions join the transaction; the first ones begin it. Answered with `DONE`."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicIndex]
    version: int
    """The transaction.version that the client goes by."""


class Verify(NamedTuple):
    """Are these partitions in the transaction? Answered with those that are not."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicIndex]


class End(NamedTuple):
    """Commit or abort. Answered with the `Producer` that the client is from here on."""

    transactional_id: str
    producer: Producer
    commit: bool
    version: int
    fresh_id: int = NO_ID


class Describe(NamedTuple):
    """Answered with `DescribedTransaction`."""

    transactional_id: str


class List(NamedTuple):
    """Answered with a list of `ListedTransaction`."""

    states: Set[str]
    producer_ids: Set[int]
    longer_than_ms: int


class Marked(NamedTuple):
    """Told, not asked: these partitions have the marker, or need none any more."""

    transactional_id: str
    marker: Producer
    partitions: Set[TopicIndex]


class Markers(NamedTuple):
    """An effect: the end of a transaction has to be written to its partitions, until each of them has it."""

    transactional_id: str
    producer: Producer
    commit: bool
    partitions: frozenset[TopicIndex]
    version: int


class NeedsProducerId:
    """An answer: ask again with a producer id that was never given."""


NEEDS_PRODUCER_ID = NeedsProducerId()


class Done:
    """An answer without content."""


DONE = Done()

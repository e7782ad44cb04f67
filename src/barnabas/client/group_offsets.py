"""What a group has read, on its way from a consumer to a producer that commits it in a transaction.

The consumer and the producer know nothing of each other: these are the words between them.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from barnabas.types import TopicPartition


class GroupMetadata(NamedTuple):
    """A member of a group, in its generation: what the group's coordinator checks before it takes offsets.

    Without a member the group must have none either.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class NextOffset(NamedTuple):
    """The offset of the next record to be read, and the leader epoch of the one before it; -1: not known."""

    offset: int
    leader_epoch: int = -1


class GroupOffsets(NamedTuple):
    """All that a consumer has given its user, and in whose name."""

    group: GroupMetadata
    offsets: Mapping[TopicPartition, NextOffset]


class Reader(Protocol):
    """A consumer, as a transaction sees it."""

    def offsets_to_send(self) -> GroupOffsets:
        """What polls have given so far. Raises where the consumer commits by itself, or is in no group."""

"""What a coordinator wants done: records to be appended, and answers to be given once they are safe.

Made by the machines of this package, carried out by the broker: it appends the records to the partition, applies
them, and lets the replies go when the high watermark has passed them. Where the append is refused nothing is
applied, and every reply becomes a refusal: what must last changes by `apply` alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.coordinator.records import Record

Token: TypeAlias = Any
"""Stands for a request that waits for its answer. The machines only hand it back."""

NEVER = 1 << 62
"""A deadline that does not come."""


class Context(NamedTuple):
    """Where a request came from. `fresh_id` is a random unused name, for a member that needs one."""

    version: int
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""


class TopicFacts(NamedTuple):
    """All that a coordinator knows of a topic."""

    id: UUID
    partitions: int


class TopicChanges(NamedTuple):
    """What became of topics, by name: those that are not what they were, and those that have new partitions."""

    gone: frozenset[str]
    grown: frozenset[str]


def topic_changes(before: Mapping[str, TopicFacts], after: Mapping[str, TopicFacts]) -> TopicChanges:
    """A topic that was deleted and made anew is both gone and grown."""
    gone = frozenset(
        name for name, facts in before.items() if name not in after or after[name].id != facts.id
    )
    grown = frozenset(
        name
        for name, facts in after.items()
        if name not in before or name in gone or before[name].partitions < facts.partitions
    )
    return TopicChanges(gone, grown)


@dataclass(slots=True)
class Effects:
    """Mutable while a machine works: records in their order, and replies that hold only if all of them last."""

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Token, Any]] = field(default_factory=list)
    sends: ClassVar[Sequence[Any]] = ()
    """Groups have nothing to tell to others."""

    def reply(self, token: Token, response: Any) -> None:
        """Answer with a response, or with Refused: what its API makes of that is its handler's business."""
        self.replies.append((token, response))

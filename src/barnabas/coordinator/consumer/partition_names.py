"""Between partitions by topic id, as KIP-848 groups hold them, and by name, as classic consumers tell one another.

Called by upgrade and classic_members, where members of both protocols share a group. A broker has no business with
those bytes otherwise. Topics that are gone have no name, and are left out.
"""

from collections.abc import Mapping, Set
from struct import Struct, error
from uuid import UUID

from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.consumer.member import Held
from barnabas.coordinator.effects import TopicFacts
from barnabas.wire.messages.consumer_protocol import AssignedPartitions, PartitionsOfTopic, to_bytes

_VERSION = Struct(">h")


def assignment_bytes(held: Target | Held, topics: Mapping[str, TopicFacts], metadata: bytes) -> bytes:
    """Partitions as a classic consumer is told of them, in the version in which it sent its metadata."""
    names = {facts.id: name for name, facts in topics.items()}
    rows = sorted((names[topic], sorted(held[topic])) for topic in held if topic in names)
    message = AssignedPartitions([PartitionsOfTopic(name, partitions) for name, partitions in rows])
    return to_bytes(message, _version_of(metadata))


def ids_of(rows: list[PartitionsOfTopic], topics: Mapping[str, TopicFacts]) -> dict[UUID, Set[int]]:
    """The partitions by topic id, without those that do not exist."""
    found: dict[UUID, Set[int]] = {}
    for row in rows:
        facts = topics.get(row.topic)
        if facts is not None and (partitions := {p for p in row.partitions if 0 <= p < facts.partitions}):
            found[facts.id] = found.get(facts.id, frozenset()) | partitions
    return found


def _version_of(metadata: bytes) -> int:
    try:
        (version,) = _VERSION.unpack_from(metadata)
    except error:
        return 0
    return max(0, min(int(version), AssignedPartitions.versions.highest))

"""What consumers tell one another inside the classic protocol: subscriptions and assignments, in Java's own format.

A broker has no business with these bytes, except where members of both protocols share a group (see upgrade and
classic_members): then it reads what they subscribe to, and writes what they are assigned. Two bytes of version come
first; a version we do not know begins like the last one that we do.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Annotated, ClassVar
from uuid import UUID

from barnabas.coordinator.assignors import Target
from barnabas.coordinator.consumer_member import Held
from barnabas.coordinator.effects import TopicFacts
from barnabas.wire.apis import NEVER, Versions
from barnabas.wire.codec import Malformed, decoder, encoder
from barnabas.wire.schema import Bytes, Int32, Since, String

_VERSION = Struct(">h")
_LATEST = 3


@dataclass(slots=True)
class PartitionsOfTopic:
    topic: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class Subscription:
    versions: ClassVar[Versions] = Versions(0, _LATEST, NEVER)

    topics: Annotated[list[str], String] = field(default_factory=list)
    user_data: Annotated[bytes | None, Bytes] = None
    owned_partitions: Annotated[list[PartitionsOfTopic], Since(1)] = field(default_factory=list)
    generation_id: Annotated[int, Int32, Since(2)] = -1
    rack_id: Annotated[str | None, String, Since(3)] = None


@dataclass(slots=True)
class AssignedPartitions:
    versions: ClassVar[Versions] = Versions(0, _LATEST, NEVER)

    assigned_partitions: list[PartitionsOfTopic] = field(default_factory=list)
    user_data: Annotated[bytes | None, Bytes] = None


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment. Raises Malformed."""
    try:
        (version,) = _VERSION.unpack_from(data)
    except error:
        raise Malformed("no version where a consumer's metadata should begin") from None
    if version < 0:
        raise Malformed(f"{version} is no version of a consumer's metadata")
    return min(int(version), _LATEST)


def subscription_of(metadata: bytes) -> Subscription:
    """What a member joined with. Raises Malformed."""
    found: Subscription = decoder(Subscription, version_of(metadata))(metadata, _VERSION.size)
    return found


def assignment_of(assignment: bytes) -> AssignedPartitions:
    """What a leader has assigned to a member. Raises Malformed."""
    if not assignment:
        return AssignedPartitions()
    found: AssignedPartitions = decoder(AssignedPartitions, version_of(assignment))(assignment, _VERSION.size)
    return found


def assignment_bytes(target: Target | Held, names: Mapping[UUID, str], version: int) -> bytes:
    """Partitions as a member of the classic protocol is told of them. Topics that are gone are left out."""
    rows = sorted((names[topic], sorted(target[topic])) for topic in target if topic in names)
    message = AssignedPartitions([PartitionsOfTopic(name, partitions) for name, partitions in rows])
    out = bytearray(_VERSION.pack(version))
    encoder(AssignedPartitions, version)(message, out)
    return bytes(out)


def ids_of(rows: list[PartitionsOfTopic], topics: Mapping[str, TopicFacts]) -> dict[UUID, Set[int]]:
    """The partitions by topic id, without those that do not exist."""
    found: dict[UUID, Set[int]] = {}
    for row in rows:
        facts = topics.get(row.topic)
        if facts is not None and (partitions := {p for p in row.partitions if 0 <= p < facts.partitions}):
            found[facts.id] = found.get(facts.id, frozenset()) | partitions
    return found

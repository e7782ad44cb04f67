"""What consumers tell one another inside JoinGroup and SyncGroup: what they subscribe to, and what they are assigned.

Belongs to no API: two bytes of version come first. A version we do not know begins like the last one that we do, and
what it has more is not looked at.
"""

from dataclasses import dataclass, field
from struct import Struct, error
from typing import Annotated, Any, ClassVar, TypeVar

from barnabas.wire.apis import NO_VERSION, Versions
from barnabas.wire.codec import Malformed, decoder, encoder
from barnabas.wire.schema import Bytes, Int32, Since, String

_VERSION = Struct(">h")
_LATEST = 3

T = TypeVar("T")


@dataclass(slots=True)
class PartitionsOfTopic:
    topic: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class Subscription:
    versions: ClassVar[Versions] = Versions(0, _LATEST, NO_VERSION)
    open_ended: ClassVar[bool] = True

    topics: Annotated[list[str], String] = field(default_factory=list)
    user_data: Annotated[bytes | None, Bytes] = None
    owned_partitions: Annotated[list[PartitionsOfTopic], Since(1)] = field(default_factory=list)
    generation_id: Annotated[int, Int32, Since(2)] = -1
    rack_id: Annotated[str | None, String, Since(3)] = None


@dataclass(slots=True)
class AssignedPartitions:
    versions: ClassVar[Versions] = Versions(0, _LATEST, NO_VERSION)
    open_ended: ClassVar[bool] = True

    assigned_partitions: list[PartitionsOfTopic] = field(default_factory=list)
    user_data: Annotated[bytes | None, Bytes] = None


@dataclass(slots=True)
class StickyUserData:
    """What members of the sticky assignor had when they joined; the first clients did not tell the generation."""

    versions: ClassVar[Versions] = Versions(0, 1, NO_VERSION)

    partitions: list[PartitionsOfTopic] = field(default_factory=list)
    generation: Annotated[int, Int32, Since(1)] = -1


def owned_to_user_data(partitions: list[PartitionsOfTopic], generation: int) -> bytes:
    """Java's bytes for what a member of the sticky assignor had."""
    out = bytearray()
    encoder(StickyUserData, 1)(StickyUserData(partitions, generation), out)
    return bytes(out)


def owned_in_user_data(data: bytes) -> tuple[list[PartitionsOfTopic], int]:
    """What a member of the sticky assignor had, and in which generation. Raises Malformed."""
    if not data:
        return [], -1
    found: Any = None
    # Nothing tells the two versions apart but their length; kafka-python 3 puts the version in front all the same.
    for version, at in ((1, 0), (0, 0), (1, _VERSION.size)):
        try:
            found = decoder(StickyUserData, version)(data, at)
            break
        except Malformed as problem:
            trouble = problem
    if found is None:
        raise trouble
    return found.partitions, found.generation


def to_bytes(message: Subscription | AssignedPartitions, version: int) -> bytes:
    """A subscription or an assignment, its version in front."""
    out = bytearray(_VERSION.pack(version))
    encoder(type(message), version)(message, out)
    return bytes(out)


def subscription_of(data: bytes) -> Subscription:
    """What a member joined with. Raises Malformed."""
    return _read(Subscription, data)


def topics_in(data: bytes) -> list[str]:
    """The topics a member joined with, read as version 0, as Kafka does: some clients break off after that."""
    return _read(Subscription, data, 0).topics


def assignment_of(data: bytes) -> AssignedPartitions:
    """What a leader has assigned to a member; no bytes at all are no partitions. Raises Malformed."""
    return _read(AssignedPartitions, data) if data else AssignedPartitions()


def _read(cls: type[T], data: bytes, most: int = _LATEST) -> T:
    try:
        (version,) = _VERSION.unpack_from(data)
    except error as problem:
        raise Malformed("no version where a consumer's metadata should begin") from problem
    if version < 0:
        raise Malformed(f"{version} is no version of a consumer's metadata")
    found: Any = decoder(cls, min(version, most))(data, _VERSION.size)
    return found  # type: ignore[no-any-return]

"""The records of `__consumer_offsets`, in Kafka's own formats: what groups have committed, and what groups are.

Made and applied by the machines of this package; the broker turns them into bytes and back when it appends and
loads. A key is two bytes of type and its fields; a value two bytes of version and its fields. A record without a
value is a tombstone: what its key names is gone. We write the versions that Kafka 4 writes and read all older ones.
"""

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, error
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.types import Buffer
from barnabas.wire.apis import NO_VERSION, Versions
from barnabas.wire.codec import Malformed, decoder, encoder
from barnabas.wire.schema import (
    NO_ID,
    Bytes,
    Int8,
    Int32,
    Int64,
    NullableSince,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)

_KEY = Versions(0, 0, NO_VERSION)
_VALUE = Versions(0, 0, 0)
_PREFIX = Struct(">h")
_GROUP, _SIZE, _NUMBER = Struct(">hh").pack, Struct(">h").pack, Struct(">i").pack
_COMMITTED = Struct(">hqiBqBBB16s").pack
_TAGS, _TOPIC_ID_TAG, _TOPIC_ID_SIZE = 1, 0, 16


# --- what is committed: made for every commit, and a frozen dataclass takes twice as long to make (0.6 us more)


@dataclass(slots=True, unsafe_hash=True)
class OffsetCommitKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 1

    group: Annotated[str, String] = ""
    topic: Annotated[str, String] = ""
    partition: Annotated[int, Int32] = 0


@dataclass(slots=True, unsafe_hash=True)
class OffsetCommitValue:
    versions: ClassVar[Versions] = Versions(0, 4, 4)

    offset: Annotated[int, Int64] = 0
    leader_epoch: Annotated[int, Int32, Since(3)] = -1
    metadata: Annotated[str, String] = ""
    commit_timestamp: Annotated[int, Int64] = 0
    expire_timestamp: Annotated[int, Int64, Since(1), Until(1)] = -1
    """Only where a client asked for a retention of its own (OffsetCommit up to version 4)."""
    topic_id: Annotated[UUID, Uuid, Tag(0), Since(4)] = NO_ID

    @property
    def written_version(self) -> int:
        # No later version can carry an expiry, and version 1 carries no leader epoch: as in Kafka, expiry wins.
        return 4 if self.expire_timestamp == -1 else 1

    @property
    def is_plain(self) -> bool:
        """No text and no expiry: what a consumer commits as a rule."""
        return not self.metadata and self.expire_timestamp == -1 and self.topic_id is not NO_ID


# --- a classic group


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 2

    group: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(3)] = None
    client_id: Annotated[str, String] = ""
    client_host: Annotated[str, String] = ""
    rebalance_timeout_ms: Annotated[int, Int32, Since(1)] = -1
    session_timeout_ms: Annotated[int, Int32] = 0
    subscription: Annotated[bytes, Bytes] = b""
    assignment: Annotated[bytes, Bytes] = b""


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    versions: ClassVar[Versions] = Versions(0, 4, 4)
    written_version: ClassVar[int] = 3

    protocol_type: Annotated[str, String] = ""
    generation: Annotated[int, Int32] = 0
    protocol: Annotated[str | None, String] = None
    leader: Annotated[str | None, String] = None
    current_state_timestamp: Annotated[int, Int64, Since(2)] = -1
    members: tuple[MemberMetadata, ...] = ()


# --- a group of KIP-848


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 3

    group_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    epoch: Annotated[int, Int32] = 0
    metadata_hash: Annotated[int, Int64, Tag(0)] = 0
    """Changes when a subscribed topic does. Kafka's own hash; ours need not be the same."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """Kafka wrote it until 4.0; since then `metadata_hash` does its work, and only tombstones are written."""

    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 4

    group_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    partition: Annotated[int, Int32] = 0
    racks: Annotated[tuple[str, ...], String] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    topic_name: Annotated[str, String] = ""
    num_partitions: Annotated[int, Int32] = 0
    partition_metadata: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    topics: tuple[TopicMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 5

    group_id: Annotated[str, String] = ""
    member_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    name: Annotated[str, String] = ""
    metadata: Annotated[bytes, Bytes] = b""


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    session_timeout_ms: Annotated[int, Int32] = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    instance_id: Annotated[str | None, String] = None
    rack_id: Annotated[str | None, String] = None
    client_id: Annotated[str, String] = ""
    client_host: Annotated[str, String] = ""
    subscribed_topic_names: Annotated[tuple[str, ...], String] = ()
    subscribed_topic_regex: Annotated[str | None, String] = None
    rebalance_timeout_ms: Annotated[int, Int32] = -1
    server_assignor: Annotated[str | None, String] = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tag(0), NullableSince(0)] = None
    """There while the member speaks the classic protocol in a group that has moved to this one."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 6

    group_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    assignment_epoch: Annotated[int, Int32] = 0
    assignment_timestamp: Annotated[int, Int64, Tag(0)] = 0


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    partitions: Annotated[tuple[int, ...], Int32] = ()
    assignment_epochs: Annotated[tuple[int, ...] | None, Int32, Tag(0)] = None
    """In a current assignment: since which epoch the member has each partition, where that is known."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 7

    group_id: Annotated[str, String] = ""
    member_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    topic_partitions: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 8

    group_id: Annotated[str, String] = ""
    member_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    member_epoch: Annotated[int, Int32] = 0
    previous_member_epoch: Annotated[int, Int32] = 0
    state: Annotated[int, Int8] = 0
    """0 stable, 1 has partitions to give back, 2 waits for partitions of others."""
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    versions: ClassVar[Versions] = _KEY
    type: ClassVar[int] = 16

    group_id: Annotated[str, String] = ""
    regular_expression: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionValue:
    versions: ClassVar[Versions] = _VALUE
    written_version: ClassVar[int] = 0

    topics: Annotated[tuple[str, ...], String] = ()
    version: Annotated[int, Int64] = 0
    timestamp: Annotated[int, Int64] = 0


# --- records as a whole

Key: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
Value: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


class Record(NamedTuple):
    """A key and its value, or None for a tombstone."""

    key: Key
    value: Value | None = None


_PAIRS: dict[int, tuple[type[Any], type[Any]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),  # as the first brokers with this topic wrote it
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The bytes of key and value. Raises Malformed where a field cannot carry what it was given."""
    key, value = record
    if type(key) is OffsetCommitKey and type(value) is OffsetCommitValue and value.is_plain:
        # Nearly all records are this one: 0.6 us by hand, 1.9 us by the codec, whose bytes these are.
        try:
            return (
                _committed_key(key.group, key.topic, key.partition),
                _COMMITTED(
                    4,
                    value.offset,
                    value.leader_epoch,
                    1,
                    value.commit_timestamp,
                    _TAGS,
                    _TOPIC_ID_TAG,
                    _TOPIC_ID_SIZE,
                    value.topic_id.bytes,
                ),
            )
        except error:  # a number or a name that is too large for its field: the codec says so
            pass
    return _bytes(key, 0, key.type), None if value is None else _value_bytes(value)


@lru_cache(maxsize=4096)
def _committed_key(group: str, topic: str, partition: int) -> bytes:
    # Kept: groups commit the same partitions again and again.
    name, of = group.encode(), topic.encode()
    parts = (_GROUP(OffsetCommitKey.type, len(name)), name, _SIZE(len(of)), of, _NUMBER(partition))
    return b"".join(parts)


def decode(key: Buffer, value: Buffer | None) -> Record | None:
    """The record of these bytes; None for a type that we do not know, such as those of share groups."""
    pair = _PAIRS.get(_prefix(key))
    if pair is None:
        return None
    known = decoder(pair[0], 0)(key, 2)
    return Record(known, None if value is None else decoder(pair[1], _prefix(value))(value, 2))


def _value_bytes(value: Value) -> bytes:
    return _bytes(value, value.written_version, value.written_version)


def _bytes(part: Any, version: int, prefix: int) -> bytes:
    out = bytearray(_PREFIX.pack(prefix))
    encoder(type(part), version)(part, out)
    return bytes(out)


def _prefix(buffer: Buffer) -> int:
    try:
        (number,) = _PREFIX.unpack_from(buffer)
    except error as problem:
        raise Malformed("a key or value of less than two bytes") from problem
    return int(number)

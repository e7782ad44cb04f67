"""What groups have read: OffsetCommit, OffsetFetch and OffsetDelete.

OffsetFetch asks for one group in `group_id` and `topics` up to version 7, and for several in `groups` from 8 on.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int16, Int32, Int64, NullableSince, Since, String, Until


@dataclass(slots=True)
class OffsetCommitPartition:
    partition_index: Annotated[int, Int32] = 0
    committed_offset: Annotated[int, Int64] = 0
    committed_leader_epoch: Annotated[int, Int32, Since(6)] = -1
    committed_metadata: Annotated[str | None, String] = ""


@dataclass(slots=True)
class OffsetCommitTopic:
    name: Annotated[str, String] = ""
    partitions: list[OffsetCommitPartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetCommitRequest:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    group_id: Annotated[str, String] = ""
    generation_id_or_member_epoch: Annotated[int, Int32] = -1
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(7)] = None
    retention_time_ms: Annotated[int, Int64, Until(4)] = -1
    topics: list[OffsetCommitTopic] = field(default_factory=list)


@dataclass(slots=True)
class OffsetCommitPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class OffsetCommitTopicResult:
    name: Annotated[str, String] = ""
    partitions: list[OffsetCommitPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class OffsetCommitResponse:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    throttle_time_ms: Annotated[int, Int32, Since(3)] = 0
    topics: list[OffsetCommitTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchTopic:
    name: Annotated[str, String] = ""
    partition_indexes: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchGroup:
    group_id: Annotated[str, String] = ""
    member_id: Annotated[str | None, String, Since(9)] = None
    member_epoch: Annotated[int, Int32, Since(9)] = -1
    topics: list[OffsetFetchTopic] | None = field(default_factory=list)
    """None asks for all that the group has committed."""


@dataclass(slots=True)
class OffsetFetchRequest:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH

    group_id: Annotated[str, String, Until(7)] = ""
    topics: Annotated[list[OffsetFetchTopic] | None, NullableSince(2), Until(7)] = field(default_factory=list)
    """None asks for all that the group has committed."""
    groups: Annotated[list[OffsetFetchGroup], Since(8)] = field(default_factory=list)
    require_stable: Annotated[bool, Bool, Since(7)] = False


@dataclass(slots=True)
class OffsetFetchPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    committed_offset: Annotated[int, Int64] = 0
    committed_leader_epoch: Annotated[int, Int32, Since(5)] = -1
    metadata: Annotated[str | None, String] = ""
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class OffsetFetchTopicResult:
    name: Annotated[str, String] = ""
    partitions: list[OffsetFetchPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchGroupResult:
    group_id: Annotated[str, String] = ""
    topics: list[OffsetFetchTopicResult] = field(default_factory=list)
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class OffsetFetchResponse:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_FETCH

    throttle_time_ms: Annotated[int, Int32, Since(3)] = 0
    topics: Annotated[list[OffsetFetchTopicResult], Until(7)] = field(default_factory=list)
    error_code: Annotated[int, Int16, Since(2), Until(7)] = 0
    groups: Annotated[list[OffsetFetchGroupResult], Since(8)] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeletePartition:
    partition_index: Annotated[int, Int32] = 0


@dataclass(slots=True)
class OffsetDeleteTopic:
    name: Annotated[str, String] = ""
    partitions: list[OffsetDeletePartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteRequest:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE

    group_id: Annotated[str, String] = ""
    topics: list[OffsetDeleteTopic] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeletePartitionResult:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class OffsetDeleteTopicResult:
    name: Annotated[str, String] = ""
    partitions: list[OffsetDeletePartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteResponse:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_DELETE

    error_code: Annotated[int, Int16] = 0
    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[OffsetDeleteTopicResult] = field(default_factory=list)

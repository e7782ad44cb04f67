"""ListOffsets: the offset at a timestamp, or at an end (-1 latest, -2 earliest, -3 newest time)."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Int8, Int16, Int32, Int64, Since, String


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: Annotated[int, Int32] = 0
    current_leader_epoch: Annotated[int, Int32, Since(4)] = -1
    timestamp: Annotated[int, Int64] = 0


@dataclass(slots=True)
class ListOffsetsTopic:
    name: Annotated[str, String] = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@dataclass(slots=True)
class ListOffsetsRequest:
    api: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    replica_id: Annotated[int, Int32] = 0
    isolation_level: Annotated[int, Int8, Since(2)] = 0
    topics: list[ListOffsetsTopic] = field(default_factory=list)


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    timestamp: Annotated[int, Int64] = -1
    offset: Annotated[int, Int64] = -1
    leader_epoch: Annotated[int, Int32, Since(4)] = -1


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    name: Annotated[str, String] = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class ListOffsetsResponse:
    api: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS

    throttle_time_ms: Annotated[int, Int32, Since(2)] = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)

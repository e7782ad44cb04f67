"""OffsetForLeaderEpoch: where a leader epoch ended, so that a log that has diverged can be cut there."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Int16, Int32, Int64, Since, String


@dataclass(slots=True)
class OffsetForLeaderPartition:
    partition: Annotated[int, Int32] = 0
    current_leader_epoch: Annotated[int, Int32] = -1
    leader_epoch: Annotated[int, Int32] = 0


@dataclass(slots=True)
class OffsetForLeaderTopic:
    topic: Annotated[str, String] = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH

    replica_id: Annotated[int, Int32, Since(3)] = -2
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


@dataclass(slots=True)
class EpochEndOffset:
    error_code: Annotated[int, Int16] = 0
    partition: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = -1
    end_offset: Annotated[int, Int64] = -1


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    topic: Annotated[str, String] = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    api: ClassVar[ApiKey] = ApiKey.OFFSET_FOR_LEADER_EPOCH

    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)

"""DeleteRecords: everything below an offset goes; the answer is where each log now starts."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Int16, Int32, Int64, String


@dataclass(slots=True)
class DeleteRecordsPartition:
    partition_index: Annotated[int, Int32] = 0
    offset: Annotated[int, Int64] = 0


@dataclass(slots=True)
class DeleteRecordsTopic:
    name: Annotated[str, String] = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


@dataclass(slots=True)
class DeleteRecordsRequest:
    api: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: Annotated[int, Int32] = 0


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    low_watermark: Annotated[int, Int64] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    name: Annotated[str, String] = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class DeleteRecordsResponse:
    api: ClassVar[ApiKey] = ApiKey.DELETE_RECORDS

    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)

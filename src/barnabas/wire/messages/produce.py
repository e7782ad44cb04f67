"""Produce: record batches in, their offsets out."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Int16, Int32, Int64, Records, Since, String, Tag


@dataclass(slots=True)
class ProducePartition:
    index: Annotated[int, Int32] = 0
    records: Annotated[memoryview | None, Records] = None


@dataclass(slots=True)
class ProduceTopic:
    name: Annotated[str, String] = ""
    partition_data: list[ProducePartition] = field(default_factory=list)


@dataclass(slots=True)
class ProduceRequest:
    api: ClassVar[ApiKey] = ApiKey.PRODUCE

    transactional_id: Annotated[str | None, String] = None
    acks: Annotated[int, Int16] = 0
    timeout_ms: Annotated[int, Int32] = 0
    topic_data: list[ProduceTopic] = field(default_factory=list)


@dataclass(slots=True)
class RecordError:
    batch_index: Annotated[int, Int32] = 0
    batch_index_error_message: Annotated[str | None, String] = None


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: Annotated[int, Int32] = -1
    leader_epoch: Annotated[int, Int32] = -1


@dataclass(slots=True)
class ProducePartitionResponse:
    index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    base_offset: Annotated[int, Int64] = 0
    log_append_time_ms: Annotated[int, Int64] = -1
    log_start_offset: Annotated[int, Int64, Since(5)] = -1
    record_errors: Annotated[list[RecordError], Since(8)] = field(default_factory=list)
    error_message: Annotated[str | None, String, Since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, Tag(0), Since(10)] = None


@dataclass(slots=True)
class ProduceTopicResponse:
    name: Annotated[str, String] = ""
    partition_responses: list[ProducePartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class NodeEndpoint:
    node_id: Annotated[int, Int32] = 0
    host: Annotated[str, String] = ""
    port: Annotated[int, Int32] = 0
    rack: Annotated[str | None, String] = None


@dataclass(slots=True)
class ProduceResponse:
    api: ClassVar[ApiKey] = ApiKey.PRODUCE

    responses: list[ProduceTopicResponse] = field(default_factory=list)
    throttle_time_ms: Annotated[int, Int32] = 0
    node_endpoints: Annotated[list[NodeEndpoint], Tag(0), Since(10)] = field(default_factory=list)

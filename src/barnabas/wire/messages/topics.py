"""CreateTopics, DeleteTopics and CreatePartitions."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import (
    NO_ID,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableSince,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: Annotated[int, Int32] = 0
    broker_ids: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class CreatableTopicConfig:
    name: Annotated[str, String] = ""
    value: Annotated[str | None, String] = None


@dataclass(slots=True)
class CreatableTopic:
    name: Annotated[str, String] = ""
    num_partitions: Annotated[int, Int32] = 0
    replication_factor: Annotated[int, Int16] = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@dataclass(slots=True)
class CreateTopicsRequest:
    api: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: Annotated[int, Int32] = 60000
    validate_only: Annotated[bool, Bool] = False


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: Annotated[str, String] = ""
    value: Annotated[str | None, String] = None
    read_only: Annotated[bool, Bool] = False
    config_source: Annotated[int, Int8] = -1
    is_sensitive: Annotated[bool, Bool] = False


@dataclass(slots=True)
class CreatableTopicResult:
    name: Annotated[str, String] = ""
    topic_id: Annotated[UUID, Uuid, Since(7)] = NO_ID
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    topic_config_error_code: Annotated[int, Int16, Tag(0), Since(5)] = 0
    num_partitions: Annotated[int, Int32, Since(5)] = -1
    replication_factor: Annotated[int, Int16, Since(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, Since(5)] = None


@dataclass(slots=True)
class CreateTopicsResponse:
    api: ClassVar[ApiKey] = ApiKey.CREATE_TOPICS

    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class DeleteTopicState:
    name: Annotated[str | None, String] = None
    topic_id: Annotated[UUID, Uuid] = NO_ID


@dataclass(slots=True)
class DeleteTopicsRequest:
    api: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS

    topics: Annotated[list[DeleteTopicState], Since(6)] = field(default_factory=list)
    topic_names: Annotated[list[str], String, Until(5)] = field(default_factory=list)
    timeout_ms: Annotated[int, Int32] = 0


@dataclass(slots=True)
class DeletableTopicResult:
    name: Annotated[str | None, String, NullableSince(6)] = ""
    topic_id: Annotated[UUID, Uuid, Since(6)] = NO_ID
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String, Since(5)] = None


@dataclass(slots=True)
class DeleteTopicsResponse:
    api: ClassVar[ApiKey] = ApiKey.DELETE_TOPICS

    throttle_time_ms: Annotated[int, Int32] = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class CreatePartitionsAssignment:
    broker_ids: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class CreatePartitionsTopic:
    name: Annotated[str, String] = ""
    count: Annotated[int, Int32] = 0
    assignments: list[CreatePartitionsAssignment] | None = None


@dataclass(slots=True)
class CreatePartitionsRequest:
    api: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: Annotated[int, Int32] = 0
    validate_only: Annotated[bool, Bool] = False


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    name: Annotated[str, String] = ""
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None


@dataclass(slots=True)
class CreatePartitionsResponse:
    api: ClassVar[ApiKey] = ApiKey.CREATE_PARTITIONS

    throttle_time_ms: Annotated[int, Int32] = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)

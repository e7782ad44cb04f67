"""Metadata: brokers, topics, and the leader of each partition. DescribeTopicPartitions: the same, page by page."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import NO_ID, Bool, Int16, Int32, NullableSince, Since, String, Until, Uuid


@dataclass(slots=True)
class MetadataRequestTopic:
    topic_id: Annotated[UUID, Uuid, Since(10)] = NO_ID
    name: Annotated[str | None, String, NullableSince(10)] = ""


@dataclass(slots=True)
class MetadataRequest:
    api: ClassVar[ApiKey] = ApiKey.METADATA

    topics: Annotated[list[MetadataRequestTopic] | None, NullableSince(1)] = None
    allow_auto_topic_creation: Annotated[bool, Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, Bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[bool, Bool, Since(8)] = False


@dataclass(slots=True)
class MetadataResponseBroker:
    node_id: Annotated[int, Int32] = 0
    host: Annotated[str, String] = ""
    port: Annotated[int, Int32] = 0
    rack: Annotated[str | None, String, Since(1)] = None


@dataclass(slots=True)
class MetadataResponsePartition:
    error_code: Annotated[int, Int16] = 0
    partition_index: Annotated[int, Int32] = 0
    leader_id: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32, Since(7)] = -1
    replica_nodes: Annotated[list[int], Int32] = field(default_factory=list)
    isr_nodes: Annotated[list[int], Int32] = field(default_factory=list)
    offline_replicas: Annotated[list[int], Int32, Since(5)] = field(default_factory=list)


@dataclass(slots=True)
class MetadataResponseTopic:
    error_code: Annotated[int, Int16] = 0
    name: Annotated[str | None, String, NullableSince(12)] = ""
    topic_id: Annotated[UUID, Uuid, Since(10)] = NO_ID
    is_internal: Annotated[bool, Bool, Since(1)] = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Annotated[int, Int32, Since(8)] = -2147483648


@dataclass(slots=True)
class MetadataResponse:
    api: ClassVar[ApiKey] = ApiKey.METADATA

    throttle_time_ms: Annotated[int, Int32, Since(3)] = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: Annotated[str | None, String, Since(2)] = None
    controller_id: Annotated[int, Int32, Since(1)] = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: Annotated[int, Int32, Since(8), Until(10)] = -2147483648


@dataclass(slots=True)
class DescribeTopicPartitionsTopic:
    name: Annotated[str, String] = ""


@dataclass(slots=True)
class TopicPartitionCursor:
    """Where the next page begins."""

    topic_name: Annotated[str, String] = ""
    partition_index: Annotated[int, Int32] = 0


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    topics: list[DescribeTopicPartitionsTopic] = field(default_factory=list)
    response_partition_limit: Annotated[int, Int32] = 2000
    cursor: TopicPartitionCursor | None = None


@dataclass(slots=True)
class DescribedPartition:
    error_code: Annotated[int, Int16] = 0
    partition_index: Annotated[int, Int32] = 0
    leader_id: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = -1
    replica_nodes: Annotated[list[int], Int32] = field(default_factory=list)
    isr_nodes: Annotated[list[int], Int32] = field(default_factory=list)
    eligible_leader_replicas: Annotated[list[int] | None, Int32] = None
    last_known_elr: Annotated[list[int] | None, Int32] = None
    offline_replicas: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class DescribedTopic:
    error_code: Annotated[int, Int16] = 0
    name: Annotated[str | None, String] = ""
    topic_id: Annotated[UUID, Uuid] = NO_ID
    is_internal: Annotated[bool, Bool] = False
    partitions: list[DescribedPartition] = field(default_factory=list)
    topic_authorized_operations: Annotated[int, Int32] = -2147483648


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[DescribedTopic] = field(default_factory=list)
    next_cursor: TopicPartitionCursor | None = None

"""What the controller and the brokers tell each other: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown,
AlterPartition. Kafka's formats of its ZooKeeper mode (3.9); clients are offered none of them.

Tags from 10,000 on are ours, for what Kafka's formats have no place for. Other implementations skip them.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import NO_ID, Bool, Int8, Int16, Int32, Int64, Since, String, Tag, Until, Uuid

INCREMENTAL = 1
FULL = 2
"""The `type` of an announcement: a difference, or everything."""

LEADER_DURING_DELETE = -2
"""The leader, in UpdateMetadata, of a partition whose topic is deleted."""
EPOCH_DURING_DELETE = -2
"""The leader epoch, in StopReplica, of a partition whose topic is deleted: it is newer than any."""


@dataclass(slots=True)
class LeaderAndIsrPartitionState:
    partition_index: Annotated[int, Int32] = 0
    controller_epoch: Annotated[int, Int32] = 0
    leader: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = 0
    isr: Annotated[list[int], Int32] = field(default_factory=list)
    partition_epoch: Annotated[int, Int32] = 0
    replicas: Annotated[list[int], Int32] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Int32] = field(default_factory=list)
    removing_replicas: Annotated[list[int], Int32] = field(default_factory=list)
    is_new: Annotated[bool, Bool] = False
    leader_recovery_state: Annotated[int, Int8, Since(6)] = 0
    eligible_leader_replicas: Annotated[list[int], Int32, Tag(10_000)] = field(default_factory=list)
    born: Annotated[int, Int64, Tag(10_001)] = -1


@dataclass(slots=True)
class LeaderAndIsrTopicState:
    topic_name: Annotated[str, String] = ""
    topic_id: Annotated[UUID, Uuid, Since(5)] = NO_ID
    partition_states: list[LeaderAndIsrPartitionState] = field(default_factory=list)


@dataclass(slots=True)
class LeaderAndIsrLiveLeader:
    broker_id: Annotated[int, Int32] = 0
    host_name: Annotated[str, String] = ""
    port: Annotated[int, Int32] = 0


@dataclass(slots=True)
class LeaderAndIsrRequest:
    api: ClassVar[ApiKey] = ApiKey.LEADER_AND_ISR

    controller_id: Annotated[int, Int32] = 0
    is_kraft_controller: Annotated[bool, Bool, Since(7)] = False
    controller_epoch: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1
    type: Annotated[int, Int8, Since(5)] = 0
    topic_states: list[LeaderAndIsrTopicState] = field(default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader] = field(default_factory=list)
    image_version: Annotated[int, Int64, Tag(10_000)] = -1


@dataclass(slots=True)
class LeaderAndIsrPartitionError:
    topic_name: Annotated[str, String, Until(4)] = ""
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class LeaderAndIsrTopicError:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    partition_errors: list[LeaderAndIsrPartitionError] = field(default_factory=list)


@dataclass(slots=True)
class LeaderAndIsrResponse:
    api: ClassVar[ApiKey] = ApiKey.LEADER_AND_ISR

    error_code: Annotated[int, Int16] = 0
    partition_errors: Annotated[list[LeaderAndIsrPartitionError], Until(4)] = field(default_factory=list)
    topics: Annotated[list[LeaderAndIsrTopicError], Since(5)] = field(default_factory=list)


@dataclass(slots=True)
class StopReplicaPartitionState:
    partition_index: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = -1
    delete_partition: Annotated[bool, Bool] = False


@dataclass(slots=True)
class StopReplicaTopicState:
    topic_name: Annotated[str, String] = ""
    partition_states: list[StopReplicaPartitionState] = field(default_factory=list)
    topic_id: Annotated[UUID, Uuid, Tag(10_000)] = NO_ID
    """A topic of the same name that came later is not meant."""


@dataclass(slots=True)
class StopReplicaRequest:
    api: ClassVar[ApiKey] = ApiKey.STOP_REPLICA

    controller_id: Annotated[int, Int32] = 0
    is_kraft_controller: Annotated[bool, Bool, Since(4)] = False
    controller_epoch: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1
    topic_states: list[StopReplicaTopicState] = field(default_factory=list)
    image_version: Annotated[int, Int64, Tag(10_000)] = -1


@dataclass(slots=True)
class StopReplicaPartitionError:
    topic_name: Annotated[str, String] = ""
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class StopReplicaResponse:
    api: ClassVar[ApiKey] = ApiKey.STOP_REPLICA

    error_code: Annotated[int, Int16] = 0
    partition_errors: list[StopReplicaPartitionError] = field(default_factory=list)


@dataclass(slots=True)
class UpdateMetadataPartitionState:
    partition_index: Annotated[int, Int32] = 0
    controller_epoch: Annotated[int, Int32] = 0
    leader: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = 0
    isr: Annotated[list[int], Int32] = field(default_factory=list)
    zk_version: Annotated[int, Int32] = 0
    """The partition epoch."""
    replicas: Annotated[list[int], Int32] = field(default_factory=list)
    offline_replicas: Annotated[list[int], Int32] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Int32, Tag(10_000)] = field(default_factory=list)
    removing_replicas: Annotated[list[int], Int32, Tag(10_001)] = field(default_factory=list)
    leader_recovery_state: Annotated[int, Int8, Tag(10_002)] = 0
    eligible_leader_replicas: Annotated[list[int], Int32, Tag(10_003)] = field(default_factory=list)
    born: Annotated[int, Int64, Tag(10_004)] = -1
    """Of a partition that was never changed: lives of brokers with larger epochs began after it was made."""


@dataclass(slots=True)
class UpdateMetadataTopicState:
    topic_name: Annotated[str, String] = ""
    topic_id: Annotated[UUID, Uuid, Since(7)] = NO_ID
    partition_states: list[UpdateMetadataPartitionState] = field(default_factory=list)


@dataclass(slots=True)
class UpdateMetadataEndpoint:
    port: Annotated[int, Int32] = 0
    host: Annotated[str, String] = ""
    listener: Annotated[str, String] = ""
    security_protocol: Annotated[int, Int16] = 0


@dataclass(slots=True)
class UpdateMetadataBroker:
    id: Annotated[int, Int32] = 0
    endpoints: list[UpdateMetadataEndpoint] = field(default_factory=list)
    rack: Annotated[str | None, String] = None
    broker_epoch: Annotated[int, Int64, Tag(10_000)] = -1
    has_lost_its_tail: Annotated[bool, Bool, Tag(10_001)] = False
    """After a power cut the last that this broker had stored may be gone."""


@dataclass(slots=True)
class UpdateMetadataRequest:
    api: ClassVar[ApiKey] = ApiKey.UPDATE_METADATA

    controller_id: Annotated[int, Int32] = 0
    is_kraft_controller: Annotated[bool, Bool, Since(8)] = False
    type: Annotated[int, Int8, Tag(0), Since(8)] = 0
    controller_epoch: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1
    topic_states: list[UpdateMetadataTopicState] = field(default_factory=list)
    live_brokers: list[UpdateMetadataBroker] = field(default_factory=list)
    image_version: Annotated[int, Int64, Tag(10_000)] = -1
    """Of the controller's image. What is older than the newest announcement that was heard comes late."""


@dataclass(slots=True)
class UpdateMetadataResponse:
    api: ClassVar[ApiKey] = ApiKey.UPDATE_METADATA

    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class ControlledShutdownRequest:
    api: ClassVar[ApiKey] = ApiKey.CONTROLLED_SHUTDOWN

    broker_id: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1


@dataclass(slots=True)
class RemainingPartition:
    topic_name: Annotated[str, String] = ""
    partition_index: Annotated[int, Int32] = 0


@dataclass(slots=True)
class ControlledShutdownResponse:
    api: ClassVar[ApiKey] = ApiKey.CONTROLLED_SHUTDOWN

    error_code: Annotated[int, Int16] = 0
    remaining_partitions: list[RemainingPartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionBrokerState:
    broker_id: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1


@dataclass(slots=True)
class AlterPartitionData:
    partition_index: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = 0
    new_isr_with_epochs: list[AlterPartitionBrokerState] = field(default_factory=list)
    leader_recovery_state: Annotated[int, Int8] = 0
    partition_epoch: Annotated[int, Int32] = 0


@dataclass(slots=True)
class AlterPartitionTopic:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    partitions: list[AlterPartitionData] = field(default_factory=list)


@dataclass(slots=True)
class TopicWithoutRoom:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionRequest:
    api: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION

    broker_id: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1
    topics: list[AlterPartitionTopic] = field(default_factory=list)
    tells_of_room: Annotated[bool, Bool, Tag(10_000)] = False
    """Whether `without_room` counts: it has all partitions that the broker has no room for, led by it or not."""
    without_room: Annotated[list[TopicWithoutRoom], Tag(10_001)] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    leader_id: Annotated[int, Int32] = 0
    leader_epoch: Annotated[int, Int32] = 0
    isr: Annotated[list[int], Int32] = field(default_factory=list)
    leader_recovery_state: Annotated[int, Int8] = 0
    partition_epoch: Annotated[int, Int32] = 0


@dataclass(slots=True)
class AlterPartitionTopicResult:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    partitions: list[AlterPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionResponse:
    api: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    topics: list[AlterPartitionTopicResult] = field(default_factory=list)

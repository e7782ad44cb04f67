"""The group protocol of KIP-848, in which the coordinator assigns: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

In a heartbeat null means "as before": a member says only what has changed, and so does the coordinator.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar
from uuid import UUID

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import NO_ID, Bool, Int8, Int16, Int32, Since, String, Uuid


@dataclass(slots=True)
class TopicPartitions:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    api: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_HEARTBEAT

    group_id: Annotated[str, String] = ""
    member_id: Annotated[str, String] = ""
    member_epoch: Annotated[int, Int32] = 0
    """0 joins, -1 leaves, -2 leaves for now (a static member that will be back)."""
    instance_id: Annotated[str | None, String] = None
    rack_id: Annotated[str | None, String] = None
    rebalance_timeout_ms: Annotated[int, Int32] = -1
    subscribed_topic_names: Annotated[list[str] | None, String] = None
    subscribed_topic_regex: Annotated[str | None, String, Since(1)] = None
    server_assignor: Annotated[str | None, String] = None
    topic_partitions: list[TopicPartitions] | None = None
    """What the member owns."""


@dataclass(slots=True)
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse:
    api: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_HEARTBEAT

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    member_id: Annotated[str | None, String] = None
    member_epoch: Annotated[int, Int32] = 0
    heartbeat_interval_ms: Annotated[int, Int32] = 0
    assignment: Assignment | None = None


@dataclass(slots=True)
class ConsumerGroupDescribeRequest:
    api: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_DESCRIBE

    group_ids: Annotated[list[str], String] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, Bool] = False


@dataclass(slots=True)
class DescribedTopicPartitions:
    topic_id: Annotated[UUID, Uuid] = NO_ID
    topic_name: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerGroupMember:
    member_id: Annotated[str, String] = ""
    instance_id: Annotated[str | None, String] = None
    rack_id: Annotated[str | None, String] = None
    member_epoch: Annotated[int, Int32] = 0
    client_id: Annotated[str, String] = ""
    client_host: Annotated[str, String] = ""
    subscribed_topic_names: Annotated[list[str], String] = field(default_factory=list)
    subscribed_topic_regex: Annotated[str | None, String] = None
    assignment: DescribedAssignment = field(default_factory=DescribedAssignment)
    target_assignment: DescribedAssignment = field(default_factory=DescribedAssignment)
    member_type: Annotated[int, Int8, Since(1)] = -1
    """0 a classic member, 1 a member of this protocol, -1 not known."""


@dataclass(slots=True)
class DescribedConsumerGroup:
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    group_id: Annotated[str, String] = ""
    group_state: Annotated[str, String] = ""
    group_epoch: Annotated[int, Int32] = 0
    assignment_epoch: Annotated[int, Int32] = 0
    assignor_name: Annotated[str, String] = ""
    members: list[ConsumerGroupMember] = field(default_factory=list)
    authorized_operations: Annotated[int, Int32] = -(2**31)


@dataclass(slots=True)
class ConsumerGroupDescribeResponse:
    api: ClassVar[ApiKey] = ApiKey.CONSUMER_GROUP_DESCRIBE

    throttle_time_ms: Annotated[int, Int32] = 0
    groups: list[DescribedConsumerGroup] = field(default_factory=list)

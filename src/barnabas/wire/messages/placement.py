"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: which brokers lead and have what."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int8, Int16, Int32, Since, String


@dataclass(slots=True)
class ElectLeadersTopic:
    topic: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class ElectLeadersRequest:
    api: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS

    election_type: Annotated[int, Int8, Since(1)] = 0
    """0 the preferred leader, 1 any live replica where none in sync is left."""
    topic_partitions: list[ElectLeadersTopic] | None = None
    timeout_ms: Annotated[int, Int32] = 60_000


@dataclass(slots=True)
class ElectLeadersPartitionResult:
    partition_id: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None


@dataclass(slots=True)
class ElectLeadersTopicResult:
    topic: Annotated[str, String] = ""
    partition_result: list[ElectLeadersPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class ElectLeadersResponse:
    api: ClassVar[ApiKey] = ApiKey.ELECT_LEADERS

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16, Since(1)] = 0
    replica_election_results: list[ElectLeadersTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class ReassignablePartition:
    partition_index: Annotated[int, Int32] = 0
    replicas: Annotated[list[int] | None, Int32] = None
    """None cancels."""


@dataclass(slots=True)
class ReassignableTopic:
    name: Annotated[str, String] = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    api: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    timeout_ms: Annotated[int, Int32] = 60_000
    allow_replication_factor_change: Annotated[bool, Bool, Since(1)] = True
    topics: list[ReassignableTopic] = field(default_factory=list)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None


@dataclass(slots=True)
class ReassignableTopicResponse:
    name: Annotated[str, String] = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    api: ClassVar[ApiKey] = ApiKey.ALTER_PARTITION_REASSIGNMENTS

    throttle_time_ms: Annotated[int, Int32] = 0
    allow_replication_factor_change: Annotated[bool, Bool, Since(1)] = True
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    responses: list[ReassignableTopicResponse] = field(default_factory=list)


@dataclass(slots=True)
class ListPartitionReassignmentsTopic:
    name: Annotated[str, String] = ""
    partition_indexes: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    api: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS

    timeout_ms: Annotated[int, Int32] = 60_000
    topics: list[ListPartitionReassignmentsTopic] | None = None


@dataclass(slots=True)
class OngoingPartitionReassignment:
    partition_index: Annotated[int, Int32] = 0
    replicas: Annotated[list[int], Int32] = field(default_factory=list)
    adding_replicas: Annotated[list[int], Int32] = field(default_factory=list)
    removing_replicas: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class OngoingTopicReassignment:
    name: Annotated[str, String] = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    api: ClassVar[ApiKey] = ApiKey.LIST_PARTITION_REASSIGNMENTS

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    topics: list[OngoingTopicReassignment] = field(default_factory=list)

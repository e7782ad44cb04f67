"""The classic group protocol, and looking after groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups,
ListGroups and DeleteGroups.

What a member sends as `metadata`, and the leader as `assignment`, is the clients' own affair: bytes to a broker.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Bytes, Int16, Int32, NullableSince, Since, String, Until


@dataclass(slots=True)
class JoinGroupProtocol:
    name: Annotated[str, String] = ""
    metadata: Annotated[bytes, Bytes] = b""


@dataclass(slots=True)
class JoinGroupRequest:
    api: ClassVar[ApiKey] = ApiKey.JOIN_GROUP

    group_id: Annotated[str, String] = ""
    session_timeout_ms: Annotated[int, Int32] = 0
    rebalance_timeout_ms: Annotated[int, Int32, Since(1)] = -1
    """Version 0 has none: the session timeout stands for it."""
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(5)] = None
    protocol_type: Annotated[str, String] = ""
    protocols: list[JoinGroupProtocol] = field(default_factory=list)
    reason: Annotated[str | None, String, Since(8)] = None


@dataclass(slots=True)
class JoinGroupMember:
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(5)] = None
    metadata: Annotated[bytes, Bytes] = b""


@dataclass(slots=True)
class JoinGroupResponse:
    api: ClassVar[ApiKey] = ApiKey.JOIN_GROUP

    throttle_time_ms: Annotated[int, Int32, Since(2)] = 0
    error_code: Annotated[int, Int16] = 0
    generation_id: Annotated[int, Int32] = -1
    protocol_type: Annotated[str | None, String, Since(7)] = None
    protocol_name: Annotated[str | None, String, NullableSince(7)] = ""
    leader: Annotated[str, String] = ""
    skip_assignment: Annotated[bool, Bool, Since(9)] = False
    member_id: Annotated[str, String] = ""
    members: list[JoinGroupMember] = field(default_factory=list)
    """Only the leader is told of them."""


@dataclass(slots=True)
class SyncGroupAssignment:
    member_id: Annotated[str, String] = ""
    assignment: Annotated[bytes, Bytes] = b""


@dataclass(slots=True)
class SyncGroupRequest:
    api: ClassVar[ApiKey] = ApiKey.SYNC_GROUP

    group_id: Annotated[str, String] = ""
    generation_id: Annotated[int, Int32] = 0
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(3)] = None
    protocol_type: Annotated[str | None, String, Since(5)] = None
    protocol_name: Annotated[str | None, String, Since(5)] = None
    assignments: list[SyncGroupAssignment] = field(default_factory=list)


@dataclass(slots=True)
class SyncGroupResponse:
    api: ClassVar[ApiKey] = ApiKey.SYNC_GROUP

    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    error_code: Annotated[int, Int16] = 0
    protocol_type: Annotated[str | None, String, Since(5)] = None
    protocol_name: Annotated[str | None, String, Since(5)] = None
    assignment: Annotated[bytes, Bytes] = b""


@dataclass(slots=True)
class HeartbeatRequest:
    api: ClassVar[ApiKey] = ApiKey.HEARTBEAT

    group_id: Annotated[str, String] = ""
    generation_id: Annotated[int, Int32] = 0
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(3)] = None


@dataclass(slots=True)
class HeartbeatResponse:
    api: ClassVar[ApiKey] = ApiKey.HEARTBEAT

    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class LeavingMember:
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String] = None
    reason: Annotated[str | None, String, Since(5)] = None


@dataclass(slots=True)
class LeaveGroupRequest:
    api: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP

    group_id: Annotated[str, String] = ""
    member_id: Annotated[str, String, Until(2)] = ""
    members: Annotated[list[LeavingMember], Since(3)] = field(default_factory=list)


@dataclass(slots=True)
class LeftMember:
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String] = None
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class LeaveGroupResponse:
    api: ClassVar[ApiKey] = ApiKey.LEAVE_GROUP

    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    error_code: Annotated[int, Int16] = 0
    members: Annotated[list[LeftMember], Since(3)] = field(default_factory=list)


@dataclass(slots=True)
class DescribeGroupsRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS

    groups: Annotated[list[str], String] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, Bool, Since(3)] = False


@dataclass(slots=True)
class DescribedGroupMember:
    member_id: Annotated[str, String] = ""
    group_instance_id: Annotated[str | None, String, Since(4)] = None
    client_id: Annotated[str, String] = ""
    client_host: Annotated[str, String] = ""
    member_metadata: Annotated[bytes, Bytes] = b""
    member_assignment: Annotated[bytes, Bytes] = b""


@dataclass(slots=True)
class DescribedGroup:
    error_code: Annotated[int, Int16] = 0
    group_id: Annotated[str, String] = ""
    group_state: Annotated[str, String] = ""
    protocol_type: Annotated[str, String] = ""
    protocol_data: Annotated[str, String] = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Annotated[int, Int32, Since(3)] = -(2**31)


@dataclass(slots=True)
class DescribeGroupsResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_GROUPS

    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    groups: list[DescribedGroup] = field(default_factory=list)


@dataclass(slots=True)
class ListGroupsRequest:
    api: ClassVar[ApiKey] = ApiKey.LIST_GROUPS

    states_filter: Annotated[list[str], String, Since(4)] = field(default_factory=list)
    types_filter: Annotated[list[str], String, Since(5)] = field(default_factory=list)


@dataclass(slots=True)
class ListedGroup:
    group_id: Annotated[str, String] = ""
    protocol_type: Annotated[str, String] = ""
    group_state: Annotated[str, String, Since(4)] = ""
    group_type: Annotated[str, String, Since(5)] = ""


@dataclass(slots=True)
class ListGroupsResponse:
    api: ClassVar[ApiKey] = ApiKey.LIST_GROUPS

    throttle_time_ms: Annotated[int, Int32, Since(1)] = 0
    error_code: Annotated[int, Int16] = 0
    groups: list[ListedGroup] = field(default_factory=list)


@dataclass(slots=True)
class DeleteGroupsRequest:
    api: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS

    groups_names: Annotated[list[str], String] = field(default_factory=list)


@dataclass(slots=True)
class DeletableGroupResult:
    group_id: Annotated[str, String] = ""
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class DeleteGroupsResponse:
    api: ClassVar[ApiKey] = ApiKey.DELETE_GROUPS

    throttle_time_ms: Annotated[int, Int32] = 0
    results: list[DeletableGroupResult] = field(default_factory=list)

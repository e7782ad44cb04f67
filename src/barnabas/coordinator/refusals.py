"""How each request to a coordinator is told no. PURE: a request and a code in, its response out.

Called by `coordinator` for what a group refuses, and by the broker where there is no coordinator to ask, or its
records cannot be appended.
"""

from collections.abc import Callable
from typing import Any

from barnabas.errors import Code
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from barnabas.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchGroupResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

_FROM_APPEND = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Code.COORDINATOR_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
    Code.RECORD_LIST_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
}


def append_code(code: Code) -> Code:
    """What a client of a coordinator is told when an append was refused with this code."""
    return _FROM_APPEND.get(code, code)


def refusal(request: Any, code: Code, message: str | None = None) -> Any:
    """The response that says no to the whole of a request."""
    response = _WAYS[type(request)](request, code)
    if message is not None and hasattr(response, "error_message"):
        response.error_message = message
    return response


def _leave(request: LeaveGroupRequest, code: Code) -> LeaveGroupResponse:
    if code is not Code.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=code)
    # There is no such group, so none of its members either: each is told so.
    rows = [LeftMember(member.member_id, member.group_instance_id, code) for member in request.members]
    return LeaveGroupResponse(members=rows)


def _commit(request: OffsetCommitRequest, code: Code) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResult(
                topic.name,
                [OffsetCommitPartitionResult(part.partition_index, code) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


_WAYS: dict[type[Any], Callable[[Any, Code], Any]] = {
    JoinGroupRequest: lambda request, code: JoinGroupResponse(error_code=code, member_id=request.member_id),
    SyncGroupRequest: lambda request, code: SyncGroupResponse(error_code=code),
    HeartbeatRequest: lambda request, code: HeartbeatResponse(error_code=code),
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _commit,
    OffsetFetchRequest: lambda request, code: OffsetFetchResponse(
        error_code=code,
        groups=[OffsetFetchGroupResult(group.group_id, error_code=code) for group in request.groups],
    ),
    OffsetDeleteRequest: lambda request, code: OffsetDeleteResponse(error_code=code),
    DescribeGroupsRequest: lambda request, code: DescribeGroupsResponse(
        groups=[DescribedGroup(code, group_id) for group_id in request.groups]
    ),
    ListGroupsRequest: lambda request, code: ListGroupsResponse(error_code=code),
    DeleteGroupsRequest: lambda request, code: DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, code) for group_id in request.groups_names]
    ),
    ConsumerGroupHeartbeatRequest: lambda request, code: ConsumerGroupHeartbeatResponse(error_code=code),
    ConsumerGroupDescribeRequest: lambda request, code: ConsumerGroupDescribeResponse(
        groups=[DescribedConsumerGroup(code, group_id=group_id) for group_id in request.group_ids]
    ),
}

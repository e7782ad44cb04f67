"""The classic group protocol: JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4, LeaveGroup v0-5. And looking after
groups: DescribeGroups v0-5, ListGroups v0-5, DeleteGroups v0-2. The coordinator decides; here versions are evened out.
"""

import uuid
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.calls import answer_of, ask, context, later
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
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
    LeavingMember,
    LeftMember,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

SEVERAL_MEMBERS_SINCE = 3


def _refuse_join(request: JoinGroupRequest, version: int, refused: Refused) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=refused.code, member_id=request.member_id)


@handles(ApiKey.JOIN_GROUP, _refuse_join, with_header=True)
def join_group(broker: "Broker", request: JoinGroupRequest, peer: Connection, header: RequestHeader) -> Any:
    asker = context(header, peer, "" if request.member_id else str(uuid.uuid4()))
    return broker.groups.host(request.group_id).ask(request, asker)


@handles(ApiKey.SYNC_GROUP, with_header=True)
def sync_group(broker: "Broker", request: SyncGroupRequest, peer: Connection, header: RequestHeader) -> Any:
    return ask(broker, request.group_id, request, header, peer)


@handles(ApiKey.HEARTBEAT, with_header=True)
def heartbeat(broker: "Broker", request: HeartbeatRequest, peer: Connection, header: RequestHeader) -> Any:
    try:
        return ask(broker, request.group_id, request, header, peer)
    except Refused as refused:
        if refused.code is Code.COORDINATOR_LOAD_IN_PROGRESS:
            # No member is late while the coordinator loads: sessions begin when it is up.
            return HeartbeatResponse()
        raise


def _refuse_leave(request: LeaveGroupRequest, version: int, refused: Refused) -> LeaveGroupResponse:
    if version < SEVERAL_MEMBERS_SINCE or refused.code is not Code.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=refused.code)
    # The group does not exist, so none of its members does either: each is told so.
    return LeaveGroupResponse(
        members=[
            LeftMember(member.member_id, member.group_instance_id, refused.code) for member in request.members
        ]
    )


@handles(ApiKey.LEAVE_GROUP, _refuse_leave, with_header=True)
async def leave_group(
    broker: "Broker", request: LeaveGroupRequest, peer: Connection, header: RequestHeader
) -> LeaveGroupResponse:
    if header.api_version < SEVERAL_MEMBERS_SINCE:
        request.members = [LeavingMember(request.member_id)]
    response: LeaveGroupResponse = await answer_of(broker, request.group_id, request, header, peer)
    if header.api_version < SEVERAL_MEMBERS_SINCE and response.members:
        response.error_code = response.members[0].error_code
    return response


def _refuse_describe(
    request: DescribeGroupsRequest, version: int, refused: Refused
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(refused.code, group_id) for group_id in request.groups]
    )


@handles(ApiKey.DESCRIBE_GROUPS, _refuse_describe, with_header=True)
async def describe_groups(
    broker: "Broker", request: DescribeGroupsRequest, peer: Connection, header: RequestHeader
) -> DescribeGroupsResponse:
    rows = []
    for group_id in request.groups:
        one = DescribeGroupsRequest([group_id])
        try:
            answer = await answer_of(broker, group_id, one, header, peer)
        except Refused as refused:
            answer = _refuse_describe(one, header.api_version, refused)
        rows += answer.groups
    return DescribeGroupsResponse(groups=rows)


@handles(ApiKey.LIST_GROUPS, with_header=True)
async def list_groups(
    broker: "Broker", request: ListGroupsRequest, peer: Connection, header: RequestHeader
) -> ListGroupsResponse:
    rows = []
    for host in broker.groups.all():
        rows += (await later(host.ask(request, context(header, peer)))).groups
    return ListGroupsResponse(groups=rows)


def _refuse_delete(request: DeleteGroupsRequest, version: int, refused: Refused) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, refused.code) for group_id in request.groups_names]
    )


@handles(ApiKey.DELETE_GROUPS, _refuse_delete, with_header=True)
async def delete_groups(
    broker: "Broker", request: DeleteGroupsRequest, peer: Connection, header: RequestHeader
) -> DeleteGroupsResponse:
    rows = []
    for group_id in request.groups_names:
        one = DeleteGroupsRequest([group_id])
        try:
            answer = await answer_of(broker, group_id, one, header, peer)
        except Refused as refused:
            answer = _refuse_delete(one, header.api_version, refused)
        rows += answer.results
    return DeleteGroupsResponse(results=rows)

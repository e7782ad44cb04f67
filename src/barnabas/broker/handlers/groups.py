"""The classic group protocol: JoinGroup v0-9, SyncGroup v0-5, Heartbeat v0-4, LeaveGroup v0-5. And looking after
groups: DescribeGroups v0-5, ListGroups v0-5, DeleteGroups v0-2. The coordinator decides; here versions are evened out.
"""

import uuid
from typing import TYPE_CHECKING, Any

from barnabas.broker.asking import ask, ask_each, context, later, say_no
from barnabas.broker.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

SEVERAL_MEMBERS_SINCE = 3


@handles(ApiKey.JOIN_GROUP, say_no, with_header=True)
def join_group(broker: "Broker", request: JoinGroupRequest, peer: Connection, header: RequestHeader) -> Any:
    asker = context(header, peer, "" if request.member_id else str(uuid.uuid4()))
    return broker.groups.host(request.group_id).ask(request, asker)


@handles(ApiKey.SYNC_GROUP, say_no, with_header=True)
def sync_group(broker: "Broker", request: SyncGroupRequest, peer: Connection, header: RequestHeader) -> Any:
    return ask(broker, request.group_id, request, header, peer)


@handles(ApiKey.HEARTBEAT, say_no, with_header=True)
def heartbeat(broker: "Broker", request: HeartbeatRequest, peer: Connection, header: RequestHeader) -> Any:
    try:
        return ask(broker, request.group_id, request, header, peer)
    except Refused as refused:
        if refused.code is Code.COORDINATOR_LOAD_IN_PROGRESS:
            # Nobody is late while the coordinator is not up: sessions begin when it is.
            return HeartbeatResponse()
        raise


@handles(ApiKey.LEAVE_GROUP, say_no, with_header=True)
async def leave_group(
    broker: "Broker", request: LeaveGroupRequest, peer: Connection, header: RequestHeader
) -> LeaveGroupResponse:
    if header.api_version < SEVERAL_MEMBERS_SINCE:
        request.members = [LeavingMember(request.member_id)]
    response: LeaveGroupResponse = await later(ask(broker, request.group_id, request, header, peer))
    if header.api_version < SEVERAL_MEMBERS_SINCE and response.members:
        response.error_code = response.members[0].error_code
    return response


@handles(ApiKey.DESCRIBE_GROUPS, say_no, with_header=True)
async def describe_groups(
    broker: "Broker", request: DescribeGroupsRequest, peer: Connection, header: RequestHeader
) -> DescribeGroupsResponse:
    parts = [(group_id, DescribeGroupsRequest([group_id])) for group_id in request.groups]
    answers = await ask_each(broker, parts, header, peer)
    return DescribeGroupsResponse(groups=[row for answer in answers for row in answer.groups])


@handles(ApiKey.LIST_GROUPS, with_header=True)
async def list_groups(
    broker: "Broker", request: ListGroupsRequest, peer: Connection, header: RequestHeader
) -> ListGroupsResponse:
    rows = []
    for host in broker.groups.all():
        rows += (await later(host.ask(request, context(header, peer)))).groups
    return ListGroupsResponse(groups=rows)


@handles(ApiKey.DELETE_GROUPS, say_no, with_header=True)
async def delete_groups(
    broker: "Broker", request: DeleteGroupsRequest, peer: Connection, header: RequestHeader
) -> DeleteGroupsResponse:
    parts = [(group_id, DeleteGroupsRequest([group_id])) for group_id in request.groups_names]
    answers = await ask_each(broker, parts, header, peer)
    return DeleteGroupsResponse(results=[row for answer in answers for row in answer.results])

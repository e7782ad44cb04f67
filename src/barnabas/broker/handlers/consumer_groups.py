"""The group protocol of KIP-848: ConsumerGroupHeartbeat v0-1, ConsumerGroupDescribe v0-1. The coordinator decides."""

import uuid
from typing import TYPE_CHECKING, Any

from barnabas.broker.asking import ask_each, context, say_no
from barnabas.broker.connection import Connection
from barnabas.broker.router import handles
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, say_no, with_header=True)
def heartbeat(
    broker: "Broker", request: ConsumerGroupHeartbeatRequest, peer: Connection, header: RequestHeader
) -> Any:
    asker = context(header, peer, "" if request.member_id else str(uuid.uuid4()))
    return broker.groups.host(request.group_id).ask(request, asker)


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, say_no, with_header=True)
async def describe(
    broker: "Broker", request: ConsumerGroupDescribeRequest, peer: Connection, header: RequestHeader
) -> ConsumerGroupDescribeResponse:
    parts = [(group_id, ConsumerGroupDescribeRequest([group_id])) for group_id in request.group_ids]
    answers = await ask_each(broker, parts, header, peer)
    return ConsumerGroupDescribeResponse(groups=[row for answer in answers for row in answer.groups])

"""The group protocol of KIP-848: ConsumerGroupHeartbeat v0-1, ConsumerGroupDescribe v0-1. The coordinator decides."""

import uuid
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.calls import answer_of, context
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    DescribedConsumerGroup,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, with_header=True)
def heartbeat(
    broker: "Broker", request: ConsumerGroupHeartbeatRequest, peer: Connection, header: RequestHeader
) -> Any:
    asker = context(header, peer, "" if request.member_id else str(uuid.uuid4()))
    return broker.groups.host(request.group_id).ask(request, asker)


def _refuse_describe(
    request: ConsumerGroupDescribeRequest, version: int, refused: Refused
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[DescribedConsumerGroup(refused.code, group_id=group_id) for group_id in request.group_ids]
    )


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, _refuse_describe, with_header=True)
async def describe(
    broker: "Broker", request: ConsumerGroupDescribeRequest, peer: Connection, header: RequestHeader
) -> ConsumerGroupDescribeResponse:
    rows = []
    for group_id in request.group_ids:
        one = ConsumerGroupDescribeRequest([group_id])
        try:
            answer = await answer_of(broker, group_id, one, header, peer)
        except Refused as refused:
            answer = _refuse_describe(one, header.api_version, refused)
        rows += answer.groups
    return ConsumerGroupDescribeResponse(groups=rows)

"""FindCoordinator v0-4, for one key or for several: which broker looks after a group or a transactional id."""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

GROUP = 0
TRANSACTION = 1


@handles(ApiKey.FIND_COORDINATOR)
async def find_coordinator(
    broker: "Broker", request: FindCoordinatorRequest, peer: Connection
) -> FindCoordinatorResponse:
    if request.coordinator_keys:
        rows = [await _find(broker, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)
    found = await _find(broker, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(broker: "Broker", key_type: int, key: str) -> Coordinator:
    try:
        if key_type not in (GROUP, TRANSACTION):
            raise Refused(Code.INVALID_REQUEST, f"There is no kind {key_type} of coordinators.")
        coordinators = broker.groups if key_type == GROUP else broker.transactions
        node = broker.metadata.image.brokers.get(await coordinators.find(key))
        if node is None:
            raise Refused(Code.COORDINATOR_NOT_AVAILABLE)
    except Refused as refused:
        return Coordinator(key, -1, "", -1, refused.code, refused.message)
    return Coordinator(key, node.id, node.host, node.port, Code.NONE, None)

"""FindCoordinator v0-4: this broker has no groups and no transactions yet, and says so."""

from typing import TYPE_CHECKING

from barnabas.broker.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

SORRY = "This broker has no group and transaction coordinators yet: assign partitions instead of subscribing."


@handles(ApiKey.FIND_COORDINATOR)
def find_coordinator(
    broker: "Broker", request: FindCoordinatorRequest, peer: Connection
) -> FindCoordinatorResponse:
    code = Code.COORDINATOR_NOT_AVAILABLE
    return FindCoordinatorResponse(
        error_code=code,
        error_message=SORRY,
        node_id=-1,
        port=-1,
        coordinators=[Coordinator(key, -1, "", -1, code, SORRY) for key in request.coordinator_keys],
    )

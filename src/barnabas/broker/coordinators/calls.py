"""How handlers ask a coordinator: the context of a request, where it goes, and how its answer is awaited.

An answer is a response; a coordinator that says no raises Refused, at once or when the answer is waited for. Each
handler says beside itself what its API makes of that (`@handles`), or makes a row of it where a request names several.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.broker.network.connection import Connection
from barnabas.coordinator.effects import Context
from barnabas.wire.frames import RequestHeader

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


def context(header: RequestHeader, peer: Connection, fresh_id: str = "") -> Context:
    # Java's way to write an address, which Kafka's tools show as it is.
    host = f"/{peer.address}"
    return tuple.__new__(Context, (header.api_version, header.client_id or "", host, fresh_id))


def ask(broker: "Broker", group_id: str, request: Any, header: RequestHeader, peer: Connection) -> Any:
    """The answer of a group's coordinator, or a future of it. Raises Refused."""
    return broker.groups.host(group_id).ask(request, context(header, peer))


async def answer_of(
    broker: "Broker", group_id: str, request: Any, header: RequestHeader, peer: Connection
) -> Any:
    """The same, waited for."""
    return await later(ask(broker, group_id, request, header, peer))


async def later(outcome: Any) -> Any:
    """The answer, whether it is there already or has to be waited for."""
    return await outcome if isinstance(outcome, asyncio.Future) else outcome

"""How handlers ask a group's coordinator: who asks, where to ask, and what to answer where there is nobody to ask."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from barnabas.broker.connection import Connection
from barnabas.coordinator.effects import Context
from barnabas.coordinator.refusals import refusal
from barnabas.errors import Refused
from barnabas.wire.frames import RequestHeader

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


def context(header: RequestHeader, peer: Connection, fresh_id: str = "") -> Context:
    # Java's way to write an address, which Kafka's tools show as it is.
    host = f"/{peer.address}"
    return tuple.__new__(Context, (header.api_version, header.client_id or "", host, fresh_id))


def ask(
    broker: "Broker",
    group_id: str,
    request: Any,
    header: RequestHeader,
    peer: Connection,
    *,
    alone: bool = False,
) -> Any:
    """The answer of a group's coordinator, or a future of it. With `alone` a refusal is an answer too: it is for
    one group of several, and the others must not hear of it."""
    try:
        host = broker.groups.host(group_id)
    except Refused as refused:
        if not alone:
            raise
        return refusal(request, refused.code)
    return host.ask(request, context(header, peer))


async def later(outcome: Any) -> Any:
    """The answer, whether it is there already or has to be waited for."""
    return await outcome if isinstance(outcome, asyncio.Future) else outcome


async def ask_each(
    broker: "Broker", parts: Iterable[tuple[str, Any]], header: RequestHeader, peer: Connection
) -> list[Any]:
    """The answers of several groups' coordinators, each to its own part of a request."""
    return [await later(ask(broker, group_id, part, header, peer, alone=True)) for group_id, part in parts]


def say_no(request: Any, version: int, refused: Refused) -> Any:
    """The refusal of a whole request."""
    return refusal(request, refused.code, refused.message)

"""The one door for shortcuts: answers found by a frame's bytes, for clients that send one request again and again.

The router asks here and knows no shortcut by name. A request takes the general way first. The shortcuts of its API then
see it (`learn`) and may give an `Attempt`, which the connection keeps for frames of the same API and version. The
attempt sees the next such frame before it is decoded: its answer counts, and None means the general way.

Always holds: an attempt answers what the general way would answer, byte for byte, or changes nothing and gives None. A
shortcut keeps its state in itself and in its attempts: delete its file and its name in `MODULES`, and no trace is left.
"""

from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.wire.apis import Api, ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.schema import Chunk

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.network.connection import Connection
    from barnabas.broker.router import Later, Route, Router

MODULES = {
    "produce": ("repeated_produce",),
    "fetch": ("repeated_fetch", "wide_fetch"),
    "offsets": ("repeated_commit",),
}
"""The files of each family of requests, in the order in which they are asked to learn."""


class Attempt(Protocol):
    """What a connection keeps of its requests of one API and version."""

    def answer(
        self, frame: memoryview, correlation_id: int, peer: "Connection"
    ) -> "list[Chunk] | Later | None":
        """The answer to a frame, now or later; None where the general way must be taken."""


class Shortcut(Protocol):
    """One way to save work, made once a broker."""

    def __init__(self, broker: "Broker", router: "Router") -> None: ...

    def suits(self, version: int) -> bool:
        """Whether there is anything to learn from requests of a version: the others are not shown."""

    def learn(
        self,
        route: "Route",
        frame: memoryview,
        header: RequestHeader,
        request: Any,
        response: Any,
        known: Attempt | None,
    ) -> Attempt | None:
        """An attempt at frames like this one, which went the general way; None where this is no case for it.

        `response` may be something still to be waited for; `known` is what the connection keeps so far.
        """


S = TypeVar("S", bound=type[Shortcut])
_registered: dict[ApiKey, list[type[Shortcut]]] = defaultdict(list)


def shortcut(key: ApiKey) -> Callable[[S], S]:
    """Register a shortcut for an API, in its own file."""

    def register(cls: S) -> S:
        _registered[key].append(cls)
        return cls

    return register


def shortcuts_for(api: Api, broker: "Broker", router: "Router") -> list[Shortcut]:
    """The shortcuts of an API; their files are imported with its first request."""
    for name in MODULES.get(api.family, ()):
        import_module(f"{__name__}.{name}")
    return [cls(broker, router) for cls in _registered[api.key]]

"""From a frame to its answer: finds the API and version, decodes, calls the handler, encodes.

Called by connections. Handlers register beside themselves with `@handles`; the module of a family is imported
when its first request comes, so that a broker starts in a blink. Only the router turns errors into responses.
"""

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.metrics import ApiMetrics
from barnabas.broker.network.promise import Promise
from barnabas.broker.shortcuts import Shortcut, shortcuts_for
from barnabas.errors import Code, Refused
from barnabas.wire.apis import APIS, Api, ApiKey, request_class, response_class
from barnabas.wire.codec import Malformed, decoder
from barnabas.wire.frames import RequestHeader, encode_response, read_request_header
from barnabas.wire.schema import Chunk

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.network.connection import Connection

log = logging.getLogger("barnabas.router")

Handler = Callable[..., Any]
"""(broker, request, peer) -> a response, None for no answer, or something to wait for.

One that registers `with_header` is given the request's header too."""

_HEAD = Struct(">ii").unpack_from
"""API key and version as one number, which is what a connection keeps its shortcuts by, and the correlation id."""

Refusal = Callable[[Any, int, Refused], Any]
"""(request, version, refused) -> the response that says so."""

_handlers: dict[ApiKey, tuple[Handler, Refusal | None]] = {}
_wanting_headers: set[ApiKey] = set()


def handles(
    key: ApiKey, refusal: Refusal | None = None, *, with_header: bool = False, by_controller: bool = False
) -> Callable[[Handler], Handler]:
    """Register a handler, and how its API says no to a whole request where there is no `error_code` on top.

    `by_controller` says that only the controller carries it out: any other broker asks it to.
    """

    def register(handler: Handler) -> Handler:
        _handlers[key] = (_at_controller(handler) if by_controller else handler, refusal)
        if with_header:
            _wanting_headers.add(key)
        return handler

    return register


def _handler_of(api: Api) -> tuple[Handler, Refusal | None]:
    module = f"barnabas.broker.handlers.{api.family}"
    if api.key not in _handlers and find_spec(module) is not None:
        import_module(module)
    if api.key not in _handlers:
        raise Malformed(f"{api.name}, which this broker does not answer")
    return _handlers[api.key]


def _at_controller(handler: Handler) -> Handler:
    """The same on the controller; elsewhere its answer. A broker that asks is not sent on: it asks the next one."""

    async def handle(broker: "Broker", request: Any, peer: "Connection") -> Any:
        if broker.metadata.is_controller or peer.is_broker:
            response = handler(broker, request, peer)
            if asyncio.iscoroutine(response):
                response = await response
            await broker.controlling.announced()
            return response
        return await broker.to_controller.forward(request)

    return handle


class Route(NamedTuple):
    """All that a request of one API and version needs."""

    api: Api
    version: int
    decode: Callable[[memoryview, int], Any]
    handle: Handler
    refusal: Refusal | None
    with_header: bool
    response: type[Any]
    metrics: ApiMetrics
    shortcuts: list[Shortcut]


class Later(NamedTuple):
    """An answer that is still to come: what is waited for, and what its frame needs then."""

    waited_for: "asyncio.Future[Any] | Promise[Any]"
    route: Route
    request: Any
    correlation_id: int
    address: str
    started: float

    def frame(self) -> list[Chunk]:
        """The answer's bytes, once `waited_for` is done."""
        route = self.route
        try:
            response = self.waited_for.result()
        except Refused as refused:
            response = _refuse(route, self.request, refused)
        except Exception as error:
            response = _fail(route, self.request, self.address, error)
        route.metrics.observe(perf_counter() - self.started)
        if type(response) is list:  # encoded beforehand
            return response
        return _encoded(route, response, self.correlation_id, self.address)


class Router:
    """Answers frames."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._routes: dict[tuple[int, int], Route] = {}
        self._shortcuts: dict[ApiKey, list[Shortcut]] = {}

    def answer(self, frame: memoryview, peer: "Connection") -> list[Chunk] | Later | None:
        """The answer's bytes, now or later, or None where none is wanted. Malformed costs the connection."""
        shortcuts = peer.shortcuts
        if shortcuts:
            head, correlation_id = _HEAD(frame)
            attempt = shortcuts.get(head)
            if attempt is not None:
                answer = attempt.answer(frame, correlation_id, peer)
                if answer is not None:
                    return answer
        started = perf_counter()
        header = read_request_header(frame)
        key, version, correlation_id, _, body_at = header
        route = self._routes.get((key, version))
        if route is None:
            route = self._find(key, version)
            if route is None:
                return self._unsupported(key, correlation_id)
        request = route.decode(frame, body_at)
        return self.carry_out(route, request, header, peer, started, frame if route.shortcuts else None)

    def carry_out(
        self,
        route: Route,
        request: Any,
        header: RequestHeader,
        peer: "Connection",
        started: float,
        to_learn: memoryview | None = None,
    ) -> list[Chunk] | Later | None:
        """The answer to a request that the decoder or a shortcut has read; `to_learn` is a frame for shortcuts."""
        try:
            if route.with_header:
                response = route.handle(self._broker, request, peer, header)
            else:
                response = route.handle(self._broker, request, peer)
        except Refused as refused:
            response = _refuse(route, request, refused)
        except Exception as error:
            response = _fail(route, request, peer.address, error)
        if to_learn is not None:
            _learn(route, to_learn, header, request, response, peer)
        if type(response) is route.response:
            chunks = _encoded(route, response, header.correlation_id, peer.address)
        elif response is None:
            chunks = None
        else:
            waited_for = response if type(response) is Promise else asyncio.ensure_future(response)
            return Later(waited_for, route, request, header.correlation_id, peer.address, started)
        route.metrics.observe(perf_counter() - started)
        return chunks

    def _find(self, key: int, version: int) -> Route | None:
        api = APIS.get(key)
        if api is None:
            raise Malformed(f"a request with the unknown API key {key}")
        if not api.speaks(version):
            if key == ApiKey.API_VERSIONS:
                return None
            raise Malformed(f"{api.name} in version {version}; spoken are {api.lowest} to {api.highest}")
        handler, refusal = _handler_of(api)
        route = Route(
            api,
            version,
            decoder(request_class(key), version),
            handler,
            refusal,
            api.key in _wanting_headers,
            response_class(key),
            self._broker.metrics.api(api.name),
            [each for each in self._shortcuts_for(api) if each.suits(version)],
        )
        self._routes[key, version] = route
        return route

    def _shortcuts_for(self, api: Api) -> list[Shortcut]:
        """One list for all versions of an API: a shortcut is made once."""
        if api.key not in self._shortcuts:
            self._shortcuts[api.key] = shortcuts_for(api, self._broker, self)
        return self._shortcuts[api.key]

    def _unsupported(self, key: int, correlation_id: int) -> list[Chunk]:
        """A newer ApiVersions than ours: clients want a version 0 answer that lists what we speak of it."""
        from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        api = APIS[key]
        spoken = ApiVersion(api_key=key, min_version=api.announced_lowest, max_version=api.highest)
        response = ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[spoken])
        return encode_response(response, 0, correlation_id)


class Threshold:
    """Answers brokers only, while this one does not know its cluster yet: it would tell clients that there is no topic.

    A client is hung up on, and comes again: then the server has the router itself.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    def answer(self, frame: memoryview, peer: "Connection") -> list[Chunk] | Later | None:
        if not peer.is_broker and _HEAD(frame)[0] >> 16 != ApiKey.API_VERSIONS:
            raise Malformed("a request before the broker knows its cluster")
        return self._router.answer(frame, peer)


def _learn(
    route: Route,
    frame: memoryview,
    header: RequestHeader,
    request: Any,
    response: Any,
    peer: "Connection",
) -> None:
    """Let the shortcuts see a request that went the general way: the first that has an attempt gives it."""
    head, _ = _HEAD(frame)
    known = peer.shortcuts.get(head)
    for shortcut in route.shortcuts:
        learned = shortcut.learn(route, frame, header, request, response, known)
        if learned is not None:
            peer.shortcuts[head] = learned
            break


def _encoded(route: Route, response: Any, correlation_id: int, address: str) -> list[Chunk]:
    """The answer's bytes. One that its version cannot carry is our mistake: without an answer, hang up."""
    try:
        return encode_response(response, route.version, correlation_id)
    except Malformed as error:
        log.error(
            "the answer to %s v%d from %s cannot be sent",
            route.api.name,
            route.version,
            address,
            exc_info=error,
        )
        raise Malformed(f"{route.api.name} v{route.version}, and there is no answer to it") from error


def _refuse(route: Route, request: Any, refused: Refused) -> Any:
    route.metrics.error(refused.code)
    if route.refusal is not None:
        return route.refusal(request, route.version, refused)
    return _told(route.api, route.response(), route.version, refused)


def refusal_of(request: Any, version: int, refused: Refused) -> Any:
    """The response that says no to a request, as its handler has it: for tests of what handlers ask."""
    api = APIS[request.api]
    _, refusal = _handler_of(api)
    if refusal is not None:
        return refusal(request, version, refused)
    return _told(api, response_class(api.key)(), version, refused)


def _told(api: Api, response: Any, version: int, refused: Refused) -> Any:
    if not hasattr(response, "error_code"):
        raise Malformed(f"{api.name} v{version}, and its answer has no place for an error")
    response.error_code = refused.code
    if hasattr(response, "error_message"):
        response.error_message = refused.message
    return response


def _fail(route: Route, request: Any, address: str, error: Exception) -> Any:
    log.error("%s from %s failed", route.api.name, address, exc_info=error)
    return _refuse(route, request, Refused(Code.UNKNOWN_SERVER_ERROR))

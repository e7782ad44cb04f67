"""From a frame to its answer: finds the API and version, decodes, calls the handler, encodes.

Called by connections. Handlers register beside themselves with `@handles`; the module of a family is imported
when its first request comes, so that a broker starts in a blink. Only the router turns errors into responses.
"""

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.metrics import ApiMetrics
from barnabas.broker.promise import Promise
from barnabas.errors import Code, Refused
from barnabas.wire.apis import APIS, Api, ApiKey, request_class, response_class
from barnabas.wire.codec import Malformed, decoder
from barnabas.wire.frames import RequestHeader, encode_response, read_request_header
from barnabas.wire.schema import Chunk

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.connection import Connection
    from barnabas.broker.envelopes import Envelopes
    from barnabas.broker.wide_fetch import WideFetches

log = logging.getLogger("barnabas.router")

Handler = Callable[..., Any]
"""(broker, request, peer) -> a response, None for no answer, or something to wait for.

One that registers `with_header` is given the request's header too."""

WIDE = 1024
"""Bytes of a fetch that `wide_fetch` has a look at: some 30 partitions."""

Refusal = Callable[[Any, int, Refused], Any]
"""(request, version, refused) -> the response that says so."""

_handlers: dict[ApiKey, tuple[Handler, Refusal | None]] = {}
_wanting_headers: set[ApiKey] = set()


def handles(
    key: ApiKey, refusal: Refusal | None = None, *, with_header: bool = False
) -> Callable[[Handler], Handler]:
    """Register a handler, and how its API says no to a whole request where there is no `error_code` on top."""

    def register(handler: Handler) -> Handler:
        _handlers[key] = (handler, refusal)
        if with_header:
            _wanting_headers.add(key)
        return handler

    return register


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
        self._envelopes: Envelopes | None = None
        self._wide_fetches: WideFetches | None = None

    def answer(self, frame: memoryview, peer: "Connection") -> list[Chunk] | Later | None:
        """The answer's bytes, now or later, or None where none is wanted. Malformed costs the connection."""
        if peer.envelope_size > 0 and self._envelopes is not None:
            chunks = self._envelopes.answer(frame, peer)
            if chunks is not None:
                return chunks
        started = perf_counter()
        request = None
        known = peer.known_commit.read(frame) if peer.known_commit is not None else None
        if known is not None:
            header, request = known
        else:
            header = read_request_header(frame)
        key, version, correlation_id, _, body_at = header
        route = self._routes.get((key, version))
        if route is None:
            route = self._find(key, version)
            if route is None:
                return self._unsupported(key, correlation_id)
        if key == ApiKey.FETCH and len(frame) >= WIDE:
            chunks = self._fetch_widely(frame, header)
            if chunks is not None:
                route.metrics.observe(perf_counter() - started)
                return chunks
        if request is None:
            request = route.decode(frame, body_at)
            if key == ApiKey.OFFSET_COMMIT:
                self._learn_commit(frame, header, request, peer)
        try:
            if route.with_header:
                response = route.handle(self._broker, request, peer, header)
            else:
                response = route.handle(self._broker, request, peer)
        except Refused as refused:
            response = _refuse(route, request, refused)
        except Exception as error:
            response = _fail(route, request, peer.address, error)
        if type(response) is route.response:
            if key == ApiKey.PRODUCE:
                self._learn(frame, header, request, response, peer)
            chunks = _encoded(route, response, correlation_id, peer.address)
        elif response is None:
            chunks = None
        else:
            waited_for = response if type(response) is Promise else asyncio.ensure_future(response)
            return Later(waited_for, route, request, correlation_id, peer.address, started)
        route.metrics.observe(perf_counter() - started)
        return chunks

    def _fetch_widely(self, frame: memoryview, header: RequestHeader) -> list[Chunk] | None:
        if self._wide_fetches is None:
            from barnabas.broker.wide_fetch import WideFetches

            self._wide_fetches = WideFetches(self._broker)
        return self._wide_fetches.answer(frame, header)

    def _learn(self, *answered: Any) -> None:
        if self._envelopes is None:
            from barnabas.broker.envelopes import Envelopes

            self._envelopes = Envelopes(self._broker)
        self._envelopes.learn(*answered)

    def _learn_commit(
        self, frame: memoryview, header: RequestHeader, request: Any, peer: "Connection"
    ) -> None:
        if peer.known_commit is None:
            from barnabas.broker.known_commits import KnownCommit

            peer.known_commit = KnownCommit()
        peer.known_commit.learn(frame, header, request)

    def _find(self, key: int, version: int) -> Route | None:
        api = APIS.get(key)
        if api is None:
            raise Malformed(f"a request with the unknown API key {key}")
        if not api.speaks(version):
            if key == ApiKey.API_VERSIONS:
                return None
            raise Malformed(f"{api.name} in version {version}; spoken are {api.lowest} to {api.highest}")
        if api.key not in _handlers:
            import_module(f"barnabas.broker.handlers.{api.family}")
        handler, refusal = _handlers[api.key]
        route = Route(
            api,
            version,
            decoder(request_class(key), version),
            handler,
            refusal,
            api.key in _wanting_headers,
            response_class(key),
            self._broker.metrics.api(api.name),
        )
        self._routes[key, version] = route
        return route

    def _unsupported(self, key: int, correlation_id: int) -> list[Chunk]:
        """A newer ApiVersions than ours: clients want a version 0 answer that lists what we speak of it."""
        from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

        api = APIS[key]
        spoken = ApiVersion(api_key=key, min_version=api.announced_lowest, max_version=api.highest)
        response = ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[spoken])
        return encode_response(response, 0, correlation_id)


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
    response = route.response()
    if not hasattr(response, "error_code"):
        raise Malformed(f"{route.api.name} v{route.version}, and its answer has no place for an error")
    response.error_code = refused.code
    if hasattr(response, "error_message"):
        response.error_message = refused.message
    return response


def _fail(route: Route, request: Any, address: str, error: Exception) -> Any:
    log.error("%s from %s failed", route.api.name, address, exc_info=error)
    return _refuse(route, request, Refused(Code.UNKNOWN_SERVER_ERROR))

"""The asking side of one connection, without the connection: requests to bytes, bytes to answers. PURE.

Shared by the client's channel and by brokers that ask each other. It frames requests, chooses their versions from what
the peer says it speaks, numbers them, and finds out which request an answer belongs to. A shell moves the bytes: it
writes the chunks that `greet` and `ask` give, reads into `buffer`, and says how much came (`received`). It greets
whenever the conversation `must_greet`, and asks once both sides are `is_agreed`.

Always holds: answers come in the order of the requests, one each. What cannot be an answer is Nonsense, after which
nothing that the peer says can be trusted: the shell hangs up. A frame gets memory for what it claims, 1 GiB at most,
only while an answer is due.
"""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.errors import BarnabasError, Code, Refused
from barnabas.wire.apis import APIS, Api, ApiKey
from barnabas.wire.codec import Malformed, Message
from barnabas.wire.frames import decode_response, encode_request
from barnabas.wire.messages.api_versions import BROKER_SOFTWARE, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.schema import Chunk

_LENGTH = Struct(">i")
_OLDER = b"\x00\x23"
"""UNSUPPORTED_VERSION, where an answer of version 0 has its error code."""
_LARGEST = 1 << 30
_LAST_ID = 0x7FFFFFFF


class Nonsense(BarnabasError):
    """What the peer said cannot be: the conversation is over."""


class Features(NamedTuple):
    """What a cluster has agreed on, such as `transaction.version`; the higher epoch is the newer word."""

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})


class Call:
    """A request on its way to its answer. What asks may add to it what it needs to know then."""

    __slots__ = ("answer", "correlation_id", "request", "version", "versions")

    def __init__(
        self, request: Message, answer: type[Any] | None, versions: tuple[int, int] | None = None
    ) -> None:
        self.request = request
        self.answer = answer
        """The class of the answer; None where the peer gives none (acks=0)."""
        self.versions = versions
        """The lowest and highest that will do, where a version means something else than the one before; None: any."""
        self.version = -1
        self.correlation_id = -1


C = TypeVar("C", bound=Call)


class Conversation(Generic[C]):
    """What was asked and not answered yet, what the peer speaks, and the answer that is coming in."""

    def __init__(
        self, peer: str, client_id: str, scratch: memoryview | None = None, *, between_brokers: bool = False
    ) -> None:
        """`between_brokers` says that a broker asks another: then they speak more than clients are offered."""
        self.peer = peer
        """Its name in sentences."""
        self._between_brokers = between_brokers
        self.pending: deque[C] = deque()
        """Asked and not answered yet, in order."""
        self.spoken: dict[int, tuple[int, int]] = {}
        """The versions of each API that the peer speaks; none until it has told."""
        self.must_greet = True
        """The shell is to write what `greet` gives."""
        self.is_agreed = False
        """The peer has told what it speaks: from now on it can be asked."""
        self.features = Features()
        self._chosen: dict[ApiKey, int] = {}
        self._client_id = client_id
        self._scratch = memoryview(bytearray(64 * 1024)) if scratch is None else scratch
        """Where bytes go whose frame is not known yet. Nothing stays there: conversations may share it."""
        self._greeting: Call | None = None
        """Asked and not answered yet: what the peer speaks."""
        self._greets_in = APIS[ApiKey.API_VERSIONS].highest
        self._next_id = 0
        self._frame: memoryview | None = None
        self._filled = 0
        self._head = b""

    # Asking

    def greet(self) -> list[Chunk]:
        """Tell what we are and ask what the peer speaks; again, in the oldest version, where it does not know ours."""
        software = BROKER_SOFTWARE if self._between_brokers else "barnabas"
        request = ApiVersionsRequest(client_software_name=software, client_software_version="0.1.0")
        self.must_greet = False
        self._greeting = Call(request, ApiVersionsResponse)
        return self._written(self._greeting, self._greets_in)

    def version_of(self, key: ApiKey) -> int:
        """The newest version of an API that both sides speak; raises Refused where there is none."""
        version = self._chosen.get(key)
        if version is None:
            version = self._chosen[key] = self._choose(key)
        return version

    def _choose(self, key: ApiKey) -> int:
        ours = APIS[key]
        return self._within(ours, ours.lowest, ours.highest if self._between_brokers else ours.offered)

    def _within(self, ours: Api, from_version: int, to_version: int) -> int:
        lowest, highest = self.spoken.get(ours.key, (0, -1))
        version = min(to_version, highest)
        if version < max(from_version, lowest):
            text = f"{self.peer} offers no version of {ours.name} that this client speaks."
            raise Refused(Code.UNSUPPORTED_VERSION, text)
        return version

    def ask(self, call: C) -> list[Chunk]:
        """The bytes of a request; its answer is due from now on. What raises leaves the conversation as it was."""
        key = call.request.api
        version = self.version_of(key) if call.versions is None else self._within(APIS[key], *call.versions)
        chunks = self._written(call, version)
        self.pending.append(call)
        return chunks

    def _written(self, call: Call, version: int) -> list[Chunk]:
        correlation_id = (self._next_id + 1) & _LAST_ID
        chunks = encode_request(call.request, version, correlation_id, self._client_id)
        self._next_id = call.correlation_id = correlation_id
        call.version = version
        return chunks

    def next_unanswered(self) -> C | None:
        """The request that is next in line, if the peer answers it with nothing: then it is done when it is written."""
        pending = self.pending
        return pending.popleft() if pending and pending[0].answer is None else None

    # Hearing

    def buffer(self) -> memoryview:
        """Where the next bytes belong: the rest of a frame that has begun, or any place."""
        return self._scratch if self._frame is None else self._frame[self._filled :]

    def received(self, count: int) -> Iterator[tuple[C, Any]]:
        """`count` bytes are in the buffer: the requests that they answer, each with its answer. Raises Nonsense.

        A caller that stops before the last of them has to end the conversation.
        """
        frame = self._frame
        if frame is None:
            scratch = self._scratch[:count]
            return self._split(self._head + scratch if self._head else bytes(scratch))
        self._filled += count
        if self._filled < len(frame):
            return iter(())
        self._frame = None
        answered = self._answer(frame)
        return iter(() if answered is None else (answered,))

    def _split(self, data: bytes) -> Iterator[tuple[C, Any]]:
        """Cut what came into frames; the beginning of one gets a buffer of its size."""
        self._head = b""
        view = memoryview(data)
        at, end = 0, len(data)
        while at + 4 <= end:
            (size,) = _LENGTH.unpack_from(data, at)
            if not 4 <= size <= _LARGEST:
                raise Nonsense(f"{self.peer} does not speak the Kafka protocol.")
            at += 4
            if at + size > end:
                if not (self.pending or self._greeting):
                    raise Nonsense(f"{self.peer} answered where nothing was asked.")
                frame = self._frame = _buffer(size)
                self._filled = end - at
                frame[: self._filled] = view[at:]
                return
            answered = self._answer(view[at : at + size])
            if answered is not None:
                yield answered
            at += size
        self._head = data[at:]

    def _answer(self, frame: memoryview) -> tuple[C, Any] | None:
        """One whole frame; the answer to a greeting stays here."""
        if self._greeting is not None:
            self._agree(self._greeting, frame)
            return None
        if not self.pending or self.pending[0].answer is None:
            raise Nonsense(f"{self.peer} answered where nothing was asked.")
        call = self.pending[0]
        message = self._decoded(call, call.version, frame)
        self.pending.popleft()
        return call, message

    def _agree(self, greeting: Call, frame: memoryview) -> None:
        # A peer older than our first question says so in the oldest form of the answer.
        version = 0 if frame[4:6] == _OLDER else greeting.version
        found: ApiVersionsResponse = self._decoded(greeting, version, frame)
        self._greeting = None
        if found.error_code == Code.UNSUPPORTED_VERSION and greeting.version > 0:
            self._greets_in, self.must_greet = 0, True
        elif found.error_code:
            raise Nonsense(f"{self.peer}: {Code.of(found.error_code).advice}")
        else:
            self.spoken = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
            levels = {each.name: each.max_version_level for each in found.finalized_features}
            self.features = Features(found.finalized_features_epoch, levels)
            self.is_agreed = True

    def _decoded(self, call: Call, version: int, frame: memoryview) -> Any:
        assert call.answer is not None
        try:
            found, message = decode_response(call.answer, version, frame)
        except Malformed as error:
            raise Nonsense(f"{self.peer} gave an answer that cannot be read: {error}.") from error
        if found != call.correlation_id:
            raise Nonsense(f"{self.peer} answered request {found} where {call.correlation_id} was due.")
        return message


def _buffer(size: int) -> memoryview:
    """Bytes to be filled. Where there is numpy they are not zeroed first, which is 3 % of what a reader takes."""
    empty = getattr(sys.modules.get("numpy"), "empty", None)  # another thread may just be importing it
    return memoryview(bytearray(size) if empty is None else empty(size, "B"))

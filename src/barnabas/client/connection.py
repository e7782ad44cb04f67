"""One blocking connection to one broker: agrees on versions, sends requests, reads their answers in order.

Owned by `cluster`. Always holds: after any failure the connection is closed, so an answer is never taken for
another request's. Not for several threads at once.
"""

import select
import socket
import time
from collections import deque
from struct import Struct
from typing import Any, TypeVar

from barnabas.client.failures import TimedOut, Unreachable
from barnabas.client.metadata import Address
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codec import Chunk, Malformed, Message
from barnabas.wire.frames import decode_response, encode_request
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

M = TypeVar("M", bound=Message)

_LENGTH = Struct(">i")
_OLDER = b"\x00\x23"
_MAX_ANSWER = 1 << 30
_JOIN_BELOW = 64 * 1024


class Connection:
    """Open when made. `call` is one request and its answer; `send` and `receive` are its halves."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout: float) -> None:
        self.address = str(Address(host, port))
        self._client_id = client_id
        self._timeout = timeout
        self._next_id = 0
        self._waiting: deque[tuple[int, int, type[Any]]] = deque()
        self._socket = self._connect(host, port)
        self._versions: dict[int, tuple[int, int]] = {}
        self._agree_on_versions()

    def call(self, request: Message, answer: type[M], *, wait: float = 0.0) -> M:
        """Send and receive; `wait` is what the broker may take on purpose, as in a long-polling fetch."""
        self.send(request, answer)
        message: M = self.receive(wait=wait)
        return message

    def send(self, request: Message, answer: type[Message] | None) -> None:
        """Send without waiting; `answer` is None for what brokers do not answer (acks=0)."""
        version = self.version_of(request.api)
        self._send(request, version, answer)

    def receive(self, *, wait: float = 0.0) -> Any:
        """The answer to the oldest request that has none yet."""
        correlation_id, version, answer = self._waiting.popleft()
        frame = self._read_frame(wait)
        try:
            if answer is ApiVersionsResponse and bytes(frame[4:6]) == _OLDER:
                # The broker is older than our first question, and says so in the oldest form of the answer.
                version = 0
            found, message = decode_response(answer, version, frame)
        except Malformed as error:
            raise self._lost(f"{self.address} gave an answer that cannot be read: {error}.") from error
        if found != correlation_id:
            raise self._lost(f"{self.address} answered request {found} where {correlation_id} was due.")
        return message

    def has_answer(self, within: float) -> bool:
        """Whether an answer begins to come in so many seconds, or the connection ends; for `receive` to tell which."""
        return bool(select.select([self._socket], [], [], within)[0]) if self.is_open else True

    def version_of(self, key: int) -> int:
        """The newest version of an API that both sides speak."""
        ours = APIS[key]
        lowest, highest = self._versions.get(key, (0, -1))
        version = min(ours.highest, highest)
        if version < max(ours.lowest, lowest):
            raise Refused(
                Code.UNSUPPORTED_VERSION,
                f"{self.address} offers no version of {ours.name} that we speak.",
            )
        return version

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def close(self) -> None:
        self._socket.close()

    def _agree_on_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="0.1.0")
        self._send(request, APIS[ApiKey.API_VERSIONS].highest, ApiVersionsResponse)
        found: ApiVersionsResponse = self.receive()
        if found.error_code == Code.UNSUPPORTED_VERSION:
            self._send(request, 0, ApiVersionsResponse)
            found = self.receive()
        if found.error_code:
            raise self._lost(f"{self.address}: {Code.of(found.error_code).advice}")
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}

    def _connect(self, host: str, port: int) -> socket.socket:
        try:
            sock = socket.create_connection((host, port), self._timeout)
        except TimeoutError:
            raise TimedOut(f"{self.address} did not take a connection in {self._timeout:g} s.") from None
        except socket.gaierror:
            raise Unreachable(f"The host of {self.address} is not known.") from None
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Unreachable(f"No broker answers at {self.address} ({reason.lower()}).") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _send(self, request: Message, version: int, answer: type[Message] | None) -> None:
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        chunks = encode_request(request, version, self._next_id, self._client_id)
        try:
            self._socket.settimeout(self._timeout)
            for chunk in _joined(chunks):
                self._socket.sendall(chunk)
        except TimeoutError:
            self.close()
            raise TimedOut(f"{self.address} did not take a request in {self._timeout:g} s.") from None
        except OSError as error:
            raise self._lost(f"The connection to {self.address} is lost ({_reason(error)}).") from None
        if answer is not None:
            self._waiting.append((self._next_id, version, answer))

    def _read_frame(self, wait: float) -> memoryview:
        deadline = time.monotonic() + self._timeout + wait
        (size,) = _LENGTH.unpack(self._read(4, deadline))
        if not 4 <= size <= _MAX_ANSWER:
            raise self._lost(f"{self.address} does not speak the Kafka protocol.")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(size))
        done = 0
        try:
            while done < size:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                got = self._socket.recv_into(view[done:], size - done)
                if not got:
                    raise self._lost(f"The connection to {self.address} was closed by the other side.")
                done += got
        except TimeoutError:
            self.close()
            raise TimedOut(f"{self.address} did not answer in {self._timeout:g} s.") from None
        except OSError as error:
            raise self._lost(f"The connection to {self.address} is lost ({_reason(error)}).") from None
        return view

    def _lost(self, message: str) -> BarnabasError:
        self.close()
        return Unreachable(message)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _joined(chunks: list[Chunk]) -> list[Any]:
    """Small requests go out in one write."""
    if sum(map(len, chunks)) < _JOIN_BELOW:
        return [b"".join(chunks)]  # type: ignore[arg-type]
    return chunks

"""Owns a connection that says exactly what a test wants said: whole requests, broken frames, or half of one.

Called by tests/chaos and tests/hostile, where a client library would hide what matters.
"""

import itertools
import socket
import struct
from typing import Any, Self

from barnabas.wire.apis import response_class
from barnabas.wire.frames import decode_response, encode_request

ANSWER_S = 60.0


class Gone(Exception):
    """The broker closed the connection, or is not there."""


class RawConnection:
    """One plain socket to a broker; answers are read in the order of the requests."""

    def __init__(self, port: int, timeout_s: float = ANSWER_S) -> None:
        self._ids = itertools.count(1)
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        except OSError as problem:
            raise Gone(str(problem)) from problem
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Sends a request and gives its answer."""
        correlation_id = next(self._ids)
        self.send(frame_of(request, version, correlation_id))
        answered, response = decode_response(response_class(request.api), version, self.receive())
        assert answered == correlation_id, "the broker answered another request than the one it was asked"
        return response

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise
        except OSError as problem:
            raise Gone(str(problem)) from problem

    def receive(self) -> bytes:
        """The next frame, without its length."""
        (length,) = struct.unpack(">i", self._exactly(4))
        assert length >= 4, f"the broker announced a frame of {length} bytes"
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = self.socket.recv(min(1 << 20, count - len(data)))
            except TimeoutError:
                raise
            except OSError as problem:
                raise Gone(str(problem)) from problem
            if not part:
                raise Gone("the broker closed the connection")
            data += part
        return bytes(data)

    def closes(self, within_s: float = ANSWER_S) -> bool:
        """Whether the broker closes this connection in time, whatever it sends before."""
        self.socket.settimeout(within_s)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


def frame_of(request: Any, version: int, correlation_id: int = 1, client_id: str | None = "test") -> bytes:
    """A whole request as it goes over the wire, its length in front."""
    chunks: list[Any] = encode_request(request, version, correlation_id, client_id)
    return b"".join(chunks)

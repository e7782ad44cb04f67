"""The port to the network between brokers, and its adapter: sockets on the event loop.

`peer` dials through it. A simulation gives the broker another `Dialer`, which carries the same bytes without sockets.
"""

import asyncio
from typing import Protocol, cast

from barnabas.wire.schema import Chunk


class Listening(Protocol):
    """What hears the bytes of a line, without a copy: they go where `buffer` says."""

    def buffer(self) -> memoryview: ...
    def received(self, count: int) -> None: ...
    def lost(self, error: Exception | None) -> None:
        """The line is gone, by the other side or by a failure. Said once, and not after `Line.close`."""


class Line(Protocol):
    """An open connection: what is written arrives in order, or the line is lost."""

    def write(self, chunks: list[Chunk]) -> None: ...
    def close(self) -> None: ...


class Dialer(Protocol):
    """Opens lines to brokers."""

    async def dial(self, host: str, port: int, listening: Listening) -> Line:
        """An open line; raises OSError. ConnectionRefusedError proves that no process listens there."""


class SocketLine(asyncio.BufferedProtocol):
    """Mutable: a line over a socket of the event loop."""

    def __init__(self, listening: Listening) -> None:
        self._listening: Listening | None = listening
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listening.buffer() if self._listening is not None else memoryview(bytearray(1024))

    def buffer_updated(self, nbytes: int) -> None:
        if self._listening is not None:
            self._listening.received(nbytes)

    def connection_lost(self, exc: Exception | None) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.lost(exc)

    def write(self, chunks: list[Chunk]) -> None:
        assert self._transport is not None
        self._transport.writelines(chunks)  # type: ignore[arg-type]

    def close(self) -> None:
        self._listening = None
        if self._transport is not None:
            self._transport.abort()


class SocketDialer:
    """Opens lines over TCP."""

    async def dial(self, host: str, port: int, listening: Listening) -> Line:
        line = SocketLine(listening)
        try:
            await asyncio.get_running_loop().create_connection(lambda: line, host, port)
        except BaseException:
            line.close()
            raise
        return line

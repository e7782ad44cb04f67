"""Connections between machines: bytes arrive in their order and some time later, or not at all.

A broker's `Server` has one end of a socket pair, the one that dials has a `Line`; in between is the network. A link
that is cut holds what is sent until it is mended, as TCP does, and nothing is heard of it; a process that dies resets
its connections, and its machine refuses new ones.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from barnabas.broker.network.listener import Listener
from barnabas.broker.peers.lines import Line, Listening
from barnabas.config import BrokerConfig
from barnabas.testing.simulation.fingerprint import Fingerprint
from barnabas.testing.simulation.lives import CURRENT, Life
from barnabas.wire.schema import Chunk

AGAIN_S = 0.005
MOST_AT_ONCE = 1 << 16


class PairedSocket(socket.socket):
    """One end of a pair, which has no settings of TCP."""

    def setsockopt(self, level: int, *more: Any) -> None:
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, *more)


class ListeningSocket:
    """Mutable: where a broker accepts connections."""

    def __init__(self, address: tuple[str, int], on_close: Callable[[], None]) -> None:
        self._address = address
        self._on_close = on_close
        self._waiting: deque[tuple[PairedSocket, str]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self.is_closed = False

    def offer(self, end: PairedSocket, host: str) -> None:
        self._waiting.append((end, host))
        os.eventfd_write(self._event, 1)

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._waiting:
            os.eventfd_read(self._event)
            raise BlockingIOError
        end, host = self._waiting.popleft()
        return end, (host, 0)

    def fileno(self) -> int:
        return self._event

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self._event)
            for end, _ in self._waiting:
                end.close()
            self._on_close()


class SimulatedNetwork:
    """Mutable: what listens where, which links are cut, how long things take."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, fingerprint: Fingerprint) -> None:
        self._loop = loop
        self._random = random
        self._fingerprint = fingerprint
        self._listening: dict[str, ListeningSocket] = {}
        self._connections: list[Connected] = []
        self._ends: list[PairedSocket] = []
        """What servers have: those of a dead process are closed in the end."""
        self.cut: set[tuple[str, str]] = set()
        """Links by the machines at their ends: from the one to the other."""
        self.slowness_s = 0.002
        """How long bytes are on their way at most."""

    def listen(self, listener: Listener, config: BrokerConfig) -> Any:
        """The port of a broker's server."""
        found = ListeningSocket((listener.host, listener.port), lambda: self._deaf(listener.host, found))
        self._listening[listener.host] = found
        return found

    def _deaf(self, host: str, listening: ListeningSocket) -> None:
        if self._listening.get(host) is listening:
            del self._listening[host]

    def machine_of(self, life: Life | None) -> str:
        return life.name if life is not None else "client"

    async def dial(self, host: str, port: int, listening: Listening) -> Line:
        """The port of a broker, or a client, that asks others."""
        source = self.machine_of(CURRENT.get())
        await asyncio.sleep(self.delay())
        while (source, host) in self.cut or (host, source) in self.cut:  # noqa: ASYNC110
            await asyncio.sleep(AGAIN_S)
        found = self._listening.get(host)
        if found is None:
            raise ConnectionRefusedError(111, f"nothing listens at {host}:{port}")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        end = PairedSocket(fileno=theirs.detach())
        self._ends.append(end)
        connected = Connected(self, self._loop, source, host, ours, end, listening, CURRENT.get())
        self._connections.append(connected)
        found.offer(end, source)
        return connected

    def delay(self) -> float:
        return self._random.random() * self.slowness_s

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cut

    def carries(self, source: str, target: str, data: bytes) -> None:
        """A message has been sent, or has come."""
        self._fingerprint.add(self._loop.time(), source, target, len(data), data=data)

    def drop(self, life: Life, host: str) -> None:
        """A process is dead: its connections are reset, and it does not listen any more."""
        listening = self._listening.get(host)
        if listening is not None:
            listening.close()
        for connected in list(self._connections):
            if connected.life is life:
                connected.close()
            elif connected.target == host:
                connected.reset()

    def reset(self, host: str) -> None:
        """Lose the connections to a machine, with all that is on its way: both sides hear of it."""
        for connected in list(self._connections):
            if connected.target == host:
                connected.sever()

    def forget(self, connected: "Connected") -> None:
        if connected in self._connections:
            self._connections.remove(connected)

    def close(self) -> None:
        for connected in list(self._connections):
            connected.close()
        for listening in list(self._listening.values()):
            listening.close()
        for end in self._ends:
            end.close()


class Connected:
    """Mutable: one connection, a `Line` to the one that dialed."""

    def __init__(
        self,
        network: SimulatedNetwork,
        loop: asyncio.AbstractEventLoop,
        source: str,
        target: str,
        ours: socket.socket,
        theirs: PairedSocket,
        listening: Listening,
        life: Life | None,
    ) -> None:
        self._network = network
        self._loop = loop
        self._source = source
        self.target = target
        self._ours = ours
        self._theirs = theirs
        self._listening: Listening | None = listening
        self.life = life
        self._context: Context = copy_context()
        self._there: deque[bytes] = deque()
        self._back: deque[bytes | None] = deque()
        self._is_closed = False
        _outside(loop.add_reader, ours, self._readable)

    # There

    def write(self, chunks: list[Chunk]) -> None:
        if not self._is_closed:
            data = b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
            self._network.carries(self._source, self.target, data)
            self._there.append(data)
            self._later(self._carry)

    def _carry(self) -> None:
        """Bring the oldest of what was sent to the other side."""
        if self._is_closed or not self._there:
            return
        if self._network.is_cut(self._source, self.target):
            self._later(self._carry, AGAIN_S)
            return
        data = self._there.popleft()
        try:
            sent = self._ours.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(data):
            self._there.appendleft(data[sent:])
            self._later(self._carry, AGAIN_S)

    # Back

    def _readable(self) -> None:
        try:
            data = self._ours.recv(MOST_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._ours)
        self._back.append(data or None)
        self._later(self._bring)

    def _bring(self) -> None:
        if self._is_closed or not self._back:
            return
        if self._network.is_cut(self.target, self._source):
            self._later(self._bring, AGAIN_S)
            return
        self._loop.call_soon(self._hear, self._back.popleft(), context=self._context)

    def _hear(self, data: bytes | None) -> None:
        """In the context of the one that dialed."""
        if data is None:
            self._lose(None)
            return
        self._network.carries(self.target, self._source, data)
        while data and self._listening is not None:
            room = self._listening.buffer()
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            data = data[taken:]
            self._listening.received(taken)

    def reset(self) -> None:
        """The other process is dead: that is heard, unless the link is cut."""
        if self._is_closed:
            return
        self._theirs.close()
        self.sever()

    def sever(self) -> None:
        """Lose the connection: the one that dialed hears of that, and the other side reads to the end."""
        self._later(self._broken)

    def _broken(self) -> None:
        if self._is_closed:
            return
        if self._network.is_cut(self.target, self._source):
            self._later(self._broken, AGAIN_S)
            return
        self._loop.call_soon(self._lose, ConnectionResetError(104, "reset"), context=self._context)

    def _lose(self, error: Exception | None) -> None:
        listening = self._listening
        self.close()
        if listening is not None:
            listening.lost(error)

    def close(self) -> None:
        """The one that dialed lets go: the other side reads to the end."""
        if self._is_closed:
            return
        self._is_closed = True
        self._listening = None
        self._loop.remove_reader(self._ours)
        self._ours.close()
        self._network.forget(self)

    def _later(self, call: Callable[[], None], seconds: float | None = None) -> None:
        delay = self._network.delay() if seconds is None else seconds
        _outside(self._loop.call_later, delay, call)


def _outside(call: Callable[..., Any], *args: Any) -> None:
    """Call this as what belongs to no life: a network goes on when a process does not."""
    context = copy_context()
    context.run(_leave)
    context.run(call, *args)


def _leave() -> None:
    CURRENT.set(None)

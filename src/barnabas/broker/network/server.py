"""The listening socket: accepts connections, keeps their number in bounds, closes the silent ones.

Owned by `broker`. Everything runs on the event loop's thread.
"""

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from barnabas.broker.network.connection import Answers, Connection, log_limiter
from barnabas.broker.network.listener import Listener
from barnabas.broker.network.rounds import Rounds
from barnabas.config import BrokerConfig
from barnabas.errors import BarnabasError

SWEEP_SECONDS = 10.0
ACCEPT_PAUSE_SECONDS = 0.2

log = logging.getLogger("barnabas.server")


class ListeningSocket(Protocol):
    """What the server needs of the socket that it accepts connections from."""

    def fileno(self) -> int: ...
    def accept(self) -> tuple[socket.socket, Any]: ...
    def getsockname(self) -> Any: ...
    def close(self) -> None: ...


Listen: TypeAlias = Callable[[Listener, BrokerConfig], ListeningSocket]
"""The port to the network that clients come from: a simulation has another one."""


class Server:
    """Hands each accepted socket to a `Connection`."""

    def __init__(
        self, listener: Listener, router: Answers, config: BrokerConfig, listen: Listen | None = None
    ) -> None:
        self.config = config
        self.connections: dict[Connection, float] = {}
        """Each connection, and when it was last seen silent by the sweep (0 while it is busy)."""
        self.accepted = 0
        self.bytes_in_closed = 0
        self.bytes_out_closed = 0
        self.router = router
        """What answers the connections that come from now on."""
        self._per_address: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._socket = (listen or _listen)(listener, config)
        self.rounds = Rounds(self._loop)
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def bytes_in(self) -> int:
        return self.bytes_in_closed + sum(connection.bytes_in for connection in self.connections)

    @property
    def bytes_out(self) -> int:
        return self.bytes_out_closed + sum(connection.bytes_out for connection in self.connections)

    def start(self) -> None:
        self._loop.add_reader(self._socket, self._acceptable)
        self._sweep()

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self.connections):
            connection.close()
        self.rounds.close()

    def _acceptable(self) -> None:
        # Bounded, so that a flood of newcomers cannot keep the others from their turn.
        for _ in range(64):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            self._welcome(sock, address[0])

    def _pause_accepting(self, error: OSError) -> None:
        """Out of file descriptors or memory: let some connections go before more come."""
        log.error("cannot accept connections: %s; trying again in a moment", error.strerror)
        self._loop.remove_reader(self._socket)
        self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again)

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._acceptable)

    def _welcome(self, sock: socket.socket, host: str) -> None:
        full = len(self.connections) >= self.config.max_connections
        if full or self._per_address[host] >= self.config.max_connections_per_ip:
            limit = "max.connections" if full else "max.connections.per.ip"
            log_limiter.closed(host, f"{limit} is reached")
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.config.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.config.socket_send_buffer_bytes)
        self.accepted += 1
        self._per_address[host] += 1
        max_request = self.config.socket_request_max_bytes
        newcomer = Connection(sock, host, self.router, self.rounds, max_request, self._farewell)
        self.connections[newcomer] = 0.0

    def _farewell(self, connection: Connection) -> None:
        if self.connections.pop(connection, None) is None:
            return
        self.bytes_in_closed += connection.bytes_in
        self.bytes_out_closed += connection.bytes_out
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]

    def _sweep(self) -> None:
        """Close connections that were silent too long, and take back the buffers of those that rest."""
        now = self._loop.time()
        limit = self.config.connections_max_idle_ms / 1000
        for connection, silent_since in list(self.connections.items()):
            if connection.active or connection.waits_for_us:
                connection.active = False
                self.connections[connection] = 0.0
            elif not silent_since:
                self.connections[connection] = now
                connection.shrink()
            elif 0 <= limit <= now - silent_since:
                log.info("closed the connection from %s: silent for %.0f s", connection.address, limit)
                connection.close()
        interval = min(SWEEP_SECONDS, limit / 4) if limit > 0 else SWEEP_SECONDS
        self._sweeping = self._loop.call_later(interval, self._sweep)


def _listen(listener: Listener, config: BrokerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.socket_receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        sock.bind((listener.host, listener.port))
        sock.listen(config.socket_listen_backlog_size)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise BarnabasError(
                f"Port {listener.port} on {listener.host or 'this machine'} is taken: stop the program that has it, "
                "or choose another address (--listen HOST:PORT, or the setting listeners)."
            ) from None
        raise BarnabasError(
            f"Cannot listen on {listener.host}:{listener.port}: {error.strerror or error}."
        ) from None
    return sock

"""What a proxy promises to do to connections, seen from both their ends."""

import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from barnabas.testing.links import Links
from barnabas.testing.proxy import Proxy, Way
from tests.deadline import eventually

PATIENCE_S = 20.0
NOTHING_S = 0.15
"""How long silence is listened to: long for a loopback, short for a test."""


class Echo(socketserver.ThreadingTCPServer):
    """Stands for a broker: gives back what it hears, and remembers it."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int = 0) -> None:
        self.heard = bytearray()
        self.sockets: list[socket.socket] = []
        super().__init__(("127.0.0.1", port), _Handler)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def die(self) -> None:
        """No listener any more, and all connections end."""
        self.shutdown()
        self.server_close()
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Handler(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        self.server.sockets.append(self.request)
        with suppress(OSError):
            while heard := self.request.recv(1 << 16):
                self.server.heard += heard
                self.request.sendall(heard)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.die()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        eventually(lambda: _is_open(proxy), "the proxy to listen")
        yield proxy


def _is_open(proxy: Proxy) -> bool:
    try:
        socket.create_connection(("127.0.0.1", proxy.port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with _connect(proxy) as client:
        yield client


def _connect(proxy: Proxy) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
    _say(client, b"hello")
    return client


def _say(client: socket.socket, words: bytes) -> None:
    client.sendall(words)
    _hear(client, words)


def _hear(client: socket.socket, words: bytes) -> None:
    heard = b""
    while len(heard) < len(words):
        heard += client.recv(len(words) - len(heard)) or pytest.fail(f"ended after {heard!r}")
    assert heard == words


def _is_silent(client: socket.socket) -> bool:
    client.settimeout(NOTHING_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE_S)
    return False


def _is_reset(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_pass_in_order_and_unchanged(client: socket.socket) -> None:
    words = os.urandom(3 << 20)
    threading.Thread(target=client.sendall, args=(words,), daemon=True).start()
    _hear(client, words)


def test_a_cut_lets_nothing_pass_and_loses_nothing(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    proxy.cut()
    client.sendall(b"held")
    assert _is_silent(client)
    assert echo.heard == b"hello"
    proxy.heal()
    _hear(client, b"held")


def test_a_cut_of_one_way_lets_the_other_pass(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    proxy.cut([Way.FROM_BROKER])
    client.sendall(b"heard")
    eventually(lambda: echo.heard.endswith(b"heard"), "the broker to hear it")
    assert _is_silent(client)
    proxy.heal()
    _hear(client, b"heard")


def test_the_end_of_a_connection_does_not_pass_a_cut(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    proxy.cut()
    echo.die()
    assert _is_silent(client)
    proxy.heal()
    assert _is_reset(client)


def test_a_new_connection_gets_no_answer_while_it_is_cut(proxy: Proxy) -> None:
    proxy.cut()
    with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as late:
        late.sendall(b"late")
        assert _is_silent(late)
        proxy.heal()
        _hear(late, b"late")


def test_only_connections_of_the_named_process_are_cut(client: socket.socket, proxy: Proxy) -> None:
    proxy.cut(clients=lambda: [1])
    _say(client, b"of another")
    proxy.cut(clients=lambda: [os.getpid()])
    client.sendall(b"of this")
    assert _is_silent(client)
    proxy.heal()
    _hear(client, b"of this")


def test_reset_ends_connections_and_takes_new_ones(client: socket.socket, proxy: Proxy) -> None:
    proxy.reset()
    assert _is_reset(client)
    _connect(proxy).close()


def test_a_refusing_proxy_looks_like_a_dead_broker_until_it_heals(
    client: socket.socket, proxy: Proxy
) -> None:
    proxy.refuse()
    assert _is_reset(client)
    assert not _is_open(proxy)
    proxy.heal()
    eventually(lambda: _is_open(proxy), "the door to open")
    _connect(proxy).close()


def test_the_door_of_a_dead_broker_is_shut_before_its_clients_hear_of_it(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    echo.die()
    assert _is_reset(client)
    assert not _is_open(proxy)


def test_the_door_opens_when_the_broker_is_back(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    echo.die()
    assert _is_reset(client)
    again = Echo(echo.port)
    try:
        eventually(lambda: _is_open(proxy), "the door to open")
        _connect(proxy).close()
    finally:
        again.die()


def test_a_delay_holds_what_passes(client: socket.socket, proxy: Proxy) -> None:
    proxy.delay(2.0)
    client.sendall(b"slow")
    client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(PATIENCE_S)
    _hear(client, b"slow")


def test_a_port_is_kept_while_nothing_listens_behind_it(echo: Echo) -> None:
    echo.die()
    with Proxy(echo.port) as proxy:
        assert not _is_open(proxy)
        with pytest.raises(OSError, match="in use"), socket.socket() as taker:
            taker.bind(("127.0.0.1", proxy.port))


@pytest.mark.parametrize(
    ("act", "passes_in", "passes_out"),
    [("isolate", False, False), ("deafen", False, True), ("mute", True, False)],
)
def test_a_broker_is_cut_off_in_the_connections_it_opened_too(
    proxy: Proxy, echo: Echo, act: str, passes_in: bool, passes_out: bool
) -> None:
    """Broker 1 stands behind `proxy`; this process is broker 1 as well, and dials broker 2."""
    second = Echo()
    with Proxy(second.port) as other:
        eventually(lambda: _is_open(other), "the second proxy to listen")
        links = Links({1: proxy, 2: other}, {1: os.getpid(), 2: 1}.get)
        with _connect(other) as outgoing:
            getattr(links, act)(1)
            outgoing.sendall(b"out")
            if passes_out:
                eventually(lambda: second.heard.endswith(b"out"), "the second broker to hear it")
            assert _is_silent(outgoing)
            assert second.heard.endswith(b"out") is passes_out
            links.heal()
            _hear(outgoing, b"out")
    second.die()

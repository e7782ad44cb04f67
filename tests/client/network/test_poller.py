"""Promises of client/network/poller.py, by epoll and by whatever else a system has."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.client.network.poller import EpollPoller, Poller, SelectorPoller


@pytest.fixture(params=[EpollPoller, SelectorPoller])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    found: Poller = request.param()
    yield found
    found.close()
    found.close()
    found.wake()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def told(poller: Poller, seconds: float) -> list[tuple[bool, bool]]:
    """What the handlers are told."""
    found: list[tuple[bool, bool]] = []
    for handler, readable, writable in poller.poll(seconds):
        handler(readable, writable)
        found.append((readable, writable))
    return found


def test_it_tells_what_can_be_read_and_written(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    calls: list[tuple[bool, bool]] = []

    def handler(readable: bool, writable: bool) -> None:
        calls.append((readable, writable))

    poller.listen(ours.fileno(), handler, writes=False)
    assert told(poller, 0) == []
    poller.listen(ours.fileno(), handler, writes=True)
    assert told(poller, 5) == [(False, True)]
    theirs.send(b"x")
    assert told(poller, 5) == [(True, True)]
    poller.listen(ours.fileno(), handler, writes=False)
    assert told(poller, 5) == [(True, False)]
    assert calls == [(False, True), (True, True), (True, False)]
    poller.forget(ours.fileno())
    poller.forget(ours.fileno())
    assert told(poller, 0) == []


def test_a_hang_up_is_something_to_read(poller: Poller, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.listen(ours.fileno(), lambda readable, writable: None, writes=False)
    theirs.close()
    ((readable, _),) = told(poller, 5)
    assert readable


def test_a_wake_ends_the_poll_under_way_or_the_next_and_no_other(poller: Poller) -> None:
    for _ in range(3):
        poller.wake()
        poller.wake()
        began = time.monotonic()
        assert told(poller, 30) == []
        assert time.monotonic() - began < 20
        assert told(poller, 0.01) == []
    waker = threading.Timer(0.05, poller.wake)
    began = time.monotonic()
    waker.start()
    assert told(poller, 30) == []
    assert 0.03 < time.monotonic() - began < 20
    waker.join()


def test_a_poll_ends_in_time(poller: Poller) -> None:
    began = time.monotonic()
    assert told(poller, 0.05) == []
    assert 0.04 < time.monotonic() - began < 20

"""Waits for sockets to be readable or writable, and for another thread to wake it. Owned by `network`.

Straight on epoll where there is one: for a request and its answer that is 10 us less than through `selectors`, and the
wake, edge-triggered, needs no read. Elsewhere the same by `selectors`.
"""

import os
import select
import selectors
from collections.abc import Callable
from threading import RLock
from time import monotonic
from typing import Protocol, TypeAlias

Handler: TypeAlias = Callable[[bool, bool], None]
"""Told whether there is something to read, and room to write."""


class Poller(Protocol):
    """What a network waits with."""

    def listen(self, fd: int, handler: Handler, *, writes: bool, reads: bool = True) -> None:
        """Tell this handler from now on; what it was told of before is replaced."""

    def forget(self, fd: int) -> None:
        """No longer tell of it; before it is closed."""

    def poll(self, seconds: float, look: float = 0.0) -> list[tuple[Handler, bool, bool]]:
        """Those to be told, after `seconds` at most; for `look` seconds it looks before it sleeps."""

    def wake(self) -> None:
        """Any thread: end the poll under way, or the next."""

    def close(self) -> None: ...


def new_poller() -> Poller:
    return EpollPoller() if hasattr(select, "epoll") and hasattr(os, "eventfd") else SelectorPoller()


class EpollPoller:
    """By Linux's epoll."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN | select.EPOLLET)
        self._lock = RLock()  # a signal's handler may wake while the same thread does
        self._is_closed = False

    def listen(self, fd: int, handler: Handler, *, writes: bool, reads: bool = True) -> None:
        events = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)
        if fd in self._handlers:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def poll(self, seconds: float, look: float = 0.0) -> list[tuple[Handler, bool, bool]]:
        handlers = self._handlers
        found = self._look(look) if look else []
        # An error or a hang-up is something to read, and to write: either will tell what it is.
        return [
            (handlers[fd], events & ~select.EPOLLOUT != 0, events & ~select.EPOLLIN != 0)
            for fd, events in found or self._epoll.poll(seconds)
            if fd in handlers
        ]

    def _look(self, seconds: float) -> list[tuple[int, int]]:
        poll = self._epoll.poll
        until = monotonic() + seconds
        while True:
            found = poll(0)  # other threads may run meanwhile
            if found or monotonic() >= until:
                return found

    def wake(self) -> None:
        # A thread that wakes a closing network must not write into a file that has got the number since.
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._epoll.close()
                os.close(self._bell)


class SelectorPoller:
    """By whatever the system has."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._mouth, False)
        self._selector.register(self._ear, selectors.EVENT_READ, None)
        self._lock = RLock()  # a signal's handler may wake while the same thread does
        self._is_closed = False

    def listen(self, fd: int, handler: Handler, *, writes: bool, reads: bool = True) -> None:
        events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, handler)
        else:
            self._selector.register(fd, events, handler)

    def forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, seconds: float, look: float = 0.0) -> list[tuple[Handler, bool, bool]]:
        found = []
        for key, events in self._selector.select(seconds):
            if key.data is None:
                os.read(self._ear, 4096)
            else:
                readable, writable = events & selectors.EVENT_READ, events & selectors.EVENT_WRITE
                found.append((key.data, readable != 0, writable != 0))
        return found

    def wake(self) -> None:
        with self._lock:
            if not self._is_closed:
                try:
                    os.write(self._mouth, b"!")
                except BlockingIOError:
                    return  # it is full of wakes already

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._selector.close()
                os.close(self._ear)
                os.close(self._mouth)

"""Keeps signals from the code of a network that a user's thread drives: they are handled right after it, outside of it.

Python runs the handlers of signals in the main thread, between any two instructions, and Ctrl-C raises there. What a
network's own thread does is never torn apart like that, and must not be when the main thread does it.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

try:
    # Without the wrappers that make enums of numbers: 0.5 us, and not 9.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:  # another Python
    from signal import getsignal
    from signal import signal as set_handler

_NAMES = (
    "INT",
    "TERM",
    "HUP",
    "QUIT",
    "ALRM",
    "USR1",
    "USR2",
    "BREAK",
    "CHLD",
    "CONT",
    "TSTP",
    "WINCH",
    "IO",
    "PROF",
    "VTALRM",
)
_NUMBERS = tuple(int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}"))
"""Those that people handle; others have handlers so rarely that a look, 60 ns each at every wait, does not pay."""


class HeldSignals:
    """Holds signals from its making to `let_go`. For the main thread only."""

    __slots__ = ("_handlers", "_wake", "came")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.came: list[int] = []
        self._wake = wake
        self._handlers: dict[int, Any] = {}
        for number in _NUMBERS:
            handler = getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
        _active.add(self)
        try:
            for number in self._handlers:
                set_handler(number, self._hold)
        except ValueError:  # a main thread that Python does not take for one
            self._handlers.clear()
            _active.discard(self)
        except BaseException:  # raised by one that was not held yet
            self._restore()
            raise

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if number in self.came:  # it came twice: the user insists
            self._handlers[number](number, frame)
            return
        self.came.append(number)
        self._wake()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            if getsignal(number) == self._hold:  # else another one was set meanwhile
                set_handler(number, handler)
        _active.discard(self)

    def let_go(self) -> None:
        """Handlers are as they were; those that were due run now, and may raise."""
        try:
            self._restore()
        except BaseException:  # raised by one that came just now
            self._restore()
            raise
        self._run_due()

    def _run_due(self) -> None:
        while self.came:
            number = self.came.pop(0)
            try:
                self._handlers[number](number, None)
            except BaseException:
                self._run_due()  # the others have a right to run
                raise


_active: set[HeldSignals] = set()


def _forked() -> None:
    """Another process, in which no thread waits: it handles its signals itself."""
    for each in list(_active):
        each._restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

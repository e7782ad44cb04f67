"""Keeps signals from the code of a network that a user's thread drives: they are handled right after it, outside of it.

Python runs the handlers of signals in the main thread, between any two instructions, and Ctrl-C raises there. What a
network's own thread does is never torn apart like that, and must not be when the main thread does it.
"""

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

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGBREAK")
_NUMBERS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
"""Those that people handle, and raise from; other handlers run when they come."""


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
        try:
            for number in self._handlers:
                set_handler(number, self._hold)
        except BaseException:  # one that was not held yet
            self._restore()
            raise

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if number in self.came:  # somebody insists
            self._handlers[number](number, frame)
        self.came.append(number)
        self._wake()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            set_handler(number, handler)

    def let_go(self) -> None:
        """Handlers are as they were; those that were due run now, and may raise."""
        try:
            self._restore()
        except BaseException:  # one that came just now
            self._restore()
            raise
        for number in self.came:
            self._handlers[number](number, None)

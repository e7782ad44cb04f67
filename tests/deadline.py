"""Owns how tests wait: for an event, with a deadline, and with a sentence that says what did not come."""

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

_PACE_S = 0.01


class Deadline:
    """A point in time by which something has to have happened."""

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds
        self._what = what

    def left(self, at_most: float = float("inf")) -> float:
        """Seconds left, for calls that wait themselves; fails once there are none."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise AssertionError(f"waited {self._seconds:g} s in vain for {self._what}")
        return min(left, at_most)


def eventually(look: Callable[[], T], what: str, within: float = 60.0) -> T:
    """Looks until the answer is true, for things that announce themselves to nobody. Gives that answer."""
    deadline = Deadline(within, what)
    pause = Event()
    while not (found := look()):
        pause.wait(deadline.left(_PACE_S))
    return found

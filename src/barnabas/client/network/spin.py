"""Owns how long a driving thread looks for an answer before it sleeps. Used by `network`.

A broker that is near answers a small request in 30 to 40 us, and to be woken takes longer where the processor has to
wake too. On a quiet machine `send().result()` took 155 us without this and 90 with it (other runs), for no more CPU;
on a busy one it makes no difference. Where answers take their time it is tried once in a while only.
"""

import os

LOOK_S = 100e-6
_QUICK_S = 250e-6
"""An answer that a thread slept for, and that may have been there in LOOK_S."""
_TRY_AFTER = 4


class Spin:
    """Learns from how long answers took."""

    __slots__ = ("_can_look", "_quick_ones", "seconds")

    def __init__(self, processors: int | None = None) -> None:
        self.seconds = 0.0
        """How long to look before sleeping."""
        self._can_look = (processors or _processors()) > 1  # with one, the broker may be waiting for it
        self._quick_ones = 0

    def learn(self, waited: float) -> None:
        """An answer was waited for, for this long."""
        if self.seconds:
            if waited > LOOK_S:
                self.seconds = 0.0
                self._quick_ones = 0
        elif waited > _QUICK_S:
            self._quick_ones = 0
        else:
            self._quick_ones += 1
            if self._can_look and self._quick_ones >= _TRY_AFTER:
                self.seconds = LOOK_S


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

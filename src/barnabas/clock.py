"""Where time comes from. Pure modules take time as an argument; only shells hold a clock."""

import time
from typing import Protocol

from barnabas.types import Millis


class Clock(Protocol):
    """Tells the time of day in milliseconds."""

    def now(self) -> Millis: ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)

"""Where time comes from. Pure modules take time as an argument; only shells hold a clock."""

from time import monotonic_ns, time_ns
from typing import Protocol

from barnabas.types import Millis


class Clock(Protocol):
    """Tells the time in milliseconds."""

    def now(self) -> Millis: ...


class SteadyClock:
    """Milliseconds that only grow, for how long things take: the time of day may jump, this never does."""

    def now(self) -> Millis:
        return Millis(monotonic_ns() // 1_000_000)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> Millis:
        return time_ns() // 1_000_000  # type: ignore[return-value]  # a NewType's name costs 60 ns

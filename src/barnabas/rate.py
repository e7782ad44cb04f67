"""Owns how much of something went by lately: a rate over a sliding window, which throttles and quotas go by. PURE.

Time is cut into windows of equal length, and the newest of them are kept: what they have, over the time that they span,
is the rate. Time is an argument. Used by the throttles of replication.

Always holds: to add costs the same however much is added, and to look changes nothing, so that other threads may look.
What was added is forgotten after as many windows as are kept, and never before one less.
"""

from barnabas.types import Millis


class SlidingRate:
    """Mutable: what each of the last windows has."""

    __slots__ = ("_amounts", "_begun", "_newest", "_window_ms")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._amounts = [0] * windows
        """Of each window that is kept, at its number modulo their count."""
        self._begun = Millis(0)
        """When window 0 began: with the first amount after a time without any."""
        self._newest = -windows
        """The number of the last window that something was added to."""

    def add(self, amount: int, now: Millis) -> None:
        amounts = self._amounts
        count = len(amounts)
        number = self._number(now)
        if number - self._newest >= count:
            # Nothing of before is remembered: time without traffic is no credit for what comes now.
            self._begun, self._newest, number = now, 0, 0
            amounts[:] = [0] * count
        for passed in range(self._newest + 1, number + 1):
            amounts[passed % count] = 0
        self._newest = number
        amounts[number % count] += amount

    def rate(self, now: Millis) -> float:
        """How much a second, over the windows that are kept, and over one of them at the least."""
        number = self._number(now)
        return self._total(number) * 1000 / self._span_ms(number, now)

    def is_above(self, limit: int, now: Millis, more: int = 0) -> bool:
        """Whether the rate is above a limit; `more` counts as if it were added now."""
        number = self._number(now)
        return (self._total(number) + more) * 1000 > limit * self._span_ms(number, now)

    def falls_to(self, limit: int, now: Millis) -> Millis:
        """From when on the rate is not above a limit, if nothing is added until then."""
        window_ms = self._window_ms
        number = self._number(now)
        while total := self._total(number):
            begins = max(now, self._begun + number * window_ms)
            if total * 1000 <= limit * window_ms:
                return Millis(begins)
            # Rounded up: a moment before it the rate is still above.
            falls = self._start_of(number) - (-total * 1000 // limit) if limit else None
            if falls is not None and falls < self._begun + (number + 1) * window_ms:
                return Millis(max(begins, falls))
            number += 1
        return Millis(max(now, self._begun + number * window_ms))

    def _number(self, now: Millis) -> int:
        """The window of a time; time does not go back."""
        return max(self._newest, (now - self._begun) // self._window_ms)

    def _total(self, number: int) -> int:
        """What the windows have that are kept in this one."""
        amounts = self._amounts
        count = len(amounts)
        oldest = max(0, number - count + 1)
        return sum(amounts[each % count] for each in range(oldest, self._newest + 1))

    def _start_of(self, number: int) -> int:
        """When the oldest window began that is kept in this one."""
        return self._begun + max(0, number - len(self._amounts) + 1) * self._window_ms

    def _span_ms(self, number: int, now: Millis) -> int:
        return max(now - self._start_of(number), self._window_ms)

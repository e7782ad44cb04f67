"""What a stream of made-up records is: a name, its own pace, and a function from a seed to columns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Rows: TypeAlias = Callable[[int, "Clock", int, int], Any]
"""(seed, clock, first row, how many) to an Arrow table with the columns key, value and timestamp."""

CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class Clock:
    """When row N happens: rows come `rate` a second, beginning at `start_ms`."""

    start_ms: int
    rate: float

    def at(self, row: Any) -> Any:
        """Milliseconds since 1970, for a row or for an array of them."""
        return self.start_ms + row * 1000 // self.rate


@dataclass(frozen=True, slots=True)
class Stream:
    """One kind of records, and how many of them a second are natural."""

    name: str
    topic: str
    about: str
    rate: float
    make: Rows

    def rows(self, seed: int, clock: Clock, first: int, count: int) -> Any:
        """The rows from `first` on as one Arrow table."""
        return self.make(seed, clock, first, count)

    def chunks(self, seed: int, clock: Clock, count: int | None = None, *, first: int = 0) -> Iterator[Any]:
        """The rows from `first` on, a table at a time; without a count, for ever."""
        at, end = first, None if count is None else first + count
        while end is None or at < end:
            size = CHUNK if end is None else min(CHUNK, end - at)
            yield self.rows(seed, clock, at, size)
            at += size

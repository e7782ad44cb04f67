"""Producers that wait until their batches are committed, by offset: a watermark that moves costs what it answers.

A `Leader` with several replicas has one of these. Each answer is given once: None when the watermark has passed the
batch, else the refusal: its time is up, too few replicas are left, or the partition has another leader.
"""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from barnabas.broker.network.promise import Promise
from barnabas.errors import Code, Refused
from barnabas.types import Offset

Outcome: TypeAlias = Promise[Refused | None]


class Acknowledgements:
    """Mutable: the answers that are owed, the smallest offset first. One timer serves all of them."""

    __slots__ = ("_number", "_owed", "_timer")

    def __init__(self) -> None:
        self._owed: list[tuple[Offset, int, float, Outcome]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._owed)

    def wait(self, upto: Offset, timeout_ms: int) -> Outcome:
        """The answer to a batch that ends before `upto`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        outcome: Outcome = Promise()
        self._number += 1
        heappush(self._owed, (upto, self._number, deadline, outcome))
        if self._timer is None or deadline < self._timer.when():
            self._arm(deadline)
        return outcome

    def passed(self, high_watermark: Offset) -> None:
        """Answer all that is committed."""
        owed = self._owed
        while owed and owed[0][0] <= high_watermark:
            # Off the list first: an answer may bring the next request, which waits here in its turn.
            heappop(owed)[3].give(None)

    def refuse(self, refused: Refused) -> None:
        """Answer all of them with a refusal."""
        self._refuse(refused, lambda deadline: True)

    def _refuse(self, refused: Refused, is_due: Callable[[float], bool]) -> None:
        due = [each for each in self._owed if is_due(each[2])]
        self._owed = [each for each in self._owed if not is_due(each[2])]
        heapify(self._owed)
        for _, _, _, outcome in due:
            outcome.give(refused)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        self._refuse(Refused(Code.REQUEST_TIMED_OUT), lambda deadline: deadline <= now)
        if self._owed:
            self._arm(min(deadline for _, _, deadline, _ in self._owed))

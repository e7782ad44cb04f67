"""The one retry of every call that a user waits for: which failures are borne, and how long.

Used by `routing` (Admin), `questions` (Consumer), `partition_reader` and Spark's survey, in the user's thread. A pause
is not slept through: it ends early where the metadata was stale and changes, and when the client is closed. Always
holds: no pause is begun that would last beyond the time there is.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from barnabas.client.network.failures import STALE, may_pass
from barnabas.client.network.network import Network
from barnabas.errors import Refused

T = TypeVar("T")


class Patience:
    """The time that a question has, its failures so far, and which of them are worth another try."""

    def __init__(
        self,
        network: Network,
        seconds: float,
        *,
        may_pass: Callable[[Refused], bool] = may_pass,
        when_stale: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = network
        self._deadline = time.monotonic() + seconds
        self._may_pass = may_pass
        self._when_stale = when_stale
        """Forgets what led to the wrong broker."""
        self._failures = 0

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self._deadline - time.monotonic(), 0.0)

    def bear(self, why: Refused) -> None:
        """Wait until asking again may help; raises the failure where it will not, or time is up."""
        self._failures += 1
        pause = self._network.backoff(self._failures)
        if not self._may_pass(why) or pause > self.left:
            raise why
        is_stale = why.code in STALE
        if is_stale:
            self._when_stale()
        self._network.pause(pause, is_stale=is_stale)

    def ask(self, question: Callable[[], T]) -> T:
        """What the question gives, as soon as it gives something."""
        while True:
            try:
                return question()
            except Refused as why:
                self.bear(why)

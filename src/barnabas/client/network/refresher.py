"""Keeps what a client knows of its cluster fresh: asks again when it is stale or old. Used by `network`, in its thread.

Always holds: one refresh is under way or waits for its time, however many have found the metadata stale. The first
look-up of a topic waits for no pause: those wanted in one turn of the loop go out at its end, in one request.
"""

import time
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.timer import Timer
from barnabas.errors import Refused

if TYPE_CHECKING:
    from barnabas.client.network.network import Network


class Refresher:
    """When the next refresh is due, and how the last one went."""

    def __init__(self, network: "Network", max_age: float) -> None:
        self._network = network
        self._max_age = max_age
        self._next: Timer | None = None
        self._last = float("-inf")
        self._failures = 0
        self._is_asking = False
        self._new: dict[str, bool] = {}
        """Topics to be looked up for the first time; True where the broker may create one that there is not."""
        self.trouble: Refused | None = None
        """Why the last refresh failed; None when it did not."""

    def soon(self) -> None:
        """Now, or when the pause after the last one is over."""
        self._refresh_in(self._last + self._network.backoff(self._failures) - time.monotonic())

    def look_up(self, topics: dict[str, bool]) -> None:
        """Ask for topics that were not asked for yet: at once, with all others of this turn."""
        if not self._new:
            self._network.soon(self._look_up)
        self._new.update(topics)

    def _look_up(self) -> None:
        new, self._new = self._new, {}
        for create in (True, False):
            names = [name for name, may_create in new.items() if may_create is create]
            if names and not self._network.is_closed:
                self._network.refresh(names, partial(self._looked_up, names), create=create)

    def _looked_up(self, names: list[str], found: Snapshot | Refused) -> None:
        """What was not found is asked for again with the rest, after a pause or by the refresh that is under way."""
        is_missing = isinstance(found, Refused) or any(name not in found.topics for name in names)
        if not self._is_asking and (is_missing or self._next is None):
            self._told(found)

    def _refresh_in(self, seconds: float) -> None:
        at = time.monotonic() + max(seconds, 0.0)
        if self._next is not None and self._next.at <= at:
            return
        if self._next is not None:
            self._next.cancel()
        self._next = self._network.later(max(seconds, 0.0), self._refresh)

    def _refresh(self) -> None:
        wanted = self._network.metadata.wanted
        self._is_asking = True
        # Until the answer is there, there is no need to ask again.
        self._next = self._network.later(2 * self._network.request_timeout, self._refresh)
        self._network.refresh(list(wanted), self._told, create=any(wanted.values()))

    def _told(self, found: Snapshot | Refused) -> None:
        self._is_asking = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._last = time.monotonic()
        self.trouble = found if isinstance(found, Refused) else None
        if isinstance(found, Refused) or any(
            topic not in found.topics for topic in self._network.metadata.wanted
        ):
            self._failures += 1
            if not self._network.is_closed:
                self.soon()
        else:
            self._failures = 0
            self._refresh_in(self._max_age)

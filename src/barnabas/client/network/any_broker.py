"""A request for whichever broker answers. Used by `network`, in whose thread it runs."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.client.network.channel import PendingCall
from barnabas.client.network.failures import Closed, NoBroker, TimedOut, Unreachable
from barnabas.errors import Refused
from barnabas.wire.codec import Message

if TYPE_CHECKING:
    from barnabas.client.network.network import Network


class AnyBroker:
    """A request for whichever broker answers: one after another, until one does or the time is up."""

    def __init__(
        self,
        network: "Network",
        request: Message,
        answer: type[Any],
        done: Callable[[Any], None],
        seconds: float,
        lane: str,
    ) -> None:
        self._network = network
        self._request = request
        self._answer = answer
        self._done = done
        self._seconds = seconds
        self._lane = lane
        self._began = time.monotonic()
        self._left = deque(network.candidates(lane))

    def try_next(self, failure: Refused) -> None:
        if not self._left or self._network.is_closed:
            self._done(failure)
            return
        now = time.monotonic()
        call = PendingCall(self._request, self._answer, self._told, self._began, self._seconds)
        self._network.channel(self._left.popleft(), self._lane).ask(call, now)

    def _told(self, outcome: Any) -> None:
        if not isinstance(outcome, Unreachable | TimedOut) or isinstance(outcome, Closed):
            self._done(outcome)
        elif self._left and time.monotonic() < self._began + self._seconds:
            self.try_next(outcome)
        else:
            self._done(self._nobody(outcome))

    def _nobody(self, last: Refused) -> Refused:
        bootstrap = self._network.bootstrap
        if isinstance(last, TimedOut):
            return last
        if len(bootstrap) == 1:
            return NoBroker(last.message)
        return NoBroker(f"No broker answers at any of {', '.join(map(str, bootstrap))}.")

"""Waits for a topic that is used for the first time: the broker may be creating it. Used by Producer."""

from collections.abc import Callable
from typing import Any

from barnabas.client.network.failures import TimedOut
from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.errors import Code, Refused

_HOPELESS = frozenset({Code.INVALID_TOPIC_EXCEPTION, Code.TOPIC_AUTHORIZATION_FAILED})


class TopicWish:
    """Waits in the network's thread until a topic is known, or is refused for good."""

    def __init__(self, network: Network, topic: str) -> None:
        self._network = network
        self._topic = topic
        self._done: Callable[[Any], None] | None = None

    def start(self, done: Callable[[Any], None]) -> None:
        self._done = done
        self._network.metadata.subscribe(self._look)
        self._network.metadata.want([self._topic], create=True)
        self._look(self._network.metadata.snapshot)

    def _look(self, snapshot: Snapshot) -> None:
        if self._done is None:
            return
        found: Any = None
        if self._topic in snapshot.topics:
            found = snapshot
        elif snapshot.refused.get(self._topic) in _HOPELESS:
            found = self.failure()
        if found is not None:
            self._network.metadata.forget_subscriber(self._look)
            if isinstance(found, Refused):
                self._network.metadata.forget([self._topic])
            done, self._done = self._done, None
            done(found)

    def failure(self) -> Refused:
        """Why the topic is not known."""
        code = self._network.metadata.snapshot.refused.get(self._topic)
        if code is None:
            return self._network.trouble or TimedOut(
                f"Topic {self._topic!r}: no broker has told of it in time."
            )
        return Refused(code, f"Topic {self._topic!r}: {code.advice}")

"""Owns what a consumer subscribes to: topics by name or by pattern, and the listener for partitions that come and go.

Called in the network's thread, except where it says "any thread". Topics that match a pattern are looked for as often
as metadata.max.age.ms says; a topic that there is not is told to the user once, and waited for.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.client.network.timer import Timer
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition

_logger = logging.getLogger("barnabas.client")

_PATIENCE_S = 3.0
"""How long a topic may stay unknown while the broker may be creating it."""

_HEARD = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")

_MISTAKES = frozenset(
    {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION, Code.TOPIC_AUTHORIZATION_FAILED}
)


class RebalanceListener(Protocol):
    """Hears, in the user's poll, what the group gives and takes."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """These go to others: what was read of them can still be committed now."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """These are new here."""


class Subscription:
    """Mutable: the topics that are wanted now."""

    def __init__(
        self,
        network: Network,
        *,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
        max_age_s: float = 300.0,
        create: bool = True,
        internal: bool = False,
    ) -> None:
        if listener is not None and not any(hasattr(listener, name) for name in _HEARD):
            raise BarnabasError(f"A listener has one of {', '.join(_HEARD)}: {listener!r} has none.")
        self.topics = frozenset(topics)
        self.listener = listener
        self.on_change: Callable[[frozenset[str]], None] = lambda topics: None
        self.on_mistake: Callable[[Refused], None] = lambda why: None
        self._network = network
        self._max_age = max_age_s
        self._create = create
        self._internal = internal
        self._pattern = _compiled(pattern)
        self._unknown: dict[str, float] = {}
        self._told: set[str] = set()
        self._timer: Timer | None = None
        self._is_over = False

    def begin(self, done: Callable[[Snapshot | Refused], None]) -> None:
        """Find out what there is; `done` hears when that is known."""
        self._network.metadata.subscribe(self._look)
        if self._pattern is None:
            self._network.metadata.want(self.topics, create=self._create)
            self._network.refresh(self.topics, done, create=self._create)
        else:
            self._match(done)

    def end(self) -> None:
        """Any thread: this is no longer what is wanted."""
        self._is_over = True
        self._network.post(self._forget)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """In the user's thread. A listener without `on_partitions_lost` hears of losses as of what it gives back."""
        self._tell(
            "on_partitions_lost" if self._has("on_partitions_lost") else "on_partitions_revoked", partitions
        )

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """In the user's thread."""
        self._tell("on_partitions_revoked", partitions)

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """In the user's thread."""
        self._tell("on_partitions_assigned", partitions)

    def _forget(self) -> None:
        self._network.metadata.forget(self.topics)
        self._network.metadata.forget_subscriber(self._look)

    def _has(self, name: str) -> bool:
        return hasattr(self.listener, name)

    def _tell(self, name: str, partitions: Collection[TopicPartition]) -> None:
        if self._has(name):
            getattr(self.listener, name)(list(partitions))

    def _match(self, done: Callable[[Snapshot | Refused], None] | None = None) -> None:
        if self._is_over:
            return

        def told(found: Snapshot | Refused) -> None:
            if not isinstance(found, Refused):
                self._choose(found)
            if done is not None:
                done(found)

        self._timer = self._network.later(self._max_age, self._match)
        self._network.refresh(None, told)

    def _choose(self, snapshot: Snapshot) -> None:
        assert self._pattern is not None
        found = frozenset(
            topic.name
            for topic in snapshot.topics.values()
            if self._pattern.fullmatch(topic.name) and (self._internal or not topic.is_internal)
        )
        self._network.metadata.want(found)
        if found != self.topics:
            self.topics = found
            self.on_change(found)

    def _look(self, snapshot: Snapshot) -> None:
        if self._is_over or self._pattern is not None:
            return
        now = time.monotonic()
        for topic in self.topics:
            code = snapshot.refused.get(topic)
            if code not in _MISTAKES:
                self._unknown.pop(topic, None)
                self._told.discard(topic)
                continue
            since = self._unknown.setdefault(topic, now)
            if topic not in self._told and now - since >= (_PATIENCE_S if self._create else 0.0):
                self._told.add(topic)
                why = Refused(code, f"Topic {topic!r}: {code.advice}")
                # Records of other topics may keep the user busy for long: the log tells at once.
                _logger.warning("%s It is subscribed to, and waited for.", why)
                self.on_mistake(why)


def _compiled(pattern: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    try:
        found = None if pattern is None else re.compile(pattern)
    except re.error as why:
        raise BarnabasError(f"The pattern {pattern!r} is no regular expression: {why}.") from None
    if found is not None and not isinstance(found.pattern, str):
        raise BarnabasError(f"The pattern {found.pattern!r} is of bytes, but topics have names of text.")
    return found

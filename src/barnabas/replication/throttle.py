"""Which replicas are held to a rate while they catch up, and whether they are above it. PURE.

A broker has two: one for what it sends to followers, one for what it fetches. Kafka's settings: the broker's rate, and
for each topic the partitions and brokers that it counts for. The shells of replication ask, and say what went by.

Always holds: replicas that are in sync are counted and never held back, so producers with acks=all wait for none of it.
"""

from typing import NamedTuple, TypeAlias

from barnabas.rate import SlidingRate
from barnabas.setting import LONG_MAX
from barnabas.types import BrokerId, Millis, TopicPartition

Partitions: TypeAlias = frozenset[int] | range

EVERY = "*"
EVERY_PARTITION = range(1 << 31)

LEADERS, FOLLOWERS = "leader.replication.throttled", "follower.replication.throttled"
"""Kafka's settings begin so: `.rate` is a broker's, in bytes a second, `.replicas` a topic's."""


def throttled_here(replicas: str, broker: BrokerId) -> Partitions:
    """The partitions that a topic's setting of the form `*` or `partition:broker,...` names for a broker."""
    if replicas.strip() == EVERY:
        return EVERY_PARTITION
    pairs = [each.partition(":") for each in replicas.split(",")] if replicas else []
    return frozenset(int(partition) for partition, _, named in pairs if named and int(named) == broker)


class Windows(NamedTuple):
    """How long traffic counts: replication.quota.window.num, and .size.seconds."""

    number: int
    seconds: int


class Throttle:
    """Mutable: the limit of one direction, the partitions that it holds for, and what went by of those."""

    __slots__ = ("_rate", "limit", "topics")

    def __init__(self, windows: Windows) -> None:
        self.limit = LONG_MAX
        """Bytes a second."""
        self.topics: dict[str, Partitions] = {}
        """Empty where nothing is throttled: then there is nothing to ask and nothing to count."""
        self._rate = SlidingRate(windows=windows.number, window_ms=windows.seconds * 1000)

    def hold(self, topic: str, partitions: Partitions) -> bool:
        """Hold these partitions of a topic to the limit, and no others; whether that is new."""
        before: Partitions = self.topics.pop(topic, frozenset())
        if partitions:
            self.topics[topic] = partitions
        return before != partitions

    def counts(self, tp: TopicPartition) -> bool:
        """Whether a partition is held to the limit here."""
        return tp.partition in self.topics.get(tp.topic, ())

    def passed(self, amount: int, now: Millis) -> None:
        """Bytes of partitions that count went by, of replicas in sync too."""
        self._rate.add(amount, now)

    def is_exceeded(self, now: Millis, more: int = 0) -> bool:
        """Whether replicas that are not in sync have to wait; `more` bytes are about to pass."""
        return self._rate.is_above(self.limit, now, more)

    def opens_at(self, now: Millis) -> Millis:
        """When they may go on, if nothing passes until then."""
        return self._rate.falls_to(self.limit, now)

    def rate(self, now: Millis) -> float:
        """Bytes a second, lately."""
        return self._rate.rate(now)

"""Which member should have which partition: the server-side assignors of KIP-848. Called by consumer_group.

Pure and deterministic: the same members, topics and former targets give the same targets, in whatever order they
come. Always holds: every partition of a subscribed topic has exactly one member, which subscribes to it.

`uniform` spreads all partitions evenly and moves as few as it can. `range` gives each member a run of neighbouring
partitions of each of its topics, the same runs where topics have the same size (for joins), and does not look back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

Target: TypeAlias = Mapping[UUID, frozenset[int]]
"""A member's partitions by topic id; no topic is there without a partition."""

Assignor: TypeAlias = Callable[[Mapping[str, "Subscriber"], Mapping[UUID, int]], dict[str, Target]]

MAX_ROUNDS = 16
"""Where subscriptions overlap, a round of balancing halves the imbalance, more or less."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[UUID]
    """Only those that exist."""
    instance_id: str | None = None
    former: Target = MappingProxyType({})
    """Its target until now."""


def range_assignor(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Target]:
    """Neighbouring partitions topic by topic; the first members get one more where it does not come out even."""
    order = _in_order(members)
    targets: dict[str, dict[UUID, frozenset[int]]] = {member: {} for member in members}
    for topic, subscribers in _subscribers(order, members).items():
        least, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + least + (index < extra)
            if end > start:
                targets[member][topic] = frozenset(range(start, end))
            start = end
    return dict(targets)


def uniform_assignor(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Target]:
    """Evenly over all topics, with as little movement as that allows."""
    if not members:
        return {}
    order = _in_order(members)
    plan = _Plan(order, members, partitions)
    if len({members[member].topics for member in order}) == 1:
        plan.cut_to_quota()
        plan.fill_to_quota()
    else:
        plan.hand_out()
        plan.balance()
    return plan.targets()


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_assignor, "range": range_assignor}
"""By the names members ask for; the first is the default, as group.consumer.assignors has them."""


def _in_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Static members first, by the name that survives them: so they keep their place when they come back."""

    def key(member: str) -> tuple[bool, str]:
        instance = members[member].instance_id
        return (instance is None, member if instance is None else instance)

    return sorted(members, key=key)


def _subscribers(order: Iterable[str], members: Mapping[str, Subscriber]) -> dict[UUID, list[str]]:
    found: dict[UUID, list[str]] = {}
    for member in order:
        for topic in members[member].topics:
            found.setdefault(topic, []).append(member)
    return found


class _Plan:
    """Mutable: a uniform assignment in the making. Begins with all of the old one that may stay."""

    def __init__(
        self, order: Sequence[str], members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]
    ) -> None:
        self._order = order
        self._subscribers = _subscribers(order, members)
        self._partitions = partitions
        self._held: dict[str, dict[UUID, set[int]]] = {member: {} for member in order}
        self._load = dict.fromkeys(order, 0)
        self._free: dict[UUID, set[int]] = {
            topic: set(range(partitions[topic])) for topic in self._subscribers
        }
        for member in order:
            subscriber = members[member]
            for topic, former in subscriber.former.items():
                if topic in subscriber.topics:
                    # Two members may both remember a partition: one that was revoked in the old target's name.
                    self._give_all(member, topic, former & self._free[topic])

    def targets(self) -> dict[str, Target]:
        return {
            member: {topic: frozenset(held) for topic, held in topics.items() if held}
            for member, topics in self._held.items()
        }

    def cut_to_quota(self) -> None:
        """All subscribe to the same: take from each member what is above its share."""
        least, extra = divmod(sum(self._partitions[topic] for topic in self._subscribers), len(self._order))
        # The larger shares go to the members that have the most already, so that less moves.
        for index, member in enumerate(self._fullest_first()):
            share = least + (index < extra)
            while self._load[member] > share:
                # From the topic it has most of, its last one: what stays is spread over the topics.
                topics = self._held[member]
                topic = max(topics, key=lambda topic: (len(topics[topic]), topic.int))
                self._take(member, topic, max(topics[topic]))

    def fill_to_quota(self) -> None:
        """All subscribe to the same: give what is free to those below their share."""
        least, extra = divmod(sum(self._partitions[topic] for topic in self._subscribers), len(self._order))
        free = [
            (topic, partition)
            for topic in sorted(self._free, key=lambda topic: topic.int)
            for partition in sorted(self._free[topic])
        ]
        free.reverse()
        for index, member in enumerate(self._fullest_first()):
            share = least + (index < extra)
            while self._load[member] < share:
                self._give(member, *free.pop())

    def hand_out(self) -> None:
        """Give what is free to the member that has least; scarce topics first, for their subscribers have no choice."""
        for topic in self._scarce_first():
            for partition in sorted(self._free[topic]):
                self._give(min(self._subscribers[topic], key=self._load.__getitem__), topic, partition)

    def balance(self) -> None:
        """Move partitions from the fullest to the emptiest of their subscribers, until no move helps."""
        for _ in range(MAX_ROUNDS):
            moved = [topic for topic in self._scarce_first() if self._balance_topic(topic)]
            if not moved:
                return

    def _balance_topic(self, topic: UUID) -> bool:
        subscribers = self._subscribers[topic]
        moved = False
        while True:
            givers = [member for member in subscribers if self._held[member].get(topic)]
            if not givers:
                return moved
            fullest = max(givers, key=self._load.__getitem__)
            emptiest = min(subscribers, key=self._load.__getitem__)
            if self._load[fullest] - self._load[emptiest] <= 1:
                return moved
            partition = max(self._held[fullest][topic])
            self._take(fullest, topic, partition)
            self._give(emptiest, topic, partition)
            moved = True

    def _fullest_first(self) -> list[str]:
        return sorted(self._order, key=lambda member: -self._load[member])

    def _scarce_first(self) -> list[UUID]:
        def key(topic: UUID) -> tuple[float, int, int]:
            subscribers = len(self._subscribers[topic])
            return (-self._partitions[topic] / subscribers, subscribers, topic.int)

        return sorted(self._subscribers, key=key)

    def _give_all(self, member: str, topic: UUID, partitions: frozenset[int]) -> None:
        if partitions:
            self._held[member][topic] = set(partitions)
            self._free[topic] -= partitions
            self._load[member] += len(partitions)

    def _give(self, member: str, topic: UUID, partition: int) -> None:
        self._held[member].setdefault(topic, set()).add(partition)
        self._free[topic].discard(partition)
        self._load[member] += 1

    def _take(self, member: str, topic: UUID, partition: int) -> None:
        self._held[member][topic].discard(partition)
        self._free[topic].add(partition)
        self._load[member] -= 1

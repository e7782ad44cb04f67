"""The assignors of classic groups: range, roundrobin, sticky and cooperative-sticky, with Kafka's names and bytes.

PURE. Called by `classic_member`, in the leader of its group, and by members that join (what a member says of itself
is the assignor's affair too). Always holds: every partition of a subscribed topic goes to one member,
and that one subscribes to it; cooperative-sticky alone holds back what another member has yet to give up. The same
members, in whatever order, get the same shares.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition
from barnabas.wire.codec import Malformed
from barnabas.wire.messages.consumer_protocol import (
    AssignedPartitions,
    PartitionsOfTopic,
    Subscription,
    owned_in_user_data,
    owned_to_user_data,
    subscription_of,
    to_bytes,
)

_VERSION = 3  # of subscriptions: with the generation in which partitions were owned
_ASSIGNMENT_VERSION = 1  # what every client reads
_GENERATION = Struct(">i")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member as assignors see it: what it wants, and what it says that it had, and when."""

    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


Candidates: TypeAlias = Mapping[str, Candidate]
Shares: TypeAlias = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Assignor:
    """One way to share partitions out. `is_cooperative`: members keep what they have while the group rebalances."""

    name: str
    assign: Callable[[Candidates, Mapping[str, int]], Shares]
    is_cooperative: bool = False
    remembers: bool = False
    """Members tell what they had before they gave it back, in Kafka's bytes for it."""

    def metadata(
        self,
        topics: Iterable[str],
        owned: Sequence[TopicPartition] = (),
        had: Sequence[TopicPartition] = (),
        generation: int = -1,
    ) -> bytes:
        """What a member joins with: `owned` it still reads, `had` it had in that generation."""
        user_data = None
        if self.remembers:
            user_data = owned_to_user_data(by_topic(had), generation) if had else b""
        elif self.is_cooperative:
            user_data = _GENERATION.pack(generation)
        said = Subscription(sorted(topics), user_data, by_topic(owned), generation)
        return to_bytes(said, _VERSION)

    def candidate(self, metadata: bytes, instance_id: str | None) -> Candidate:
        """What a member has joined with, whichever library wrote it. Raises Malformed where it cannot be read."""
        said = subscription_of(metadata)
        rows, generation = said.owned_partitions, said.generation_id
        if self.remembers or (self.is_cooperative and generation < 0):
            rows, generation = _remembered(said)
        owned = tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)
        return Candidate(frozenset(said.topics), instance_id, owned, generation)


def _remembered(said: Subscription) -> tuple[list[PartitionsOfTopic], int]:
    """What a member has put into its user data: partitions and a generation, or (Java, cooperative) only that."""
    data = said.user_data or b""
    if len(data) == _GENERATION.size:
        return said.owned_partitions, int(_GENERATION.unpack(data)[0])
    try:
        rows, generation = owned_in_user_data(data)
    except Malformed:
        rows, generation = [], -1  # another library's secret: it starts without a past
    return rows or said.owned_partitions, generation


def by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsOfTopic]:
    rows: dict[str, PartitionsOfTopic] = {}
    for topic, number in partitions:
        rows.setdefault(topic, PartitionsOfTopic(topic)).partitions.append(number)
    return list(rows.values())


def assignment_bytes(share: Iterable[TopicPartition]) -> bytes:
    """A member's share, as the leader sends it."""
    return to_bytes(AssignedPartitions(by_topic(share)), _ASSIGNMENT_VERSION)


def in_order(members: Candidates) -> list[str]:
    """Static members first, by their group.instance.id, then the others by their ids: as Java has it."""

    def key(member: str) -> tuple[bool, str]:
        instance = members[member].instance_id
        return (instance is None, member if instance is None else instance)

    return sorted(members, key=key)


def assign_range(members: Candidates, partitions: Mapping[str, int]) -> Shares:
    """Each topic by itself: neighbouring partitions, in stretches as even as can be, to its subscribers in order."""
    shares: Shares = {each: [] for each in members}
    for topic, subscribers in _subscribers(members).items():
        share, more = divmod(partitions.get(topic, 0), len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            stop = start + share + (place < more)
            shares[member] += [TopicPartition(topic, number) for number in range(start, stop)]
            start = stop
    return shares


def assign_round_robin(members: Candidates, partitions: Mapping[str, int]) -> Shares:
    """All partitions in order, one each to the members in turn; a member that does not want one is passed over."""
    shares: Shares = {each: [] for each in members}
    turns = deque(in_order(members))
    for topic in _subscribers(members):
        for number in range(partitions.get(topic, 0)):
            while topic not in members[turns[0]].topics:
                turns.rotate(-1)
            shares[turns[0]].append(TopicPartition(topic, number))
            turns.rotate(-1)
    return shares


def assign_sticky(members: Candidates, partitions: Mapping[str, int]) -> Shares:
    """As even as can be, and then with as little movement as that allows."""
    if not members:
        return {}
    plan = _StickyPlan(members, partitions)
    plan.keep()
    plan.hand_out()
    plan.balance()
    return plan.shares()


def assign_cooperative(members: Candidates, partitions: Mapping[str, int]) -> Shares:
    """The same, but what moves is held back until the member that has it gave it up; then the group meets again."""
    shares = assign_sticky(members, partitions)
    holders: dict[TopicPartition, set[str]] = defaultdict(set)
    for member, candidate in members.items():
        for partition in candidate.owned:
            holders[partition].add(member)
    return {
        member: [each for each in share if holders.get(each, {member}) <= {member}]
        for member, share in shares.items()
    }


ASSIGNORS = {
    each.name: each
    for each in (
        Assignor("range", assign_range),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky, remembers=True),
        Assignor("cooperative-sticky", assign_cooperative, is_cooperative=True),
    )
}
"""By the names that members offer one another."""


def assignors_of(names: str | Iterable[str]) -> tuple[Assignor, ...]:
    """partition.assignment.strategy: names, best first. Raises BarnabasError for what cannot be."""
    wanted = [each.strip() for each in names.split(",")] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in ASSIGNORS:
            raise BarnabasError(f"partition.assignment.strategy has {', '.join(ASSIGNORS)}, but no {name!r}.")
    found = tuple(ASSIGNORS[name] for name in dict.fromkeys(wanted))
    if not found:
        raise BarnabasError("partition.assignment.strategy is empty: name at least one assignor.")
    if len({each.is_cooperative for each in found}) > 1:
        raise BarnabasError(
            "partition.assignment.strategy cannot mix cooperative-sticky with others: "
            "members would not agree on whether they may go on reading."
        )
    return found


def _subscribers(members: Candidates) -> dict[str, list[str]]:
    """Members in order by topic, topics in order of their names."""
    found: dict[str, list[str]] = {
        topic: [] for topic in sorted({topic for each in members.values() for topic in each.topics})
    }
    for member in in_order(members):
        for topic in members[member].topics:
            found[topic].append(member)
    return found


class _StickyPlan:
    """Mutable: shares on their way to being even."""

    def __init__(self, members: Candidates, partitions: Mapping[str, int]) -> None:
        self._members = members
        self._order = in_order(members)
        self._place = {member: place for place, member in enumerate(self._order)}
        self._subscribers = _subscribers(members)
        self._counts = {topic: partitions.get(topic, 0) for topic in self._subscribers}
        # Dicts keep the order in which partitions came, so the last to come is the first to go.
        self._shares: dict[str, dict[TopicPartition, None]] = {member: {} for member in self._order}
        self._former = self._owners()

    def _owners(self) -> dict[TopicPartition, str]:
        """The former owners. Of several that claim a partition the one of the latest generation; of equals none."""
        found: dict[TopicPartition, tuple[int, str | None]] = {}
        for member in self._order:
            candidate = self._members[member]
            for partition in candidate.owned:
                topic, number = partition
                if topic not in candidate.topics or number >= self._counts.get(topic, 0):
                    continue
                latest, _ = found.get(partition, (-2, None))
                if candidate.generation > latest:
                    found[partition] = candidate.generation, member
                elif candidate.generation == latest:
                    found[partition] = latest, None
        return {partition: member for partition, (_, member) in found.items() if member is not None}

    def keep(self) -> None:
        """Each member keeps what it had; where all want the same, no more than its fair share."""
        for partition, member in sorted(self._former.items()):
            self._shares[member][partition] = None
        if len({each.topics for each in self._members.values()}) > 1:
            return
        fair, more = divmod(sum(self._counts.values()), len(self._order))
        for member in self._order:
            share = self._shares[member]
            keeps = fair + (len(share) > fair and more > 0)
            more -= len(share) > fair and more > 0
            while len(share) > keeps:
                share.popitem()

    def hand_out(self) -> None:
        """Free partitions go to the members that have least; first those that few may have."""
        taken = {partition for share in self._shares.values() for partition in share}
        for topic in sorted(self._counts, key=lambda topic: (len(self._subscribers[topic]), topic)):
            subscribers = self._subscribers[topic]
            for number in range(self._counts[topic]):
                partition = TopicPartition(topic, number)
                if partition not in taken:
                    least = min(subscribers, key=lambda each: (len(self._shares[each]), self._place[each]))
                    self._shares[least][partition] = None

    def balance(self) -> None:
        """Move partitions for as long as a member has two more than another that could take one of them.

        It may take others in between: A gives to B, which gives to C. When no such chain is left, no other
        shares are more even.
        """
        settled: set[str] = set()
        while len(settled) < len(self._order):
            giver = max(
                (each for each in self._order if each not in settled),
                key=lambda each: (len(self._shares[each]), -self._place[each]),
            )
            chain = self._chain(giver)
            if not chain:
                settled.add(giver)
                continue
            settled.clear()
            for source, target, topic in chain:
                self._move(source, target, topic)

    def _chain(self, giver: str) -> list[tuple[str, str, str]]:
        """The shortest way from a member to one that has at least two less: (from, to, topic) in turn."""
        goal = len(self._shares[giver]) - 2
        came: dict[str, tuple[str, str] | None] = {giver: None}
        waiting = deque([giver])
        while waiting:
            source = waiting.popleft()
            held = Counter(topic for topic, _ in self._shares[source])
            for topic in sorted(held):
                for target in self._subscribers[topic]:
                    if target in came:
                        continue
                    came[target] = source, topic
                    if len(self._shares[target]) <= goal:
                        return self._way_to(target, came)
                    waiting.append(target)
        return []

    def _way_to(self, member: str, came: Mapping[str, tuple[str, str] | None]) -> list[tuple[str, str, str]]:
        way = []
        while (step := came[member]) is not None:
            source, topic = step
            way.append((source, member, topic))
            member = source
        return way

    def _move(self, source: str, target: str, topic: str) -> None:
        """One partition of the topic: best one that comes home, else one that was not the giver's before."""
        movable = [each for each in self._shares[source] if each.topic == topic]
        former = self._former
        chosen = min(
            reversed(movable), key=lambda each: (former.get(each) != target, former.get(each) == source)
        )
        del self._shares[source][chosen]
        self._shares[target][chosen] = None

    def shares(self) -> Shares:
        return {member: sorted(share) for member, share in self._shares.items()}

"""What the members of a KIP-848 group subscribe to, and what each should have: from topics to targets.

Pure functions over a group's state and a list of its members as they are about to be. Called by consumer_group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from barnabas.config import BrokerConfig
from barnabas.coordinator.consumer.assignors import ASSIGNORS, Subscriber, Target
from barnabas.coordinator.consumer.member import Member
from barnabas.coordinator.consumer.pattern import pattern
from barnabas.coordinator.effects import TopicFacts


def resolve(members: Iterable[Member], topics: Mapping[str, TopicFacts]) -> dict[str, frozenset[str]]:
    """The topics that each of the members' regular expressions matches."""
    found: dict[str, frozenset[str]] = {}
    for member in members:
        if member.regex is not None and member.regex not in found:
            matches = pattern(member.regex).matches
            found[member.regex] = frozenset(name for name in topics if matches(name))
    return found


def subscribed(members: Iterable[Member], regexes: Mapping[str, frozenset[str]]) -> set[str]:
    """The names members subscribe to, themselves or by a regular expression."""
    names: set[str] = set()
    for member in members:
        names.update(member.topics)
        if member.regex is not None:
            names |= regexes.get(member.regex, frozenset())
    return names


def hash_of(names: Iterable[str], topics: Mapping[str, TopicFacts]) -> int:
    """A number that changes when one of these topics comes, goes or grows; 0 where none of them exists."""
    found = sorted((name, topics[name]) for name in names if name in topics)
    if not found:
        return 0
    digest = blake2b(digest_size=8)
    for name, facts in found:
        digest.update(f"{name} {facts.id} {facts.partitions}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def assign(
    members: Sequence[Member],
    former: Mapping[str, Target],
    regexes: Mapping[str, frozenset[str]],
    topics: Mapping[str, TopicFacts],
    config: BrokerConfig,
) -> dict[str, Target]:
    """The members' targets, made from their former ones."""
    subscribers = {
        member.id: Subscriber(
            frozenset(topics[name].id for name in subscribed((member,), regexes) if name in topics),
            member.instance_id,
            former.get(member.id, {}),
        )
        for member in members
    }
    partitions = {facts.id: facts.partitions for facts in topics.values()}
    return ASSIGNORS[preferred_assignor(members, config)](subscribers, partitions)


def preferred_assignor(members: Iterable[Member], config: BrokerConfig) -> str:
    """The one most members ask for; of equals, and where none is asked for, the first of the settings."""
    votes = Counter(member.assignor for member in members)
    return max(offered_assignors(config), key=lambda name: votes[name])


def offered_assignors(config: BrokerConfig) -> list[str]:
    """Those of the settings that exist; all there are where none does."""
    return [name for name in config.group_consumer_assignors if name in ASSIGNORS] or list(ASSIGNORS)

"""What a controller decides with: facts that the image does not have, and one way to decide on many partitions. PURE.

`reactions`, `reassignment` and `isr` are the decisions. Always holds: a partition that is refused stays as it is, and
leaves the others their decisions.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from barnabas.cluster.elections import NONE, Electorate, Policy, Settled, policy_of
from barnabas.cluster.image import (
    BrokerEpoch,
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    TopicImage,
)
from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition


@dataclass(slots=True)
class Facts:
    """Mutable: what a controller knows and the image does not have. A life of a broker is its epoch."""

    defaults: TopicConfig = field(default_factory=TopicConfig)
    dead: dict[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """Lives that have ended, though the store does not know that yet."""
    stopping: dict[BrokerId, BrokerEpoch] = field(default_factory=dict)
    missing: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """Partitions that brokers cannot serve: a directory has failed, a folder is gone."""
    full: dict[BrokerId, frozenset[TopicPartition]] = field(default_factory=dict)
    """Partitions that brokers have no room for: they are served, and take no records."""

    def forget_lives(self, image: ClusterImage) -> None:
        """Drop what is known of lives that are over."""
        for known in (self.dead, self.stopping):
            for broker, epoch in list(known.items()):
                if broker not in image.brokers or image.brokers[broker].epoch != epoch:
                    del known[broker]
        for broker in self.missing.keys() | self.full.keys():
            if broker not in image.brokers:
                self.forget_disks(broker)

    def forget_disks(self, broker: BrokerId) -> None:
        """Drop what a life of a broker has told of its disks."""
        self.missing.pop(broker, None)
        self.full.pop(broker, None)

    def live(self, image: ClusterImage) -> frozenset[BrokerId]:
        return frozenset(b.id for b in image.brokers.values() if self.dead.get(b.id) != b.epoch)

    def leaving(self, image: ClusterImage) -> frozenset[BrokerId]:
        return frozenset(b.id for b in image.brokers.values() if self.stopping.get(b.id) == b.epoch)

    def electorate(self, image: ClusterImage) -> Electorate:
        """The brokers as partitions see them now; `around` adds what is so for one partition."""
        return Electorate(self.live(image), self.leaving(image))

    def around(self, tp: TopicPartition, brokers: Electorate) -> Electorate:
        """The same brokers as one partition sees them."""
        if not self.missing and not self.full:
            return brokers
        full = [broker for broker, partitions in self.full.items() if tp in partitions]
        leaving = {*brokers.leaving, *full} if full else brokers.leaving
        return brokers._replace(missing=self.lacking(tp), leaving=leaving)

    def policy(self, topic: TopicImage) -> Policy:
        return policy_of(topic, self.defaults)

    def lacking(self, tp: TopicPartition) -> frozenset[BrokerId]:
        if not self.missing:
            return NONE
        return frozenset(broker for broker, partitions in self.missing.items() if tp in partitions)


class Decision(NamedTuple):
    """Changes to be stored, and notes for the log, each about one partition."""

    changes: list[Change]
    notes: list[str]


class Decided(NamedTuple):
    """A decision, and the outcome of each partition that was looked at: None, or why not."""

    decision: Decision
    outcomes: dict[TopicPartition, Refused | None]


Decide: TypeAlias = Callable[[TopicPartition, PartitionImage, Policy], Settled]
"""What is to become of one partition; a refusal is its outcome."""


def decide_each(
    image: ClusterImage, partitions: Iterable[TopicPartition], facts: Facts, decide: Decide
) -> Decided:
    """Decide on these partitions, one by one."""
    changed: dict[str, dict[int, PartitionImage]] = {}
    notes: list[str] = []
    outcomes: dict[TopicPartition, Refused | None] = {}
    policies: dict[str, Policy] = {}
    for tp in partitions:
        was = image.partition(tp)
        if was is None:
            outcomes[tp] = Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        if tp.topic not in policies:
            policies[tp.topic] = facts.policy(image.topics[tp.topic])
        try:
            now, note = decide(tp, was, policies[tp.topic])
        except Refused as refused:
            outcomes[tp] = refused
            continue
        outcomes[tp] = None
        if now is not was and now != was:
            changed.setdefault(tp.topic, {})[tp.partition] = now
            if note:
                notes.append(f"{tp} {note}")
    changes: list[Change] = [PartitionsChanged(name, numbered) for name, numbered in changed.items()]
    return Decided(Decision(changes, notes), outcomes)


def every_partition(image: ClusterImage) -> Iterator[TopicPartition]:
    for name, topic in image.topics.items():
        for index in range(len(topic.partitions)):
            yield TopicPartition(name, index)

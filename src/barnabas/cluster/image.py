"""What the cluster is: brokers, topics, partitions, settings. Immutable; a change makes a new image.

The controller decides changes, a store makes them last, `apply` makes the next image. Whoever holds an image
can read it for as long as they like.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from barnabas.types import BrokerId, LeaderEpoch, ProducerId, TopicPartition

FIRST_EPOCH = LeaderEpoch(0)
FIRST_PRODUCER_ID = ProducerId(0)


class BrokerImage(NamedTuple):
    """A live broker and where clients reach it."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who has a partition, who leads it, and since which epoch."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    epoch: LeaderEpoch = FIRST_EPOCH


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic: its id stays with it, its name may be given again after it is deleted."""

    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicCreated(NamedTuple):
    topic: TopicImage


class TopicDeleted(NamedTuple):
    name: str


class PartitionsAdded(NamedTuple):
    name: str
    partitions: tuple[PartitionImage, ...]


class TopicConfigured(NamedTuple):
    name: str
    configs: Mapping[str, str]


class BrokersConfigured(NamedTuple):
    """Settings changed while the cluster runs; `broker` is empty for all of them."""

    broker: str
    configs: Mapping[str, str]


class ProducerIdsTaken(NamedTuple):
    """All producer ids below this one are spoken for."""

    next_id: ProducerId


class LeaderRestarted(NamedTuple):
    """A leader came back: each of its partitions begins a new epoch, for its log may be shorter now."""

    broker: BrokerId


Change: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigured
    | BrokersConfigured
    | ProducerIdsTaken
    | LeaderRestarted
)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster at one moment."""

    cluster_id: str
    controller: BrokerId
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return next((topic for topic in self.topics.values() if topic.id == topic_id), None)

    def after(self, changes: Iterable[Change]) -> "ClusterImage":
        image = self
        for change in changes:
            image = image._apply(change)
        return image

    def _apply(self, change: Change) -> "ClusterImage":
        match change:
            case TopicCreated(topic):
                return self._with_topics([topic])
            case TopicDeleted(name):
                return replace(self, topics={n: t for n, t in self.topics.items() if n != name})
            case PartitionsAdded(name, added):
                topic = self.topics[name]
                return self._with_topics([replace(topic, partitions=topic.partitions + added)])
            case TopicConfigured(name, configs):
                return self._with_topics([replace(self.topics[name], configs=configs)])
            case BrokersConfigured(broker, configs):
                return replace(self, broker_configs={**self.broker_configs, broker: configs})
            case ProducerIdsTaken(next_id):
                return replace(self, next_producer_id=next_id)
            case LeaderRestarted(broker):
                return self._with_topics(_new_epochs(topic, broker) for topic in self.topics.values())

    def _with_topics(self, topics: Iterable[TopicImage]) -> "ClusterImage":
        return replace(self, topics={**self.topics, **{topic.name: topic for topic in topics}})


def _new_epochs(topic: TopicImage, leader: BrokerId) -> TopicImage:
    return replace(
        topic,
        partitions=tuple(
            replace(partition, epoch=LeaderEpoch(partition.epoch + 1))
            if partition.leader == leader
            else partition
            for partition in topic.partitions
        ),
    )

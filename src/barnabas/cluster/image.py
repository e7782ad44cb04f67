"""What the cluster is: brokers, topics, partitions, settings. PURE and immutable; a change makes a new image.

The controller decides changes, a store makes them last, `after` makes the next image. An image can be read at any time
from any thread. A change costs what it touches, and so does the difference between two images (`since`), whatever
else there is: topics lie in maps that share all that is the same.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, NewType, TypeAlias, TypeVar
from uuid import UUID

from barnabas.cluster.persistent import PersistentMap
from barnabas.types import BrokerEpoch as BrokerEpoch
from barnabas.types import BrokerId, LeaderEpoch, ProducerId, TopicPartition
from barnabas.types import PartitionEpoch as PartitionEpoch

Version = NewType("Version", int)
"""Counts the changes of a cluster, of whatever kind; a later image has a larger one."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Counts the controllers a cluster has had."""

NO_BROKER = BrokerId(-1)
"""The leader of a partition that has none, the controller of a cluster without one."""
NO_LIFE = BrokerEpoch(-1)
FIRST_EPOCH = LeaderEpoch(0)
FIRST_PARTITION_EPOCH = PartitionEpoch(0)
FIRST_PRODUCER_ID = ProducerId(0)

K = TypeVar("K")


class Recovery(IntEnum):
    """Whether a leader has to make up for an unclean election first, numbered as Kafka does."""

    RECOVERED = 0
    RECOVERING = 1


class BrokerImage(NamedTuple):
    """A live broker and where clients reach it."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    epoch: BrokerEpoch = BrokerEpoch(-1)
    survived: bool = True
    """Whether all that its last life had stored is still there: False after a power cut, when a tail may be gone."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Which brokers have a partition, which of them are in sync, and which one leads it since which epoch.

    `adding` and `removing` are the replicas that a reassignment brings and takes; `replicas` has both. `elr` are the
    replicas that left the ISR when it had fewer than min.insync.replicas: they have all that is committed (KIP-966).
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch = FIRST_EPOCH
    partition_epoch: PartitionEpoch = FIRST_PARTITION_EPOCH
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    recovery: Recovery = Recovery.RECOVERED
    elr: tuple[BrokerId, ...] = ()
    born: BrokerEpoch = field(default=NO_LIFE, compare=False)
    """Lives of brokers that have a larger epoch began after the partition was made; where that is not known, -1."""

    def may_lack_on(self, broker: BrokerId, life: BrokerEpoch = NO_LIFE) -> bool:
        """Whether a broker may have no folder for it: it is new, this replica is not counted on for any record, or an
        unclean election has written off what was lost. A replica that is counted on and has none has lost its disk.

        In a later `life` of the broker it is not new any more, even if it was never changed since it was made.
        """
        is_new = self.partition_epoch <= 0 and not NO_LIFE < self.born < life
        is_counted_on = broker in self.isr or broker in self.elr
        return is_new or not is_counted_on or self.recovery is Recovery.RECOVERING


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


class PartitionsChanged(NamedTuple):
    """Partitions of a topic as they are to be, by number. The partition epoch is not theirs to say: it grows by one."""

    name: str
    partitions: Mapping[int, PartitionImage]


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


class BrokerRegistered(NamedTuple):
    """A broker has come. Its life is its epoch: one that registers again is another life."""

    broker: BrokerImage


class BrokerGone(NamedTuple):
    broker: BrokerId


class ControllerElected(NamedTuple):
    """The broker that decides from here on; NO_BROKER where the controller is gone and there is no other yet."""

    broker: BrokerId
    epoch: ControllerEpoch


Change: TypeAlias = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionsChanged
    | TopicConfigured
    | BrokersConfigured
    | ProducerIdsTaken
    | LeaderRestarted
    | BrokerRegistered
    | BrokerGone
    | ControllerElected
)


class Announced(NamedTuple):
    """How far the announcements of a controller have come that made an image: its epoch, and the version it told of."""

    epoch: ControllerEpoch = ControllerEpoch(-1)
    version: Version = Version(-1)


NOTHING_ANNOUNCED = Announced()


class Delta(NamedTuple):
    """What is different between two images: whatever was made, changed or is gone."""

    topics: frozenset[str]
    brokers: frozenset[BrokerId]
    broker_configs: frozenset[str]


class Topics(Mapping[str, TopicImage]):
    """All topics, by name, by id, and by the name that metrics know them under. Immutable."""

    __slots__ = ("_by_id", "_by_metric", "_by_name")

    def __init__(self, topics: Iterable[TopicImage] = ()) -> None:
        found = list(topics)
        self._by_name = PersistentMap((topic.name, topic) for topic in found)
        self._by_id = PersistentMap((topic.id, topic.name) for topic in found)
        self._by_metric = PersistentMap((_metric_name(topic.name), topic.name) for topic in found)

    def by_id(self, topic_id: UUID) -> TopicImage | None:
        found: TopicImage | None = self._by_name.get(self._by_id.get(topic_id))
        return found

    def of_metric_name(self, name: str) -> str | None:
        """The topic that metrics could not tell from one of this name."""
        found: str | None = self._by_metric.get(_metric_name(name))
        return found

    def updated(self, touched: Mapping[str, TopicImage | None]) -> "Topics":
        """The same with these topics as they are now; None is for one that is gone."""
        now = {name: topic for name, topic in touched.items() if topic is not None}
        gone = [name for name, topic in touched.items() if topic is None]
        after = Topics.__new__(Topics)
        after._by_name = self._by_name.updated(now, gone)
        after._by_id, after._by_metric = self._by_id, self._by_metric
        ids = {topic.id: name for name, topic in now.items() if self._by_id.get(topic.id) != name}
        old_ids = [
            old.id
            for name, topic in touched.items()
            if (old := self._by_name.get(name)) is not None and (topic is None or topic.id != old.id)
        ]
        if ids or old_ids:
            after._by_id = self._by_id.updated(ids, old_ids)
            metrics = {_metric_name(name): name for name in now}
            after._by_metric = self._by_metric.updated(metrics, map(_metric_name, gone))
        return after

    def changed_since(self, before: "Topics") -> Iterator[str]:
        """The names of topics that were made, changed or are gone."""
        return self._by_name.changed_since(before._by_name)

    def get(self, name: object, default: object = None) -> "TopicImage | None":  # type: ignore[override]
        found: TopicImage | None = self._by_name.get(name, default)
        return found

    def values(self) -> ValuesView[TopicImage]:
        return self._by_name.values()

    def items(self) -> ItemsView[str, TopicImage]:
        return self._by_name.items()

    def __getitem__(self, name: str) -> TopicImage:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster at one moment."""

    cluster_id: str
    controller: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics: Topics = field(default_factory=Topics)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    version: Version = Version(0)
    announced: Announced = NOTHING_ANNOUNCED
    """The newest announcement in it; without a meaning where everything comes from the store."""

    def partition(self, tp: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        return self.topics.by_id(topic_id)

    def after(self, changes: Iterable[Change]) -> "ClusterImage":
        """The image that these changes make of this one, one version on."""
        draft = _Draft(self)
        for change in changes:
            draft.apply(change)
        return draft.image()

    def since(self, before: "ClusterImage | None") -> Delta:
        """What is different from another image of this cluster; all there is, where there was none."""
        old = before or ClusterImage(self.cluster_id)
        return Delta(
            frozenset(self.topics.changed_since(old.topics)),
            frozenset(_different(old.brokers, self.brokers)),
            frozenset(_different(old.broker_configs, self.broker_configs)),
        )


class _Draft:
    """Mutable: the next image while changes are applied; topics are put into it once, in the end."""

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self._touched: dict[str, TopicImage | None] = {}
        self._brokers = before.brokers
        self._broker_configs = before.broker_configs
        self._next_producer_id = before.next_producer_id
        self._controller, self._controller_epoch = before.controller, before.controller_epoch

    def image(self) -> ClusterImage:
        before = self._before
        return ClusterImage(
            before.cluster_id,
            self._controller,
            self._brokers,
            before.topics.updated(self._touched) if self._touched else before.topics,
            self._broker_configs,
            self._next_producer_id,
            self._controller_epoch,
            Version(before.version + 1),
            before.announced,
        )

    def apply(self, change: Change) -> None:
        match change:
            case TopicCreated(topic):
                self._touched[topic.name] = topic
            case TopicDeleted(name):
                self._touched[name] = None
            case PartitionsAdded(name, added):
                topic = self._topic(name)
                self._touched[name] = replace(topic, partitions=topic.partitions + added)
            case PartitionsChanged(name, changed):
                self._touched[name] = _with_partitions(self._topic(name), changed)
            case TopicConfigured(name, configs):
                self._touched[name] = replace(self._topic(name), configs=configs)
            case BrokersConfigured(broker, configs):
                self._broker_configs = {**self._broker_configs, broker: configs}
            case ProducerIdsTaken(next_id):
                self._next_producer_id = next_id
            case LeaderRestarted(leader):
                self._restart(leader)
            case BrokerRegistered(registered):
                self._brokers = {**self._brokers, registered.id: registered}
            case BrokerGone(gone):
                self._brokers = {live: broker for live, broker in self._brokers.items() if live != gone}
            case ControllerElected(controller, epoch):
                self._controller, self._controller_epoch = controller, epoch

    def _topic(self, name: str) -> TopicImage:
        topic = self._touched[name] if name in self._touched else self._before.topics[name]
        if topic is None:
            raise KeyError(name)
        return topic

    def _restart(self, leader: BrokerId) -> None:
        for name in dict.fromkeys((*self._before.topics, *self._touched)):
            topic = self._touched[name] if name in self._touched else self._before.topics[name]
            led = enumerate(topic.partitions) if topic is not None else ()
            changed = {
                index: replace(partition, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))
                for index, partition in led
                if partition.leader == leader
            }
            if topic is not None and changed:
                self._touched[name] = _with_partitions(topic, changed)


def _with_partitions(topic: TopicImage, changed: Mapping[int, PartitionImage]) -> TopicImage:
    partitions = list(topic.partitions)
    for index, partition in changed.items():
        epoch = PartitionEpoch(partitions[index].partition_epoch + 1)
        partitions[index] = replace(partition, partition_epoch=epoch)
    return replace(topic, partitions=tuple(partitions))


def _different(old: Mapping[K, object], new: Mapping[K, object]) -> Iterator[K]:
    return (key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _metric_name(topic: str) -> str:
    """Metrics write '_' for '.': two topics that differ only there would be one."""
    return topic.replace(".", "_")

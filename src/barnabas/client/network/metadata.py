"""What a client knows of a cluster: brokers, topics, leaders. Written by `network`, read by all parts.

Always holds: a `Snapshot` never changes, so that any thread may read `Metadata.snapshot` without a lock; a
leader that was replaced does not come back because a slow broker still tells of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from barnabas.errors import BarnabasError, Code
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from barnabas.wire.schema import NO_ID

DEFAULT_PORT = 9092

NO_BROKER = BrokerId(-1)
"""The leader of a partition that has none, and a controller that is not known."""


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A node of the cluster."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as the metadata shows it; a leader of -1 means there is none now."""

    index: int
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions, ordered by their index."""

    name: str
    id: UUID
    is_internal: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as it was told last. `refused` says why a topic that was asked for is not among the topics."""

    brokers: Mapping[BrokerId, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    refused: Mapping[str, Code] = field(default_factory=dict)
    controller: BrokerId = NO_BROKER
    cluster_id: str | None = None

    def partition(self, partition: TopicPartition) -> Partition | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def leader(self, partition: TopicPartition) -> Broker | None:
        """The broker that leads a partition; None where there is none, or none is known."""
        found = self.partition(partition)
        return None if found is None else self.brokers.get(found.leader)


class Metadata:
    """The newest snapshot, the topics that are wanted in it, and the listeners for changes."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.wanted: dict[str, bool] = {}
        """Topics to ask for with every refresh; True where the broker may create one that there is not."""
        self.on_want: Callable[[dict[str, bool]], None] = lambda topics: None
        """Told of topics that are wanted for the first time and not known yet."""
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._last: dict[str, Topic] = {}
        """Each topic as it was told of last, also while brokers say that they do not know it: leaders never go back."""

    def want(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Keep these topics fresh; those not known yet are asked for at once. In the network's thread."""
        wanted, known = self.wanted, self.snapshot.topics
        new: dict[str, bool] = {}
        for topic in topics:
            before = wanted.get(topic)
            if before is None or (create and not before):
                wanted[topic] = create
                if topic not in known:
                    new[topic] = create
        if new:
            self.on_want(new)

    def forget(self, topics: Iterable[str]) -> None:
        """No longer ask for these topics."""
        for topic in topics:
            self.wanted.pop(topic, None)

    def subscribe(self, callback: Callable[[Snapshot], None]) -> None:
        """Be told of every new snapshot, in the network's thread."""
        self._subscribers.append(callback)

    def forget_subscriber(self, callback: Callable[[Snapshot], None]) -> None:
        """No longer tell it."""
        self._subscribers.remove(callback)

    def update(self, answer: MetadataResponse, asked: Iterable[str] | None) -> Snapshot:
        """Take in an answer; `asked` are the topics it was about, None where it tells of all there are."""
        known = self.snapshot
        brokers = {
            BrokerId(each.node_id): Broker(BrokerId(each.node_id), each.host, each.port, each.rack)
            for each in answer.brokers
        }
        topics: dict[str, Topic] = {} if asked is None else dict(known.topics)
        refused: dict[str, Code] = {} if asked is None else dict(known.refused)
        for name in asked or ():
            topics.pop(name, None)
            refused.pop(name, None)
        if asked is None:
            named = {each.name for each in answer.topics}
            self._last = {name: topic for name, topic in self._last.items() if name in named}
        for each in answer.topics:
            name = each.name or ""
            if each.error_code:
                refused[name] = Code.of(each.error_code)
            else:
                topics[name] = self._last[name] = topic_of(each, self._last.get(name))
        # A broker that knows of no brokers has just started: the ones we know are a better guess.
        self.snapshot = Snapshot(
            brokers or known.brokers, topics, refused, BrokerId(answer.controller_id), answer.cluster_id
        )
        for tell in list(self._subscribers):
            tell(self.snapshot)
        return self.snapshot

    def add_broker(self, broker: Broker) -> None:
        """A broker that something else than metadata told of, such as a group's coordinator."""
        known = self.snapshot.brokers.get(broker.id)
        if known is None or known.address != broker.address:
            brokers = {**self.snapshot.brokers, broker.id: broker}
            self.snapshot = replace(self.snapshot, brokers=brokers)


def topic_of(found: MetadataResponseTopic, known: Topic | None = None) -> Topic:
    """A topic as an answer tells of it; of a known one, partitions keep the newer of both leaders."""
    before: tuple[Partition, ...] = ()
    if known is not None and known.id == found.topic_id != NO_ID:
        before = known.partitions
    ordered = sorted(found.partitions, key=lambda each: each.partition_index)
    partitions = tuple(_partition(each, before) for each in ordered)
    return Topic(found.name or "", found.topic_id, found.is_internal, partitions)


def _partition(found: MetadataResponsePartition, before: tuple[Partition, ...]) -> Partition:
    index = found.partition_index
    if index < len(before) and before[index].leader_epoch > found.leader_epoch >= 0:
        return before[index]
    return Partition(
        index,
        BrokerId(found.leader_id),
        found.leader_epoch,
        tuple(map(BrokerId, found.replica_nodes)),
        tuple(map(BrokerId, found.isr_nodes)),
        tuple(map(BrokerId, found.offline_replicas)),
    )


def addresses(bootstrap_servers: str | Iterable[str]) -> list[Address]:
    """`host:port,host:port` or a list of those; the port may be left out, IPv6 goes in brackets."""
    texts = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    found = [_address(text.strip()) for text in texts if text.strip()]
    if not found:
        raise BarnabasError("No bootstrap server is given: say host:port.")
    return found


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BarnabasError(f"{text!r} is not an address: say host:port.")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))

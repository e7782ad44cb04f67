"""The controller of a simulation: it decides as production does, never loses what it decided, and is heard of late.

What brokers and leaders want is decided by `cluster.reactions` and `cluster.isr` over an image. Registration, sessions
and announcements are made up: they come with the next tier.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from barnabas.cluster.deciding import Facts
from barnabas.cluster.hosted import HostedState
from barnabas.cluster.image import (
    NO_BROKER,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    TopicCreated,
    TopicImage,
)
from barnabas.cluster.isr import alter_partitions
from barnabas.cluster.reactions import reactions
from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.replication.leadership import IsrWish
from barnabas.types import BrokerEpoch, BrokerId, LeaderEpoch, Millis
from barnabas.wire.messages.controlling import (
    AlterPartitionBrokerState,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
)
from tests.replication.simulated.world import Network, World

if TYPE_CHECKING:
    from tests.replication.simulated.broker import SimulatedBroker

CONTROLLER = 0
SESSION_MS = 150
AGAIN_MS = 40
TOPIC = "topic"
TOPIC_ID = UUID(int=7)


class Announcement(NamedTuple):
    """What the cluster is, for one broker to hear."""

    version: int
    partition: PartitionImage
    live: dict[BrokerId, BrokerEpoch]


@dataclass
class Session:
    """Mutable: a life of a broker, as far as is known."""

    epoch: BrokerEpoch
    incarnation: int
    seen_at: Millis
    heard: int = -1


class SimulatedController:
    """Mutable: the truth about one partition and the brokers."""

    number = CONTROLLER

    def __init__(self, world: World, network: Network, settings: TopicConfig) -> None:
        self._world = world
        self._network = network
        self._settings = settings
        self._brokers: dict[int, SimulatedBroker] = {}
        self._sessions: dict[BrokerId, Session] = {}
        self._incarnations: dict[BrokerId, int] = {}
        self._epochs = 100
        self._image = ClusterImage("simulated")
        self._begin_anew()

    def begin(self, brokers: "dict[int, SimulatedBroker]") -> None:
        self._brokers = brokers
        replicas = tuple(BrokerId(number) for number in brokers)
        partition = PartitionImage(replicas, replicas, NO_BROKER)
        self._image = self._image.after([TopicCreated(TopicImage(TOPIC, TOPIC_ID, (partition,)))])
        self._world.after(10, self._look)

    def deliver(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        call(*args)

    @property
    def partition(self) -> PartitionImage:
        return self._image.topics[TOPIC].partitions[0]

    def fail_over(self) -> None:
        """Another controller takes over: it knows the image and nothing else."""
        self._world.note("controller")
        self._begin_anew()
        self._change(reactions(None, self._image, self._hosted, self._facts).changes)

    def _begin_anew(self) -> None:
        self._facts = Facts(self._settings)
        self._hosted = HostedState()

    # Brokers

    def heartbeat(self, broker: BrokerId, incarnation: int, epoch: BrokerEpoch, *, survived: bool) -> None:
        """A broker lives; one that is not registered is now, and hears of its epoch."""
        if incarnation < self._incarnations.get(broker, 0):
            return
        session = self._sessions.get(broker)
        if session is None or session.incarnation != incarnation:
            self._incarnations[broker] = incarnation
            self._epochs += 1
            session = Session(BrokerEpoch(self._epochs), incarnation, self._world.now)
            self._sessions[broker] = session
            self._world.note("registered", broker, session.epoch, survived)
            known = BrokerImage(broker, "host", 9092, None, session.epoch, survived)
            self._react([BrokerRegistered(known)])
        session.seen_at = self._world.now
        if epoch != session.epoch:
            node = self._brokers[broker]
            self._network.send(CONTROLLER, node, node.registered, incarnation, session.epoch)

    def heard(self, broker: BrokerId, epoch: BrokerEpoch, version: int) -> None:
        session = self._sessions.get(broker)
        if session is not None and session.epoch == epoch:
            session.heard = max(session.heard, version)

    def gone(self, broker: BrokerId) -> None:
        """A session has ended, or a process is proven dead."""
        if self._sessions.pop(broker, None) is not None:
            self._world.note("gone", broker)
            self._react([BrokerGone(broker)])

    def elect(self, broker: BrokerId) -> None:
        """Move leadership to another replica that is in sync, as an administrator may."""
        partition = self.partition
        if broker in self._sessions and broker in partition.isr and broker != partition.leader:
            epoch = LeaderEpoch(partition.leader_epoch + 1)
            self._change([_changed(replace(partition, leader=broker, leader_epoch=epoch))])

    # Leaders

    def alter(self, sender: BrokerId, epoch: BrokerEpoch, wish: IsrWish) -> None:
        """A leader wishes for another in-sync set."""
        members = [AlterPartitionBrokerState(*member) for member in wish.isr]
        data = AlterPartitionData(0, wish.leader_epoch, members, partition_epoch=wish.partition_epoch)
        request = AlterPartitionRequest(sender, epoch, [AlterPartitionTopic(TOPIC_ID, [data])])
        try:
            granted = alter_partitions(self._image, request, self._facts)
        except Refused as refused:
            self._answer(sender, wish, refused.code, (), -1)
            return
        self._change(granted.changes)
        [result] = granted.response.topics[0].partitions
        self._answer(sender, wish, Code(result.error_code), tuple(result.isr), result.partition_epoch)

    def _answer(self, sender: BrokerId, wish: IsrWish, code: Code, isr: tuple[int, ...], epoch: int) -> None:
        node = self._brokers[sender]
        self._network.send(CONTROLLER, node, node.altered, wish, code, isr, epoch)

    # The image

    def _react(self, changes: list[Change]) -> None:
        before, self._image = self._image, self._image.after(changes)
        self._change(reactions(before, self._image, self._hosted, self._facts).changes)

    def _change(self, changes: list[Change]) -> None:
        if changes:
            self._image = self._image.after(changes)
            now = self.partition
            self._world.note("partition", now.leader, now.leader_epoch, now.isr, now.elr, now.partition_epoch)
        for broker in self._sessions:
            self._announce(broker)

    def _announce(self, broker: BrokerId) -> None:
        live = {other: session.epoch for other, session in self._sessions.items()}
        node, session = self._brokers[broker], self._sessions[broker]
        told = Announcement(self._image.version, self.partition, live)
        self._network.send(CONTROLLER, node, node.announced, session.epoch, told)

    def _look(self) -> None:
        """Give up brokers that were silent for too long; tell again what was not heard."""
        now = self._world.now
        for broker, session in list(self._sessions.items()):
            if now - session.seen_at > SESSION_MS:
                self.gone(broker)
        for broker, session in list(self._sessions.items()):
            if session.heard < self._image.version:
                self._announce(broker)
        self._world.after(AGAIN_MS, self._look)


def _changed(partition: PartitionImage) -> PartitionsChanged:
    return PartitionsChanged(TOPIC, {0: partition})

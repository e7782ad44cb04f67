"""Three brokers in one process, over real sockets, and a controller of a few lines: it grants what is asked for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from barnabas.broker.broker import Broker
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.peers.peers import Peers
from barnabas.cluster.image import (
    BrokerEpoch,
    BrokerImage,
    Change,
    ClusterImage,
    ControllerEpoch,
    PartitionImage,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
    TopicImage,
    Version,
)
from barnabas.cluster.store import Deposed, Notice, Store, Subscriber
from barnabas.config import broker_config
from barnabas.replication.leadership import IsrWish
from barnabas.types import BrokerId, LeaderEpoch
from barnabas.wire.messages.controlling import (
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
)

# Three brokers would import them in three threads at once, which pytest's rewriting of assertions does not survive.
for _name in ("barnabas.coordinator.coordinator", "barnabas.broker.coordinators.host"):
    import_module(_name)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


async def until(look: Callable[[], Any], what: str, within: float = 60.0) -> Any:
    """Looks until the answer is true, for things that announce themselves to nobody."""
    deadline = asyncio.get_running_loop().time() + within
    while not (found := look()):
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.002)
    return found


class FixedStore:
    """A store that has seen an image and nothing since."""

    name = "fixed"

    def __init__(self, image: ClusterImage, epoch: int) -> None:
        self.image = image
        self._epoch = BrokerEpoch(epoch)

    def subscribe(self, listener: Subscriber) -> None: ...

    def register(self, broker: BrokerImage) -> BrokerEpoch:
        self.image = replace(
            self.image, brokers={**self.image.brokers, broker.id: broker._replace(epoch=self._epoch)}
        )
        return self._epoch

    def claim(self, broker: BrokerId, over: BrokerId | None = None) -> ControllerEpoch | None:
        return None

    def topic_configs(self, names: Sequence[str]) -> list[Mapping[str, str]]:
        return [self.image.topics[name].configs for name in names]

    def commit(self, changes: Sequence[Change], expected_version: Version) -> ClusterImage:
        raise Deposed("This broker is not the controller.")

    def tell(self, notice: Notice) -> None: ...
    def close(self) -> None: ...


class TrioBroker(Broker):
    """A broker that is told of its cluster by hand."""

    given: FixedStore

    def _open_local_store(self) -> Store:
        return self.given

    def _begin_epochs(self) -> list[Change]:
        return []


class Trio:
    """Mutable: the brokers by id, and the image that all of them follow."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._settings = settings or {}
        self.brokers: dict[BrokerId, Broker] = {}
        self.image = ClusterImage("trio")
        self._epochs = 100
        self._following = asyncio.Lock()
        self.grants = True
        self.wishes: list[tuple[str, IsrWish]] = []
        self.client = Peers(BrokerId(99))

    async def __aenter__(self) -> "Trio":
        for number in (ONE, TWO, THREE):
            await self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))

    async def start(self, number: BrokerId) -> Broker:
        """Start a broker, on what its last life has left, and tell all of them."""
        given = {
            "broker.id": str(number),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self._folder / str(number)),
            "log.retention.check.interval.ms": str(1 << 40),
            **self._settings,
        }
        broker = TrioBroker(broker_config(given)[0])
        self._epochs += 1
        broker.given = FixedStore(self.image, self._epochs)
        await broker.start()
        setattr(broker.replication.isr, "_ask", self._alter(number))  # noqa: B010
        self.brokers[number] = broker
        me = BrokerImage(number, "127.0.0.1", broker.server.port, epoch=broker.epoch)
        self.image = replace(self.image, brokers={**self.image.brokers, number: me})
        await self.tell(*self.brokers)
        return broker

    async def stop(self, number: BrokerId) -> None:
        broker = self.brokers.pop(number)
        self.image = replace(
            self.image, brokers={key: each for key, each in self.image.brokers.items() if key != number}
        )
        await broker.stop()

    async def tell(self, *numbers: BrokerId) -> None:
        """Let these brokers follow the image as it is."""
        async with self._following:
            for number in numbers:
                broker, image = self.brokers[number], self.image
                await broker._follow(image)
                broker.metadata.image = image

    async def create(
        self,
        topic: str,
        replicas: tuple[BrokerId, ...] = (ONE, TWO, THREE),
        partitions: int = 1,
        **configs: str,
    ) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        partition = PartitionImage(replicas, replicas, replicas[0])
        number = len(self.image.topics) + 1 + self.image.version
        created = TopicImage(topic, UUID(int=number), (partition,) * partitions, named)
        self.image = self.image.after([TopicCreated(created)])
        await self.tell(*self.brokers)

    async def delete(self, topic: str) -> None:
        self.image = self.image.after([TopicDeleted(topic)])
        await self.tell(*self.brokers)

    def change(self, topic: str, index: int = 0, **facts: Any) -> None:
        """Change a partition in the image; nothing is told yet."""
        partition = replace(self.image.topics[topic].partitions[index], **facts)
        self.image = self.image.after([PartitionsChanged(topic, {index: partition})])

    async def elect(
        self, topic: str, leader: BrokerId, *tell: BrokerId, isr: tuple[BrokerId, ...] = ()
    ) -> None:
        """Make another broker the leader, in the next epoch."""
        before = self.image.topics[topic].partitions[0]
        epoch = LeaderEpoch(before.leader_epoch + 1)
        self.change(topic, leader=leader, leader_epoch=epoch, isr=isr or before.isr)
        await self.tell(*(tell or self.brokers))

    def leader(self, topic: str, index: int = 0) -> Leader:
        return self.brokers[self.image.topics[topic].partitions[index].leader].replicas.leader(topic, index)

    def replica(self, number: BrokerId, topic: str, index: int = 0) -> Partition:
        found = self.brokers[number].replicas.find(topic, index)
        assert found is not None
        return found

    async def ask(self, number: BrokerId, request: Any) -> Any:
        return await self.client.get(self.image.brokers[number], "test").ask(request, 60_000)

    def _alter(self, number: BrokerId) -> Any:
        async def alter(wishes: list[tuple[Leader, IsrWish]]) -> AlterPartitionResponse:
            topics = []
            for leader, wish in wishes:
                self.wishes.append((leader.tp.topic, wish))
                row = AlterPartitionResult(leader.tp.partition, 107)
                isr = tuple(broker for broker, _ in wish.isr)
                partition = self.image.topics[leader.tp.topic].partitions[leader.tp.partition]
                if self.grants and wish.partition_epoch == partition.partition_epoch:
                    self.change(leader.tp.topic, leader.tp.partition, isr=isr)
                    epoch = self.image.topics[leader.tp.topic].partitions[leader.tp.partition].partition_epoch
                    row = AlterPartitionResult(
                        leader.tp.partition, 0, number, wish.leader_epoch, list(isr), 0, epoch
                    )
                topics.append(AlterPartitionTopicResult(leader.topic_id, [row]))
            return AlterPartitionResponse(topics=topics)

        return alter

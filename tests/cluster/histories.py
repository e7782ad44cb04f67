"""Makes clusters that live: random changes of an image, one after the other, as controllers and stores make them."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from uuid import UUID

from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
    PartitionImage,
    PartitionsAdded,
    PartitionsChanged,
    Recovery,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from barnabas.types import BrokerId, LeaderEpoch

BROKERS = [BrokerId(number) for number in range(1, 6)]
NAMES = ["a", "b", "c", "d.e"]


def histories(chance: Random, steps: int) -> Iterator[ClusterImage]:
    """Images of one cluster, each one step on from the last. Broker 1 is the first controller."""
    image = ClusterImage("c").after(
        [
            BrokerRegistered(BrokerImage(BrokerId(1), "one", 1, epoch=BrokerEpoch(1))),
            ControllerElected(BrokerId(1), ControllerEpoch(1)),
        ]
    )
    yield image
    for _ in range(steps):
        image = image.after([_change(image, chance)])
        if chance.random() < 0.3:
            image = image.after([_change(image, chance)])
        yield image


def _change(image: ClusterImage, chance: Random) -> Change:
    name = chance.choice(NAMES)
    topic = image.topics.get(name)
    broker = chance.choice(BROKERS)
    kind = chance.randrange(10)
    if kind == 0:
        return ControllerElected(chance.choice(BROKERS), ControllerEpoch(image.controller_epoch + 1))
    if kind == 1 and broker in image.brokers and len(image.brokers) > 1:
        return BrokerGone(broker)
    if kind <= 3:
        return BrokerRegistered(_broker(broker, image, chance))
    if topic is None:
        partitions = tuple(_partition(chance) for _ in range(chance.randrange(1, 4)))
        return TopicCreated(TopicImage(name, UUID(int=image.version + 1), partitions))
    if kind == 4:
        return TopicDeleted(name)
    if kind == 5:
        return PartitionsAdded(name, (_partition(chance),))
    changed = {
        index: replace(
            _partition(chance), leader_epoch=LeaderEpoch(partition.leader_epoch + chance.randrange(2))
        )
        for index, partition in enumerate(topic.partitions)
        if chance.random() < 0.5
    }
    return PartitionsChanged(name, changed)


def _broker(broker: BrokerId, image: ClusterImage, chance: Random) -> BrokerImage:
    return BrokerImage(
        broker,
        f"host{chance.randrange(3)}",
        chance.randrange(1, 9),
        chance.choice([None, "r1", "r2"]),
        BrokerEpoch(image.version + 1),
        chance.random() < 0.8,
    )


def _partition(chance: Random) -> PartitionImage:
    replicas = tuple(chance.sample(BROKERS, chance.randrange(1, 4)))
    isr = replicas[: chance.randrange(len(replicas) + 1)]
    return PartitionImage(
        replicas,
        isr,
        chance.choice([*isr, NO_BROKER]),
        adding=replicas[:1] if chance.random() < 0.2 else (),
        removing=replicas[-1:] if chance.random() < 0.2 else (),
        recovery=chance.choice(list(Recovery)),
        elr=replicas[len(isr) :] if chance.random() < 0.3 else (),
    )

"""What seeds have found, each told by itself: whole brokers, one fault after the other, no chance."""

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.cluster.image import PartitionImage
from barnabas.testing.disk import Survival
from barnabas.testing.simulation.client import SimulatedClient
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.types import BrokerId

TOPIC = "topic"


def run(story: Callable[[SimulatedCluster], Awaitable[None]], settings: dict[str, str]) -> None:
    cluster = SimulatedCluster(1, settings={"replica.lag.time.max.ms": "600", **settings})

    async def tell() -> None:
        for machine in cluster.machines:
            machine.start()
        await SimulatedClient(cluster.network, 3, TOPIC, "maker").create(1, 3, {})
        await story(cluster)

    try:
        cluster.run(tell())
    finally:
        cluster.close()


def partition_of(cluster: SimulatedCluster) -> PartitionImage | None:
    """The partition as the newest image has it."""
    brokers = [machine.broker for machine in cluster.machines if machine.broker is not None]
    topics = [topic for broker in brokers if (topic := broker.metadata.image.topics.get(TOPIC)) is not None]
    found = [topic.partitions[0] for topic in topics]
    return max(found, key=lambda each: (each.leader_epoch, each.partition_epoch), default=None)


async def until(
    cluster: SimulatedCluster, is_so: Callable[[PartitionImage], bool], seconds: float = 20
) -> None:
    """Let virtual time pass until the partition is as wanted."""
    for _ in range(int(seconds / 0.05)):
        partition = partition_of(cluster)
        if partition is not None and is_so(partition):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"after {seconds} s: {partition_of(cluster)}")


def test_a_broker_that_takes_the_chair_after_a_power_cut_still_has_its_partitions() -> None:
    """It asked itself which of them it lacks before its logs had been given roles: all of them, for ever."""

    async def story(cluster: SimulatedCluster) -> None:
        last, *others = cluster.machines
        await until(cluster, lambda partition: len(partition.isr) == 3)
        for machine in others:
            machine.kill()
        await until(cluster, lambda partition: partition.isr == (BrokerId(last.number),))
        last.cut_power(Survival.NOTHING)
        last.start()
        await until(cluster, lambda partition: partition.leader == last.number)

    run(story, {"min.insync.replicas": "1"})

"""What simulations have found, each told by itself: whole brokers, one fault after the other, no chance."""

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.cluster.image import NO_BROKER, PartitionImage
from barnabas.testing.disk import Survival
from barnabas.testing.simulation.client import SimulatedClient
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.machine import SimulatedMachine
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


async def lose_a_directory(cluster: SimulatedCluster, machine: SimulatedMachine) -> None:
    """A directory of the leader fails while it has no connection to ZooKeeper; another broker goes on."""
    broker = machine.broker
    assert broker is not None
    cluster.cut_from_zookeeper(machine, 0.5)
    found = broker.replicas.find(TOPIC, 0)
    assert found is not None
    broker.directories.failed(found.tp, OSError(5, "Input/output error"))
    await until(cluster, lambda partition: partition.leader not in (machine.number, NO_BROKER))


def controller_of(cluster: SimulatedCluster) -> SimulatedMachine:
    return next(m for m in cluster.machines if m.broker is not None and m.broker.metadata.is_controller)


def test_a_directory_of_the_controller_that_fails_while_zookeeper_is_away_is_not_forgotten() -> None:
    """It could not store that others lead now, and never tried again."""

    async def story(cluster: SimulatedCluster) -> None:
        await until(cluster, lambda partition: len(partition.isr) == 3)
        controller = controller_of(cluster)
        others = [machine for machine in cluster.machines if machine is not controller]
        for machine in others:
            machine.kill()
        await until(cluster, lambda partition: partition.leader == controller.number)
        for machine in others:
            machine.start()
        await until(cluster, lambda partition: len(partition.isr) == 3)
        await lose_a_directory(cluster, controller)

    run(story, {"min.insync.replicas": "1", "log.dirs": "data,more"})


def test_a_directory_of_another_broker_that_fails_while_zookeeper_is_away_is_not_forgotten() -> None:
    """It could not tell the controller, and never tried again."""

    async def story(cluster: SimulatedCluster) -> None:
        await until(cluster, lambda partition: len(partition.isr) == 3)
        partition = partition_of(cluster)
        assert partition is not None
        leader = cluster.machines[partition.leader - 1]
        assert leader is not controller_of(cluster)
        await lose_a_directory(cluster, leader)

    run(story, {"min.insync.replicas": "1", "log.dirs": "data,more"})

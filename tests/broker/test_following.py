"""How much a broker looks at when the cluster changes: what the change touches, however many topics there are."""

import asyncio
import sys
from uuid import UUID

import pytest

from barnabas.broker.coordinators.topic_facts import next_facts
from barnabas.broker.partitions.replicas import Replicas
from barnabas.clock import SystemClock
from barnabas.cluster.image import (
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
    Topics,
)
from barnabas.config import BrokerConfig, TopicConfig
from barnabas.log.directories import Directories
from barnabas.testing.disk import SimulatedDisk
from barnabas.types import BrokerId

HERE, ELSEWHERE = BrokerId(1), BrokerId(2)


class CountingReplicas(Replicas):
    """Notes each topic that is looked at."""

    def __init__(self, directories: Directories) -> None:
        super().__init__(HERE, directories, BrokerConfig(), lambda partition: None)
        self.visited: list[str] = []

    def topic_config(self, topic: TopicImage) -> TopicConfig:
        self.visited.append(topic.name)
        return super().topic_config(topic)


def topic(number: int, broker: BrokerId = ELSEWHERE) -> TopicImage:
    return TopicImage(f"t{number}", UUID(int=number + 1), (PartitionImage((broker,), (broker,), broker),))


CHANGES: dict[str, tuple[Change, list[str]]] = {
    "created": (TopicCreated(topic(99_999, HERE)), ["t99999"]),
    "configured": (TopicConfigured("t3", {"retention.ms": "5"}), ["t3"]),
    "grown": (PartitionsAdded("t3", topic(3).partitions), ["t3"]),
    "deleted": (TopicDeleted("t3"), []),
}


def followed(count: int, change: Change) -> tuple[list[str], int]:
    """The topics looked at for one change in a cluster of this size, and the calls of functions that it took."""
    calls = 0

    def count_calls(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    async def follow() -> list[str]:
        directories = Directories.open(SimulatedDisk(), ["/data"], node_id=HERE, clock=SystemClock())
        replicas = CountingReplicas(directories)
        image = ClusterImage("c", topics=Topics(map(topic, range(count))))
        await replicas.start(image)
        facts, _ = next_facts({}, None, image)
        replicas.visited.clear()
        sys.setprofile(count_calls)
        try:
            after = image.after([change])
            await replicas.follow(after)
            next_facts(facts, image, after)
        finally:
            sys.setprofile(None)
        return replicas.visited

    return asyncio.run(follow()), calls


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_makes_the_broker_look_at_the_topics_it_touches(name: str) -> None:
    change, touched = CHANGES[name]
    visited, calls = followed(10, change)
    assert visited == touched
    visited, many_calls = followed(20_000, change)
    assert visited == touched
    assert many_calls < calls + 500


def test_coordinators_hear_of_what_is_different_and_keep_their_facts_where_nothing_is() -> None:
    image = ClusterImage("c", topics=Topics(map(topic, range(1000))))
    facts, changes = next_facts({}, None, image)
    assert len(changes.grown) == 1000
    configured = image.after([TopicConfigured("t3", {"retention.ms": "5"})])
    same, changes = next_facts(facts, image, configured)
    assert same is facts
    assert not changes.grown
    assert not changes.gone
    remade = TopicImage("t5", UUID(int=55_555), topic(5).partitions)
    after = configured.after(
        [
            TopicDeleted("t3"),
            PartitionsAdded("t4", topic(4).partitions),
            TopicDeleted("t5"),
            TopicCreated(remade),
        ]
    )
    facts, changes = next_facts(facts, configured, after)
    assert changes.gone == {"t3", "t5"}
    assert changes.grown == {"t4", "t5"}
    assert dict(facts) == {name: (t.id, len(t.partitions)) for name, t in after.topics.items()}

"""How a broker's picture of the cluster follows a store that others change too."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from barnabas.broker.metadata import PRODUCER_ID_BLOCK, Metadata
from barnabas.cluster.controller import WantedTopic, create_topic
from barnabas.cluster.image import BrokerImage, Change, ClusterImage, ProducerIdsTaken
from barnabas.config import BrokerConfig
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing.store import MemoryCluster, MemoryStore
from barnabas.types import BrokerId, ProducerId

ONE, TWO = BrokerId(1), BrokerId(2)
DEADLINE_S = 30.0


class Picture:
    """Mutable: a broker's metadata over one session of a store, and what it has followed."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.store = cluster.open()
        self.store.register(BrokerImage(ONE, "localhost", 1))
        self.store.claim(ONE)
        self.followed: list[ClusterImage] = []
        self.failures: list[BarnabasError] = []
        self._more = asyncio.Event()
        self.metadata = Metadata(self.store, self._follow, on_failure=self.failures.append)

    async def _follow(self, image: ClusterImage) -> None:
        await asyncio.sleep(0)
        self.followed.append(image)
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._more.clear()
                await self._more.wait()
                await asyncio.sleep(0)

    async def create(self, name: str) -> None:
        await self.metadata.change(lambda image: wanted(image, name))


def wanted(image: ClusterImage, name: str) -> list[Change]:
    return create_topic(image, WantedTopic(name, uuid.uuid4()), BrokerConfig())


def told(store: MemoryStore) -> None:
    store.register(BrokerImage(TWO, "localhost", 2))


def run(story: Callable[[MemoryCluster, Picture], Awaitable[None]]) -> None:
    async def told() -> None:
        cluster = MemoryCluster()
        await story(cluster, Picture(cluster))

    asyncio.run(told())


def test_what_others_change_is_followed_and_then_shown() -> None:
    async def story(cluster: MemoryCluster, picture: Picture) -> None:
        other = cluster.open()
        told(other)
        await picture.until(lambda: set(picture.metadata.image.brokers) == {ONE, TWO})
        other.expire()
        await picture.until(lambda: set(picture.metadata.image.brokers) == {ONE})
        assert picture.followed[-1] is picture.metadata.image

    run(story)


def test_a_change_that_was_decided_on_an_old_image_is_decided_again() -> None:
    async def story(cluster: MemoryCluster, picture: Picture) -> None:
        decided: list[set[BrokerId]] = []

        def decide(image: ClusterImage) -> list[Change]:
            if not decided:
                told(cluster.open())  # while we decide, another broker comes
            decided.append(set(image.brokers))
            return wanted(image, "t")

        await picture.metadata.change(decide)
        assert decided == [{ONE}, {ONE, TWO}]
        assert "t" in picture.metadata.image.topics
        versions = [image.version for image in picture.followed]
        assert versions == sorted(set(versions))

    run(story)


def test_a_change_is_visible_when_it_returns_and_followed_once() -> None:
    async def story(cluster: MemoryCluster, picture: Picture) -> None:
        for name in ("a", "b", "c"):
            await picture.create(name)
            assert name in picture.metadata.image.topics
        await picture.metadata.finish()
        assert [len(image.topics) for image in picture.followed] == [1, 2, 3]

    run(story)


def test_a_broker_that_is_not_the_controller_any_more_says_so() -> None:
    async def story(cluster: MemoryCluster, picture: Picture) -> None:
        picture.store.expire()
        with pytest.raises(Refused) as refused:
            await picture.metadata.change(lambda image: [ProducerIdsTaken(ProducerId(1))])
        assert refused.value.code is Code.NOT_CONTROLLER
        assert not picture.failures

    run(story)


def test_a_store_that_cannot_be_reached_refuses_changes_and_works_again_when_it_can() -> None:
    async def story(cluster: MemoryCluster, picture: Picture) -> None:
        picture.store.cut()
        with pytest.raises(Refused) as refused:
            await picture.create("t")
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        assert not picture.failures
        told(cluster.open())
        picture.store.heal()
        await picture.create("t")
        assert set(picture.metadata.image.brokers) == {ONE, TWO}

    run(story)


def test_a_block_of_producer_ids_that_could_not_be_stored_is_not_used() -> None:
    async def story(cluster: MemoryCluster, picture: Picture) -> None:
        cluster.change([ProducerIdsTaken(ProducerId(70))])
        picture.store.cut()
        with pytest.raises(Refused):
            await picture.metadata.new_producer_id()
        cluster.change([ProducerIdsTaken(ProducerId(80))])
        picture.store.heal()
        ids = [await picture.metadata.new_producer_id() for _ in range(PRODUCER_ID_BLOCK + 1)]
        assert ids == list(range(80, 80 + PRODUCER_ID_BLOCK + 1))
        assert picture.metadata.image.next_producer_id == 80 + 2 * PRODUCER_ID_BLOCK

    run(story)

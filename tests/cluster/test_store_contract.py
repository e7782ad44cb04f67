"""What every metadata store promises (barnabas.cluster.store). A new adapter joins by a row in ADAPTERS."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.cluster.controller import WantedTopic, create_topic, delete_topic
from barnabas.cluster.image import (
    NO_BROKER,
    BrokerImage,
    BrokersConfigured,
    Change,
    ClusterImage,
    PartitionsChanged,
    ProducerIdsTaken,
    TopicConfigured,
)
from barnabas.cluster.local import LocalStore
from barnabas.cluster.store import (
    ClaimLost,
    Deposed,
    DirectoryFailed,
    Event,
    Stale,
    Store,
    TopicSettings,
    Update,
)
from barnabas.cluster.zookeeper import ZooKeeperStore
from barnabas.config import BrokerConfig
from barnabas.disk import RealDisk
from barnabas.testing.store import MemoryCluster, MemoryStore
from barnabas.testing.zookeeper import FakeZooKeeper
from barnabas.types import BrokerId, LeaderEpoch, ProducerId
from tests.deadline import eventually

ONE, TWO = BrokerId(1), BrokerId(2)
CONFIG = BrokerConfig()


class Adapter(ABC):
    """How a test gets stores of one cluster, and makes it end and come back."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._opened: list[Store] = []

    def open(self) -> Store:
        """A store for one more broker; for an adapter of one broker only after the last one was closed."""
        self._opened.append(self._open())
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()

    @abstractmethod
    def _open(self) -> Store: ...


class Embedded(Adapter):
    def _open(self) -> Store:
        folder: Path = self._request.getfixturevalue("tmp_path")
        return LocalStore(RealDisk(), str(folder), "c")


class InMemory(Adapter):
    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._cluster = MemoryCluster("c")

    def _open(self) -> Store:
        return self._cluster.open()


class InFakeZooKeeper(Adapter):
    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._zookeeper = FakeZooKeeper()

    def _open(self) -> Store:
        return ZooKeeperStore(self._zookeeper.open(), None, "c")


class InZooKeeper(Adapter):
    def _open(self) -> Store:
        from barnabas.cluster.zookeeper.kazoo_client import KazooZooKeeper

        connect = self._request.getfixturevalue("zookeeper_connect")
        return ZooKeeperStore(KazooZooKeeper(connect, 10_000, 10_000), None, "c", creates_chroot=True)


REAL = pytest.param(InZooKeeper, marks=pytest.mark.java)
OF_SEVERAL = [InMemory, InFakeZooKeeper, REAL]
"""Those that serve more than one broker."""
ADAPTERS = [Embedded, *OF_SEVERAL]


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    made: Adapter = request.param(request)
    yield made
    made.close()


@pytest.fixture(params=OF_SEVERAL)
def several(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    made: Adapter = request.param(request)
    yield made
    made.close()


@pytest.fixture
def store(adapter: Adapter) -> Store:
    return adapter.open()


def broker(number: BrokerId) -> BrokerImage:
    return BrokerImage(number, "localhost", 9000 + number)


def controlling(store: Store, number: BrokerId = ONE) -> Store:
    store.register(broker(number))
    assert store.claim(number) is not None
    return store


def wanted(image: ClusterImage, name: str) -> list[Change]:
    return create_topic(image, WantedTopic(name, uuid.uuid4(), 2), CONFIG)


def commit(store: Store, changes: list[Change]) -> ClusterImage:
    return store.commit(changes, store.image.version)


def create(store: Store, name: str) -> ClusterImage:
    return commit(store, wanted(store.image, name))


def heard(store: Store) -> list[Event]:
    events: list[Event] = []
    store.subscribe(events.append)
    return events


def images(events: list[Event]) -> list[ClusterImage]:
    return [event.image for event in events if isinstance(event, Update)]


def test_a_commit_gives_the_image_that_its_changes_lead_to(store: Store) -> None:
    before = controlling(store).image
    changes = wanted(before, "t")
    after = store.commit(changes, before.version)
    assert after.topics == before.after(changes).topics
    assert after.version > before.version
    assert store.image.version >= after.version


def test_the_feed_tells_every_commit_in_its_order(store: Store) -> None:
    controlling(store)
    events = heard(store)
    for number in range(5):
        create(store, f"t{number}")
    commit(store, delete_topic(store.image, "t0", CONFIG))
    last = store.image
    eventually(lambda: images(events) and images(events)[-1] == last, "the last image to be told")
    versions = [image.version for image in images(events)]
    assert versions == sorted(set(versions))
    assert set(images(events)[-1].topics) == {"t1", "t2", "t3", "t4"}


def test_a_commit_decided_on_an_older_image_changes_nothing_and_the_newer_one_is_known(store: Store) -> None:
    old = controlling(store).image
    create(store, "t")
    with pytest.raises(Stale):
        store.commit(wanted(old, "t"), old.version)
    assert store.image.version > old.version
    (kept,) = store.image.topics.values()
    partition = replace(kept.partitions[0], leader=NO_BROKER, leader_epoch=LeaderEpoch(1))
    now = store.image
    store.commit([PartitionsChanged("t", {0: partition})], now.version)
    with pytest.raises(Stale):
        store.commit([PartitionsChanged("t", {0: kept.partitions[0]})], now.version)
    assert store.image.topics["t"].partitions[0].leader == NO_BROKER


def test_a_partition_counts_its_changes_one_by_one(store: Store) -> None:
    create(controlling(store), "t")
    for count in (1, 2, 3):
        partition = replace(
            store.image.topics["t"].partitions[1], isr=(ONE,), leader_epoch=LeaderEpoch(count)
        )
        after = commit(store, [PartitionsChanged("t", {1: partition})])
        assert [p.partition_epoch for p in after.topics["t"].partitions] == [0, count]


def test_without_a_claim_nothing_can_be_committed(store: Store) -> None:
    store.register(broker(ONE))
    with pytest.raises(Deposed):
        create(store, "t")
    assert not store.image.topics


def test_a_broker_that_registers_again_has_a_larger_epoch(store: Store) -> None:
    events = heard(store)
    first = store.register(broker(ONE))
    assert store.image.brokers[ONE] == broker(ONE)._replace(epoch=first)
    second = store.register(broker(ONE))
    assert second > first
    eventually(lambda: len(images(events)) >= 2, "both registrations to be told")
    assert images(events)[-1].brokers[ONE].epoch == second


def test_a_claim_shows_the_controller_and_its_epoch(store: Store) -> None:
    assert store.image.controller == NO_BROKER
    store.register(broker(ONE))
    epoch = store.claim(ONE)
    assert epoch is not None
    assert epoch > 0
    assert (store.image.controller, store.image.controller_epoch) == (ONE, epoch)


def test_topics_and_settings_outlive_the_store_and_brokers_do_not(adapter: Adapter) -> None:
    store = controlling(adapter.open())
    create(store, "t")
    commit(store, [ProducerIdsTaken(ProducerId(3000)), BrokersConfigured("", {"max.connections": "5"})])
    before = store.image
    store.close()
    store = adapter.open()
    assert store.image.broker_configs == {"": {"max.connections": "5"}}
    assert not store.image.brokers
    assert store.image.controller == NO_BROKER
    assert store.image.version >= before.version
    epoch = store.register(broker(ONE))
    assert epoch > before.brokers[ONE].epoch
    claimed = store.claim(ONE)
    assert claimed is not None
    assert claimed > before.controller_epoch
    assert store.image.topics == before.topics
    assert store.image.next_producer_id == 3000


def test_a_notice_reaches_the_controller(store: Store) -> None:
    controlling(store)
    events = heard(store)
    store.tell(DirectoryFailed(ONE))
    eventually(lambda: DirectoryFailed(ONE) in events, "the notice to be heard")


def test_a_store_that_is_closed_tells_nothing(adapter: Adapter) -> None:
    store = controlling(adapter.open())
    events = heard(store)
    store.close()
    assert not [event for event in events if isinstance(event, ClaimLost)]


def test_one_of_several_is_the_controller_and_the_next_one_has_a_larger_epoch(several: Adapter) -> None:
    one, two = several.open(), several.open()
    controlling(one, ONE)
    two.register(broker(TWO))
    assert two.claim(TWO) is None
    with pytest.raises(Deposed):
        create(two, "t")
    first = one.image.controller_epoch
    one.close()
    eventually(lambda: two.image.controller == NO_BROKER, "the controller to be gone")
    second = two.claim(TWO)
    assert second is not None
    assert second > first
    create(two, "t")


def test_brokers_that_come_and_go_are_heard_of_by_the_controller(several: Adapter) -> None:
    one, two = several.open(), several.open()
    controlling(one)
    events = heard(one)
    two.register(broker(TWO))
    eventually(lambda: set(one.image.brokers) == {ONE, TWO}, "the second broker to come")
    two.close()
    eventually(lambda: set(one.image.brokers) == {ONE}, "the second broker to go")
    eventually(lambda: len(images(events)) >= 2, "both to be told")
    assert [set(image.brokers) for image in images(events)[-2:]] == [{ONE, TWO}, {ONE}]


def test_the_next_controller_sees_what_the_last_one_has_committed(several: Adapter) -> None:
    one, two = several.open(), several.open()
    create(controlling(one), "t")
    commit(one, [PartitionsChanged("t", {1: replace(one.image.topics["t"].partitions[1], isr=())})])
    topics = one.image.topics
    one.close()
    two.register(broker(TWO))
    eventually(lambda: two.claim(TWO), "the controller to be gone")
    assert two.image.topics == topics
    assert set(two.image.brokers) == {TWO}


def test_every_broker_learns_of_settings(several: Adapter) -> None:
    one, two = several.open(), several.open()
    create(controlling(one), "t")
    events = heard(two)
    commit(
        one, [TopicConfigured("t", {"retention.ms": "5"}), BrokersConfigured("2", {"max.connections": "5"})]
    )
    eventually(lambda: two.image.broker_configs == {"2": {"max.connections": "5"}}, "the settings of brokers")

    def is_told(event: Event) -> bool:
        match event:
            case TopicSettings("t", configs):
                return configs == {"retention.ms": "5"}
            case Update(image):
                return "t" in image.topics and image.topics["t"].configs == {"retention.ms": "5"}
        return False

    eventually(lambda: any(map(is_told, events)), "the settings of the topic")
    assert two.topic_configs(["t", "unknown"]) == [{"retention.ms": "5"}, {}]


def test_a_notice_waits_for_the_next_controller(several: Adapter) -> None:
    one, two = several.open(), several.open()
    one.register(broker(ONE))
    one.tell(DirectoryFailed(ONE))
    events = heard(two)
    controlling(two, TWO)
    eventually(lambda: DirectoryFailed(ONE) in events, "the notice to be heard")


# What only a simulated network does


def sessions() -> tuple[MemoryCluster, MemoryStore, MemoryStore]:
    cluster = MemoryCluster()
    return cluster, cluster.open(), cluster.open()


def test_a_store_that_was_cut_off_reads_everything_again() -> None:
    _, one, two = sessions()
    controlling(one)
    events = heard(two)
    two.cut()
    create(one, "t")
    with pytest.raises(OSError, match="not connected"):
        two.register(broker(TWO))
    assert not events
    assert "t" not in two.image.topics
    two.heal()
    assert events == [Update(one.image, is_whole=True)]


def test_a_controller_that_comes_back_after_its_session_is_deposed() -> None:
    _, one, two = sessions()
    controlling(one, ONE)
    events = heard(one)
    one.cut()
    one.expire()
    assert two.image.brokers == {}
    controlling(two, TWO)
    create(two, "t")
    assert not events
    one.heal()
    assert events == [ClaimLost(one.image.controller_epoch - 1), Update(two.image, is_whole=True)]  # type: ignore[arg-type]
    with pytest.raises(Deposed):
        create(one, "u")
    assert one.claim(ONE) is None


def test_a_controller_whose_session_lives_on_keeps_its_claim_over_a_cut() -> None:
    _, one, two = sessions()
    controlling(one, ONE)
    one.cut()
    two.register(broker(TWO))
    two.tell(DirectoryFailed(TWO))
    events = heard(one)
    one.heal()
    assert events == [Update(two.image, is_whole=True), DirectoryFailed(TWO)]
    create(one, "t")


def test_a_controller_that_is_proven_dead_is_deposed_before_its_session_ends(several: Adapter) -> None:
    old, new = controlling(several.open(), ONE), several.open()
    lost = heard(old)
    new.register(broker(TWO))
    eventually(lambda: new.image.controller == ONE, "the controller to be known")
    assert new.claim(TWO, over=TWO) is None  # not the one that has the claim
    epoch = new.claim(TWO, over=ONE)
    assert epoch is not None
    with pytest.raises(Deposed):
        commit(old, wanted(old.image, "t"))
    eventually(lambda: any(isinstance(event, ClaimLost) for event in lost), "the claim to be lost")
    assert create(new, "t").topics["t"]
    for store in (old, new):
        store.close()

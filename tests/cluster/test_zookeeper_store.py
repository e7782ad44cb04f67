"""A store in ZooKeeper through what a network and a quorum do to it, with a fake ZooKeeper that does so on command."""

import logging
import uuid
from dataclasses import replace

import pytest

from barnabas.cluster.image import (
    NO_BROKER,
    BrokerGone,
    BrokerImage,
    BrokersConfigured,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    ProducerIdsTaken,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from barnabas.cluster.store import (
    ClaimLost,
    Deposed,
    DirectoryFailed,
    ElectionWanted,
    Event,
    IsrChanged,
    OutcomeUnknown,
    ReassignmentWanted,
    Registered,
    Stale,
    TopicSettings,
    Update,
)
from barnabas.cluster.zookeeper import ZooKeeperStore, znodes
from barnabas.cluster.zookeeper.client import Create, Delete, SetData, ZkOperation
from barnabas.errors import BarnabasError
from barnabas.testing.zookeeper import FakeSession, FakeZooKeeper
from barnabas.types import BrokerId, LeaderEpoch, ProducerId, TopicPartition

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TP = TopicPartition("t", 0)


class Cluster:
    """Mutable: stores over one fake ZooKeeper, what each of them has told, and a clock to turn."""

    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper()
        self.now = 0.0

    def open(self, directory: str = "") -> tuple[ZooKeeperStore, FakeSession, list[Event]]:
        session = self.zookeeper.open()
        store = ZooKeeperStore(session, None, "c", directory=directory, monotonic=lambda: self.now)
        events: list[Event] = []
        store.subscribe(events.append)
        return store, session, events

    def controller(self, number: BrokerId = ONE) -> tuple[ZooKeeperStore, FakeSession, list[Event]]:
        store, session, events = self.open()
        store.register(broker(number))
        assert store.claim(number) is not None
        events.clear()
        return store, session, events

    def do(self, *operations: ZkOperation) -> None:
        """What a tool does."""
        session = self.zookeeper.open()
        session.start(lambda state: None, lambda path: None)
        session.multi(operations)
        session.close()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def broker(number: BrokerId, port: int = 9092) -> BrokerImage:
    return BrokerImage(number, "localhost", port)


def topic(name: str, partitions: int = 1) -> TopicImage:
    made = tuple(PartitionImage((ONE, TWO), (ONE, TWO), ONE) for _ in range(partitions))
    return TopicImage(name, uuid.uuid4(), made)


def create(store: ZooKeeperStore, name: str, partitions: int = 1) -> ClusterImage:
    return store.commit([TopicCreated(topic(name, partitions))], store.image.version)


def kinds(events: list[Event]) -> list[type]:
    return [type(event) for event in events]


# Connections and sessions


def test_a_lost_connection_costs_nothing_but_a_second_look(cluster: Cluster) -> None:
    store, session, events = cluster.controller()
    other, _, _ = cluster.open()
    session.cut()
    other.register(broker(TWO))
    with pytest.raises(OSError, match="no connection"):
        create(store, "t")
    assert events == []
    epoch = store.image.brokers[ONE].epoch
    session.heal()
    assert events == [Update(store.image, is_whole=True)]
    assert set(store.image.brokers) == {ONE, TWO}
    assert store.image.brokers[ONE].epoch == epoch
    create(store, "t")


def test_watches_are_set_again_after_a_lost_connection(cluster: Cluster) -> None:
    store, session, _ = cluster.controller()
    create(store, "t")
    session.cut()
    session.heal()
    other, _, _ = cluster.open()
    other.register(broker(TWO))
    assert TWO in store.image.brokers
    other.tell(DirectoryFailed(TWO))
    cluster.do(
        SetData(znodes.topic_path("t"), znodes.encode_topic(uuid.uuid4(), [topic("t").partitions[0]] * 2))
    )
    assert len(store.image.topics["t"].partitions) == 2
    cluster.do(Delete(znodes.CONTROLLER))
    assert store.image.controller == NO_BROKER


def test_an_ended_session_registers_anew_and_loses_the_claim(cluster: Cluster) -> None:
    store, session, events = cluster.controller()
    create(store, "t")
    events.clear()
    claimed, lived = store.image.controller_epoch, store.image.brokers[ONE].epoch
    session.expire()
    assert kinds(events) == [ClaimLost, Update, Registered]
    assert events[0] == ClaimLost(claimed)
    assert events[2] == Registered(store.image.brokers[ONE].epoch)
    assert store.image.brokers[ONE].epoch > lived
    assert store.image.topics == {}
    with pytest.raises(Deposed):
        create(store, "u")
    assert store.claim(ONE) == claimed + 1
    assert set(store.image.topics) == {"t"}


def test_a_controller_without_a_connection_for_longer_than_its_session_gives_up(cluster: Cluster) -> None:
    store, session, events = cluster.controller()
    session.cut()
    cluster.now += 5.9
    with pytest.raises(OSError, match="no connection"):
        create(store, "t")
    cluster.now += 0.2
    with pytest.raises(Deposed, match="longer than the session lasts"):
        create(store, "t")
    assert kinds(events) == [ClaimLost]
    session.heal()
    # The session lived on, and so did the node of the claim: it is dropped, so that one broker can claim anew.
    assert store.image.controller == NO_BROKER
    assert store.claim(ONE) is not None


def test_a_commit_without_an_answer_is_unknown_and_the_next_image_tells(cluster: Cluster) -> None:
    store, session, events = cluster.controller()
    session.lose_next_answer()
    with pytest.raises(OutcomeUnknown):
        create(store, "t")
    assert events == [Update(store.image, is_whole=True)]
    assert set(store.image.topics) == {"t"}
    create(store, "u")


def test_a_claim_without_an_answer_leaves_no_controller_that_does_not_know_it(cluster: Cluster) -> None:
    store, session, _ = cluster.open()
    store.register(broker(ONE))
    session.lose_next_answer()
    with pytest.raises(OutcomeUnknown):
        store.claim(ONE)
    assert store.image.controller == NO_BROKER
    assert store.claim(ONE) is not None


def test_a_registration_without_an_answer_is_found_by_its_session(cluster: Cluster) -> None:
    store, session, _ = cluster.open()
    session.lose_next_answer()
    epoch = store.register(broker(ONE))
    (node,) = session.read([znodes.broker_path(ONE)])
    assert node is not None
    assert node.created == epoch


# Registrations


def test_a_taken_id_is_a_sentence_with_the_holders_address(cluster: Cluster) -> None:
    cluster.open("machine:/one")[0].register(broker(ONE, 7777))
    with pytest.raises(BarnabasError, match=r"broker.id 1 is taken: the broker at localhost:7777 has it"):
        cluster.open("machine:/two")[0].register(broker(ONE))


def test_a_broker_that_comes_back_takes_the_place_of_its_last_life_at_once(cluster: Cluster) -> None:
    controller, _, _ = cluster.controller(TWO)
    first = cluster.open("machine:/data")[0].register(broker(ONE))
    second = cluster.open("machine:/data")[0].register(broker(ONE))
    assert second > first
    assert controller.image.brokers[ONE].epoch == second


def test_a_broker_that_was_given_up_wrongly_registers_anew(cluster: Cluster) -> None:
    controller, _, _ = cluster.controller(TWO)
    store, _, events = cluster.open()
    epoch = store.register(broker(ONE))
    controller.commit([BrokerGone(ONE)], controller.image.version)
    renewed = controller.image.brokers[ONE].epoch
    assert renewed > epoch
    assert events[-1] == Registered(renewed)


# Claims


def test_the_next_controller_knows_which_lives_began_after_a_partition_was_made(cluster: Cluster) -> None:
    first, _, _ = cluster.controller()
    other, _, _ = cluster.open()
    other.register(broker(TWO))
    create(first, "t")
    first.close()
    again, _, _ = cluster.open()
    again.register(broker(ONE))
    assert other.claim(TWO) is not None
    (partition,) = other.image.topics["t"].partitions
    lives = {number: each.epoch for number, each in other.image.brokers.items()}
    assert partition.may_lack_on(TWO, lives[TWO]), "it may not have been told yet"
    assert not partition.may_lack_on(ONE, lives[ONE])


def test_a_claim_that_is_taken_away_by_hand_is_lost(cluster: Cluster) -> None:
    store, _, events = cluster.controller()
    cluster.do(Delete(znodes.CONTROLLER))
    assert kinds(events) == [ClaimLost, Update]
    assert store.image.controller == NO_BROKER


def test_a_deposed_controller_that_has_heard_nothing_changes_nothing(cluster: Cluster) -> None:
    store, _, events = cluster.controller()
    cluster.do(SetData(znodes.CONTROLLER_EPOCH, b"7"))
    with pytest.raises(Deposed):
        create(store, "t")
    assert ClaimLost in kinds(events)
    assert znodes.topic_path("t") not in cluster.zookeeper.paths()


# Topics


def test_a_change_that_was_decided_on_something_else_is_stale_and_the_image_is_newer(
    cluster: Cluster,
) -> None:
    store, _, _ = cluster.controller()
    create(store, "t")
    before = store.image
    cluster.do(
        SetData(
            znodes.state_path("t", 0), znodes.encode_state(topic("t").partitions[0], before.controller_epoch)
        )
    )
    changed = replace(before.topics["t"].partitions[0], leader=TWO)
    with pytest.raises(Stale):
        store.commit([PartitionsChanged("t", {0: changed})], before.version)
    assert store.image.version > before.version
    assert store.image.topics["t"].partitions[0].partition_epoch == 1
    after = store.commit([PartitionsChanged("t", {0: changed})], store.image.version)
    assert after.topics["t"].partitions[0].leader == TWO
    assert after.topics["t"].partitions[0].partition_epoch == 2


def test_a_topic_that_a_tool_makes_gets_states_from_the_controller(cluster: Cluster) -> None:
    store, _, events = cluster.controller()
    cluster.do(Create(znodes.topic_path("t"), b'{"version":1,"partitions":{"0":[1,2]}}'))
    found = store.image.topics["t"].partitions[0]
    assert (found.replicas, found.isr, found.leader, found.leader_epoch) == (
        (ONE, TWO),
        (ONE, TWO),
        NO_BROKER,
        -1,
    )
    settled = replace(found, leader=ONE, leader_epoch=LeaderEpoch(0))
    after = store.commit([PartitionsChanged("t", {0: settled})], store.image.version)
    assert after.topics["t"].partitions[0].partition_epoch == 0
    again, _, _ = cluster.open()
    again.register(broker(TWO))
    assert again.claim(TWO, over=ONE) is not None
    assert again.image.topics == after.topics
    assert Update in kinds(events)


def test_a_deletion_that_a_tool_asks_for_or_a_controller_began_is_ended(cluster: Cluster) -> None:
    store, _, _ = cluster.controller()
    create(store, "t", 3)
    cluster.do(Delete(znodes.state_path("t", 1)), Create(znodes.delete_path("t")))
    assert store.image.topics == {}
    left = [path for path in cluster.zookeeper.paths() if path.endswith("/t") or "/t/" in path]
    assert left == []
    assert create(store, "t").topics["t"]


def test_a_large_topic_comes_and_goes_in_several_multis(cluster: Cluster) -> None:
    store, _, _ = cluster.controller()
    image = create(store, "t", 1200)
    assert len(image.topics["t"].partitions) == 1200
    again, _, _ = cluster.open()
    again.register(broker(TWO))
    assert again.claim(TWO, over=ONE) is not None
    assert again.image.topics == image.topics
    again.commit([TopicDeleted("t")], again.image.version)
    assert not [path for path in cluster.zookeeper.paths() if path.endswith("/t") or "/t/" in path]


def test_damaged_nodes_cost_themselves_only(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    store, _, _ = cluster.controller()
    create(store, "whole")
    create(store, "bad")
    create(store, "half", 2)
    cluster.do(SetData(znodes.topic_path("bad"), b"{"), SetData(znodes.state_path("half", 1), b"[]"))
    again, _, _ = cluster.open()
    with caplog.at_level(logging.ERROR):
        assert again.claim(TWO, over=ONE) is not None
    assert set(again.image.topics) == {"whole", "half"}
    assert [p.isr for p in again.image.topics["half"].partitions] == [(ONE, TWO), ()]
    assert len(set(caplog.messages)) == 2
    assert all("is damaged" in message for message in caplog.messages)


def test_a_topic_that_is_too_large_for_zookeeper_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    store, _, _ = cluster.controller()
    huge = TopicImage("t", uuid.uuid4(), (PartitionImage(tuple(map(BrokerId, range(200_000))), (ONE,), ONE),))
    before = cluster.zookeeper.paths()
    with pytest.raises(OSError, match="larger than ZooKeeper takes"):
        store.commit([TopicCreated(huge)], store.image.version)
    assert [path for path in cluster.zookeeper.paths() if path not in before] in ([], ["/config/topics/t"])
    assert create(store, "t").topics["t"]


def test_nodes_that_were_removed_by_hand_are_made_again(cluster: Cluster) -> None:
    store, _, _ = cluster.controller()
    cluster.do(Delete(znodes.PRODUCER_ID_BLOCK))
    with pytest.raises(Stale):
        store.commit([ProducerIdsTaken(ProducerId(1000))], store.image.version)
    image = store.commit([ProducerIdsTaken(ProducerId(1000))], store.image.version)
    assert image.next_producer_id == 1000


# Settings, notices and wishes


def test_settings_of_topics_are_told_to_brokers_that_were_away(cluster: Cluster) -> None:
    controller, _, _ = cluster.controller()
    create(controller, "t")
    _, session, events = cluster.open()
    session.cut()
    controller.commit([TopicConfigured("t", {"a": "b"})], controller.image.version)
    controller.commit([BrokersConfigured("2", {"c": "d"})], controller.image.version)
    assert events == []
    session.heal()
    assert kinds(events) == [Update, TopicSettings]
    assert events[1] == TopicSettings("t", {"a": "b"})


def test_settings_are_told_once(cluster: Cluster) -> None:
    controller, _, _ = cluster.controller()
    create(controller, "t")
    _, session, events = cluster.open()
    for value in "12":
        controller.commit([TopicConfigured("t", {"a": value})], controller.image.version)
    session.cut()
    session.heal()
    assert [event.configs for event in events if isinstance(event, TopicSettings)] == [{"a": "1"}, {"a": "2"}]


def test_where_notices_are_gone_all_settings_are_told(cluster: Cluster) -> None:
    controller, _, _ = cluster.controller()
    create(controller, "t")
    create(controller, "u")
    _, session, events = cluster.open()
    session.cut()
    for value in "12":
        controller.commit([TopicConfigured("t", {"a": value})], controller.image.version)
    gone = [path for path in cluster.zookeeper.paths() if path.startswith(znodes.CONFIG_CHANGE)]
    cluster.do(Delete(gone[0]))
    session.heal()
    told = [event for event in events if isinstance(event, TopicSettings)]
    assert told == [TopicSettings("t", {"a": "2"}), TopicSettings("u", {})]


def test_a_tool_that_changes_settings_is_followed_by_the_controller(cluster: Cluster) -> None:
    store, _, events = cluster.controller()
    create(store, "t")
    events.clear()
    cluster.do(
        SetData(znodes.config_path("topics/t"), znodes.encode_configs({"a": "b"})),
        Create(znodes.CONFIG_CHANGE, znodes.encode_config_change("topics/t"), is_sequential=True),
    )
    assert store.image.topics["t"].configs == {"a": "b"}
    assert kinds(events) == [Update]


def test_notices_are_told_once_and_taken_away(cluster: Cluster) -> None:
    store, _, events = cluster.controller()
    create(store, "t")
    events.clear()
    other, _, _ = cluster.open()
    other.tell(IsrChanged((TP,)))
    other.tell(DirectoryFailed(TWO))
    assert events == [IsrChanged((TP,)), DirectoryFailed(TWO)]
    assert not [
        path
        for path in cluster.zookeeper.paths()
        if path.startswith((znodes.ISR_NOTICE, znodes.DIRECTORY_NOTICE))
    ]


def test_an_isr_notice_brings_the_state_that_it_is_about(cluster: Cluster) -> None:
    store, _, events = cluster.controller()
    create(store, "t")
    events.clear()
    shrunk = replace(store.image.topics["t"].partitions[0], isr=(ONE,))
    cluster.do(
        SetData(znodes.state_path("t", 0), znodes.encode_state(shrunk, store.image.controller_epoch)),
        Create(znodes.ISR_NOTICE, znodes.encode_isr_notice([TP]), is_sequential=True),
    )
    assert kinds(events) == [Update, IsrChanged]
    assert store.image.topics["t"].partitions[0].isr == (ONE,)


def test_what_tools_wish_is_told_and_taken_away(cluster: Cluster) -> None:
    _, _, events = cluster.controller()
    for _ in range(2):
        cluster.do(Create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({TP: [TWO]})))
        cluster.do(Create(znodes.PREFERRED_ELECTION, znodes.encode_isr_notice([TP])))
    assert events == [ReassignmentWanted({TP: (TWO,)}), ElectionWanted((TP,))] * 2
    assert znodes.REASSIGN_PARTITIONS not in cluster.zookeeper.paths()


# Wrong set-ups


def test_data_of_another_cluster_is_a_sentence_and_changes_nothing() -> None:
    zookeeper = FakeZooKeeper()
    with pytest.raises(
        BarnabasError, match="belongs to cluster mine, and ZooKeeper at fake has no cluster yet"
    ):
        ZooKeeperStore(zookeeper.open(), "mine", "new")
    assert zookeeper.paths() == ["/"]
    ZooKeeperStore(zookeeper.open(), None, "theirs").close()
    before = zookeeper.paths()
    with pytest.raises(
        BarnabasError, match="belongs to cluster mine, and ZooKeeper at fake has cluster theirs"
    ):
        ZooKeeperStore(zookeeper.open(), "mine", "new")
    assert zookeeper.paths() == before
    assert ZooKeeperStore(zookeeper.open(), "theirs", "new").image.cluster_id == "theirs"

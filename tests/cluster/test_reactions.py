"""What a controller does about brokers that come, go, stop and lose partitions, and how much it looks at for that."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cluster.deciding import Decision, Facts
from barnabas.cluster.elections import ElectionType
from barnabas.cluster.hosted import HostedState
from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from barnabas.cluster.reactions import (
    balanced,
    elect_leaders,
    give_way,
    let_stop,
    lose,
    reactions,
    settle,
    still_led,
)
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def registered(broker: BrokerId, epoch: int, *, survived: bool = True) -> BrokerRegistered:
    return BrokerRegistered(BrokerImage(broker, "h", 1, epoch=BrokerEpoch(epoch), survived=survived))


def replicas(*brokers: BrokerId) -> PartitionImage:
    return PartitionImage(brokers, brokers, brokers[0])


def cluster(*partitions: PartitionImage, configs: Mapping[str, str] | None = None) -> ClusterImage:
    topic = TopicImage("t", UUID(int=1), partitions, configs or {})
    brokers: list[Change] = [registered(broker, 10 + broker) for broker in (ONE, TWO, THREE)]
    return ClusterImage("c").after([*brokers, TopicCreated(topic)])


class Controller:
    """Mutable: follows a cluster and does what the decisions say."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.hosted = HostedState()
        self.facts = Facts()
        self.notes: list[str] = []
        assert reactions(None, image, self.hosted, self.facts) == ([], [])

    def sees(self, *changes: Change) -> None:
        before, self.image = self.image, self.image.after(changes)
        self.does(reactions(before, self.image, self.hosted, self.facts))

    def does(self, decision: Decision) -> None:
        self.notes += decision.notes
        if decision.changes:
            self.image = self.image.after(decision.changes)

    def state(self, tp: TopicPartition = T0) -> tuple[int, tuple[int, ...], int]:
        partition = self.image.partition(tp)
        assert partition is not None
        return partition.leader, partition.isr, partition.leader_epoch


def test_the_death_of_a_broker_moves_its_partitions_and_leaves_the_others() -> None:
    controller = Controller(cluster(replicas(ONE, TWO), replicas(TWO, THREE), replicas(THREE, ONE)))
    untouched = controller.image.partition(T1)
    controller.sees(BrokerGone(ONE))
    assert controller.state(T0) == (TWO, (TWO,), 1)
    assert controller.state(T2) == (THREE, (THREE,), 0)
    assert controller.image.partition(T1) is untouched


def test_all_brokers_killed_and_back_go_on_with_all_that_was_in_sync() -> None:
    controller = Controller(cluster(replicas(ONE, TWO, THREE)))
    controller.sees(BrokerGone(ONE), BrokerGone(TWO), BrokerGone(THREE))
    assert controller.state() == (NO_BROKER, (ONE, TWO, THREE), 1)
    controller.sees(registered(THREE, 20))
    assert controller.state() == (THREE, (THREE,), 2)
    assert controller.notes == ["t-0 has no leader: no replica in sync is there"]


def test_a_minority_that_lost_its_power_leads_nothing_while_another_may_have_more() -> None:
    controller = Controller(cluster(replicas(ONE, TWO, THREE)))
    controller.sees(BrokerGone(ONE), BrokerGone(TWO), BrokerGone(THREE))
    controller.sees(registered(ONE, 20, survived=False))
    assert controller.state() == (NO_BROKER, (TWO, THREE), 1)
    controller.sees(registered(THREE, 21))
    assert controller.state() == (THREE, (THREE,), 2)
    controller.sees(registered(TWO, 22, survived=False))
    assert controller.state() == (THREE, (THREE,), 2)


def test_where_all_lost_their_power_the_last_one_leads_and_a_note_tells() -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    controller.sees(BrokerGone(ONE), BrokerGone(TWO))
    controller.sees(registered(ONE, 20, survived=False))
    controller.sees(registered(TWO, 21, survived=False))
    assert controller.state() == (TWO, (TWO,), 2)
    assert "not flushed" in controller.notes[-1]


def test_a_leader_that_was_back_before_its_death_was_seen_begins_a_new_epoch() -> None:
    controller = Controller(cluster(replicas(ONE)))
    controller.sees(registered(ONE, 20))
    assert controller.state() == (ONE, (ONE,), 2)


def test_a_follower_that_was_back_before_its_death_was_seen_leaves_the_isr() -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    controller.sees(registered(TWO, 20))
    assert controller.state() == (ONE, (ONE,), 0)


def test_a_broker_that_only_has_another_address_keeps_what_it_leads() -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    moved = controller.image.brokers[ONE]._replace(host="elsewhere")
    controller.sees(BrokerRegistered(moved))
    assert controller.state() == (ONE, (ONE, TWO), 0)


def test_a_process_proven_dead_is_given_up_before_its_session_ends_and_taken_back_if_it_lives() -> None:
    controller = Controller(cluster(replicas(ONE, TWO), replicas(ONE)))
    controller.facts.dead[ONE] = BrokerEpoch(11)
    controller.does(settle(controller.image, controller.hosted.of(ONE), controller.facts))
    assert controller.state(T0) == (TWO, (TWO,), 1)
    assert controller.state(T1) == (NO_BROKER, (ONE,), 1)
    del controller.facts.dead[ONE]
    controller.does(settle(controller.image, controller.hosted.of(ONE), controller.facts))
    assert controller.state(T1) == (ONE, (ONE,), 2)


def test_what_is_known_of_a_life_ends_with_it() -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    controller.facts.dead[ONE] = controller.facts.stopping[ONE] = BrokerEpoch(11)
    controller.facts.missing[ONE] = {T0}
    controller.sees(registered(ONE, 30))
    assert not controller.facts.dead
    assert not controller.facts.stopping
    assert not controller.facts.missing


def test_a_broker_that_stops_hands_over_first_and_does_not_come_back() -> None:
    controller = Controller(cluster(replicas(ONE, TWO), replicas(TWO, ONE), replicas(ONE)))
    controller.does(let_stop(controller.image, controller.hosted, controller.facts, ONE, 11))
    assert controller.state(T0) == (TWO, (TWO,), 1)
    assert controller.state(T1) == (TWO, (TWO,), 0)
    assert controller.state(T2) == (ONE, (ONE,), 0), "with one replica there is none to hand over to"
    assert still_led(controller.image, controller.hosted, controller.facts, ONE) == []


def test_a_broker_that_stops_is_told_what_no_other_can_lead_yet() -> None:
    behind = replace(replicas(ONE, TWO), isr=(ONE,))
    controller = Controller(cluster(behind))
    controller.does(let_stop(controller.image, controller.hosted, controller.facts, ONE, 11))
    assert still_led(controller.image, controller.hosted, controller.facts, ONE) == [T0]


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(ONE, 10, Code.STALE_BROKER_EPOCH), (BrokerId(9), 10, Code.BROKER_NOT_AVAILABLE)],
)
def test_only_a_broker_in_its_newest_life_may_stop(broker: BrokerId, epoch: int, code: Code) -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    with pytest.raises(Refused) as refused:
        let_stop(controller.image, controller.hosted, controller.facts, broker, epoch)
    assert refused.value.code == code
    assert not controller.facts.stopping


def test_a_broker_without_room_leads_and_counts_where_no_other_can() -> None:
    behind = replace(replicas(ONE, TWO), isr=(ONE,))
    controller = Controller(cluster(replicas(ONE, TWO), replicas(TWO, ONE), behind))
    full = [T0, T1, T2, TopicPartition("no", 0)]
    controller.does(give_way(controller.image, controller.facts, ONE, full))
    assert controller.state(T0) == (TWO, (TWO,), 1)
    assert controller.state(T1) == (TWO, (TWO,), 0)
    assert controller.state(T2) == (ONE, (ONE,), 0), "what is full is still read"
    controller.sees(PartitionsChanged("t", {2: replicas(ONE, TWO)}))
    controller.does(give_way(controller.image, controller.facts, ONE, full))
    assert controller.state(T2) == (TWO, (TWO,), 1), "another one is in sync by now"


def test_leaders_are_not_brought_back_to_a_broker_without_room() -> None:
    astray = replace(replicas(ONE, TWO), leader=TWO)
    controller = Controller(cluster(astray))
    image, facts = controller.image, controller.facts
    facts.full[ONE] = frozenset({T0})
    assert balanced(image, facts, 0).changes == []
    outcome = elect_leaders(image, ElectionType.PREFERRED, [T0], facts).outcomes[T0]
    assert outcome is not None
    assert outcome.code == Code.PREFERRED_LEADER_NOT_AVAILABLE
    give_way(image, facts, ONE, [])
    controller.does(balanced(image, facts, 0))
    assert controller.state() == (ONE, (ONE, TWO), 1)


def test_what_a_broker_said_of_its_room_ends_with_its_life() -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    controller.does(give_way(controller.image, controller.facts, ONE, [T0]))
    controller.sees(registered(ONE, 20))
    assert not controller.facts.full
    controller.does(give_way(controller.image, controller.facts, ONE, [T0]))
    controller.sees(BrokerGone(ONE))
    assert not controller.facts.full


def test_a_broker_without_a_partition_of_its_own_leaves_its_isr_and_leads_it_no_longer() -> None:
    controller = Controller(cluster(replicas(ONE, TWO), replicas(ONE, TWO)))
    controller.does(lose(controller.image, controller.facts, ONE, [T0, TopicPartition("no", 0)]))
    assert controller.state(T0) == (TWO, (TWO,), 1)
    assert controller.state(T1) == (ONE, (ONE, TWO), 0)
    controller.sees(BrokerGone(TWO))
    assert controller.state(T0) == (NO_BROKER, (TWO,), 2), "the broker with the wiped disk does not lead"


def test_a_topic_made_with_a_broker_that_is_gone_meanwhile_gets_a_leader() -> None:
    controller = Controller(cluster(replicas(ONE, TWO)))
    made = TopicImage("u", UUID(int=2), (replicas(THREE, TWO),))
    controller.sees(BrokerGone(THREE), TopicCreated(made))
    assert controller.state(TopicPartition("u", 0)) == (TWO, (TWO,), 1)


def test_unclean_elections_switched_on_help_a_partition_that_waits() -> None:
    controller = Controller(cluster(replace(replicas(ONE, TWO), isr=(ONE,))))
    controller.sees(BrokerGone(ONE))
    assert controller.state()[0] == NO_BROKER
    controller.sees(TopicConfigured("t", {"unclean.leader.election.enable": "true"}))
    assert controller.state() == (TWO, (TWO,), 2)


def test_eligible_leaders_are_remembered_below_min_insync() -> None:
    controller = Controller(cluster(replicas(ONE, TWO, THREE), configs={"min.insync.replicas": "2"}))
    for broker in (ONE, TWO, THREE):
        controller.sees(BrokerGone(broker))
    assert controller.state() == (NO_BROKER, (THREE,), 3)
    controller.sees(registered(TWO, 20))
    assert controller.state() == (TWO, (TWO,), 4), "it left the ISR while nothing could be committed any more"
    assert controller.image.topics["t"].partitions[0].elr == (THREE,)


def test_a_controller_that_begins_settles_whatever_happened_meanwhile() -> None:
    image = cluster(replicas(ONE, TWO), replicas(TWO, ONE)).after([BrokerGone(ONE)])
    decision = reactions(None, image, HostedState(), Facts())
    after = image.after(decision.changes)
    assert [part.leader for part in after.topics["t"].partitions] == [TWO, TWO]


def test_the_index_follows_every_change() -> None:
    hosted = HostedState()
    image = cluster(replicas(ONE, TWO), replicas(TWO, THREE))
    hosted.follow(image)
    assert list(hosted.of(TWO)) == [T0, T1]
    image = image.after([PartitionsChanged("t", {0: replicas(THREE, ONE)})])
    hosted.follow(image)
    assert (list(hosted.of(TWO)), list(hosted.of(THREE))) == ([T1], [T0, T1])
    hosted.follow(image.after([TopicDeleted("t")]))
    assert [list(hosted.of(broker)) for broker in (ONE, TWO, THREE)] == [[], [], []]


def test_every_partition_has_its_own_outcome_of_an_election() -> None:
    astray = replace(replicas(ONE, TWO), leader=TWO)
    image = cluster(astray, replicas(ONE, TWO), replace(astray, isr=(TWO,)))
    named = [T0, T1, T2, TopicPartition("t", 3), TopicPartition("no", 0)]
    decision, outcomes = elect_leaders(image, ElectionType.PREFERRED, named, Facts())
    assert [outcome and outcome.code for outcome in outcomes.values()] == [
        None,
        Code.ELECTION_NOT_NEEDED,
        Code.PREFERRED_LEADER_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert image.after(decision.changes).topics["t"].partitions[0].leader == ONE
    assert set(elect_leaders(image, ElectionType.PREFERRED, None, Facts()).outcomes) == {T0, T2}
    with pytest.raises(Refused, match="invalid"):
        elect_leaders(image, 7, None, Facts())


def test_leaders_go_back_to_their_first_replica_where_too_many_are_astray() -> None:
    astray = replace(replicas(ONE, TWO), leader=TWO)
    image = cluster(astray, *[replicas(ONE, TWO)] * 8)
    assert balanced(image, Facts(), 12).changes == []
    (changed,) = balanced(image, Facts(), 11).changes
    assert isinstance(changed, PartitionsChanged)
    assert changed.partitions[0].leader == ONE
    moving = cluster(replace(astray, adding=(TWO,)))
    assert balanced(moving, Facts(), 10).changes == [], "a reassignment goes first"

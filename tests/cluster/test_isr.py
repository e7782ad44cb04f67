"""What a leader may change of its ISR: Kafka's codes for what is refused, and what becomes of what is granted."""

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cluster import isr
from barnabas.cluster.deciding import Facts
from barnabas.cluster.image import (
    BrokerEpoch,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    PartitionEpoch,
    PartitionImage,
    Recovery,
    TopicCreated,
    TopicImage,
)
from barnabas.cluster.isr import Granted, alter_partitions
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from barnabas.wire.messages.controlling import (
    AlterPartitionBrokerState,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
)

ONE, TWO, THREE, FOUR = (BrokerId(number) for number in range(1, 5))
ID = UUID(int=1)
STATE = PartitionImage(
    (ONE, TWO, THREE, FOUR), (ONE, TWO), ONE, LeaderEpoch(5), partition_epoch=PartitionEpoch(7)
)


def cluster(partition: PartitionImage = STATE) -> ClusterImage:
    """Broker 4 is not there."""
    brokers: list[Change] = [
        BrokerRegistered(BrokerImage(broker, "h", 1, epoch=BrokerEpoch(10 + broker)))
        for broker in (ONE, TWO, THREE)
    ]
    topic = TopicImage("t", ID, (partition,), {"min.insync.replicas": "2"})
    return ClusterImage("c").after([*brokers, TopicCreated(topic)])


def asks(
    *members: tuple[int, int],
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    recovery: int = 0,
    broker: int = 1,
    topic_id: UUID = ID,
    index: int = 0,
) -> AlterPartitionRequest:
    wanted = [AlterPartitionBrokerState(*member) for member in members]
    data = AlterPartitionData(index, leader_epoch, wanted, recovery, partition_epoch)
    return AlterPartitionRequest(broker, 10 + broker, [AlterPartitionTopic(topic_id, [data])])


def granted(request: AlterPartitionRequest, image: ClusterImage, facts: Facts | None = None) -> Granted:
    return alter_partitions(image, request, facts or Facts())


GROWS = ((1, 11), (2, 12), (3, 13))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asks(*GROWS), Code.NONE),
        (asks((1, 11), (2, -1), (3, 13)), Code.NONE),
        (asks(*GROWS, topic_id=UUID(int=9)), Code.UNKNOWN_TOPIC_ID),
        (asks(*GROWS, index=1), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (asks(*GROWS, leader_epoch=4), Code.FENCED_LEADER_EPOCH),
        (asks(*GROWS, leader_epoch=6), Code.NOT_CONTROLLER),
        (asks(*GROWS, partition_epoch=6), Code.INVALID_UPDATE_VERSION),
        (asks(*GROWS, partition_epoch=8), Code.NOT_CONTROLLER),
        (asks(*GROWS, broker=2), Code.INVALID_REQUEST),
        (asks((2, 12), (3, 13)), Code.INVALID_REQUEST),
        (asks((1, 11), (1, 11)), Code.INVALID_REQUEST),
        (asks((1, 11), (9, 19)), Code.INVALID_REQUEST),
        (asks((1, 11), (3, 12)), Code.INELIGIBLE_REPLICA),
        (asks((1, 11), (3, 14)), Code.INELIGIBLE_REPLICA),
        (asks((1, 11), (4, 14)), Code.INELIGIBLE_REPLICA),
        (asks((1, 11), recovery=1), Code.INVALID_REQUEST),
    ],
)
def test_a_leader_is_told_whether_its_isr_holds(request_: AlterPartitionRequest, code: Code) -> None:
    changes, response, _ = granted(request_, cluster())
    (result,) = response.topics[0].partitions
    assert result.error_code == code
    assert bool(changes) == (code is Code.NONE)


def test_what_is_granted_is_what_the_store_makes_of_it() -> None:
    image = cluster()
    changes, response, _ = granted(asks(*GROWS), image)
    now = image.after(changes).topics["t"].partitions[0]
    (result,) = response.topics[0].partitions
    assert (now.isr, now.leader_epoch, now.partition_epoch) == ((1, 2, 3), 5, 8)
    assert (result.isr, result.leader_epoch, result.partition_epoch) == ([1, 2, 3], 5, 8)


def test_a_refusal_tells_what_holds() -> None:
    (result,) = granted(asks(*GROWS, partition_epoch=6), cluster()).response.topics[0].partitions
    assert (result.leader_id, result.leader_epoch, result.isr, result.partition_epoch) == (1, 5, [1, 2], 7)


@pytest.mark.parametrize(("broker", "epoch"), [(1, 10), (4, 14)])
def test_a_broker_of_an_earlier_life_changes_nothing(broker: int, epoch: int) -> None:
    with pytest.raises(Refused) as refused:
        granted(AlterPartitionRequest(broker, epoch), cluster())
    assert refused.value.code == Code.STALE_BROKER_EPOCH


def test_a_broker_that_stops_or_is_proven_dead_does_not_join() -> None:
    for facts in (
        Facts(stopping={THREE: BrokerEpoch(13)}),
        Facts(dead={THREE: BrokerEpoch(13)}),
    ):
        (result,) = granted(asks(*GROWS), cluster(), facts).response.topics[0].partitions
        assert result.error_code == Code.INELIGIBLE_REPLICA
    leaving = Facts(stopping={ONE: BrokerEpoch(11)})
    (result,) = granted(asks((1, 11)), cluster(), leaving).response.topics[0].partitions
    assert result.error_code == 0, "a leader about to stop still says which replicas fall behind"


def test_a_broker_without_room_does_not_join() -> None:
    facts = Facts(full={THREE: frozenset({TopicPartition("t", 0)})})
    result = granted(asks(*GROWS), cluster(), facts).response.topics[0].partitions[0]
    assert result.error_code == Code.INELIGIBLE_REPLICA
    facts.full[THREE] = frozenset({TopicPartition("t", 1)})
    result = granted(asks(*GROWS), cluster(), facts).response.topics[0].partitions[0]
    assert result.error_code == Code.NONE


def test_a_replica_that_leaves_below_min_insync_stays_eligible_until_enough_are_in_sync_again() -> None:
    image = cluster()
    image = image.after(granted(asks((1, 11)), image).changes)
    now = image.topics["t"].partitions[0]
    assert (now.isr, now.elr) == ((1,), (2,))
    image = image.after(granted(asks((1, 11), (3, 13), partition_epoch=8), image).changes)
    now = image.topics["t"].partitions[0]
    assert (now.isr, now.elr) == ((1, 3), ())


def test_a_leader_says_when_it_has_recovered_and_until_then_is_alone() -> None:
    image = cluster(replace(STATE, isr=(ONE,), recovery=Recovery.RECOVERING))
    (alone,) = granted(asks((1, 11), (2, 12), recovery=1), image).response.topics[0].partitions
    assert alone.error_code == Code.INVALID_REQUEST
    after = image.after(granted(asks((1, 11), (2, 12)), image).changes)
    assert after.topics["t"].partitions[0].recovery is Recovery.RECOVERED


def test_a_replica_that_has_caught_up_has_its_partition_again() -> None:
    facts = Facts(missing={THREE: {TopicPartition("t", 0)}})
    assert granted(asks(*GROWS), cluster(), facts).found == [(THREE, TopicPartition("t", 0))]


def test_an_isr_that_ends_a_reassignment_may_end_the_term_of_its_leader() -> None:
    moving = replace(STATE, replicas=(TWO, THREE, ONE), adding=(THREE,), removing=(ONE,))
    image = cluster(moving)
    changes, response, _ = granted(asks(*GROWS), image)
    (result,) = response.topics[0].partitions
    assert (result.error_code, result.leader_id, result.isr) == (Code.NEW_LEADER_ELECTED, 2, [2, 3])
    now = image.after(changes).topics["t"].partitions[0]
    assert (now.replicas, now.adding, now.removing, now.leader_epoch) == ((2, 3), (), (), 6)


def test_a_replica_that_lacked_its_partition_may_end_a_reassignment() -> None:
    moving = replace(STATE, replicas=(THREE, ONE), isr=(ONE,), adding=(THREE,), removing=(ONE,))
    facts = Facts(missing={THREE: {TopicPartition("t", 0)}})
    (result,) = granted(asks((1, 11), (3, 13)), cluster(moving), facts).response.topics[0].partitions
    assert (result.leader_id, result.isr) == (3, [3])


def test_plants_a_stale_partition_epoch_or_broker_epoch_that_is_granted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for check, request in (
        ("_check_epochs", asks(*GROWS, partition_epoch=6)),
        ("_check_members", asks((1, 11), (3, 12))),
    ):
        assert not granted(request, cluster()).changes
        with monkeypatch.context() as planted:
            planted.setattr(isr, check, lambda *_: None)
            assert granted(request, cluster()).changes, (
                f"without {check} it is granted: the table above finds it"
            )

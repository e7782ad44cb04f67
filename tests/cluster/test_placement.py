"""Where replicas of new partitions go: evenly over brokers, apart from each other over racks."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cluster.controller import WantedTopic, add_partitions, create_topic
from barnabas.cluster.image import BrokerImage, BrokerRegistered, ClusterImage
from barnabas.cluster.placement import alternating, spread
from barnabas.config import BrokerConfig
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId


def brokers(*racks: str | None) -> list[BrokerImage]:
    return [BrokerImage(BrokerId(number), "h", 1, rack) for number, rack in enumerate(racks, start=1)]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    count=st.integers(1, 12),
    partitions=st.integers(1, 60),
    factor=st.integers(1, 5),
    chance=st.integers(0, 2**128 - 1),
)
def test_leaders_and_replicas_are_spread_evenly(
    count: int, partitions: int, factor: int, chance: int
) -> None:
    factor = min(factor, count)
    placed = list(spread(brokers(*[None] * count), range(partitions), factor, chance))
    assert all(len(set(replicas)) == factor for replicas in placed)
    led = Counter(replicas[0] for replicas in placed)
    had = Counter(replica for replicas in placed for replica in replicas)
    assert max(led.values()) - min(led[broker.id] for broker in brokers(*[None] * count)) <= 1
    whole = partitions % count == 0
    if whole:
        assert len(set(had.values())) == 1


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    racks=st.integers(1, 4),
    each=st.integers(1, 4),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 4),
    chance=st.integers(0, 2**64),
)
def test_replicas_are_in_as_many_racks_as_there_are(
    racks: int, each: int, partitions: int, factor: int, chance: int
) -> None:
    there = brokers(*[f"r{number % racks}" for number in range(racks * each)])
    rack_of = {broker.id: broker.rack for broker in there}
    factor = min(factor, len(there))
    placed = list(spread(there, range(partitions), factor, chance))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({rack_of[replica] for replica in replicas}) == min(racks, factor)
    led = Counter(replicas[0] for replicas in placed)
    assert max(led.values()) - min(led[broker.id] for broker in there) <= 1


def test_neighbours_in_the_line_are_in_different_racks() -> None:
    line = alternating(brokers("a", "a", "b", "b", "c", "c"))
    assert [broker.rack for broker in line] == ["a", "b", "c", "a", "b", "c"]


def test_racks_do_not_count_where_a_broker_has_none() -> None:
    assert [broker.id for broker in alternating(brokers("a", "a", None))] == [1, 2, 3]


def test_the_partitions_of_a_leader_are_not_all_with_the_same_follower() -> None:
    placed = spread(brokers(None, None, None, None), range(12), 2, 0)
    assert len({follower for leader, follower in placed if leader == 1}) == 3


def test_topics_begin_at_different_brokers() -> None:
    image = ClusterImage("c").after([BrokerRegistered(broker) for broker in brokers(None, None, None)])
    firsts = set()
    for number in range(30):
        wanted = WantedTopic("t", UUID(int=number * 7919), 1, 3)
        made = image.after(create_topic(image, wanted, BrokerConfig()))
        firsts.add(made.topics["t"].partitions[0].leader)
    assert firsts == {1, 2, 3}


def test_partitions_that_come_later_go_on_evenly() -> None:
    image = ClusterImage("c").after([BrokerRegistered(broker) for broker in brokers(None, None, None)])
    image = image.after(create_topic(image, WantedTopic("t", UUID(int=5), 2, 2), BrokerConfig()))
    image = image.after(add_partitions(image, "t", 6, None))
    assert Counter(part.leader for part in image.topics["t"].partitions) == {1: 2, 2: 2, 3: 2}


def test_more_partitions_need_as_many_brokers_as_the_first_have_replicas() -> None:
    there = brokers(None, None)
    image = ClusterImage("c").after([BrokerRegistered(broker) for broker in there])
    image = image.after(create_topic(image, WantedTopic("t", UUID(int=5), 1, 2), BrokerConfig()))
    alone = ClusterImage("c", topics=image.topics, brokers={there[0].id: there[0]})
    with pytest.raises(Refused) as refused:
        add_partitions(alone, "t", 2, None)
    assert refused.value.code == Code.INVALID_REPLICATION_FACTOR

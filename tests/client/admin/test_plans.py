"""Promises of plans: they move what must move and nothing else, leave brokers even, and use racks."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.admin.plans import check_brokers, moved, plan_text, read_plan, spread
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition


def topic(count: int, *replicas: list[int]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition("t", index): list(replicas[index % len(replicas)]) for index in range(count)}


def racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_a_cluster_that_is_even_stays_as_it_is() -> None:
    current = topic(6, [1, 2], [2, 3], [3, 1])
    assert spread(current, racks(1, 2, 3)) == current


def test_a_broker_that_leaves_gives_its_replicas_and_no_others_move() -> None:
    current = topic(6, [1, 2], [2, 3], [3, 1])
    plan = spread(current, racks(1, 2))
    assert all(sorted(replicas) == [1, 2] for replicas in plan.values())
    leaders = Counter(replicas[0] for replicas in plan.values())
    assert leaders == {1: 3, 2: 3}


def test_a_new_broker_gets_its_share() -> None:
    current = topic(8, [1, 2], [2, 1])
    plan = spread(current, racks(1, 2, 3, 4))
    load = Counter(broker for replicas in plan.values() for broker in replicas)
    assert load == {1: 4, 2: 4, 3: 4, 4: 4}
    leaders = Counter(replicas[0] for replicas in plan.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_replicas_of_a_partition_lie_in_different_racks() -> None:
    plan = spread(topic(12, [1]), {1: "a", 2: "a", 3: "b", 4: "b"}, replication_factor=2)
    assert all((min(replicas) <= 2) and (max(replicas) >= 3) for replicas in plan.values())


@given(st.integers(0, 10**6))
def test_every_plan_is_even_and_names_only_its_brokers(seed: int) -> None:
    dice = Random(seed)
    brokers = list(range(1, dice.randint(2, 7)))
    target = sorted(dice.sample(range(1, 10), dice.randint(1, 6)))
    factor = dice.randint(1, min(3, len(brokers), len(target)))
    current = {TopicPartition("t", n): dice.sample(brokers, factor) for n in range(dice.randint(1, 30))}
    plan = spread(current, racks(*target))
    load = Counter(dict.fromkeys(target, 0))
    for replicas in plan.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(target)
        load.update(replicas)
    assert max(load.values()) - min(load.values()) <= 1


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(
        BarnabasError, match="3 replicas of a partition need as many brokers, and the plan has 2 brok"
    ):
        spread(topic(1, [1]), racks(1, 2), replication_factor=3)


def test_a_plan_is_read_as_it_was_written_and_as_kafka_writes_it() -> None:
    plan = topic(3, [1, 2])
    assert read_plan(plan_text(plan)) == plan
    text = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3],"log_dirs":["any"]}]}'
    assert read_plan(text) == {TopicPartition("a", 0): [3]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no plan"),
        ("[]", "no plan"),
        ('{"partitions": [{"topic": "a"}]}', "no plan"),
        ('{"partitions": []}', "empty"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}', "numbers of brokers"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": ["1"]}]}', "numbers of brokers"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2, 1]}]}', "to broker 1 twice"),
        (
            '{"partitions": [{"topic":"a","partition":0,"replicas":[1]},{"topic":"a","partition":0,"replicas":[2]}]}',
            "names partition a-0 twice",
        ),
    ],
)
def test_what_is_no_plan_is_told_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BarnabasError, match=sentence):
        read_plan(text)


def test_a_plan_for_brokers_that_there_are_not_is_refused() -> None:
    with pytest.raises(BarnabasError, match="gives partition t-0 to broker 9, which is not in the cluster"):
        check_brokers(topic(1, [1, 9]), [1, 2])


def test_only_what_is_different_moves() -> None:
    assert moved(topic(2, [1, 2]), topic(2, [1, 2], [2, 1])) == {TopicPartition("t", 1): [2, 1]}

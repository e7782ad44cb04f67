"""Ranges of offsets cover what they are made from, each offset once."""

import random

import pytest

from barnabas.spark.ranges import OffsetRange, from_json, limited, ranges_between, split, to_json
from barnabas.types import TopicPartition


def partition(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def covered(ranges: list[OffsetRange]) -> list[tuple[TopicPartition, int]]:
    return sorted((each, at) for each, start, end in ranges for at in range(start, end))


@pytest.mark.parametrize("seed", range(50))
def test_splitting_loses_nothing_and_makes_enough_pieces(seed: int) -> None:
    dice = random.Random(seed)
    whole = [OffsetRange(partition(i), at := dice.randrange(50), at + dice.randrange(60)) for i in range(5)]
    at_least, largest = dice.choice([None, 1, 7, 40]), dice.choice([None, 1, 10, 500])
    pieces = split(whole, at_least=at_least, largest=largest)
    assert covered(pieces) == covered(whole)
    assert all(each.size for each in pieces)
    assert len(pieces) >= min(at_least or 0, sum(each.size for each in whole))
    assert largest is None or all(each.size <= largest for each in pieces)


def test_without_a_wish_a_partition_is_one_task() -> None:
    whole = [
        OffsetRange(partition(0), 0, 10),
        OffsetRange(partition(1), 5, 5),
        OffsetRange(partition(2), 0, 1),
    ]
    assert split(whole) == [whole[0], whole[2]]


@pytest.mark.parametrize("seed", range(50))
def test_a_limited_batch_is_full_and_goes_on_until_all_is_read(seed: int) -> None:
    dice = random.Random(seed)
    start = {partition(i): dice.randrange(100) for i in range(6)}
    end = {each: at + dice.choice([0, 1, 3, 1000]) for each, at in start.items()}
    most = dice.choice([1, 5, 100, 10_000])
    read = 0
    while start != end:
        step = limited(start, end, most)
        size = sum(step[each] - start[each] for each in start)
        assert size == min(most, sum(end[each] - start[each] for each in start))
        assert all(start[each] <= step[each] <= end[each] for each in start)
        start, read = step, read + 1
        assert read < 100_000


def test_a_limit_takes_from_each_what_waits_there() -> None:
    start = {partition(0): 0, partition(1): 0}
    assert limited(start, {partition(0): 900, partition(1): 100}, 100) == {partition(0): 90, partition(1): 10}


def test_offsets_look_as_in_a_checkpoint_of_sparks_kafka_source() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 2): 5, TopicPartition("a", 0): 7}
    assert to_json(offsets) == {"a": {"0": 7}, "b": {"2": 5, "10": 1}}
    assert from_json(to_json(offsets)) == offsets


def test_between_offsets_is_what_both_know() -> None:
    start, end = {partition(0): 3, partition(1): 4}, {partition(0): 5, partition(1): 4, partition(2): 9}
    assert ranges_between(start, end) == [OffsetRange(partition(0), 3, 5)]

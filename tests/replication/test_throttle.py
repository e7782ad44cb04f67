"""Which replicas a throttle counts, and when it is exceeded."""

import pytest

from barnabas.replication.throttle import EVERY_PARTITION, Partitions, Throttle, Windows, throttled_here
from barnabas.types import BrokerId, Millis, TopicPartition

NOTHING: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("setting", "partitions"),
    [
        ("", NOTHING),
        ("*", EVERY_PARTITION),
        (" * ", EVERY_PARTITION),
        ("0:2", frozenset({0})),
        ("0:2,1:3,7:2", frozenset({0, 7})),
        (" 0:2 , 1:2", frozenset({0, 1})),
        ("0:2,,", frozenset({0})),
        ("0:1,0:3", NOTHING),
        ("2:22", NOTHING),
    ],
)
def test_a_setting_names_the_partitions_that_are_throttled_here(setting: str, partitions: Partitions) -> None:
    assert throttled_here(setting, BrokerId(2)) == partitions


def test_only_what_is_named_counts() -> None:
    throttle = Throttle(Windows(11, 1))
    assert not throttle.topics
    assert throttle.hold("moved", frozenset({0, 7}))
    assert throttle.hold("all", EVERY_PARTITION)
    counted = [("moved", 0), ("moved", 7), ("all", 0), ("all", 99)]
    assert all(throttle.counts(TopicPartition(*tp)) for tp in counted)
    assert not any(throttle.counts(TopicPartition(*tp)) for tp in [("moved", 1), ("other", 0)])


def test_a_throttle_says_whether_it_became_another() -> None:
    throttle = Throttle(Windows(11, 1))
    assert not throttle.hold("t", NOTHING)
    assert throttle.hold("t", frozenset({1}))
    assert not throttle.hold("t", frozenset({1}))
    assert throttle.hold("t", EVERY_PARTITION)
    assert throttle.hold("t", NOTHING)
    assert not throttle.topics, "nothing is left to ask for"


def test_without_a_limit_nothing_is_too_much() -> None:
    throttle = Throttle(Windows(11, 1))
    throttle.passed(1 << 50, Millis(1000))
    assert not throttle.is_exceeded(Millis(1000))


def test_another_limit_counts_at_once_for_what_has_passed_already() -> None:
    throttle = Throttle(Windows(11, 1))
    throttle.limit = 1000
    throttle.passed(5000, Millis(1000))
    assert throttle.is_exceeded(Millis(1000))
    assert throttle.opens_at(Millis(1000)) == 6000
    throttle.limit = 2000
    assert throttle.opens_at(Millis(1000)) == 3500
    throttle.limit = 5000
    assert not throttle.is_exceeded(Millis(1000))
    assert throttle.rate(Millis(1000)) == 5000

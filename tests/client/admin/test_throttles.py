"""Which replicas and brokers a plan keeps busy."""

import pytest

from barnabas.client.admin.plans import Plan
from barnabas.client.admin.throttles import Throttled, throttled_by
from barnabas.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("current", "plan", "throttled"),
    [
        # What is copied is named where it comes from and where it goes to; a replica that stays is only the former.
        ({A0: [1, 2]}, {A0: [3, 2]}, Throttled({"a": (["0:1", "0:2"], ["0:3"])}, [1, 2, 3])),
        (
            {A0: [1], A1: [2], B0: [4]},
            {A0: [3], A1: [5], B0: [4, 1]},
            Throttled({"a": (["0:1", "1:2"], ["0:3", "1:5"]), "b": (["0:4"], ["0:1"])}, [1, 2, 3, 4, 5]),
        ),
        # Another order, or fewer replicas, copies nothing.
        ({A0: [1, 2]}, {A0: [2, 1]}, Throttled({}, [])),
        ({A0: [1, 2], A1: [1]}, {A0: [1], A1: [2]}, Throttled({"a": (["1:1"], ["1:2"])}, [1, 2])),
    ],
)
def test_a_plan_keeps_those_busy_that_it_copies_from_and_to(
    current: Plan, plan: Plan, throttled: Throttled
) -> None:
    assert throttled_by(current, plan) == throttled

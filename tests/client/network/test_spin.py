"""Promises of client/network/spin.py: a wait looks for answers that come at once, and sleeps for those that do not."""

from barnabas.client.network.spin import LOOK_S, Spin


def looks_in(eagerness: Spin, waits: list[float]) -> int:
    looks = 0
    for waited in waits:
        looks += eagerness.seconds > 0
        eagerness.learn(waited)
    return looks


def test_answers_that_come_at_once_are_looked_for() -> None:
    eagerness = Spin(processors=2)
    assert looks_in(eagerness, [120e-6] * 4) == 0
    assert eagerness.seconds == LOOK_S
    assert looks_in(eagerness, [40e-6] * 100) == 100


def test_answers_that_take_their_time_are_slept_for() -> None:
    assert looks_in(Spin(processors=2), [2e-3] * 100) == 0
    assert looks_in(Spin(processors=2), [200e-6] * 100) <= 20


def test_one_late_answer_does_not_end_it_for_long() -> None:
    eagerness = Spin(processors=2)
    looks_in(eagerness, [40e-6] * 10)
    eagerness.learn(5e-3)
    assert eagerness.seconds == 0
    assert looks_in(eagerness, [120e-6] * 4 + [40e-6] * 6) == 6


def test_a_single_processor_is_left_to_the_broker() -> None:
    assert looks_in(Spin(processors=1), [40e-6] * 100) == 0

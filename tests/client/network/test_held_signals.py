"""Promises of client/network/held_signals.py: what comes meanwhile is handled afterwards, once, by its own handler."""

import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from barnabas.client.network.held_signals import HeldSignals

heard: list[int] = []


def hear(number: int, frame: FrameType | None) -> None:
    heard.append(number)


def nothing() -> None:
    return


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    heard.clear()
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
    before = {number: signal.signal(number, hear) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGCHLD])
def test_a_signal_waits_and_then_is_handled(number: int) -> None:
    held = HeldSignals(nothing)
    signal.raise_signal(number)
    assert heard == []
    held.let_go()
    assert heard == [number]
    assert signal.getsignal(number) is hear


def test_a_repeated_signal_is_heard_at_once_and_each_signal_once() -> None:
    held = HeldSignals(nothing)
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    assert len(heard) == 1
    held.let_go()
    assert len(heard) == 2


def test_a_handler_that_raises_keeps_no_other_from_running() -> None:
    def fail(number: int, frame: FrameType | None) -> None:
        raise ZeroDivisionError

    signal.signal(signal.SIGUSR1, fail)
    held = HeldSignals(nothing)
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    with pytest.raises(ZeroDivisionError):
        held.let_go()
    assert heard == [signal.SIGUSR2]


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    def another(number: int, frame: FrameType | None) -> None:
        heard.append(-number)

    held = HeldSignals(nothing)
    signal.signal(signal.SIGUSR1, another)
    held.let_go()
    signal.raise_signal(signal.SIGUSR1)
    assert heard == [-signal.SIGUSR1]


def in_child(act: Callable[[], Any]) -> int:
    """The exit code of a forked process that does this."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(int(act()))
        finally:
            os._exit(99)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_process_handles_its_signals_itself() -> None:
    held = HeldSignals(nothing)
    try:
        assert in_child(lambda: signal.getsignal(signal.SIGUSR1) is hear) == 1
    finally:
        held.let_go()

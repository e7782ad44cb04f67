"""Wall clocks that can be set: what a program sees of them."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from barnabas.testing.preloaded import can_be_preloaded
from barnabas.testing.wall_clocks import WallClocks

pytestmark = pytest.mark.skipif(not can_be_preloaded(), reason="there is no C compiler")

HOUR_S = 3600
NEAR_S = 60
PROGRAM = """
import sys, time, datetime
for _ in sys.stdin:
    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)
"""


@pytest.fixture
def clocks() -> Iterator[WallClocks]:
    with WallClocks() as clocks:
        yield clocks


class Program:
    """Tells its time of day, by two ways, and its monotonic time when it is asked."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", PROGRAM]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self) -> tuple[float, float, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        day, date, monotonic = map(float, self.process.stdout.readline().split())
        return day, date, monotonic

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=30)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 200.75, -200.75])
def test_a_clock_jumps_while_its_program_runs_and_monotonic_time_does_not(
    clocks: WallClocks, jump_s: float
) -> None:
    with Program() as program:
        assert program.tell()[0] == pytest.approx(time.time(), abs=NEAR_S)
        clocks.jump(program.process.pid, jump_s)
        day, date, monotonic = program.tell()
        assert day - time.time() == pytest.approx(jump_s, abs=NEAR_S)
        assert date - time.time() == pytest.approx(jump_s, abs=NEAR_S)
        assert monotonic == pytest.approx(time.monotonic(), abs=NEAR_S)
        clocks.jump(program.process.pid, 0)
        assert program.tell()[0] == pytest.approx(time.time(), abs=NEAR_S)


def test_only_the_named_process_lives_in_another_hour(clocks: WallClocks) -> None:
    with Program() as one, Program() as other:
        clocks.jump(one.process.pid, HOUR_S)
        assert one.tell()[0] - other.tell()[0] == pytest.approx(HOUR_S, abs=NEAR_S)


def test_programs_started_later_have_the_machines_clock() -> None:
    with WallClocks() as clocks:
        pass
    with Program() as program, pytest.raises(Exception, match="inside of their"):
        clocks.jump(program.process.pid, HOUR_S)

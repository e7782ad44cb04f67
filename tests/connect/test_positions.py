"""A step is planned before it is read, and done after it is written; a crash in between repeats it."""

from pathlib import Path

import pytest

from barnabas.connect.connector import Batch, Step
from barnabas.connect.option import ConnectError
from barnabas.connect.positions import Positions, origin_of


def test_a_step_counts_when_it_is_done(tmp_path: Path) -> None:
    positions = Positions(tmp_path / "steps")
    assert positions.standing().number == 0
    assert positions.standing().position is None
    first = Step({"to": 5}, 5)
    positions.plan(0, first)
    again = Positions(tmp_path / "steps").standing()
    assert (again.number, again.position, again.planned) == (0, None, first)
    positions.done(0)
    after = Positions(tmp_path / "steps").standing()
    assert (after.number, after.position, after.planned) == (1, 5, None)
    positions.plan(1, Step({"to": 9}, 9))
    assert Positions(tmp_path / "steps").standing().position == 5


def test_old_steps_go(tmp_path: Path) -> None:
    positions = Positions(tmp_path)
    for number in range(100):
        positions.plan(number, Step({}, number))
        positions.done(number)
    assert len(list(tmp_path.iterdir())) <= 42
    assert positions.standing().number == 100
    assert positions.standing().position == 99


def test_what_was_torn_while_it_was_written_is_not_there(tmp_path: Path) -> None:
    positions = Positions(tmp_path)
    positions.plan(0, Step({}, "a"))
    positions.done(0)
    (tmp_path / ".00000001.json.new").write_text('{"pl')
    assert positions.standing().number == 1
    (tmp_path / "00000001.json").write_text("{")
    with pytest.raises(ConnectError, match="is damaged"):
        positions.standing()


def test_a_checkpoint_has_an_origin_of_its_own(tmp_path: Path) -> None:
    one, other = origin_of(tmp_path / "one"), origin_of(tmp_path / "other")
    assert one != other
    assert origin_of(tmp_path / "one") == one
    assert str(Batch(one, 7)) == f"{one}-00000007"

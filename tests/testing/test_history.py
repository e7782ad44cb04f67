"""The checker of histories: bad ones are caught, each for what is wrong with it, and good ones are let pass."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.testing.history import Broken, History
from barnabas.types import TopicPartition

P = TopicPartition("orders", 0)


def _written(*values: bytes) -> History:
    """One writer, all acknowledged at 0, 1, 2, ..."""
    history = History()
    for offset, value in enumerate(values):
        history.sent("w", P, value)
        history.acknowledged(value, offset)
    return history


def _rests(history: History, *values: bytes, start: int = 0, epochs: list[int] | None = None) -> None:
    told: Sequence[int | None] = epochs or [None] * len(values)
    history.rests(P, start, [(start + i, v, e) for (i, v), e in zip(enumerate(values), told, strict=True)])


def _broken(history: History, **how: bool) -> set[Broken]:
    verdict = history.verdict(**how)
    assert all(finding.broken.name in str(verdict) for finding in verdict.findings)
    return {finding.broken for finding in verdict.findings}


def _lost_at_the_end() -> History:
    history = _written(b"a", b"b")
    _rests(history, b"a")
    return history


def _lost_all() -> History:
    history = _written(b"a")
    _rests(history)
    return history


def _moved() -> History:
    history = _written(b"a", b"b")
    history.rests(P, 0, [(0, b"a", None), (2, b"b", None)])
    return history


def _doubled() -> History:
    history = _written(b"a")
    _rests(history, b"a", b"a")
    return history


def _reordered_in_flight() -> History:
    history = History()
    for value in (b"a", b"b"):
        history.sent("w", P, value)
    history.acknowledged(b"b", 0)
    history.acknowledged(b"a", 1)
    _rests(history, b"b", b"a")
    return history


def _backdated() -> History:
    history = History()
    history.sent("w", P, b"a")
    history.acknowledged(b"a", 1)
    history.sent("another", P, b"b")
    history.acknowledged(b"b", 0)
    _rests(history, b"b", b"a")
    return history


def _two_truths() -> History:
    history = _written(b"a")
    history.seen("r", P, 1, b"x")
    history.seen("s", P, 1, b"y")
    return history


def _overwritten() -> History:
    history = _written(b"a")
    history.sent("w", P, b"x")
    history.sent("v", P, b"y")
    history.seen("r", P, 1, b"x")
    _rests(history, b"a", b"y")
    return history


def _read_then_gone() -> History:
    history = _written(b"a")
    history.sent("w", P, b"x")
    history.seen("r", P, 1, b"x")
    _rests(history, b"a")
    return history


def _read_again() -> History:
    history = _written(b"a", b"b")
    for offset, value in ((0, b"a"), (1, b"b"), (1, b"b")):
        history.seen("r", P, offset, value)
    _rests(history, b"a", b"b")
    return history


def _passed_over() -> History:
    history = _written(b"a", b"b", b"c")
    history.seen("r", P, 0, b"a")
    history.seen("r", P, 2, b"c")
    _rests(history, b"a", b"b", b"c")
    return history


def _passed_over_at_the_beginning() -> History:
    history = _written(b"a", b"b")
    history.placed("r", P, 0)
    history.seen("r", P, 1, b"b")
    _rests(history, b"a", b"b")
    return history


def _stored_though_refused() -> History:
    history = _written(b"a")
    history.sent("w", P, b"b")
    history.failed(b"b")
    _rests(history, b"a", b"b")
    return history


def _never_sent() -> History:
    history = _written(b"a")
    _rests(history, b"a", b"stranger")
    return history


def _of_another_partition() -> History:
    history = History()
    history.sent("w", TopicPartition("orders", 1), b"a")
    _rests(history, b"a")
    return history


def _epoch_fell() -> History:
    history = _written(b"a", b"b")
    _rests(history, b"a", b"b", epochs=[4, 3])
    return history


def _two_epochs() -> History:
    history = _written(b"a")
    history.seen("r", P, 0, b"a", epoch=1)
    _rests(history, b"a", epochs=[2])
    return history


@pytest.mark.parametrize(
    ("bad", "broken"),
    [
        (_lost_at_the_end, Broken.LOST),
        (_lost_all, Broken.LOST),
        (_moved, Broken.MOVED),
        (_doubled, Broken.DOUBLED),
        (_reordered_in_flight, Broken.REORDERED),
        (_backdated, Broken.BACKDATED),
        (_two_truths, Broken.CHANGED),
        (_overwritten, Broken.CHANGED),
        (_read_then_gone, Broken.GONE),
        (_read_again, Broken.BACKWARDS),
        (_passed_over, Broken.SKIPPED),
        (_passed_over_at_the_beginning, Broken.SKIPPED),
        (_stored_though_refused, Broken.REFUSED),
        (_never_sent, Broken.STRANGE),
        (_of_another_partition, Broken.STRANGE),
        (_epoch_fell, Broken.EPOCH_FELL),
        (_two_epochs, Broken.CHANGED),
    ],
)
def test_a_bad_history_is_caught_for_what_is_wrong_with_it(
    bad: Callable[[], History], broken: Broken
) -> None:
    assert _broken(bad()) == {broken}


def test_a_record_in_doubt_may_be_stored_or_not() -> None:
    history = _written(b"a")
    for value in (b"told", b"silent"):
        history.sent("w", P, value)
    history.in_doubt(b"told")
    _rests(history, b"a", b"told")
    assert not _broken(history)
    _rests(history, b"a", b"silent")
    assert not _broken(history)
    assert "2 in doubt" in str(history.verdict())


def test_what_retention_has_taken_is_not_lost() -> None:
    history = _written(b"a", b"b")
    history.seen("r", P, 0, b"a")
    _rests(history, b"b", start=1)
    assert not _broken(history)


def test_a_writer_that_was_not_told_an_offset_loses_nothing_either() -> None:
    history = History()
    history.sent("w", P, b"a")
    history.acknowledged(b"a")
    _rests(history, b"a")
    assert not _broken(history)
    _rests(history)
    assert _broken(history) == {Broken.LOST}


def test_writers_that_are_not_idempotent_may_double_and_reorder_and_still_not_lose() -> None:
    history = _written(b"a", b"b")
    _rests(history, b"b", b"a", b"b", b"a")
    assert _broken(history) > {Broken.DOUBLED, Broken.REORDERED}
    assert _broken(history, idempotent=False) == {Broken.MOVED}


def test_a_seek_back_is_no_step_backwards() -> None:
    history = _written(b"a", b"b")
    history.seen("r", P, 1, b"b")
    history.placed("r", P, 0)
    history.seen("r", P, 0, b"a")
    history.seen("r", P, 1, b"b")
    _rests(history, b"a", b"b")
    assert not _broken(history)


def test_a_report_counts_what_is_wrong_and_names_some_of_it() -> None:
    history = _written(*(b"%d" % n for n in range(100)))
    _rests(history)
    text = str(history.verdict())
    assert "100 LOST: acknowledged and not in the log" in text
    assert "orders-0 at 0: b'0' acknowledged and not in the log (the log is empty)" in text
    assert text.count("orders-0 at") == 5


# Against a model: a log that is right, and what goes wrong with one


class Model:
    """A log that keeps its promises, written and read at random."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.history = History()
        self.logs: dict[TopicPartition, list[bytes]] = {
            TopicPartition("t", 0): [],
            TopicPartition("t", 1): [],
        }
        self.told: dict[bytes, tuple[TopicPartition, int]] = {}
        self.positions: dict[tuple[str, TopicPartition], int] = {}
        self._sent = 0

    def step(self) -> None:
        self.chance.choice([self.write, self.write, self.read])()

    def write(self) -> None:
        """Up to three records of one writer in flight: some stored, in order; their outcomes told in any order."""
        place = self.chance.choice(sorted(self.logs))
        writer = self.chance.choice("vw")
        burst = [self._send(writer, place) for _ in range(self.chance.randint(1, 3))]
        outcomes: list[Callable[[], None]] = []
        for value in burst:
            fate = self.chance.choice(["ok", "ok", "ok", "failed", "doubt, stored", "doubt, not stored"])
            if fate in ("ok", "doubt, stored"):
                self.logs[place].append(value)
            if fate == "ok":
                offset = len(self.logs[place]) - 1
                self.told[value] = (place, offset)
                outcomes.append(lambda v=value, o=offset: self.history.acknowledged(v, o))  # type: ignore[misc]
            elif fate == "failed":
                outcomes.append(lambda v=value: self.history.failed(v))  # type: ignore[misc]
        self.chance.shuffle(outcomes)
        for outcome in outcomes:
            outcome()

    def _send(self, writer: str, place: TopicPartition) -> bytes:
        value = b"%d" % self._sent
        self._sent += 1
        self.history.sent(writer, place, value)
        return value

    def read(self) -> None:
        place = self.chance.choice(sorted(self.logs))
        reader = self.chance.choice("rs")
        at = self.positions.get((reader, place))
        if at is None or self.chance.random() < 0.1:
            at = self.chance.randint(0, len(self.logs[place]))
            self.history.placed(reader, place, at)
        end = self.chance.randint(at, len(self.logs[place]))
        for offset in range(at, end):
            self.history.seen(reader, place, offset, self.logs[place][offset])
        self.positions[reader, place] = end

    def rest(self) -> History:
        for place, log in self.logs.items():
            self.history.rests(place, 0, [(offset, value, None) for offset, value in enumerate(log)])
        return self.history

    # Plants: each breaks the log at rest or a last read, in one partition

    def lose_an_acknowledged_one(self) -> Broken:
        place, offset = self.told[max(self.told, key=int)]
        del self.logs[place][offset:]
        return Broken.LOST

    def store_one_twice(self) -> Broken:
        place, offset = self.told[max(self.told, key=int)]
        self.logs[place].append(self.logs[place][offset])
        return Broken.DOUBLED

    def push_all_down_by_one(self) -> Broken:
        place, _ = self.told[max(self.told, key=int)]
        self.history.sent("v", place, b"new")
        self.logs[place].insert(0, b"new")
        return Broken.MOVED

    def show_what_is_not_there(self) -> Broken:
        place = TopicPartition("t", 0)
        self.history.sent("v", place, b"ghost")
        self.history.placed("late", place, len(self.logs[place]))
        self.history.seen("late", place, len(self.logs[place]), b"ghost")
        return Broken.GONE

    def show_another_value(self) -> Broken:
        place, offset = self.told[max(self.told, key=int)]
        self.history.placed("late", place, offset)
        self.history.seen("late", place, offset, b"another")
        return Broken.CHANGED

    def skip_one(self) -> Broken:
        place, offset = self.told[max(self.told, key=int)]
        self.history.placed("late", place, offset)
        self.logs[place].append(b"one more")
        self.history.sent("v", place, b"one more")
        self.history.seen("late", place, len(self.logs[place]) - 1, b"one more")
        return Broken.SKIPPED


PLANTS = [
    Model.lose_an_acknowledged_one,
    Model.store_one_twice,
    Model.push_all_down_by_one,
    Model.show_what_is_not_there,
    Model.show_another_value,
    Model.skip_one,
]


def _model(seed: int, steps: int) -> Model:
    model = Model(random.Random(seed))
    for _ in range(steps):
        model.step()
    while not model.told:
        model.write()
    return model


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 60))
def test_a_log_that_keeps_its_promises_is_found_to_do_so(seed: int, steps: int) -> None:
    verdict = _model(seed, steps).rest().verdict()
    assert not verdict.findings, str(verdict)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 60), plant=st.sampled_from(PLANTS))
def test_one_broken_promise_in_a_long_history_is_found(
    seed: int, steps: int, plant: Callable[[Model], Broken]
) -> None:
    model = _model(seed, steps)
    broken = plant(model)
    assert broken in _broken(model.rest())

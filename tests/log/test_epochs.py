"""Leader epochs: where each began, where each ended, what truncation leaves of them."""
# mypy: disable-error-code="arg-type"
# Offsets and times are plain numbers in here.

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.checkpoint import CorruptCheckpoint
from barnabas.log.epochs import UNKNOWN_EPOCH, EpochStart, LeaderEpochs


def epochs(*pairs: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*pair) for pair in pairs])


def test_an_epoch_ends_where_the_next_one_began() -> None:
    history = epochs((1, 0), (4, 10), (5, 30))
    assert history.end_of(1, 50) == (1, 10)
    assert history.end_of(4, 50) == (4, 30)


def test_the_latest_epoch_ends_at_the_end_of_the_log() -> None:
    assert epochs((1, 0), (4, 10)).end_of(4, 50) == (4, 50)


def test_an_epoch_that_wrote_nothing_is_answered_with_the_one_before_it() -> None:
    assert epochs((1, 0), (4, 10)).end_of(3, 50) == (1, 10)


def test_an_epoch_older_than_all_is_answered_with_the_first_offset_known() -> None:
    assert epochs((3, 7), (4, 10)).end_of(1, 50) == (1, 7)


@pytest.mark.parametrize("epoch", [-1, 5, 100])
def test_an_epoch_that_never_was_is_unknown(epoch: int) -> None:
    assert epochs((3, 7), (4, 10)).end_of(epoch, 50) == UNKNOWN_EPOCH


def test_without_any_epoch_everything_is_unknown() -> None:
    assert LeaderEpochs().end_of(0, 0) == (-1, -1)
    assert LeaderEpochs().latest == -1


def test_an_epoch_is_assigned_once() -> None:
    history = epochs((1, 0))
    assert history.assign(2, 10) is True
    assert history.assign(2, 20) is False
    assert history.entries == [(1, 0), (2, 10)]


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    history = epochs((1, 0), (2, 10))
    assert history.assign(3, 10)
    assert history.entries == [(1, 0), (3, 10)]


def test_entries_that_contradict_a_new_one_go() -> None:
    history = epochs((1, 0), (2, 10), (5, 20))
    history.assign(3, 15)
    assert history.entries == [(1, 0), (2, 10), (3, 15)]
    assert history.latest == 3


def test_negative_numbers_are_not_epochs() -> None:
    with pytest.raises(ValueError, match="negative"):
        LeaderEpochs().assign(-1, 0)


def test_truncation_forgets_what_began_later() -> None:
    history = epochs((1, 0), (2, 10), (3, 20))
    assert history.truncate_from_end(20) is True
    assert history.entries == [(1, 0), (2, 10)]
    assert history.latest == 2
    assert history.truncate_from_end(11) is False
    assert history.truncate_from_end(0) is True
    assert history.latest == -1


def test_deletion_from_the_start_moves_the_epoch_it_falls_into() -> None:
    history = epochs((1, 0), (2, 10), (3, 20))
    assert history.truncate_from_start(15) is True
    assert history.entries == [(2, 15), (3, 20)]
    assert history.truncate_from_start(15) is False


def test_deletion_up_to_an_epochs_start_keeps_it_as_it_is() -> None:
    history = epochs((1, 0), (2, 10))
    assert history.truncate_from_start(10) is True
    assert history.entries == [(2, 10)]


def test_the_epoch_of_a_record_is_known() -> None:
    history = epochs((1, 5), (4, 10))
    assert [history.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 4, 4]


def test_the_text_is_kafkas_and_comes_back() -> None:
    history = epochs((0, 0), (7, 123))
    assert history.to_bytes() == b"0\n2\n0 0\n7 123\n"
    assert LeaderEpochs.parse(history.to_bytes()).entries == history.entries


@pytest.mark.parametrize("text", [b"", b"0\n1\n0 0 0\n", b"0\n1\na b\n", b"0\n1\n-1 0\n"])
def test_a_text_that_does_not_add_up_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs.parse(text)


@given(
    st.lists(
        st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 9), st.integers(0, 50)),
        max_size=30,
    )
)
def test_epochs_and_offsets_only_grow_along_the_list(steps: list[tuple[str, int, int]]) -> None:
    history = LeaderEpochs()
    for what, epoch, offset in steps:
        if what == "assign":
            history.assign(epoch, offset)
        elif what == "end":
            history.truncate_from_end(offset)
        else:
            history.truncate_from_start(offset)
        pairs = list(zip(history.entries, history.entries[1:], strict=False))
        assert all(a.epoch < b.epoch and a.start < b.start for a, b in pairs)
        assert history.latest == (history.entries[-1].epoch if history.entries else -1)

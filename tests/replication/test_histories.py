"""Where the logs of a leader and a follower part."""

from dataclasses import dataclass, field

import pytest

from barnabas.errors import OffsetOutOfRange
from barnabas.log.epochs import LeaderEpochs
from barnabas.replication.histories import Divergence, common_end, divergence, end_of_epoch, last_epoch
from barnabas.types import LeaderEpoch, Offset


@dataclass
class History:
    """A log that is nothing but its epochs and its ends."""

    end: Offset
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    start: Offset = Offset(0)  # noqa: RUF009


def history(*epochs: int) -> History:
    """A log with a record of each of these epochs."""
    made = LeaderEpochs()
    for offset, epoch in enumerate(epochs):
        if epoch != made.latest:
            made.assign(LeaderEpoch(epoch), Offset(offset))
    return History(Offset(len(epochs)), made)


def reconcile(leader: History, follower: History) -> list[int]:
    """Where the follower's log ends after each answer of the leader."""
    ends = [int(follower.end)]
    while (parted := divergence(leader, last_epoch(follower), follower.end)) is not None:
        follower.end = common_end(follower, parted)
        follower.epochs.truncate_from_end(follower.end)
        ends.append(follower.end)
        assert ends[-1] < ends[-2], "each cut is shorter than the one before"
    return ends


@pytest.mark.parametrize(
    ("leader", "follower", "ends"),
    [
        ([0, 0, 0], [0, 0, 0], [3]),
        ([0, 0, 0], [0], [1]),
        ([0, 0, 0], [], [0]),
        ([0, 0, 1], [0, 0, 0, 0], [4, 2]),
        ([0, 0, 1, 1], [0, 0], [2]),
        ([0, 0, 2, 2], [0, 0, 1, 1, 1], [5, 2]),
        # KIP-279: neither has the other's last epoch; two answers are needed to find the place.
        ([0, 0, 2, 2, 4], [0, 0, 1, 3, 3], [5, 3, 2]),
        ([1, 1, 1], [0, 0], [2, 0]),
        ([0, 0, 0, 3], [0, 1, 2], [3, 1]),
    ],
)
def test_a_follower_keeps_what_the_leader_has_and_nothing_else(
    leader: list[int], follower: list[int], ends: list[int]
) -> None:
    assert reconcile(history(*leader), history(*follower)) == ends


def test_a_record_of_an_epoch_under_way_is_not_cut_whatever_is_committed() -> None:
    leader = history(0, 0, 1, 1)
    assert end_of_epoch(leader, LeaderEpoch(1)) == Divergence(LeaderEpoch(1), Offset(4))


def test_an_epoch_without_records_is_no_part_of_a_followers_history() -> None:
    follower = history(0, 0)
    follower.epochs.assign(LeaderEpoch(5), Offset(2))
    assert last_epoch(follower) == 0


def test_a_leader_that_knows_no_epochs_says_so() -> None:
    with pytest.raises(OffsetOutOfRange):
        divergence(History(Offset(3)), LeaderEpoch(1), Offset(3))

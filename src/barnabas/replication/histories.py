"""Where the logs of a leader and a follower part, found by leader epochs (KIP-101, KIP-279). PURE.

A leader asks `divergence` before it serves a follower or counts its fetch; a follower asks `common_end` where to cut.
Always holds: two logs with a record of the same offset and epoch are identical up to it, so the answers of both sides
converge, each cut strictly shorter than the one before.
"""

from typing import NamedTuple, Protocol

from barnabas.errors import Code, Refused
from barnabas.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class Epochs(Protocol):
    """The leader epochs of a log, as `log.epochs` keeps them."""

    def epoch_at(self, offset: Offset) -> LeaderEpoch: ...

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]: ...


class StoredLog(Protocol):
    """What the machines look at of a partition's log. They never write to it."""

    @property
    def start(self) -> Offset: ...
    @property
    def end(self) -> Offset: ...
    @property
    def epochs(self) -> Epochs: ...


class Divergence(NamedTuple):
    """The largest epoch of the leader that is not above the follower's last one, and where it ended."""

    epoch: LeaderEpoch
    end: Offset


def last_epoch(log: StoredLog) -> LeaderEpoch:
    """The epoch of the last record; -1 without a record or an epoch. An epoch without records does not count."""
    return log.epochs.epoch_at(Offset(log.end - 1))


def end_of_epoch(log: StoredLog, epoch: LeaderEpoch) -> Divergence:
    """What a leader answers to OffsetForLeaderEpoch; (-1, -1) where it does not know.

    The epoch under way ends where the log ends, not at the high watermark: a follower that is in sync may have more
    than is known to be committed, and must not cut it.
    """
    return Divergence(*log.epochs.end_of(epoch, log.end))


def divergence(log: StoredLog, epoch: LeaderEpoch, offset: Offset) -> Divergence | None:
    """Where a follower whose last record is of `epoch` and whose log ends at `offset` has to look for its cut.

    None where the leader has all of it. Raises Refused where the leader knows no epochs.
    """
    if epoch == NO_EPOCH:
        return None
    found = end_of_epoch(log, epoch)
    if found.end == NO_OFFSET:
        raise Refused(Code.OFFSET_OUT_OF_RANGE, f"leader epoch {epoch} is not known here")
    return found if found.epoch < epoch or found.end < offset else None


def common_end(log: StoredLog, leaders: Divergence) -> Offset:
    """Where a follower cuts that was answered with a divergence.

    An epoch that it does not have itself is no place to stop at: the end of its next older one is, and the leader
    is asked again from there.
    """
    epoch, end = log.epochs.end_of(leaders.epoch, log.end)
    if end == NO_OFFSET:
        return min(leaders.end, log.end)
    return min(end, log.end) if epoch != leaders.epoch else min(end, leaders.end, log.end)

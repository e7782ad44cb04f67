"""Owns where each leader epoch of a partition began. The log assigns on append and cuts on truncation.

Epochs and their start offsets only ever grow along the list. It holds no file: the log writes `to_bytes()`
to `leader-epoch-checkpoint` whenever a method says that something changed, before the records it speaks of.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from barnabas.log.checkpoint import CorruptCheckpoint, format_entries, parse_entries
from barnabas.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class EpochStart(NamedTuple):
    """The first offset written under an epoch."""

    epoch: LeaderEpoch
    start: Offset


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and the offset after its last record."""

    epoch: LeaderEpoch
    end: Offset


UNKNOWN_EPOCH = EpochEnd(NO_EPOCH, NO_OFFSET)

_epoch = attrgetter("epoch")
_start = attrgetter("start")


class LeaderEpochs:
    """Mutable: the epochs of one partition, oldest first. `latest` is a plain field, read on every append."""

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self.entries: list[EpochStart] = []
        self.latest = NO_EPOCH
        for entry in entries:
            self.assign(entry.epoch, entry.start)

    def assign(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """Note that `epoch` begins at `start`; an epoch that is noted already keeps its place.

        What contradicts the new entry (a larger epoch, or one that begins no earlier) goes.
        """
        if epoch < 0 or start < 0:
            raise ValueError(f"an epoch and its start are never negative: {epoch} at {start}")
        entries = self.entries
        if entries and entries[-1].epoch == epoch and entries[-1].start <= start:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start >= start):
            entries.pop()
        entries.append(EpochStart(epoch, start))
        self.latest = epoch
        return True

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEnd:
        """Where an epoch ended, for a follower or a consumer that looks for the place where histories part.

        An epoch above all we know is unknown to us. One older than all we know is answered with the first
        offset that we know of: its records are gone, and the asker goes on from there.
        """
        entries = self.entries
        if epoch == NO_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNKNOWN_EPOCH
        above = bisect_right(entries, epoch, key=_epoch)
        if above == len(entries):
            return EpochEnd(epoch, log_end)
        if above == 0:
            return EpochEnd(epoch, entries[0].start)
        return EpochEnd(entries[above - 1].epoch, entries[above].start)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch a record at this offset was written under; -1 before all that is known."""
        above = bisect_right(self.entries, offset, key=_start)
        return self.entries[above - 1].epoch if above else NO_EPOCH

    def truncate_from_end(self, end: Offset) -> bool:
        """Forget the epochs that began at or after the log's new end."""
        entries = self.entries
        before = len(entries)
        while entries and entries[-1].start >= end:
            entries.pop()
        self.latest = entries[-1].epoch if entries else NO_EPOCH
        return len(entries) != before

    def truncate_from_start(self, start: Offset) -> bool:
        """Forget the epochs that ended before the log's new start; the one it falls into begins there now."""
        entries = self.entries
        above = bisect_right(entries, start, key=_start)
        if above == 0 or (above == 1 and entries[0].start == start):
            return False
        entries[:above] = [EpochStart(entries[above - 1].epoch, start)]
        return True

    def clear(self) -> bool:
        """Forget everything."""
        had = bool(self.entries)
        self.entries.clear()
        self.latest = NO_EPOCH
        return had

    def to_bytes(self) -> bytes:
        """The text of `leader-epoch-checkpoint`."""
        return format_entries(f"{epoch} {start}" for epoch, start in self.entries)

    @classmethod
    def parse(cls, data: bytes) -> "LeaderEpochs":
        """Read `leader-epoch-checkpoint`; raises CorruptCheckpoint."""
        try:
            rows = [EpochStart(LeaderEpoch(int(a)), Offset(int(b))) for a, b in parse_entries(data, 2)]
            return cls(rows)
        except ValueError:
            raise CorruptCheckpoint("the leader epoch checkpoint has a line without two numbers") from None

"""One partition that a consumer reads: where it is, what was fetched, and under which leader epochs that was written.

PURE. Kept by `fetches`, which decides; `delivery` moves the position. Always holds: `epochs` grows along the log, and
says of every record read here under which epoch it was written; what a seek has left behind is not in it.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from operator import itemgetter
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from barnabas.errors import Refused
from barnabas.types import BrokerId, Millis, Offset, TopicPartition
from barnabas.wire.batch import HEADER_SIZE, LAST_OFFSET_DELTA_AT, LOG_OVERHEAD
from barnabas.wire.messages.fetch import AbortedTransaction
from barnabas.wire.schema import NO_ID

NO_EPOCH = -1

_START = Struct(">qii")
_DELTA = Struct(">i")

_epoch = itemgetter(1)
_offset = itemgetter(0)


class Leader(NamedTuple):
    """The leader of a partition, and its epoch; of a topic that was made anew, the id is another."""

    node: BrokerId
    epoch: int
    topic_id: UUID = NO_ID


class Position(NamedTuple):
    """The offset of a next record, and the epoch of the last one before it; -1 where that is not known."""

    offset: int
    epoch: int = NO_EPOCH


class OffsetAt(NamedTuple):
    """An offset that was asked for; -1 where no record is that late."""

    offset: Offset
    timestamp: Millis
    leader_epoch: int


class EpochEnd(NamedTuple):
    """What a leader says of an epoch: the largest it has that is not above, and the offset behind its last record.

    An epoch of -1: the leader knows of no such epoch.
    """

    epoch: int
    end: int


class Chunk(NamedTuple):
    """What one fetch brought of a partition: whole batches."""

    reading: "Reading"
    data: memoryview
    start: int
    """Records before this offset were not asked for."""
    end: int
    """The offset behind the last batch."""
    aborted: tuple[AbortedTransaction, ...]


class Reading:
    """Mutable: one partition that is read."""

    __slots__ = (
        "began",
        "buffered",
        "chunks",
        "doubts",
        "end",
        "epochs",
        "failure",
        "fetch_offset",
        "is_asked",
        "is_paused",
        "is_queued",
        "leader",
        "leader_tells",
        "partition",
        "position",
        "retry_at",
        "version",
        "want",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        """The offset of the next record for the user; None until it is found out."""
        self.want: int | None = None
        """A timestamp or COMMITTED: where to look for a position. None where there is one, or nothing helps."""
        self.fetch_offset = 0
        self.end = -1
        """The high watermark, or the last stable offset where only committed records count."""
        self.is_paused = False
        self.is_asked = False
        """A request is under way: a fetch, or one for a position."""
        self.is_queued = False
        self.chunks: deque[Chunk] = deque()
        self.buffered = 0
        self.retry_at = 0.0
        self.version = 0
        """Counts the seeks: an answer to what was asked before one means nothing."""
        self.failure: Refused | None = None
        """That the user has to seek, until it is done."""
        self.began = Position(0)
        """Where reading began, and what was known of the epoch there."""
        self.epochs: list[tuple[int, int]] = []
        """Where epochs begin in what was fetched: (offset of the first batch, epoch)."""
        self.leader: Leader | None = None
        """The leader whose log has all that was fetched; another one has yet to say so."""
        self.leader_tells = False
        """The next fetch asks this leader once more, by last_fetched_epoch."""
        self.doubts = 0
        """How often a leader did not know of an epoch that is newer than its own."""

    @property
    def is_caught_up(self) -> bool:
        """Whether all that is known to be there has been fetched."""
        return 0 <= self.end <= self.fetch_offset

    def begin(self, at: Position) -> None:
        """Read from here on."""
        self.position = self.fetch_offset = at.offset
        self.began = at
        self.epochs.clear()
        self.leader = None
        self.leader_tells = False
        self.doubts = 0

    def go_back(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Fetch anew from an offset; the epochs before it stay known. `epoch` is for what was not read here."""
        if offset < self.began.offset:
            self.begin(Position(offset, epoch))
            return
        del self.epochs[bisect_left(self.epochs, offset, key=_offset) :]
        self.position = self.fetch_offset = offset
        self.leader = None

    def epoch_before(self, offset: int) -> int:
        """The epoch of the last record before an offset; -1 where that is not known."""
        if offset > self.fetch_offset:
            return NO_EPOCH
        after = bisect_left(self.epochs, offset, key=_offset)
        if after:
            return self.epochs[after - 1][1]
        return self.began.epoch if offset >= self.began.offset else NO_EPOCH

    def divergence(self, found: EpochEnd) -> int | None:
        """The first offset fetched here that a log with this end of the epoch does not have; None: it has all.

        Batches of a later epoch than the one told of are not in that log, whatever offsets it has.
        """
        later = bisect_right(self.epochs, found.epoch, key=_epoch)
        end = found.end
        if later < len(self.epochs):
            end = min(end, self.epochs[later][0])
        return end if end < self.fetch_offset else None

    def note(self, epochs: list[tuple[int, int]]) -> None:
        """The epochs of batches that were fetched from `fetch_offset` on; one that does not grow says nothing."""
        for start, epoch in epochs:
            if not self.epochs or epoch > self.epochs[-1][1]:
                self.epochs.append((max(start, self.fetch_offset), epoch))


class PendingRead(NamedTuple):
    """A partition in a request under way."""

    reading: Reading
    version: int
    offset: int


class Check(NamedTuple):
    """A question to a new leader: where does the epoch of what was read last end in your log?"""

    asked: PendingRead
    leader: Leader
    epoch: int


class Truncation(NamedTuple):
    """A leader's log lacks what was read: it has this much of the epoch that was asked for."""

    asked: PendingRead
    found: EpochEnd


def whole_batches(records: memoryview) -> tuple[int, int, list[tuple[int, int]]]:
    """Of fetched bytes: how many the whole batches are, the offset behind the last of them (-1 where there is none),
    and where their epochs begin. They end where the answer is cut off, or at a length that cannot be."""
    at, end, newest = 0, -1, NO_EPOCH
    epochs: list[tuple[int, int]] = []
    last = len(records) - HEADER_SIZE
    while at <= last:
        base, length, epoch = _START.unpack_from(records, at)
        following = at + length + LOG_OVERHEAD
        if length < HEADER_SIZE - LOG_OVERHEAD or following > len(records):
            break
        if epoch > newest:
            newest = epoch
            epochs.append((base, epoch))
        (delta,) = _DELTA.unpack_from(records, at + LAST_OFFSET_DELTA_AT)
        end = base + delta + 1
        at = following
    return at, end, epochs

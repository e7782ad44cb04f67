"""One partition as its follower drives it: cut what the leader does not have, fetch, store, learn the watermark. PURE.

The shell asks for the `next_fetch`, gives `answered` what came back, carries out the effects in their order (before a
cut it writes the recovery point down), and says with `stored` how far the log counts. An object is of one leader epoch.

Always holds: nothing is cut but by the leader's word on epochs, or, where no epoch is known, above the high watermark.
What is fetched at an offset is stored there or not at all. The watermark is at most what this log has.
"""

from typing import NamedTuple, TypeAlias

from barnabas.errors import Code
from barnabas.replication.histories import Divergence, StoredLog, common_end, last_epoch
from barnabas.types import NO_EPOCH, NO_OFFSET, Buffer, LeaderEpoch, Millis, Offset

FIRST_BACKOFF_MS = 20
"""After the first failure; doubled with each that follows, up to replica.fetch.backoff.ms."""


class FetchPosition(NamedTuple):
    """What a follower asks its leader for: below `offset` it has all, the last of it of `last_epoch`."""

    offset: Offset
    last_epoch: LeaderEpoch
    epoch: LeaderEpoch
    log_start: Offset


class FetchAnswer(NamedTuple):
    """A leader's answer for one partition. With OFFSET_OUT_OF_RANGE too, watermark and log start are the leader's."""

    code: Code
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    diverging: Divergence | None = None
    records: Buffer = b""


class Truncate(NamedTuple):
    """Drop what lies at `to` and above, once a recovery point that is not above it is written down."""

    to: Offset


class StartOver(NamedTuple):
    """Drop everything; the log goes on at `at`."""

    at: Offset


class Append(NamedTuple):
    """Store batches as they are. None may be of an epoch above `epoch`, nor below that of the one before it."""

    records: Buffer
    epoch: LeaderEpoch


class AdvanceStart(NamedTuple):
    """Let the log start at `to`, or at its end if that comes first."""

    to: Offset


Effect: TypeAlias = Truncate | StartOver | Append | AdvanceStart


class Following:
    """Mutable: a follower's place in one leader epoch."""

    __slots__ = (
        "_backoff_ms",
        "_failures",
        "_is_heard",
        "_leaders_watermark",
        "_log",
        "_stored",
        "epoch",
        "high_watermark",
        "retry_at",
    )

    def __init__(
        self, log: StoredLog, epoch: LeaderEpoch, high_watermark: Offset, *, stored: Offset, backoff_ms: int
    ) -> None:
        """`high_watermark` is what this replica knew last; `stored` is as `stored` below."""
        self._log = log
        self.epoch = epoch
        self.high_watermark = min(high_watermark, log.end)
        self._leaders_watermark = self.high_watermark
        self._stored = stored
        self._backoff_ms = backoff_ms
        self._failures = 0
        self._is_heard = False
        self.retry_at = Millis(0)
        """No fetch before this."""

    @property
    def leaders_watermark(self) -> Offset:
        """The high watermark that the leader has told of, which this log may not reach yet."""
        return self._leaders_watermark

    @property
    def is_caught_up(self) -> bool:
        """Whether this log has all that is committed, as the leader has told; not before its first word."""
        return self._is_heard and self._log.end >= self._leaders_watermark

    def begin(self) -> list[Effect]:
        """What to do before the first fetch: without epochs only what is committed can be believed."""
        log = self._log
        if log.end > log.start and last_epoch(log) == NO_EPOCH and self.high_watermark < log.end:
            return [Truncate(max(self.high_watermark, log.start))]
        return []

    def next_fetch(self, now: Millis) -> FetchPosition | None:
        """Where to go on; None while backing off, or while what was fetched waits for the disk.

        The leader takes the offset for what this replica has, so it waits until all of that counts.
        """
        log = self._log
        end = log.end
        if now < self.retry_at or self._stored < end:
            return None
        return FetchPosition(end, last_epoch(log), self.epoch, log.start)

    def answered(self, position: FetchPosition, answer: FetchAnswer, now: Millis) -> list[Effect]:
        """What to do about an answer; an answer to anything but the next fetch is passed over."""
        log = self._log
        if position.epoch != self.epoch or position.offset != log.end or self._stored < log.end:
            return []
        if answer.code is Code.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(answer, now)
        if answer.code is not Code.NONE:
            self.failed(now)
            return []
        if position.last_epoch != last_epoch(log):
            return []
        self._failures = 0
        if answer.diverging is not None:
            return [Truncate(common_end(log, answer.diverging))]
        effects: list[Effect] = []
        self._is_heard = True
        self._leaders_watermark = max(self._leaders_watermark, answer.high_watermark)
        if len(answer.records):
            effects.append(Append(answer.records, self.epoch))
        if answer.log_start > log.start:
            # What was deleted goes first, where it is here: on a full disk it makes the room for what is new.
            at = 0 if answer.log_start <= log.end else len(effects)
            effects.insert(at, AdvanceStart(answer.log_start))
        return effects

    def failed(self, now: Millis) -> None:
        """Something went wrong, here or on the way: try again later. Other partitions are not concerned."""
        self.retry_at = Millis(now + min(self._backoff_ms, FIRST_BACKOFF_MS << min(self._failures, 16)))
        self._failures += 1

    def stored(self, end: Offset) -> bool:
        """After effects, and after a flush: the log counts up to `end`, its end, or where flush.messages asks for the
        disk what is flushed. Whether the watermark has moved.
        """
        log, before = self._log, self.high_watermark
        self._stored = end
        committed = max(min(self._leaders_watermark, end), min(before, log.end), log.start)
        self.high_watermark = committed
        return committed != before

    def _out_of_range(self, answer: FetchAnswer, now: Millis) -> list[Effect]:
        """The leader starts above this log's end, or, which is found by epochs where there are any, ends below it."""
        end = self._log.end
        if answer.log_start > end:
            return [StartOver(answer.log_start)]
        if NO_OFFSET < answer.high_watermark < end and last_epoch(self._log) == NO_EPOCH:
            return [Truncate(max(answer.high_watermark, answer.log_start))]
        self.failed(now)
        return []

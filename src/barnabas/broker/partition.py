"""Owns a partition's leadership on this broker: its epoch and its high watermark, over its log.

Called by handlers through `replicas`. The watermark never falls, and nothing at or above it is ever served,
acknowledged or taken for committed. It moves in one place, `_advance`: with the end of the log, or, where
flush.messages asks for the disk first, with what was flushed.
"""

from collections.abc import Callable
from typing import Protocol

from barnabas.config import TopicConfig
from barnabas.disk import FileSlice
from barnabas.errors import Code, Refused
from barnabas.log.epochs import UNKNOWN_EPOCH, EpochEnd
from barnabas.log.flush import Flush
from barnabas.log.log import Appended, Log
from barnabas.types import NO_EPOCH, LeaderEpoch, Millis, Offset, TopicPartition
from barnabas.wire.batch import wrap_records

HELD = "The broker was started on a full disk: it takes records once there is room for its metadata."


class Watcher(Protocol):
    """Somebody who waits for a partition to get more records."""

    def wake(self, partition: "Partition") -> None: ...


class Partition:
    """A partition that this broker leads."""

    __slots__ = ("_want_flush", "_watchers", "epoch", "high_watermark", "is_held", "log", "tp")

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        epoch: LeaderEpoch,
        want_flush: Callable[["Partition"], object],
    ) -> None:
        """`want_flush` is called when records wait for the disk; it answers with `finish_flush`, sooner or later.

        What the log has counts as seen: where flush.messages asks for the disk, `log` was flushed before.
        """
        self.tp = tp
        self.log = log
        self.epoch = epoch
        self.is_held = False
        """Whether the epoch of this start is not stored yet: a record under the old one could pass for another's."""
        self.high_watermark = log.end
        self._want_flush = want_flush
        self._watchers: set[Watcher] = set()

    @property
    def last_stable(self) -> Offset:
        """What readers of committed records may see: below it no transaction is open."""
        unstable = self.log.producers.first_unstable
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def append(self, batches: memoryview, now: Millis) -> Appended:
        """Store a batch as its leader."""
        if self.is_held:
            raise Refused(Code.KAFKA_STORAGE_ERROR, HELD)
        appended = self.log.append(batches, epoch=self.epoch, now=now, in_transaction=False)
        self._advance()
        return appended

    def append_own(self, body: bytes, count: int, now: Millis) -> None:
        """Store so many records that the broker itself has made, given as the record section of a batch."""
        if self.is_held:
            raise Refused(Code.KAFKA_STORAGE_ERROR, HELD)
        log, epoch = self.log, self.epoch
        batch = wrap_records(
            body, count, base_timestamp=now, max_timestamp=now, base_offset=log.end, leader_epoch=epoch
        )
        log.append_own(batch, count, epoch=epoch, now=now)
        self._advance()

    def finish_flush(self, flush: Flush) -> None:
        """Let what `flush` has brought to the disk be seen."""
        self.log.finish_flush(flush)
        self._advance()

    def configure(self, config: TopicConfig) -> None:
        """Go by other settings: what they want on the disk is flushed, what waits for no flush any more is seen."""
        self.log.config = config
        self._advance()

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages asks for the disk now."""
        log = self.log
        return log.end - log.recovery_point >= log.config.flush_messages

    def _advance(self) -> None:
        """Move the high watermark as far as it may go.

        The only replica there is has it all, so that is the end of the log. An append that leaves flush.messages
        unflushed records or more, and those behind it, wait for the disk first.
        """
        log = self.log
        end = log.end
        flushed = log.recovery_point
        if end - flushed >= log.config.flush_messages:
            end = flushed
            self._want_flush(self)
        if end > self.high_watermark:
            self.high_watermark = end
            if self._watchers:
                self.wake()

    def read(self, offset: Offset, max_bytes: int, *, committed: bool) -> FileSlice | None:
        """Records from `offset` on, below the high watermark (committed: below the last stable offset)."""
        return self.log.read(offset, max_bytes, self.visible_below(committed=committed))

    def read_newest(self, offset: Offset, most: int, *, committed: bool) -> bytes | None:
        """The last batch, where a reader at `offset` may see it and needs no more; None asks to `read`."""
        log = self.log
        return log.read_newest(offset, most) if self.visible_below(committed=committed) == log.end else None

    def visible_below(self, *, committed: bool) -> Offset:
        """Where a reader's view of the log ends."""
        return self.last_stable if committed else self.high_watermark

    def max_timestamp(self) -> tuple[Millis, Offset] | None:
        """The largest timestamp below the high watermark, and the first record that has it; None without any."""
        return self.log.max_timestamp(self.high_watermark)

    def check_epoch(self, known: int) -> None:
        """Refuse a client whose idea of the leader epoch is not ours."""
        if known == self.epoch or known == NO_EPOCH:
            return
        raise Refused(Code.FENCED_LEADER_EPOCH if known < self.epoch else Code.UNKNOWN_LEADER_EPOCH)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the record at an offset; of one that is yet to come, or long gone, the leader's own."""
        known = self.log.epochs.epoch_at(offset)
        return self.epoch if known == NO_EPOCH else known

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """The largest epoch not above this one, and where it ended, at the high watermark at most.

        The log knows ours only once it has a batch of it: until then it begins where the log ends.
        """
        if epoch == self.epoch:
            return EpochEnd(epoch, self.high_watermark)
        known = self.log.epochs
        if known.latest < epoch < self.epoch:
            return EpochEnd(known.latest if known.entries else epoch, self.high_watermark)
        end = known.end_of(epoch, self.high_watermark)
        return EpochEnd(end.epoch, min(end.end, self.high_watermark))

    def divergence(self, epoch: LeaderEpoch, offset: Offset) -> EpochEnd | None:
        """Where a reader that has records of `epoch` up to `offset` must go back to, if it must."""
        end = self.end_of_epoch(epoch)
        if end == UNKNOWN_EPOCH:
            raise Refused(Code.OFFSET_OUT_OF_RANGE)
        return end if end.epoch < epoch or end.end < offset else None

    def delete_records(self, before: Offset) -> Offset:
        """Drop what lies before an offset (-1: before the high watermark); the new log start."""
        target = self.high_watermark if before == -1 else before
        if not 0 <= target <= self.high_watermark:
            raise Refused(Code.OFFSET_OUT_OF_RANGE)
        if target > self.log.start:
            self.log.advance_start(target)
        return self.log.start

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def wake(self) -> None:
        for watcher in list(self._watchers):
            watcher.wake(self)

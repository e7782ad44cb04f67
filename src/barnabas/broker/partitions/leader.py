"""A partition that this broker leads: the only one that takes records from producers and from the broker itself.

Called by handlers through `Replicas.leader`. The watermark moves with the end of the log, or, where flush.messages asks
for the disk first, with what was flushed. Followers' ends will hold it back in `_advance`, and nowhere else.
"""

from collections.abc import Callable

from barnabas.broker.partitions.partition import Partition
from barnabas.errors import Code, Refused
from barnabas.log.epochs import UNKNOWN_EPOCH, EpochEnd
from barnabas.log.log import Appended, Log
from barnabas.types import NO_EPOCH, LeaderEpoch, Millis, Offset, TopicPartition
from barnabas.wire.batch import wrap_records

HELD = "The broker was started on a full disk: it takes records once there is room for its metadata."


class Leader(Partition):
    """Mutable: the partition as its leader has it."""

    __slots__ = ("is_held",)

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        epoch: LeaderEpoch,
        want_flush: Callable[[Partition], object],
    ) -> None:
        """What the log has counts as seen: where flush.messages asks for the disk, `log` was flushed before."""
        super().__init__(tp, log, epoch, log.end, want_flush)
        self.is_held = False
        """Whether the epoch of this start is not stored yet: a record under the old one could pass for another's."""

    def append(self, batches: memoryview, now: Millis) -> Appended:
        """Store a batch as its leader."""
        if self.is_held:
            raise Refused(Code.KAFKA_STORAGE_ERROR, HELD)
        appended = self.log.append(batches, epoch=self.epoch, now=now, in_transaction=False)
        self._advance()
        return appended

    def append_own(self, body: bytes, count: int, now: Millis) -> None:
        """Store `count` records that the broker itself has made, given as the record section of a batch."""
        if self.is_held:
            raise Refused(Code.KAFKA_STORAGE_ERROR, HELD)
        log, epoch = self.log, self.epoch
        batch = wrap_records(
            body, count, base_timestamp=now, max_timestamp=now, base_offset=log.end, leader_epoch=epoch
        )
        log.append_own(batch, count, epoch=epoch, now=now)
        self._advance()

    def _advance(self) -> None:
        # The only replica there is has it all.
        self._advance_to(self.log.end)

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

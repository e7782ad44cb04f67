"""A partition that follows its leader on another broker: it stores what the leader has stored, and serves no client.

Called by what fetches from leaders. The watermark is what the leader says, as far as this log reaches and
flush.messages lets it be seen.
"""

from collections.abc import Callable

from barnabas.broker.partitions.partition import Partition
from barnabas.log.log import Log
from barnabas.types import LeaderEpoch, Millis, Offset, TopicPartition


class Follower(Partition):
    """Mutable: the partition as a follower has it."""

    __slots__ = ("_told",)

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        epoch: LeaderEpoch,
        high_watermark: Offset,
        want_flush: Callable[[Partition], object],
    ) -> None:
        super().__init__(tp, log, epoch, min(high_watermark, log.end), want_flush)
        self._told = self.high_watermark

    def store(self, batches: memoryview, high_watermark: Offset, now: Millis) -> None:
        """Append what the leader has sent, and learn how far it is committed."""
        self.log.append_replicated(batches, now=now)
        self._told = max(self._told, high_watermark)
        self._advance()

    def _advance(self) -> None:
        self._advance_to(min(self._told, self.log.end))

"""One partition on this broker: its log, its leader epoch, its high watermark. What both of its roles have.

`replicas` makes a `Leader` or a `Follower` of each, as the cluster image says; look-ups name the role they mean. The
watermark never falls, and nothing at or above it is ever served, acknowledged or taken for committed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from barnabas.config import TopicConfig
from barnabas.disk import FileSlice
from barnabas.errors import Code
from barnabas.log.flush import Flush
from barnabas.log.log import Log
from barnabas.types import LeaderEpoch, Offset, TopicPartition
from barnabas.wire.schema import NO_ID


class Watcher(Protocol):
    """Waits for a partition to get more records."""

    def wake(self, partition: "Partition") -> None: ...


class Partition(ABC):
    """Mutable: a partition in either role."""

    __slots__ = ("_want_flush", "_watchers", "epoch", "high_watermark", "log", "topic_id", "tp")

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        epoch: LeaderEpoch,
        high_watermark: Offset,
        want_flush: Callable[["Partition"], object],
    ) -> None:
        """`want_flush` is called when records wait for the disk; it answers with `finish_flush`, sooner or later."""
        self.tp = tp
        self.topic_id = NO_ID
        """The topic it is of: the name alone could be another's by now."""
        self.log = log
        self.epoch = epoch
        self.high_watermark = high_watermark
        self._want_flush = want_flush
        self._watchers: dict[Watcher, None] = {}

    @property
    def last_stable(self) -> Offset:
        """What readers of committed records may see: below it no transaction is open, or ended above the watermark.

        It is never below the log's start: what was deleted of an open transaction holds nothing up.
        """
        producers, high_watermark = self.log.producers, self.high_watermark
        if producers.first_unstable is None:
            return high_watermark
        producers.acknowledge(high_watermark)
        unstable = producers.first_unstable
        return high_watermark if unstable is None else min(max(unstable, self.log.start), high_watermark)

    @property
    @abstractmethod
    def is_replicated(self) -> bool:
        """Whether other brokers have it too."""

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

    @abstractmethod
    def _advance(self) -> None:
        """Move the high watermark as far as it may go."""

    @abstractmethod
    def resign(self, code: Code) -> None:
        """The partition is no more what it was here: whatever waits for it is woken."""

    def _stored_end(self) -> Offset:
        """Up to where this replica has its log: to the end, or, where flush.messages asks for the disk, flushed."""
        log = self.log
        if log.end - log.recovery_point >= log.config.flush_messages:
            self._want_flush(self)
            return log.recovery_point
        return log.end

    def _advance_to(self, end: Offset) -> None:
        """Move the high watermark up to `end`, which the partition has.

        Records that leave flush.messages unflushed or more, and those behind them, wait for the disk first.
        """
        log = self.log
        flushed = log.recovery_point
        if log.end - flushed >= log.config.flush_messages:
            if flushed < end:
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
        if self.visible_below(committed=committed) != log.end or (committed and log.has_aborted):
            return None
        return log.read_newest(offset, most)

    def visible_below(self, *, committed: bool) -> Offset:
        """Where a reader's view of the log ends."""
        return self.last_stable if committed else self.high_watermark

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def wake(self) -> None:
        for watcher in list(self._watchers):
            watcher.wake(self)

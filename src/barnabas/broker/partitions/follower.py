"""A partition that follows its leader on another broker: it stores what the leader has stored.

The fetchers drive it; the pure `Following` decides what is fetched next and what becomes of an answer, and this carries
it out. The watermark is what the leader says, as far as this log reaches and flush.messages lets it be seen. Clients
read here only what is below it, and only those that ask for the replica nearest to them.
"""

from collections.abc import Callable

from barnabas.broker.partitions.partition import Partition
from barnabas.errors import Code, Refused
from barnabas.log.epochs import EpochEnd
from barnabas.log.flush import Flush
from barnabas.log.log import Log
from barnabas.replication.following import (
    AdvanceStart,
    Append,
    Effect,
    FetchAnswer,
    FetchPosition,
    Following,
    StartOver,
    Truncate,
)
from barnabas.replication.histories import divergence
from barnabas.types import NO_EPOCH, BrokerId, LeaderEpoch, Millis, Offset, TopicPartition

NO_LEADER = BrokerId(-1)
BACKOFF_MS = 1000


class Follower(Partition):
    """Mutable: the partition as a follower has it."""

    __slots__ = ("_backoff_ms", "following", "leader", "on_stored")

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        epoch: LeaderEpoch,
        high_watermark: Offset,
        want_flush: Callable[[Partition], object],
        *,
        leader: BrokerId = NO_LEADER,
        backoff_ms: int = BACKOFF_MS,
    ) -> None:
        super().__init__(tp, log, epoch, min(high_watermark, log.end), want_flush)
        self._backoff_ms = backoff_ms
        self.on_stored: Callable[[Follower], object] = lambda follower: None
        """Called when what waited for the disk is there: the leader can be asked for more."""
        self.follow(epoch, leader)

    @property
    def is_replicated(self) -> bool:
        return True

    def follow(self, epoch: LeaderEpoch, leader: BrokerId) -> None:
        """Follow the leader of an epoch; what was asked of another one counts no more."""
        self.epoch, self.leader = epoch, leader
        self.following = Following(
            self.log, epoch, self.high_watermark, stored=self._stored_end(), backoff_ms=self._backoff_ms
        )

    def heard(
        self, position: FetchPosition, answer: FetchAnswer, now: Millis, time_of_day: Millis
    ) -> list[Effect]:
        """Carry out what follows from an answer. What must be written down before it is done is given back: cuts."""
        return self.carry_out(self.following.answered(position, answer, now), time_of_day)

    def carry_out(self, effects: list[Effect], time_of_day: Millis) -> list[Effect]:
        """Raises Refused where the log takes no more, or where the leader sent what cannot be its log."""
        log = self.log
        cuts: list[Effect] = []
        for effect in effects:
            match effect:
                case Append(records, epoch):
                    log.append_replicated(memoryview(records), now=time_of_day, epoch=epoch)
                case AdvanceStart(to):
                    log.advance_start(min(to, log.end))
                case _:
                    cuts.append(effect)
        self._advance()
        return cuts

    def cut(self, effects: list[Effect]) -> None:
        """Drop what the leader does not have; a recovery point that is not above it was written down before."""
        for effect in effects:
            match effect:
                case Truncate(to):
                    self.log.truncate_to(to)
                case StartOver(at):
                    self.log.start_over_at(at)
        self._advance()

    def finish_flush(self, flush: Flush) -> None:
        super().finish_flush(flush)
        self.on_stored(self)

    def check_epoch(self, known: int) -> None:
        """Refuse a client whose idea of the leader epoch is not ours."""
        if known not in (self.epoch, NO_EPOCH):
            raise Refused(Code.FENCED_LEADER_EPOCH if known < self.epoch else Code.UNKNOWN_LEADER_EPOCH)

    def divergence(self, epoch: LeaderEpoch, offset: Offset) -> EpochEnd | None:
        """Where a reader that has records of `epoch` up to `offset` must go back to, if it must."""
        parts = divergence(self.log, epoch, offset)
        return None if parts is None else EpochEnd(*parts)

    def resign(self, code: Code) -> None:
        """The partition is another's now: whatever reads here is woken."""
        self.wake()

    def _advance(self) -> None:
        before = self.high_watermark
        if self.following.stored(self._stored_end()):
            self.high_watermark = self.following.high_watermark
            self.log.producers.acknowledge(self.high_watermark)
            if self._watchers and self.high_watermark > before:
                self.wake()

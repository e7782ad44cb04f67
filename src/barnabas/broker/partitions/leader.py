"""A partition that this broker leads: the only one that takes records from producers and from the broker itself.

Called by handlers through `Replicas.leader`. The watermark of the only replica moves with the end of the log, or, where
flush.messages asks for the disk first, with what was flushed. Of several replicas the pure `Leadership` decides it;
this is its shell: it tells of appends and fetches, wakes what waits for the watermark, and passes wishes on.
"""

from collections.abc import Callable
from typing import Protocol

from barnabas.broker.partitions.acknowledgements import Acknowledgements, Outcome
from barnabas.broker.partitions.partition import Partition
from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log.epochs import UNKNOWN_EPOCH, EpochEnd
from barnabas.log.log import Appended, Log
from barnabas.log.transactions.markers import marker_batch
from barnabas.log.transactions.verifications import ONGOING, Verification
from barnabas.replication.histories import Divergence, divergence
from barnabas.replication.leadership import UNKNOWN_PARTITION_EPOCH, IsrWish, Leadership
from barnabas.types import (
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Millis,
    Offset,
    PartitionEpoch,
    ProducerId,
    TopicPartition,
)
from barnabas.wire.batch import TRANSACTIONAL, wrap_records

OUTSIDE_OF_TRANSACTIONS = None
"""What batches are verified by that come without a transactional id."""

HELD = "The broker was started on a full disk: it takes records once there is room for its metadata."


class FollowersSession(Protocol):
    """What a follower fetches with."""

    def grown(self, leader: "Leader") -> None:
        """There is something to fetch, or a reason to refuse it."""

    def committed(self, leader: "Leader") -> None:
        """The high watermark or the log's start is another: the follower should hear of it soon."""


class Leader(Partition):
    """Mutable: the partition as its leader has it."""

    __slots__ = ("_acknowledgements", "_deletions", "_sessions", "is_held", "leadership", "on_wish")

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        epoch: LeaderEpoch,
        want_flush: Callable[[Partition], object],
        leadership: Leadership | None = None,
    ) -> None:
        """What the only replica has counts as seen: where flush.messages asks for the disk, `log` was flushed before.

        With several replicas the watermark begins where the machine says.
        """
        seen = log.end if leadership is None else leadership.high_watermark
        super().__init__(tp, log, epoch, seen, want_flush)
        self.is_held = False
        """Whether the epoch of this start is not stored yet: a record under the old one could pass for another's."""
        self.leadership: Leadership | None = None
        """None where this is the only replica."""
        self.on_wish: Callable[[Leader], object] = lambda leader: None
        """Called when the machine wishes for other in-sync replicas."""
        self._acknowledgements = Acknowledgements()
        self._deletions = Acknowledgements()
        """The same for DeleteRecords, by the smallest start of all replicas."""
        self._sessions: dict[FollowersSession, None] = {}
        """In the order in which they came: a set of objects would have another in each run."""
        if leadership is not None:
            self.lead(epoch, leadership)

    @property
    def is_replicated(self) -> bool:
        return self.leadership is not None

    @property
    def is_behind_its_epoch(self) -> bool:
        """Whether what the leader before may have shown is not known to be committed here yet."""
        return self.leadership is not None and self.high_watermark < self.leadership.epoch_start

    # What the image says

    def lead(self, epoch: LeaderEpoch, leadership: Leadership | None) -> None:
        """Begin an epoch, or go on with more or fewer replicas than before."""
        is_new = epoch != self.epoch or (leadership is not None and self.log.epochs.latest != epoch)
        self.epoch = epoch
        self.is_held = False
        self.leadership = leadership
        if is_new and leadership is not None:
            # Also without a record: a follower that asks is told where this epoch begins.
            self.log.epochs.assign(epoch, self.log.end)
        self._advance()
        self._tell_growth()

    def resign(self, code: Code) -> None:
        """Another broker leads now, or none: whatever waits here is told."""
        self._acknowledgements.refuse(Refused(code))
        self._deletions.refuse(Refused(code))
        self._tell_growth()
        self.wake()

    def configure(self, config: TopicConfig) -> None:
        if self.leadership is not None and config.min_insync_replicas != self.log.config.min_insync_replicas:
            self._moved(self.leadership.configure(min_insync=config.min_insync_replicas))
        super().configure(config)

    # Records

    def append(
        self, batches: memoryview, now: Millis, verified: Verification | None = OUTSIDE_OF_TRANSACTIONS
    ) -> Appended:
        """Store a batch as its leader; one in a transaction only as `verified` lets it in."""
        if self.is_held:
            raise Refused(Code.KAFKA_STORAGE_ERROR, HELD)
        appended = self.log.append(batches, epoch=self.epoch, now=now, verified=verified)
        self._advance()
        if self._sessions:
            self._tell_growth()
        return appended

    def append_own(self, body: bytes, count: int, now: Millis) -> None:
        """Store `count` records that the broker itself has made, given as the record section of a batch."""
        self._check_own()
        log, epoch = self.log, self.epoch
        batch = wrap_records(
            body, count, base_timestamp=now, max_timestamp=now, base_offset=log.end, leader_epoch=epoch
        )
        log.append_own(batch, count, epoch=epoch, now=now)
        self._advance()
        if self._sessions:
            self._tell_growth()

    def append_own_in_transaction(
        self,
        body: bytes,
        count: int,
        now: Millis,
        *,
        producer_id: ProducerId,
        producer_epoch: int,
        verified: Verification,
    ) -> None:
        """The same in a producer's name: the records count when its transaction is committed."""
        self._check_own()
        batch = wrap_records(
            body,
            count,
            base_timestamp=now,
            max_timestamp=now,
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        writable = memoryview(bytearray(batch))
        self.log.append(writable, epoch=self.epoch, now=now, internal=True, verified=verified)
        self._advance()
        if self._sessions:
            self._tell_growth()

    def write_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        now: Millis,
        transaction_version: int = 0,
    ) -> Offset:
        """End a producer's transaction here; where the marker is. Raises Refused for one that is late."""
        self._check_own()
        batch = marker_batch(producer_id, producer_epoch, coordinator_epoch, commit=commit, now=now)
        marker = self.log.append_marker(
            memoryview(batch), epoch=self.epoch, now=now, transaction_version=transaction_version
        )
        self._advance()
        self.log.producers.acknowledge(self.high_watermark)
        if self._sessions:
            self._tell_growth()
        return marker

    def _check_own(self) -> None:
        if self.is_held:
            raise Refused(Code.KAFKA_STORAGE_ERROR, HELD)
        if self.leadership is not None:
            self.check_insync()

    def verification(
        self, producer_id: ProducerId, epoch: int, sequence: int, *, bumps_epochs: bool, now: Millis
    ) -> Verification:
        """What a batch of a transaction is to be appended with: ONGOING, or what the coordinator has to agree to first.

        `sequence` is -1 for what the broker writes in the producer's name.
        """
        producers = self.log.producers
        if producers.has_open(producer_id, epoch):
            return ONGOING
        return producers.verifications.begin(producer_id, epoch, sequence, bumps_epochs=bumps_epochs, now=now)

    def check_insync(self) -> None:
        """Refuse what is to be on min.insync.replicas while fewer are in sync."""
        if self.leadership is not None and not self.leadership.is_enough_for_all:
            raise Refused(Code.NOT_ENOUGH_REPLICAS)

    def wait_for(self, upto: Offset, timeout_ms: int) -> Outcome:
        """When all below `upto` is committed; for a partition with several replicas."""
        outcome = self._acknowledgements.wait(upto, timeout_ms)
        self._moved(False)
        return outcome

    def has_stored(self, last: Offset) -> bool:
        """Whether this replica itself has a record, on the disk where flush.messages asks for it."""
        return last < (self.log.recovery_point if self.must_flush else self.log.end)

    def _advance(self) -> None:
        leadership, log = self.leadership, self.log
        if leadership is None:
            # The only replica there is has it all. Without a call, as each produce comes here: 0.1 of its 7 us.
            if log.end - log.recovery_point >= log.config.flush_messages:
                self._advance_to(log.end)
            elif log.end > self.high_watermark:
                self.high_watermark = log.end
                if self._watchers:
                    self.wake()
        elif leadership.appended(self._stored_end()):
            self._moved(True)

    def _moved(self, has_moved: bool) -> None:
        """Show the machine's watermark, and pass on what else may have become of it."""
        leadership = self.leadership
        assert leadership is not None
        if has_moved:
            self.high_watermark = leadership.high_watermark
            self.log.producers.acknowledge(self.high_watermark)
            if self._watchers:
                self.wake()
            for session in self._sessions:
                session.committed(self)
        if self._acknowledgements:
            self._acknowledgements.passed(self.high_watermark)
            if not leadership.is_enough_for_all:
                self._acknowledgements.refuse(Refused(Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        if leadership.wish is not None:
            self.on_wish(self)

    # Followers

    def join(self, session: FollowersSession) -> None:
        self._sessions[session] = None

    def leave(self, session: FollowersSession) -> None:
        self._sessions.pop(session, None)

    def fetched(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        *,
        epoch: LeaderEpoch,
        last_epoch: LeaderEpoch,
        offset: Offset,
        log_start: Offset,
        now: Millis,
    ) -> Divergence | None:
        """A follower is about to read at `offset`; where it has to cut first, if it has to. Raises Refused."""
        leadership, log = self.leadership, self.log
        if leadership is None:
            raise Refused(Code.NOT_LEADER_OR_FOLLOWER, f"{self.tp} has no other replica")
        self.check_epoch(epoch)
        parts = divergence(log, last_epoch, offset)
        if parts is not None:
            return parts
        if not log.start <= offset <= log.end:
            raise Refused(Code.OFFSET_OUT_OF_RANGE)
        has_moved = leadership.fetched(replica, broker_epoch, epoch, offset, log_start, now)
        if has_moved or leadership.wish is not None:
            self._moved(has_moved)
        if self._deletions:
            self._deletions.passed(self.low_watermark())
        return None

    def tick(self, now: Millis) -> None:
        """Look for replicas that fell behind."""
        if self.leadership is not None:
            has_moved = self.leadership.tick(now)
            if has_moved or self.leadership.wish is not None:
                self._moved(has_moved)
            if self._deletions:
                self._deletions.passed(self.low_watermark())

    def answered(
        self,
        wish: IsrWish,
        code: Code,
        now: Millis,
        isr: tuple[BrokerId, ...] = (),
        partition_epoch: PartitionEpoch = UNKNOWN_PARTITION_EPOCH,
    ) -> None:
        """The controller's answer to a wish."""
        if self.leadership is not None:
            self._moved(self.leadership.answered(wish, code, now, isr, partition_epoch))

    def assigned(self, has_moved: bool) -> None:
        """The machine was told of the partition as it is now, in the same leader epoch."""
        self._moved(has_moved)

    def _tell_growth(self) -> None:
        for session in self._sessions:
            session.grown(self)

    # Epochs

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
        """The largest epoch not above this one, and where it ended; the current one ends where the log does.

        With several replicas that is not the high watermark: a follower that is in sync may have more than is known to
        be committed, and must not cut it. An only replica has no followers: what is not on the disk yet where
        flush.messages asks for it is not told of. Its log knows our epoch once it has a batch of it: until then it
        begins where the log ends.
        """
        log_end = self.high_watermark if self.leadership is None else self.log.end
        if epoch == self.epoch:
            return EpochEnd(epoch, log_end)
        known = self.log.epochs
        if known.latest < epoch < self.epoch:
            return EpochEnd(known.latest if known.entries else epoch, log_end)
        end = known.end_of(epoch, log_end)
        return EpochEnd(end.epoch, min(end.end, log_end))

    def divergence(self, epoch: LeaderEpoch, offset: Offset) -> EpochEnd | None:
        """Where a reader that has records of `epoch` up to `offset` must go back to, if it must."""
        end = self.end_of_epoch(epoch)
        if end == UNKNOWN_EPOCH:
            raise Refused(Code.OFFSET_OUT_OF_RANGE)
        return end if end.epoch < epoch or end.end < offset else None

    # The log's start

    def delete_records(self, before: Offset) -> Offset:
        """Drop what lies before an offset (-1: before the high watermark); the new log start."""
        target = self.high_watermark if before == -1 else before
        if not 0 <= target <= self.high_watermark:
            raise Refused(Code.OFFSET_OUT_OF_RANGE)
        if target > self.log.start:
            self.log.advance_start(target)
            for session in self._sessions:
                session.committed(self)
        return self.log.start

    def all_start_at(self, offset: Offset, timeout_ms: int) -> Outcome:
        """When every replica that lives starts at this offset, or above it."""
        outcome = self._deletions.wait(offset, timeout_ms)
        self._deletions.passed(self.low_watermark())
        return outcome

    def low_watermark(self) -> Offset:
        """The smallest start of all replicas that live."""
        return self.log.start if self.leadership is None else self.leadership.low_watermark(self.log.start)

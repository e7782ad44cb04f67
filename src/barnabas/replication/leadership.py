"""One partition as its leader sees its replicas: what each has, which are in sync, what is committed. PURE.

The shell tells of appends, of fetches and of the time, sends the wish there may be to the controller (AlterPartition),
and serves nothing at or above `high_watermark`. One object is of one leader epoch; its watermark goes to the next one.

Always holds:
- The high watermark never falls. It is at most what each replica of the *maximal* in-sync set has stored: a replica
  that is wished for counts already, one that is wished away counts until that is granted (KIP-497). The controller may
  have granted the last wish, so any set that it elects from has all that is committed.
- It stands still while fewer than min.insync.replicas are in sync (KIP-966).
- Only fetches of the leader's own epoch count: an older one says nothing about the records of this one.
- One wish is under way at a time, and the same one until its outcome is known.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from barnabas.errors import Code, Refused
from barnabas.types import NO_OFFSET, BrokerEpoch, BrokerId, LeaderEpoch, Millis, Offset, PartitionEpoch

QUIET_MS, LONGEST_QUIET_MS = 500, 8_000
"""For how long no replica is wished for after the controller has found one ineligible. That one itself is not for twice
as long each time: a broker without room can be ineligible for hours."""

SILENT_MS = 5_000
"""For how long the watermark waits for a replica that is not in sync and does not fetch what there is for it: it may be
dead, and no change of the in-sync set tells of that. Far longer than a fetch takes."""

OVERTAKEN = {
    Code.INVALID_UPDATE_VERSION,
    Code.FENCED_LEADER_EPOCH,
    Code.NEW_LEADER_ELECTED,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.UNKNOWN_TOPIC_ID,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.INVALID_REQUEST,
}
"""The partition is not as this leader believes: what it is by now is on its way from the controller."""

UNKNOWN_EPOCH = BrokerEpoch(-1)
UNKNOWN_PARTITION_EPOCH = PartitionEpoch(-1)


class PartitionState(Protocol):
    """What the controller says of a partition; `cluster.image.PartitionImage` is one."""

    @property
    def replicas(self) -> tuple[BrokerId, ...]: ...
    @property
    def isr(self) -> tuple[BrokerId, ...]: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def partition_epoch(self) -> PartitionEpoch: ...


class IsrWish(NamedTuple):
    """An in-sync set that the leader asks the controller for, each member with the life that it is known by."""

    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch


class RemoteReplica:
    """Mutable: what the leader knows of one follower, from its fetches in this leader epoch."""

    __slots__ = (
        "broker",
        "broker_epoch",
        "caught_up_at",
        "end",
        "fetched_at",
        "in_sync",
        "is_arriving",
        "is_stuck",
        "leader_end",
        "log_start",
        "quiet_ms",
        "quiet_until",
    )

    def __init__(self, broker: BrokerId, now: Millis, *, in_sync: bool) -> None:
        self.broker = broker
        self.broker_epoch = UNKNOWN_EPOCH
        self.end = self.log_start = self.leader_end = NO_OFFSET
        self.caught_up_at = now if in_sync else Millis(0)
        """When it last had all that the leader had then."""
        self.fetched_at = Millis(0)
        self.in_sync = in_sync
        self.is_arriving = False
        """Not in sync yet, but as good as: the watermark waits for it, or under load it would never get past it."""
        self.is_stuck = False
        """Not in sync, and it asks again for what it was given: its disk is full, for one."""
        self.quiet_ms = 0
        self.quiet_until = Millis(0)

    def refused(self, now: Millis) -> None:
        """The controller has found it ineligible."""
        self.quiet_ms = min(2 * self.quiet_ms or QUIET_MS, LONGEST_QUIET_MS)
        self.quiet_until = Millis(now + self.quiet_ms)

    def begin_life(self, epoch: BrokerEpoch) -> None:
        """What was held against the life before counts no more."""
        self.broker_epoch = epoch
        self.quiet_ms, self.quiet_until = 0, Millis(0)


class Leadership:
    """Mutable: the replicas of a partition in one leader epoch."""

    __slots__ = (
        "_counted",
        "_haunting",
        "_is_doubted",
        "_is_short",
        "_lag_ms",
        "_live",
        "_me",
        "_min_insync",
        "_pending",
        "_quiet_until",
        "end",
        "epoch",
        "epoch_start",
        "high_watermark",
        "isr",
        "partition_epoch",
        "remotes",
        "replicas",
        "wish",
    )

    def __init__(
        self,
        me: BrokerId,
        state: PartitionState,
        *,
        epoch_start: Offset,
        high_watermark: Offset,
        live: Mapping[BrokerId, BrokerEpoch],
        min_insync: int,
        lag_ms: int,
        now: Millis,
    ) -> None:
        """Begin with the watermark that this replica had, not with its end: others may have less.

        `live` are the brokers there are and their epochs; the shell keeps it up to date, one for all partitions.
        Until the first `appended` the leader itself counts with what is committed.
        """
        self._me = me
        self._live = live
        self._min_insync = min_insync
        self._lag_ms = lag_ms
        self.epoch = state.leader_epoch
        self.epoch_start = epoch_start
        self.high_watermark = self.end = high_watermark
        self.remotes: dict[BrokerId, RemoteReplica] = {}
        self._quiet_until = Millis(0)
        self._pending: IsrWish | None = None
        self._is_doubted = False
        """Whether the wish under way was sent more than once."""
        self._haunting: set[BrokerId] = set()
        """Replicas of a wish that was refused, of which a copy may still be on its way, and be granted."""
        self.wish: IsrWish | None = None
        """To be sent: `take_wish` hands it out."""
        self._adopt(state.replicas, state.isr, state.partition_epoch, now)

    @property
    def is_short(self) -> bool:
        """Whether fewer replicas are in sync than min.insync.replicas asks for."""
        return self._is_short

    @property
    def is_at_minimum(self) -> bool:
        """Whether one replica less would be too few."""
        return len(self.isr) == min(self._min_insync, len(self.replicas))

    @property
    def is_enough_for_all(self) -> bool:
        """Whether a batch with acks=all may enter: otherwise NOT_ENOUGH_REPLICAS."""
        return not self._is_short

    def outcome(self, upto: Offset) -> Code | None:
        """What to answer to acks=all for a batch that ends at `upto`; None while it has to wait."""
        if self.high_watermark >= upto:
            return Code.NONE
        return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self._is_short else None

    def configure(self, *, min_insync: int, lag_ms: int | None = None) -> bool:
        """Go by other settings; whether the watermark has moved."""
        self._min_insync = min_insync
        if lag_ms is not None:
            self._lag_ms = lag_ms
        self._recount()
        return self._advance()

    def appended(self, end: Offset) -> bool:
        """The leader's own log counts up to `end` now (where flush.messages asks for the disk: up to what is flushed).

        Whether the watermark has moved, here as everywhere.
        """
        self.end = end
        return self._advance()

    def fetched(
        self,
        replica: BrokerId,
        broker_epoch: BrokerEpoch,
        epoch: LeaderEpoch,
        offset: Offset,
        log_start: Offset,
        now: Millis,
    ) -> bool:
        """A replica fetches at `offset`: it has all below. Raises Refused for one that has no business here.

        Only for a fetch that does not diverge and lies in the log: what it has is then what the leader has. 0.5 us.
        """
        remote = self.remotes.get(replica)
        if remote is None or broker_epoch < remote.broker_epoch:
            raise Refused(
                Code.NOT_LEADER_OR_FOLLOWER, f"broker {replica} is no replica, or was in another life"
            )
        if epoch != self.epoch:
            raise Refused(Code.FENCED_LEADER_EPOCH if epoch < self.epoch else Code.UNKNOWN_LEADER_EPOCH)
        end, before, committed, known_end = self.end, remote.end, self.high_watermark, remote.leader_end
        if broker_epoch != remote.broker_epoch:
            remote.begin_life(broker_epoch)
        remote.log_start = log_start
        remote.end = offset
        if offset >= end:
            remote.caught_up_at = now
        elif offset >= known_end and remote.fetched_at > remote.caught_up_at:
            # It has what there was when it last asked.
            remote.caught_up_at = remote.fetched_at
        remote.leader_end = end
        remote.fetched_at = now
        if remote.in_sync:
            return before <= committed < offset and self._advance()
        remote.is_stuck = before == offset < known_end
        self._consider(remote, now)
        return self._advance()

    def seen(self, replica: BrokerId, at: Millis) -> None:
        """A replica that was told of nothing new here has fetched other partitions at this time: it is alive, and
        where it had all that there was when it last asked, it had it until then.
        """
        remote = self.remotes.get(replica)
        if remote is not None and at > remote.fetched_at and remote.end >= remote.leader_end >= 0:
            remote.fetched_at = remote.caught_up_at = at

    def tick(self, now: Millis) -> bool:
        """Look for replicas that fell behind, or could join by now; also after `live` has changed."""
        if now >= self._quiet_until:
            self._quiet_until = Millis(0)
        for remote in self.remotes.values():
            if not remote.in_sync:
                self._consider(remote, now)
        if self._pending is None:
            late = {remote.broker for remote in self.remotes.values() if self._is_late(remote, now)}
            if late or (self._haunting and now >= self._quiet_until):
                # Even for the set there is: once it is granted, no copy of an earlier wish can be.
                self._ask([broker for broker in self.isr if broker not in late])
        return self._advance()

    @property
    def deadline(self) -> Millis | None:
        """When to `tick` next, unless something happens before."""
        times = [
            (self._waits_until(remote) if remote.is_arriving else remote.caught_up_at + self._lag_ms) + 1
            for remote in self.remotes.values()
            if remote.end < self.end and (remote.is_arriving or (remote.in_sync and self._pending is None))
        ]
        if self._quiet_until and self._pending is None:
            times.append(self._quiet_until)
        return Millis(min(times)) if times else None

    def take_wish(self) -> IsrWish | None:
        """The wish to send, once: until it is `answered` there is no other."""
        wish, self.wish = self.wish, None
        return wish

    def answered(
        self,
        wish: IsrWish,
        code: Code,
        now: Millis,
        isr: tuple[BrokerId, ...] = (),
        partition_epoch: PartitionEpoch = UNKNOWN_PARTITION_EPOCH,
    ) -> bool:
        """The controller's answer to a wish, or NETWORK_EXCEPTION and the like where there is none.

        A wish of which the outcome is not known stays, and is to be sent again: it may have been granted.
        """
        if wish != self._pending:
            return False
        if code is Code.NONE:
            return self._adopt(self.replicas, isr, partition_epoch, now)
        if code is Code.INELIGIBLE_REPLICA:
            if self._is_doubted:
                self._haunting.update(broker for broker, _ in wish.isr)
            self._pending = self.wish = None
            self._quiet_until = Millis(now + QUIET_MS)
            wished = {broker for broker, _ in wish.isr}
            for remote in self.remotes.values():
                remote.is_arriving = False
                if remote.broker in wished and not remote.in_sync:
                    remote.refused(now)
            self._recount()
            return self._advance()
        if code not in OVERTAKEN:
            self.wish = wish
            self._is_doubted = True
        return False

    def assigned(self, state: PartitionState, now: Millis) -> bool:
        """What the controller says the partition is, in the same leader epoch; anything older is passed over."""
        if state.leader_epoch != self.epoch or state.partition_epoch <= self.partition_epoch:
            return False
        return self._adopt(state.replicas, state.isr, state.partition_epoch, now)

    def low_watermark(self, own_start: Offset) -> Offset:
        """The smallest log start of all replicas that live: what DeleteRecords waits for; -1 where one is not known."""
        live = self._live
        starts = [remote.log_start for remote in self.remotes.values() if remote.broker in live]
        return min([own_start, *starts])

    def _adopt(
        self,
        replicas: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        partition_epoch: PartitionEpoch,
        now: Millis,
    ) -> bool:
        """Take what the controller has decided: no wish of before can be granted any more."""
        self.replicas, self.isr, self.partition_epoch = replicas, isr, partition_epoch
        self._pending = self.wish = None
        self._haunting.clear()
        before = self.remotes
        # The controller knows why, a broker that stops for one: what it did before says nothing, its next fetch does.
        taken_out = {broker for broker, remote in before.items() if remote.in_sync and broker not in isr}
        self.remotes = {
            broker: before.get(broker) or RemoteReplica(broker, now, in_sync=broker in isr)
            for broker in replicas
            if broker != self._me
        }
        outside = []
        for broker, remote in self.remotes.items():
            remote.in_sync = broker in isr
            remote.is_arriving = False
            if broker in taken_out:
                # Or a broker that was killed would hold the watermark back until its session ends.
                remote.end = NO_OFFSET
            elif not remote.in_sync:
                remote.is_arriving = self._arrives(remote, now)
                outside.append(remote)
        self._recount()
        for remote in outside:
            self._consider(remote, now)
        return self._advance()

    def _consider(self, remote: RemoteReplica, now: Millis) -> None:
        """Wish for a replica that keeps up, has all that is committed, and all that there was when this epoch began.

        Below the epoch's start it could still have what another leader has to cut.
        """
        arrives = self._arrives(remote, now)
        if arrives != remote.is_arriving:
            remote.is_arriving = arrives
            self._recount()
        has_all = remote.end >= self.high_watermark and remote.end >= self.epoch_start
        if arrives and has_all and self._pending is None:
            self._ask([*self.isr, remote.broker])

    def _arrives(self, remote: RemoteReplica, now: Millis) -> bool:
        """Whether it keeps up: one that does not would be wished away again at once."""
        if now < self._quiet_until or now < remote.quiet_until or remote.end < 0:
            return False
        if remote.is_stuck or not self._is_eligible(remote):
            return False
        return remote.end >= self.end or now <= self._waits_until(remote)

    def _waits_until(self, remote: RemoteReplica) -> int:
        """How long one that is behind and not in sync may still arrive, unless it fetches."""
        return min(remote.caught_up_at + self._lag_ms, remote.fetched_at + SILENT_MS)

    def _is_eligible(self, remote: RemoteReplica) -> bool:
        """Whether it lives, and what is known of it is of this life (KIP-841, KIP-903)."""
        return self._live.get(remote.broker) == remote.broker_epoch

    def _is_late(self, remote: RemoteReplica, now: Millis) -> bool:
        return remote.in_sync and remote.end < self.end and now - remote.caught_up_at > self._lag_ms

    def _ask(self, isr: list[BrokerId]) -> None:
        epochs = {remote.broker: remote.broker_epoch for remote in self.remotes.values()}
        epochs[self._me] = self._live.get(self._me, UNKNOWN_EPOCH)
        members = tuple((broker, epochs[broker]) for broker in self.replicas if broker in isr)
        self._pending = self.wish = IsrWish(members, self.epoch, self.partition_epoch)
        self._is_doubted = False
        self._recount()

    def _recount(self) -> None:
        """Note which replicas hold the watermark back."""
        wished = {broker for broker, _ in self._pending.isr} if self._pending else set()
        self._counted = [
            remote
            for remote in self.remotes.values()
            if remote.in_sync
            or remote.is_arriving
            or remote.broker in wished
            or remote.broker in self._haunting
        ]
        self._is_short = len(self.isr) < min(self._min_insync, len(self.replicas))

    def _advance(self) -> bool:
        if self._is_short:
            return False
        end = self.end
        for remote in self._counted:
            if remote.end < end:
                end = remote.end
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

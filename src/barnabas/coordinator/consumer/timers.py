"""Owns when the members of a KIP-848 group are late, in memory only. Called by consumer_group and classic_members.

A member that has no timers yet (after a load, a conversion, a record that was refused) gets them with `start`.
`deadline` is never later than the first of them: a timer that moves on leaves it where it was until the next `settle`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.config import BrokerConfig
from barnabas.coordinator.consumer.member import Member, Progress
from barnabas.coordinator.effects import NEVER

RETRY_MS = 1000


@dataclass(slots=True)
class TimersState:
    """Mutable: one member's timers."""

    session: int = NEVER
    rebalance: int = NEVER
    """Until when it may take to give partitions back, in `rebalance_epoch`."""
    rebalance_epoch: int = 0
    join: int = NEVER
    """Until when a classic member may take to join again after it was told of a rebalance."""
    sync: int = NEVER
    """Until when it may take to ask for its assignment after it joined."""

    def first(self) -> int:
        return min(self.session, self.rebalance, self.join, self.sync)

    def put_off(self, now: int) -> None:
        """What is due is due again in a moment."""
        for name in ("session", "rebalance", "join", "sync"):
            if getattr(self, name) <= now:
                setattr(self, name, now + RETRY_MS)


class MemberTimers:
    """Mutable: the timers of all members of a group."""

    __slots__ = ("_by_member", "_config", "deadline")

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._by_member: dict[str, TimersState] = {}
        self.deadline = NEVER

    def expect(self, member_id: str) -> None:
        """There is such a member. If it has no timers, the caller has to `start` them at once."""
        if member_id not in self._by_member:
            self.deadline = 0

    def forget(self, member_id: str) -> None:
        self._by_member.pop(member_id, None)

    def start(self, members: Mapping[str, Member], now: int) -> None:
        """Give timers to members that have none, and forget those of others."""
        self._by_member = {m: timers for m, timers in self._by_member.items() if m in members}
        for member in members.values():
            if member.id not in self._by_member:
                self.is_alive(member, now)
                self.revocation(member, now)

    def late(self, members: Mapping[str, Member], now: int) -> list[Member]:
        """Members that are late. They are so again after a while, should the log have refused to let them go."""
        found = []
        for member in members.values():
            timers = self._by_member[member.id]
            if timers.rebalance <= now and timers.rebalance_epoch != member.epoch:
                timers.rebalance = NEVER
            if timers.first() <= now:
                found.append(member)
                timers.put_off(now)
        return found

    def settle(self) -> None:
        """Find out when the next one is due."""
        self.deadline = min((timers.first() for timers in self._by_member.values()), default=NEVER)

    def is_alive(self, member: Member, now: int) -> None:
        """The member was heard of: its session begins anew."""
        classic = member.classic
        timers = self._of(member)
        if classic is None:
            timers.session = now + self._config.group_consumer_session_timeout_ms
            timers.join = timers.sync = NEVER
        else:
            timers.session = now + classic.session_timeout_ms
        self._due(timers.session)

    def revocation(self, member: Member, now: int) -> None:
        """The member took a step: it has its rebalance timeout to give back what it should, if anything."""
        timers = self._of(member)
        timers.rebalance = NEVER
        # A classic member gives back by joining again, and has a timer for that.
        if member.progress is Progress.UNREVOKED and member.classic is None:
            timers.rebalance = now + member.rebalance_timeout_ms
            timers.rebalance_epoch = member.epoch
            self._due(timers.rebalance)

    def must_join(self, member: Member, now: int) -> None:
        """A classic member was told to join again; the time it has does not begin anew when it is told twice."""
        timers = self._of(member)
        timers.join = min(timers.join, now + member.rebalance_timeout_ms)
        self._due(timers.join)

    def joined(self, member: Member, now: int) -> None:
        """A classic member joined: next it must sync."""
        self.is_alive(member, now)
        timers = self._of(member)
        timers.join = NEVER
        timers.sync = now + member.rebalance_timeout_ms
        self._due(timers.sync)

    def synced(self, member: Member, now: int) -> None:
        """A classic member has asked for its assignment."""
        self.is_alive(member, now)
        self._of(member).sync = NEVER

    def _of(self, member: Member) -> TimersState:
        return self._by_member.setdefault(member.id, TimersState())

    def _due(self, at: int) -> None:
        if at < self.deadline:
            self.deadline = at

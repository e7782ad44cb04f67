"""Owns how far the rebalance of a classic group has come: its generation, its members, and what each waits for.

The base of `classic`, which takes the requests. A rebalance lives in memory: members join (their requests wait), one of
them leads, it assigns, and only then a record is written. A group becomes Stable or Empty when that is applied.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      the first member joins   all have joined    the leader has assigned

Always holds: only members wait to join, and only in PreparingRebalance; only members wait for an assignment, and only
in CompletingRebalance; `deadline` is never later than the next thing due.
"""

from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

from barnabas.config import BrokerConfig
from barnabas.coordinator.classic.members import Members, MemberState
from barnabas.coordinator.effects import NEVER, Effects, Token
from barnabas.coordinator.group import Topics
from barnabas.coordinator.records import GroupMetadataKey, GroupMetadataValue, Record
from barnabas.errors import Code
from barnabas.wire.codec import Malformed
from barnabas.wire.messages.consumer_protocol import topics_in
from barnabas.wire.messages.groups import JoinGroupMember, JoinGroupResponse, SyncGroupResponse

RETRY_MS = 1000
"""After how long a group that ought to be empty says so again, when its record was refused."""

CONSUMERS = "consumer"
"""The protocol type of groups whose metadata tells which topics they read."""


class State(Enum):
    """Named as Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Rebalance:
    """Mutable: one group's membership, and the way to its next generation."""

    __slots__ = (
        "_config",
        "_delay_left",
        "_initial",
        "_join_deadline",
        "_joining",
        "_newcomers",
        "_pending",
        "_successor",
        "_sync_deadline",
        "_syncing",
        "deadline",
        "generation",
        "id",
        "leader",
        "members",
        "protocol",
        "protocol_type",
        "recorded",
        "since",
        "state",
        "topics",
    )

    def __init__(self, group_id: str, config: BrokerConfig) -> None:
        self.id = group_id
        self._config = config
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.topics: Set[str] | None = None
        """What the members subscribe to; None where they do not say it in a way we can read."""
        self.since = -1
        """When the group became Empty or Stable; -1 where it is not known."""
        self.recorded = False
        """Whether the log knows this group."""
        self.deadline = NEVER
        self._pending: dict[str, int] = {}
        """Ids given out to members that have yet to join with them, and until when they hold."""
        self._joining: dict[str, Token] = {}
        self._syncing: dict[str, Token] = {}
        self._join_deadline = NEVER
        self._sync_deadline = NEVER
        self._initial = False
        """The rebalance began in an empty group: more members are given time to come."""
        self._newcomers = False
        self._delay_left = 0
        self._successor: MemberState | None = None
        """A static member that will be in the group as soon as its record is applied."""

    # Time, topics, the end of a term

    def tick(self, now: int, topics: Topics, out: Effects) -> None:
        """Do what is due, and find out when the next thing is."""
        for member_id in [member_id for member_id, at in self._pending.items() if at <= now]:
            del self._pending[member_id]
            self._complete_if_all_joined(now, out)
        if self._expire_members(now, out):
            self._after_removal(now, out)
        if self._join_deadline <= now:
            self._end_of_joining(now, out)
        if self._sync_deadline <= now:
            self._end_of_syncing(now, out)
        self.deadline = min(
            self._join_deadline,
            self._sync_deadline,
            min(self._pending.values(), default=NEVER),
            min((member.deadline for member in self.members), default=NEVER),
        )

    def topics_grown(self, names: Set[str], now: int, out: Effects) -> None:
        """Topics got partitions: have them shared out anew, should this group read any of them."""
        if self.state in (State.STABLE, State.COMPLETING) and self.topics and self.topics & names:
            self._prepare(now, out)

    def loaded(self, now: int, out: Effects) -> None:
        """The log has been replayed: members have one session to show that they live."""
        for member in self.members:
            member.is_alive(now)
            self._due(member.deadline)
        if len(self.members) > self._config.group_max_size:
            self._prepare(now, out)

    def call_together(self, now: int, out: Effects) -> None:
        """The group was of another kind until now: let its members agree anew."""
        self.loaded(now, out)
        if self.state is State.STABLE:
            self._prepare(now, out)

    def release(self, code: Code, out: Effects) -> None:
        """Answer all waiting requests with this code."""
        for member_id, token in self._joining.items():
            out.reply(token, JoinGroupResponse(error_code=code, member_id=member_id))
        for token in self._syncing.values():
            out.reply(token, SyncGroupResponse(error_code=code))
        self._joining.clear()
        self._syncing.clear()

    # Rebalancing

    def _rebalance(self, now: int, out: Effects) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined(now, out)
        else:
            self._prepare(now, out)

    def _prepare(self, now: int, out: Effects) -> None:
        """Call the members together. Waiting requests for an assignment are refused."""
        for member_id, token in self._syncing.items():
            out.reply(token, SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
            self.members[member_id].is_alive(now)
            self._due(self.members[member_id].deadline)
        self._syncing.clear()
        self._sync_deadline = NEVER
        self._initial = self.state is State.EMPTY
        self.state = State.PREPARING
        patience = self.members.rebalance_timeout_ms
        if self._initial:
            delay = self._config.group_initial_rebalance_delay_ms
            self._newcomers = False
            self._delay_left = max(patience - delay, 0)
            self._await_joins(now + delay)
        elif not self._complete_if_all_joined(now, out):
            self._await_joins(now + patience)

    def _await_joins(self, until: int) -> None:
        self._join_deadline = until
        self._due(until)

    def _complete_if_all_joined(self, now: int, out: Effects) -> bool:
        if self.state is not State.PREPARING or self._initial or self._pending:
            return False
        if len(self._joining) < len(self.members):
            return False
        self._complete_join(now, out)
        return True

    def _end_of_joining(self, now: int, out: Effects) -> None:
        if self._initial and self._newcomers and self._delay_left > 0:
            delay = min(self._config.group_initial_rebalance_delay_ms, self._delay_left)
            self._newcomers = False
            self._delay_left -= delay
            self._await_joins(now + delay)
        else:
            self._complete_join(now, out)

    def _complete_join(self, now: int, out: Effects) -> None:
        """Begin the next generation with the members that joined, and with static members, which may be late."""
        for member in [m for m in self.members if m.instance_id is None and m.id not in self._joining]:
            self._remove(member.id, out)
        if not self.members:
            self._end_empty(now, out)
            return
        if self.leader not in self._joining:
            successor = next(iter(self._joining), None)
            if successor is None:
                self._await_joins(now + self.members.rebalance_timeout_ms)
                return
            self.leader = successor
        self.generation += 1
        self.protocol = self.members.elected_protocol()
        self._find_topics()
        self.state = State.COMPLETING
        self._initial = False
        self._join_deadline = NEVER
        self._sync_deadline = now + self.members.rebalance_timeout_ms
        self._due(self._sync_deadline)
        for member in self.members:
            member.is_new = False
            member.synced = False
            member.is_alive(now)
            self._due(member.deadline)
            if (token := self._joining.get(member.id)) is not None:
                out.reply(token, self._joined(member, with_members=True))
        self._joining.clear()

    def _end_empty(self, now: int, out: Effects) -> None:
        """The last member is gone. The generation counts on, so that an old member cannot pass for current."""
        empty = GroupMetadataValue(self.protocol_type or "", self.generation + 1, None, None, now)
        out.records.append(Record(GroupMetadataKey(self.id), empty))
        self._initial = False
        self._await_joins(now + RETRY_MS)

    def _assign(self, assignments: dict[str, bytes], now: int, out: Effects) -> None:
        """The leader has spoken: one record for all, and an answer for each waiting member."""
        value = self._value(now, self.leader, self.members, assignments)
        out.records.append(Record(GroupMetadataKey(self.id), value))
        for member_id, token in self._syncing.items():
            out.reply(token, self._assigned(assignments.get(member_id, b"")))
            self.members[member_id].is_alive(now)
            self._due(self.members[member_id].deadline)
        self._syncing.clear()

    def _end_of_syncing(self, now: int, out: Effects) -> None:
        """Put out members that never asked for their assignment. If all did, the record was refused: begin again."""
        for member in [member for member in self.members if not member.synced]:
            self._remove(member.id, out)
        self._prepare(now, out)

    def _stop_waiting_for_syncs(self) -> None:
        if all(member.synced for member in self.members):
            self._sync_deadline = NEVER

    # Members that go

    def _expire_members(self, now: int, out: Effects) -> bool:
        expired = False
        for member in [member for member in self.members if member.deadline <= now]:
            waits = member.id in self._joining or member.id in self._syncing
            if waits and not member.is_new:
                # It cannot send heartbeats while it waits for us; its session begins anew with the answer.
                member.deadline = NEVER
            else:
                self._remove(member.id, out)
                expired = True
        return expired

    def _remove(self, member_id: str, out: Effects) -> None:
        if (token := self._joining.pop(member_id, None)) is not None:
            out.reply(token, JoinGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        if (token := self._syncing.pop(member_id, None)) is not None:
            out.reply(token, SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        self.members.remove(member_id)
        if self.leader == member_id:
            first = self.members.first()
            self.leader = first.id if first else None

    def _after_removal(self, now: int, out: Effects) -> None:
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now, out)
        else:
            self._complete_if_all_joined(now, out)

    # Records and answers

    def _value(
        self, since: int, leader: str | None, members: Members, assignments: Mapping[str, bytes]
    ) -> GroupMetadataValue:
        rows = tuple(member.recorded(self.protocol, assignments.get(member.id, b"")) for member in members)
        return GroupMetadataValue(
            self.protocol_type or "", self.generation, self.protocol, leader, since, rows
        )

    def _due(self, at: int) -> None:
        if at < self.deadline:
            self.deadline = at

    def _displace(self, token: Token | None, response: type[Any], out: Effects) -> None:
        """A request repeated while the first still waits takes its place: one of them is answered for good."""
        if token is not None:
            out.reply(token, response(error_code=Code.REBALANCE_IN_PROGRESS))

    def _find_topics(self) -> None:
        if self.protocol_type != CONSUMERS or (self.members and self.protocol is None):
            self.topics = None
            return
        topics: set[str] = set()
        try:
            for member in self.members:
                topics.update(topics_in(member.metadata(self.protocol)))
        except Malformed:
            self.topics = None
        else:
            self.topics = topics

    def _joined(self, member: MemberState, *, with_members: bool) -> JoinGroupResponse:
        tell = with_members and member.id == self.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.id,
            members=self._member_rows(self.members) if tell else [],
        )

    def _member_rows(self, members: Members) -> list[JoinGroupMember]:
        return [JoinGroupMember(m.id, m.instance_id, m.metadata(self.protocol)) for m in members]

    def _assigned(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment
        )

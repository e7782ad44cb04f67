"""One member of a classic consumer group, as a machine without sockets or clocks: what to send, and what answers mean.

PURE. Driven by `membership`. It joins, leads if it is told to, syncs and sends heartbeats, one request at a time, and
leaves when its user does not poll for too long. Always holds: `assignment` is what the coordinator gave in the current
generation; an eager member has handed back everything before it joins again, a cooperative one what its group took
from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from barnabas.client.consumer.assignors import ASSIGNORS, Assignor, Candidate, assignment_bytes
from barnabas.client.consumer.member import LATER, NEVER, Member, Partitions, Phase
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.codec import Malformed
from barnabas.wire.messages.consumer_protocol import assignment_of
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

ClassicRequest: TypeAlias = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest
Response: TypeAlias = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse

PROTOCOL_TYPE = "consumer"

_LOST = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION})

_MEMBER = (Phase.STABLE, Phase.REVOKING)
"""Where heartbeats and commits tell how things are; elsewhere the answer to a join is on its way."""


class GroupMember(Member):
    """Mutable: one member of a classic group."""

    def __init__(
        self,
        group: str,
        topics: Iterable[str],
        *,
        assignors: Sequence[Assignor] = (ASSIGNORS["range"],),
        instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
        heartbeat_interval_ms: int = 3_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        super().__init__(
            group,
            topics,
            instance_id=instance_id,
            max_poll_interval_ms=max_poll_interval_ms,
            retry_backoff_ms=retry_backoff_ms,
        )
        self._assignors = {each.name: each for each in assignors}
        self._is_cooperative = any(each.is_cooperative for each in assignors)
        self._chosen = ""
        self._session_timeout_ms = session_timeout_ms
        self._interval = heartbeat_interval_ms / 1000
        self._must_rejoin = False
        self._claimed: Partitions = ()
        self._had: tuple[Partitions, int] = (), -1
        self._members: list[JoinGroupMember] = []
        self._is_to_assign = False
        self._has_held_back = False
        self._meet_again_at = NEVER

    @property
    def topics_to_assign(self) -> set[str]:
        return {topic for each in self._candidates().values() for topic in each.topics}

    # What the user does

    def rebalance(self, now: float) -> None:
        if self.phase is Phase.STABLE:
            self._rebalance(now)
        elif self.phase is not Phase.AWAY and (self.is_waiting or self.phase is not Phase.JOINING):
            self._must_rejoin = True

    def _is_free(self, now: float) -> None:
        if self.phase is Phase.REVOKING:
            self._join_again(now)

    def _has_all(self, now: float) -> None:
        pass  # no other member waits for that

    # What to send

    def next_request(self, now: float, partitions: Mapping[str, int]) -> ClassicRequest | None:
        """What is to be sent now. `partitions` counts those of `topics_to_assign`; unknown topics are left out.

        LeaveGroup is sent when the user has not polled in time, and its answer is ignored.
        """
        if self.is_waiting or self.phase is Phase.AWAY:
            return None
        if now >= self._poll_by:
            return self._leave_in_silence()
        if now < self._due:
            return None
        if self.phase is Phase.STABLE and now >= self._meet_again_at:
            self._rebalance(now)
        self.is_waiting = True
        if self.phase is Phase.JOINING:
            return self._join()
        if self.phase is Phase.SYNCING:
            return self._sync(partitions)
        return HeartbeatRequest(self.group, self.generation, self.id, self.instance_id)

    def leave_request(self, reason: str = "the consumer is closed") -> LeaveGroupRequest | None:
        """Goodbye; None where there is no member id yet, or the member's name stays (group.instance.id)."""
        if not self.id or self.instance_id is not None:
            return None
        return LeaveGroupRequest(self.group, self.id, [LeavingMember(self.id, reason=reason)])

    def _leave_in_silence(self) -> LeaveGroupRequest | None:
        """The user does not poll: others shall have its partitions. A static member's session ends by itself."""
        goodbye = self.leave_request("max.poll.interval.ms is over")
        self._lose(forget_id=True)
        self.phase = Phase.AWAY
        return goodbye

    def _join(self) -> JoinGroupRequest:
        self._claimed = self.assignment if self._is_cooperative else ()
        self._must_rejoin = False
        had, generation = self._had
        protocols = [
            JoinGroupProtocol(each.name, each.metadata(self.topics, self._claimed, had, generation))
            for each in self._assignors.values()
        ]
        return JoinGroupRequest(
            self.group,
            self._session_timeout_ms,
            self.rebalance_timeout_ms,
            self.id,
            self.instance_id,
            PROTOCOL_TYPE,
            protocols,
        )

    def _sync(self, partitions: Mapping[str, int]) -> SyncGroupRequest:
        assignments = []
        if self._is_to_assign:
            shares = self._assignors[self._chosen].assign(self._candidates(), partitions)
            assignments = [
                SyncGroupAssignment(each, assignment_bytes(share)) for each, share in shares.items()
            ]
            count = sum(partitions.get(topic, 0) for topic in self.topics_to_assign)
            self._has_held_back = sum(map(len, shares.values())) < count
        return SyncGroupRequest(
            self.group, self.generation, self.id, self.instance_id, PROTOCOL_TYPE, self._chosen, assignments
        )

    def _candidates(self) -> dict[str, Candidate]:
        found = {}
        for each in self._members:
            try:
                candidate = self._assignors[self._chosen].candidate(each.metadata, each.group_instance_id)
            except Malformed:
                candidate = Candidate(frozenset())  # metadata that cannot be read asks for nothing
            found[each.member_id] = candidate
        return found

    # What came back

    def take(self, response: Response, now: float) -> None:
        """The answer to the request under way."""
        self.is_waiting = False
        self._due = now
        match response:
            case JoinGroupResponse():
                self._joined(response, now)
            case SyncGroupResponse():
                self._synced(response, now)
            case HeartbeatResponse():
                # A commit may have heard of a rebalance, or worse, while this was under way: then it is old news.
                if self.phase in _MEMBER and not self._refused(response.error_code, now):
                    self._due = now + self._interval

    def commit_refused(self, code: int, generation: int, now: float) -> None:
        """A commit was refused; the group has told as much as by a heartbeat, if it was this generation's."""
        known = code in _LOST or code in (Code.REBALANCE_IN_PROGRESS, Code.FENCED_INSTANCE_ID)
        if known and generation == self.generation and self.phase in _MEMBER:
            self._refused(code, now)

    def _refused(self, code: int, now: float) -> bool:
        """An answer of the group's coordinator: False where it is no error."""
        if not code:
            return False
        if code in _LOST:
            self._lose(forget_id=code != Code.ILLEGAL_GENERATION)
            self._due = now
        elif code == Code.REBALANCE_IN_PROGRESS:
            self._rebalance(now)
        elif code in LATER:
            self._due = now + self._backoff
        else:
            self._give_up(code)
        return True

    def _rebalance(self, now: float) -> None:
        if self.phase is Phase.REVOKING:
            self._due = now + self._interval
            return
        if not self._is_cooperative:
            self.assignment = ()
            self._has_news = False
        if self.given and not self._is_cooperative:
            # What was read can still be committed, and heartbeats keep the member until its user polls.
            self.phase = Phase.REVOKING
            self._due = now + self._interval
        else:
            self._join_again(now)

    def _joined(self, answer: JoinGroupResponse, now: float) -> None:
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            return
        if self._refused(answer.error_code, now):
            return
        if 0 <= self.generation < answer.generation_id - 1 and self.given:
            # The group has shared out without us (a static member is not missed): others may have what we read.
            self._is_lost = True
        self.id = answer.member_id
        self.generation = answer.generation_id
        self._chosen = answer.protocol_name or ""
        self._members = answer.members if answer.leader == self.id else []
        self._is_to_assign = bool(self._members) and not answer.skip_assignment
        self._has_held_back = False
        if self._members and answer.skip_assignment and self._is_cooperative:
            # Whether all was shared out, only the leader before us knows; to meet again stops no member.
            self._must_rejoin = True
        self.phase = Phase.SYNCING
        if self._chosen not in self._assignors:
            self._give_up(Code.INCONSISTENT_GROUP_PROTOCOL)

    def _synced(self, answer: SyncGroupResponse, now: float) -> None:
        if self._refused(answer.error_code, now):
            return
        try:
            found = assignment_of(answer.assignment).assigned_partitions
        except Malformed:
            self._give_up(Code.INCONSISTENT_GROUP_PROTOCOL)
            return
        self.assignment = tuple(TopicPartition(each.topic, p) for each in found for p in each.partitions)
        self._had = self.assignment, self.generation
        self._has_news = True
        self.phase = Phase.STABLE
        self._due = now + self._interval
        # A member that has to give something up asks for the next round, unless it dies first.
        self._meet_again_at = now + self._session_timeout_ms / 1000 if self._has_held_back else NEVER
        taken = set(self._claimed).difference(self.assignment)
        if taken.intersection(self.given) and not self._is_lost:
            self.phase = Phase.REVOKING
        elif taken:
            self._join_again(now)  # the user never had them: others can at once
        elif self._must_rejoin:
            self._rebalance(now)

    def _lose(self, *, forget_id: bool) -> None:
        super()._lose(forget_id=forget_id)
        self._members = []

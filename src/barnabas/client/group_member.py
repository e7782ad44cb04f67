"""One member of a classic consumer group, as a machine without sockets or clocks: what to send, and what answers mean.

PURE. Driven by `membership`. It joins, leads if it is told to, syncs and sends heartbeats, one request at a time, and
leaves when its user does not poll for too long. What the group wants of the user is a `handover`, for the user's next
poll: partitions to give back, to take, or that are lost already.

Always holds: `assignment` is what the coordinator gave in the current generation; `given` is what the user reads. An
eager member has handed back everything before it joins again, a cooperative one what its group took from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from barnabas.client.assignors import ASSIGNORS, Assignor, Candidate, assignment_bytes
from barnabas.client.failures import check
from barnabas.errors import Code, Refused
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

Request: TypeAlias = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest
Response: TypeAlias = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse
Partitions: TypeAlias = tuple[TopicPartition, ...]

PROTOCOL_TYPE = "consumer"
NEVER = float("inf")

_LOST = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID})
_LATER = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
        Code.NETWORK_EXCEPTION,
    }
)


class Phase(Enum):
    """Where a member stands."""

    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"
    """The user has partitions to give back before the member can join again; until then it sends heartbeats."""
    AWAY = "away"
    """In no group until the user polls again: it was late, the group went on without it, or something is wrong."""


_MEMBER = (Phase.STABLE, Phase.REVOKING)
"""Where heartbeats and commits tell how things are; elsewhere the answer to a join is on its way."""


class Handover(NamedTuple):
    """What the user's next poll has to do: one of these at a time."""

    lost: Partitions = ()
    """Others may have them already: nothing of these can be committed any more."""
    revoked: Partitions = ()
    assigned: Partitions | None = None
    """None where the group has not shared anything out since the last time."""


class GroupMember:
    """Mutable: one member. Times are seconds of any clock that never goes back."""

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
        self.group = group
        self.topics = sorted(set(topics))
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        self.phase = Phase.JOINING
        self.assignment: Partitions = ()
        self.given: Partitions = ()
        self.is_waiting = False
        """A request is under way."""
        self.rebalance_timeout_ms = max_poll_interval_ms
        self._assignors = {each.name: each for each in assignors}
        self._is_cooperative = any(each.is_cooperative for each in assignors)
        self._chosen = ""
        self._session_timeout_ms = session_timeout_ms
        self._max_poll_interval = max_poll_interval_ms / 1000
        self._backoff = retry_backoff_ms / 1000
        self._interval = heartbeat_interval_ms / 1000
        self._due = 0.0
        self._poll_by = NEVER
        self._failure: Refused | None = None
        self._is_lost = False
        self._has_news = False
        self._must_rejoin = False
        self._claimed: Partitions = ()
        self._had: tuple[Partitions, int] = (), -1
        self._members: list[JoinGroupMember] = []
        self._is_to_assign = False
        self._has_held_back = False
        self._meet_again_at = NEVER

    @property
    def due(self) -> float:
        """When `next_request` has the next one, if nothing happens before."""
        if self.phase is Phase.AWAY or self.is_waiting:
            return NEVER
        return min(self._due, self._poll_by)

    @property
    def is_settled(self) -> bool:
        """The group has shared out, and the user has what it was given."""
        return self.phase is Phase.STABLE and self.handover is None

    @property
    def is_away(self) -> bool:
        return self.phase is Phase.AWAY

    @property
    def is_stuck(self) -> bool:
        """There is a failure to be told."""
        return self._failure is not None

    @property
    def may_commit(self) -> bool:
        """Whether what the user reads is the member's still, so far as it knows."""
        return not self._is_lost and self.generation >= 0

    @property
    def topics_to_assign(self) -> set[str]:
        """The topics that the whole group subscribes to, while this member leads it; none otherwise."""
        return {topic for each in self._candidates().values() for topic in each.topics}

    # The user

    @property
    def handover(self) -> Handover | None:
        """What the user's poll has to do: to give back and say `gave_back`, to take and say `took_over`."""
        if self._is_lost:
            return Handover(lost=self.given)
        revoked = tuple(each for each in self.given if each not in self.assignment)
        if not revoked and not self._has_news:
            return None
        if revoked:
            return Handover(revoked=revoked)
        return Handover(assigned=tuple(each for each in self.assignment if each not in self.given))

    def gave_back(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The user reads these no more."""
        gone = set(partitions)
        self.given = tuple(each for each in self.given if each not in gone)
        if self._is_lost:
            self._is_lost = bool(self.given)
            self._come_back(now)
        elif self.phase is Phase.REVOKING and set(self.given) <= set(self.assignment):
            self._join_again(now)

    def took_over(self) -> None:
        """The user reads all that is assigned."""
        self.given = self.assignment
        self._has_news = False

    def polls(self, now: float) -> None:
        """The user is in poll, and takes part for as long as that lasts."""
        self._poll_by = NEVER
        self._come_back(now)

    def _come_back(self, now: float) -> None:
        if self.phase is Phase.AWAY and not self._is_lost and self._failure is None:
            self._join_again(now)

    def works(self, now: float) -> None:
        """The user has left poll: it may take so long until the next one."""
        self._poll_by = now + self._max_poll_interval

    def failure(self) -> Refused | None:
        """Why the member cannot be in its group, told once; the next poll tries again, unless another took its name."""
        found = self._failure
        if found is not None and found.code is not Code.FENCED_INSTANCE_ID:
            self._failure = None
        return found

    def subscribe(self, topics: Iterable[str], now: float) -> None:
        """Ask for other topics."""
        wanted = sorted(set(topics))
        if wanted != self.topics:
            self.topics = wanted
            self.rebalance(now)

    def rebalance(self, now: float) -> None:
        """Ask for another assignment: topics have changed."""
        if self.phase is Phase.STABLE:
            self._rebalance(now)
        elif self.phase is not Phase.AWAY and (self.is_waiting or self.phase is not Phase.JOINING):
            self._must_rejoin = True

    # What to send

    def next_request(self, now: float, partitions: Mapping[str, int]) -> Request | None:
        """What is to be sent now. `partitions` counts those of `topics_to_assign`; unknown topics are left out.

        LeaveGroup is sent when the user has not polled in time, and its answer is nobody's concern.
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
        """Goodbye; None where there is nobody to say it, or the member's name stays (group.instance.id)."""
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
                candidate = Candidate(frozenset())  # what nobody can read asks for nothing
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

    def fail(self, now: float) -> None:
        """The request under way is lost, and its answer with it. It is sent again after a while."""
        self.is_waiting = False
        self._due = now + self._backoff

    def commit_refused(self, code: int, generation: int, now: float) -> None:
        """A commit was refused; the group has told as much as by a heartbeat, if it was this generation's."""
        known = code in _LOST or code == Code.REBALANCE_IN_PROGRESS
        if known and generation == self.generation and self.phase in _MEMBER:
            self._refused(code, now)

    def _refused(self, code: int, now: float) -> bool:
        """An answer of the group's coordinator: False where it is no error."""
        if not code:
            return False
        if code in _LOST:
            self._lose(forget_id=code != Code.ILLEGAL_GENERATION)
            if code == Code.FENCED_INSTANCE_ID:
                self._give_up(code)
            else:
                self._due = now
        elif code == Code.REBALANCE_IN_PROGRESS:
            self._rebalance(now)
        elif code in _LATER:
            self._due = now + self._backoff
        else:
            self._lose(forget_id=False)
            self._give_up(code)
        return True

    def _give_up(self, code: int) -> None:
        self.phase = Phase.AWAY
        try:
            check(code, f"Group {self.group!r}")
        except Refused as failure:
            self._failure = failure

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

    def _join_again(self, now: float) -> None:
        self.phase = Phase.JOINING
        self._due = now

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
            # Whether all was shared out, only the leader before us knows; to meet again stops nobody.
            self._must_rejoin = True
        self.phase = Phase.SYNCING
        if self._chosen not in self._assignors:
            self._lose(forget_id=False)
            self._give_up(Code.INCONSISTENT_GROUP_PROTOCOL)

    def _synced(self, answer: SyncGroupResponse, now: float) -> None:
        if self._refused(answer.error_code, now):
            return
        try:
            found = assignment_of(answer.assignment).assigned_partitions
        except Malformed:
            self._lose(forget_id=False)
            self._give_up(Code.INCONSISTENT_GROUP_PROTOCOL)
            return
        self.assignment = tuple(TopicPartition(each.topic, p) for each in found for p in each.partitions)
        self._had = self.assignment, self.generation
        self._has_news = True
        self.phase = Phase.STABLE
        self._due = now + self._interval
        # Who has to give something up asks for the next round; who does not live to do so cannot.
        self._meet_again_at = now + self._session_timeout_ms / 1000 if self._has_held_back else NEVER
        taken = set(self._claimed).difference(self.assignment)
        if taken.intersection(self.given) and not self._is_lost:
            self.phase = Phase.REVOKING
        elif taken:
            self._join_again(now)  # the user never had them: others can at once
        elif self._must_rejoin:
            self._rebalance(now)

    def _lose(self, *, forget_id: bool) -> None:
        self.assignment = ()
        self._has_news = False
        self._members = []
        self._is_lost = bool(self.given)
        self.phase = Phase.AWAY if self.given else Phase.JOINING
        self.generation = -1
        if forget_id:
            self.id = ""

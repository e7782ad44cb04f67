"""One member of a classic consumer group, as a machine without sockets or clocks: what to send, and what answers mean.

Driven by `membership`. It joins, leads if it is told to (by the range assignor), syncs and sends heartbeats, one
request at a time. Always holds: `assignment` is what the coordinator gave in the current generation, and is None from
the moment it is lost, or given back before the next one.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeAlias

from barnabas.client.failures import check
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.messages.consumer_protocol import (
    AssignedPartitions,
    PartitionsOfTopic,
    Subscription,
    assignment_of,
    subscription_of,
    to_bytes,
)
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

Request: TypeAlias = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest
Response: TypeAlias = JoinGroupResponse | SyncGroupResponse | HeartbeatResponse

PROTOCOL_TYPE = "consumer"
RANGE = "range"
_VERSION = 1  # of subscriptions and assignments: all that the range assignor needs, and old clients read it

_LOST = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION})
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
    """The group rebalances: what is assigned can still be committed, and must then be `given_back`."""


class GroupMember:
    """Mutable: one member. Times are seconds of any clock that never goes back."""

    def __init__(
        self,
        group: str,
        topics: Iterable[str],
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        heartbeat_interval_ms: int = 3_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        self.group = group
        self.topics = sorted(set(topics))
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        self.phase = Phase.JOINING
        self.assignment: tuple[TopicPartition, ...] | None = None
        self.is_waiting = False
        """A request is under way."""
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        self._backoff = retry_backoff_ms / 1000
        self._interval = heartbeat_interval_ms / 1000
        self._due = 0.0
        self._members: dict[str, Subscription] | None = None
        self._static: dict[str, str] = {}

    @property
    def due(self) -> float:
        """When `next_request` has the next one, if nothing happens before."""
        return self._due

    @property
    def topics_to_assign(self) -> set[str]:
        """The topics that the whole group subscribes to, while this member leads it; none otherwise."""
        return {topic for each in (self._members or {}).values() for topic in each.topics}

    # What to send

    def next_request(self, now: float, partitions: Mapping[str, int]) -> Request | None:
        """What is to be sent now. `partitions` counts those of `topics_to_assign`; unknown topics are left out."""
        if self.is_waiting or now < self._due or self.phase is Phase.REVOKING:
            return None
        self.is_waiting = True
        if self.phase is Phase.JOINING:
            return self._join()
        if self.phase is Phase.SYNCING:
            return self._sync(partitions)
        return HeartbeatRequest(self.group, self.generation, self.id, self.instance_id)

    def leave_request(self) -> LeaveGroupRequest | None:
        """Goodbye; None where there is nobody to say it, or the member's name stays (group.instance.id)."""
        if not self.id or self.instance_id is not None:
            return None
        return LeaveGroupRequest(
            self.group, self.id, [LeavingMember(self.id, reason="the consumer is closed")]
        )

    def _join(self) -> JoinGroupRequest:
        metadata = to_bytes(Subscription(self.topics), _VERSION)
        return JoinGroupRequest(
            self.group,
            self._session_timeout_ms,
            self.rebalance_timeout_ms,
            self.id,
            self.instance_id,
            PROTOCOL_TYPE,
            [JoinGroupProtocol(RANGE, metadata)],
        )

    def _sync(self, partitions: Mapping[str, int]) -> SyncGroupRequest:
        assignments = []
        if self._members is not None:
            shares = assign_range(self._members, partitions, self._static)
            assignments = [SyncGroupAssignment(each, _assignment(share)) for each, share in shares.items()]
        return SyncGroupRequest(
            self.group, self.generation, self.id, self.instance_id, PROTOCOL_TYPE, RANGE, assignments
        )

    # What came back

    def take(self, response: Response, now: float) -> None:
        """The answer to the request under way. Raises Refused where no other try can help."""
        self.is_waiting = False
        self._due = now
        match response:
            case JoinGroupResponse():
                self._joined(response)
            case SyncGroupResponse():
                self._synced(response, now)
            case HeartbeatResponse():
                # A commit may have been told of a rebalance while this was under way: then the next join is due.
                if not self.refused(response.error_code, now) and self.phase is Phase.STABLE:
                    self._due = now + self._interval

    def fail(self, now: float) -> None:
        """The request under way is lost, and its answer with it. It is sent again after a while."""
        self.is_waiting = False
        self._due = now + self._backoff

    def refused(self, code: int, now: float) -> bool:
        """An answer of the group's coordinator: False where it is no error. Also for answers to commits."""
        if not code:
            return False
        if code in _LOST:
            self._lose(forget_id=code == Code.UNKNOWN_MEMBER_ID)
            self._due = now
        elif code == Code.REBALANCE_IN_PROGRESS:
            self.phase = Phase.REVOKING if self.assignment is not None else Phase.JOINING
            self._due = now
        elif code in _LATER:
            self._due = now + self._backoff
        else:
            check(code, f"Group {self.group!r}")
        return True

    def given_back(self) -> None:
        """What was assigned is no longer read: the member is free to join the next generation."""
        self._lose(forget_id=False)

    def rebalance(self) -> None:
        """Ask for another assignment: topics have changed."""
        if self.phase is Phase.STABLE:
            self.phase = Phase.REVOKING

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            return
        if self.refused(answer.error_code, self._due):
            return
        self.id = answer.member_id
        self.generation = answer.generation_id
        self.phase = Phase.SYNCING
        self._members = None
        if answer.leader == self.id and not answer.skip_assignment:
            self._members = {each.member_id: subscription_of(each.metadata) for each in answer.members}
            self._static = {each.member_id: each.group_instance_id or "" for each in answer.members}

    def _synced(self, answer: SyncGroupResponse, now: float) -> None:
        if self.refused(answer.error_code, now):
            return
        found = assignment_of(answer.assignment).assigned_partitions
        self.assignment = tuple(TopicPartition(each.topic, p) for each in found for p in each.partitions)
        self.phase = Phase.STABLE
        self._due = now + self._interval

    def _lose(self, *, forget_id: bool) -> None:
        self.assignment = None
        self.phase = Phase.JOINING
        if forget_id:
            self.id = ""
            self.generation = -1


def assign_range(
    members: Mapping[str, Subscription], partitions: Mapping[str, int], static: Mapping[str, str]
) -> dict[str, list[TopicPartition]]:
    """Each topic by itself: its partitions in order, in stretches as even as can be, to its subscribers in order.

    Static members come first, by their group.instance.id, then the others by their ids: as Java's assignor has it.
    """
    shares: dict[str, list[TopicPartition]] = {each: [] for each in members}
    ordered = sorted(members, key=lambda each: (not static.get(each), static.get(each) or each))
    for topic in sorted({topic for each in members.values() for topic in each.topics}):
        subscribers = [each for each in ordered if topic in members[each].topics]
        share, more = divmod(partitions.get(topic, 0), len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            stop = start + share + (place < more)
            shares[member] += [TopicPartition(topic, number) for number in range(start, stop)]
            start = stop
    return shares


def _assignment(share: list[TopicPartition]) -> bytes:
    rows: dict[str, PartitionsOfTopic] = {}
    for topic, number in share:
        rows.setdefault(topic, PartitionsOfTopic(topic)).partitions.append(number)
    return to_bytes(AssignedPartitions(list(rows.values())), _VERSION)

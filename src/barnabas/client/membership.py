"""Owns a consumer's place in its group: the machine of `group_member`, and the connection over which it speaks.

Called by `consumer`, from its poll. Joining can take minutes, so this connection is nobody else's, and nothing waits
for its answers longer than the caller allows. Commits are short, and go by the connection that fetches use too.
"""

import time
from collections.abc import Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import RETRIABLE, STALE, check
from barnabas.client.group_member import GroupMember, Phase, Request
from barnabas.client.groups import commit_request
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.offsets import OffsetCommitResponse

_ANSWERS = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
}


class Membership:
    """Mutable: a member and its connection. Not for several threads at once."""

    def __init__(self, cluster: Cluster, member: GroupMember, *, timeout: float, recount: float) -> None:
        self.member = member
        self._cluster = cluster
        self._timeout = timeout
        self._connection: Connection | None = None
        self._overdue = 0.0
        self._recount = recount
        self._recount_at = 0.0
        self._counts: dict[str, int] = {}

    def drive(self, wait: float) -> None:
        """Send what is due and take in what has come; wait so many seconds for what there is nothing to do without."""
        deadline = time.monotonic() + wait
        while True:
            now = time.monotonic()
            member = self.member
            if member.is_waiting:
                if not self._take(max(deadline - now, 0.0)):
                    return
            elif member.phase is Phase.REVOKING:
                return
            elif member.due > now:
                if member.phase is Phase.STABLE:
                    self._look_for_new_partitions(now)
                pause = min(member.due, deadline) - now
                if pause <= 0:
                    return
                time.sleep(pause)
            else:
                self._send(now)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> Code:
        """Commit in the member's name. Other codes than NONE say that the group has moved on without it."""
        member = self.member
        request = commit_request(
            member.group,
            offsets,
            generation=member.generation,
            member_id=member.id,
            instance_id=member.instance_id,
        )

        def ask() -> Code:
            answer = self._cluster.coordinator(member.group).call(request, OffsetCommitResponse)
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.error_code in RETRIABLE:
                        check(each.error_code, f"Group {member.group!r}")
                    if member.refused(each.error_code, time.monotonic()):
                        return Code.of(each.error_code)
            return Code.NONE

        return self._cluster.retry(ask, timeout=self._timeout)

    def leave(self) -> None:
        """Say goodbye, so that others need not wait for the session to end; nobody minds if that fails."""
        request = self.member.leave_request()
        try:
            if request is not None:
                self._cluster.coordinator(self.member.group).call(request, LeaveGroupResponse)
        except Refused:
            pass
        finally:
            self._hang_up()

    def _send(self, now: float) -> None:
        member = self.member
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = self._cluster.coordinator(member.group, alone=True)
            wanted = member.topics_to_assign if member.phase is Phase.SYNCING else set()
            if wanted:
                self._counts = self._count(wanted)
                self._recount_at = now + self._recount
            request = member.next_request(now, self._counts)
            if request is None:
                return
            self._connection.send(request, _ANSWERS[type(request)])
            self._overdue = now + self._patience(request)
        except Refused as error:
            self._fail(error)

    def _patience(self, request: Request) -> float:
        if isinstance(request, HeartbeatRequest):
            return self._timeout
        return self._timeout + self.member.rebalance_timeout_ms / 1000

    def _take(self, wait: float) -> bool:
        """Whether the answer came, or will never come."""
        connection = self._connection
        assert connection is not None
        if not connection.has_answer(wait):
            if time.monotonic() < self._overdue:
                return False
            self._hang_up()
            self.member.fail(time.monotonic())
            return True
        try:
            response = connection.receive()
        except Refused as error:
            self._fail(error)
            return True
        self.member.take(response, time.monotonic())
        if response.error_code in STALE:
            self._cluster.forget()
            self._hang_up()
        return True

    def _fail(self, error: Refused) -> None:
        self._hang_up()
        if error.code not in RETRIABLE:
            raise error
        if error.code in STALE:
            self._cluster.forget()
        self.member.fail(time.monotonic())

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look_for_new_partitions(self, now: float) -> None:
        """A leader answers for what it has assigned: topics that grow, come or go need another assignment."""
        if not self.member.topics_to_assign or now < self._recount_at:
            return
        self._recount_at = now + self._recount
        try:
            changed = self._count(self.member.topics_to_assign) != self._counts
        except Refused:
            return  # there is time: nobody waits for this
        if changed:
            self.member.rebalance()

    def _count(self, topics: set[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for topic in topics:
            try:
                self._cluster.refresh([topic])
                found[topic] = len(self._cluster.topic(topic).partitions)
            except Refused as error:
                if error.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return found

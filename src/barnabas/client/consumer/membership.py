"""Owns a consumer's place in its group: drives a `member` of either protocol over the network.

Called in the network's thread, except where it says "any thread". `lock` is held whenever the member is touched, and is
notified when there is something for the user: a handover, or a failure. Joins, syncs and heartbeats have a lane of
their own: a join may take minutes, and nothing else waits behind it.
"""

import time
from collections.abc import Iterable
from typing import Any

from barnabas.client.consumer.consumer_lock import ConsumerLock
from barnabas.client.consumer.member import NEVER, Member, Phase
from barnabas.client.network.coordinator_link import CoordinatorLink
from barnabas.client.network.failures import RETRIABLE
from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.client.network.timer import Timer
from barnabas.errors import Refused
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_ANSWERS: dict[type, type[Any]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
}
_MAY_WAIT = (JoinGroupRequest, SyncGroupRequest)
"""What the coordinator answers when the others are there, too."""

LANE = "group"


class Membership:
    """Mutable: a member, and what it has under way."""

    def __init__(
        self, network: Network, coordinator: CoordinatorLink, member: Member, lock: ConsumerLock
    ) -> None:
        self.member = member
        self._network = network
        self._coordinator = coordinator
        self._lock = lock
        self._timer: Timer | None = None
        self._counts: dict[str, int] = {}
        self._counted = -1
        self._is_counting = False
        self._is_over = False
        network.metadata.subscribe(self._look_for_new_partitions)

    def wake(self) -> None:
        """Any thread: something has changed, look what there is to do."""
        self._network.post(self.drive)

    def drive(self) -> None:
        """Send what is due."""
        if self._is_over:
            return
        if self._is_counting:
            return
        with self._lock:
            wanted = self.member.topics_to_assign if self._must_count() else None
            request = None if wanted else self.member.next_request(time.monotonic(), self._counts)
        if wanted:
            self._is_counting = True
            self._network.metadata.want(wanted)
            self._network.refresh(wanted, self._count)
            return
        if request is not None:
            self._send(request)
        self._set_timer()

    def leave(self, done: Any) -> None:
        """Say goodbye, so that others need not wait for the session to end; a failure is ignored."""
        with self._lock:
            self._is_over = True
            request = self.member.leave_request()
        if self._timer is not None:
            self._timer.cancel()
        if request is None:
            done(None)
        else:
            # Not in the members' lane: there a join may be under way.
            self._coordinator.ask(request, _ANSWERS[type(request)], done)

    def _send(self, request: Any) -> None:
        member = self.member

        def told(answer: Any) -> None:
            if self._is_over:
                return
            with self._lock:
                if isinstance(answer, Refused) and answer.code not in RETRIABLE:
                    member.refuse(answer)
                elif isinstance(answer, Refused):
                    member.fail(time.monotonic())
                else:
                    self._coordinator.doubt(answer.error_code)
                    member.take(answer, time.monotonic())
                    self._tell_names()
                self._lock.tell()
            self.drive()

        if member.is_away:
            with self._lock:
                self._lock.tell()  # the user, should it come back, has lost everything
            self._coordinator.ask(request, _ANSWERS[type(request)], lambda answer: None)
            return
        wait = member.rebalance_timeout_ms / 1000 if isinstance(request, _MAY_WAIT) else 0.0
        self._coordinator.ask(request, _ANSWERS[type(request)], told, wait=wait, lane=LANE)

    def _set_timer(self) -> None:
        with self._lock:
            due = self.member.due
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due < NEVER:
            self._timer = self._network.later(max(due - time.monotonic(), 0.0), self.drive)

    # A leader shares out what there is, and sees to it when that changes

    def _must_count(self) -> bool:
        member = self.member
        return (
            member.phase is Phase.SYNCING
            and not member.is_waiting
            and self._counted != member.generation
            and bool(member.topics_to_assign)
        )

    def _count(self, snapshot: Snapshot | Refused) -> None:
        self._is_counting = False
        if self._is_over:
            return
        with self._lock:
            member = self.member
            if isinstance(snapshot, Refused):
                member.fail(time.monotonic())
            else:
                self._counts = _counts(snapshot, member.topics_to_assign)
                self._counted = member.generation
        self._set_timer() if isinstance(snapshot, Refused) else self.drive()

    def _tell_names(self) -> None:
        """Groups of KIP-848 speak of topics by their ids."""
        topics = self._network.metadata.snapshot.topics.values()
        if not self.member.know({topic.id: topic.name for topic in topics}):
            self._network.refresh_soon()

    def _look_for_new_partitions(self, snapshot: Snapshot) -> None:
        if self._is_over or self._is_counting:
            return
        with self._lock:
            self._tell_names()
            self._lock.tell()
            wanted = self.member.topics_to_assign
            changed = self.member.phase is Phase.STABLE and wanted and self._counted == self.member.generation
            if not changed or _counts(snapshot, wanted) == self._counts:
                return
            self.member.rebalance(time.monotonic())
            self._lock.tell()
        self.drive()


def _counts(snapshot: Snapshot, topics: Iterable[str]) -> dict[str, int]:
    return {
        topic: len(snapshot.topics[topic].partitions) for topic in sorted(topics) if topic in snapshot.topics
    }

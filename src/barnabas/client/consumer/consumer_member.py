"""One member of a group of KIP-848 (group.protocol=consumer), where the coordinator assigns and heartbeats say all.

PURE. Driven by `membership`. A heartbeat tells what has changed: topics, and what the user has by now; the answer tells
what it should have. Always holds: what is said to be owned is what the user reads, so that no member gets a partition
before its last reader has given it back.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from barnabas.client.consumer.member import LATER, Member, Partitions, Phase
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_JOIN = 0
_LEAVE = -1
_LEAVE_FOR_NOW = -2
_LOST = frozenset({Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH})


class ConsumerGroupMember(Member):
    """Mutable: one member; its generation is its epoch."""

    def __init__(
        self,
        group: str,
        topics: Iterable[str],
        *,
        member_id: str,
        assignor: str | None = None,
        instance_id: str | None = None,
        max_poll_interval_ms: int = 300_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        super().__init__(
            group,
            topics,
            instance_id=instance_id,
            max_poll_interval_ms=max_poll_interval_ms,
            retry_backoff_ms=retry_backoff_ms,
        )
        self.id = member_id
        self._assignor = assignor
        self._names: Mapping[UUID, str] = {}
        self._ids: dict[str, UUID] = {}
        self._target: list[TopicPartitions] = []
        self._saying: tuple[list[str], Partitions] = [], ()
        self._said: tuple[list[str], Partitions] | None = None
        """What the coordinator has heard: topics, and what the user has; None where that is not sure."""
        self._asked_epoch = _JOIN

    # What the user does, and what metadata tells

    def rebalance(self, now: float) -> None:
        if self.phase is Phase.STABLE:
            self._due = now

    def know(self, names: Mapping[UUID, str]) -> bool:
        """Topics by their ids. False where something is assigned whose name is not known yet."""
        self._names = names
        if self.phase is not Phase.STABLE:
            return True
        found = [
            TopicPartition(names[row.topic_id], number)
            for row in self._target
            if row.topic_id in names
            for number in row.partitions
        ]
        self._ids.update({names[row.topic_id]: row.topic_id for row in self._target if row.topic_id in names})
        assignment = tuple(sorted(found))
        if assignment != self.assignment:
            self.assignment = assignment
            self._has_news = True
        return all(row.topic_id in names for row in self._target)

    def _is_free(self, now: float) -> None:
        self.rebalance(now)

    def _has_all(self, now: float) -> None:
        self.rebalance(now)

    # What to send

    def next_request(self, now: float, partitions: Mapping[str, int]) -> ConsumerGroupHeartbeatRequest | None:
        if self.is_waiting or self.phase is Phase.AWAY:
            return None
        if now >= self._poll_by:
            goodbye = self.leave_request()
            self._lose(forget_id=False)
            self.phase = Phase.AWAY
            return goodbye
        if now < self._due:
            return None
        self.is_waiting = True
        joins = self.phase is Phase.JOINING
        self._asked_epoch = _JOIN if joins else self.generation
        self._saying = self.topics, () if joins else self.given
        said = None if joins else self._said
        request = ConsumerGroupHeartbeatRequest(self.group, self.id, self._asked_epoch, self.instance_id)
        topics, owned = self._saying
        if said is None:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.server_assignor = self._assignor
        if said is None or said[0] != topics:
            request.subscribed_topic_names = topics
        if said is None or said[1] != owned:
            request.topic_partitions = self._by_id(owned)
        return request

    def leave_request(self, reason: str = "") -> ConsumerGroupHeartbeatRequest | None:
        """Goodbye; a static member says that it will be back."""
        if self.generation < 0:
            return None
        epoch = _LEAVE if self.instance_id is None else _LEAVE_FOR_NOW
        return ConsumerGroupHeartbeatRequest(self.group, self.id, epoch, self.instance_id)

    def _by_id(self, partitions: Partitions) -> list[TopicPartitions]:
        rows: dict[UUID, TopicPartitions] = {}
        for topic, number in partitions:
            row = rows.setdefault(self._ids[topic], TopicPartitions(self._ids[topic]))
            row.partitions.append(number)
        return list(rows.values())

    # What came back

    def take(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self.is_waiting = False
        self._due = now
        if self.phase is Phase.AWAY or (self.phase is Phase.JOINING and self._asked_epoch != _JOIN):
            return  # a commit has heard of worse meanwhile
        code = response.error_code
        if not code:
            self._heard(response, now)
        elif code in _LOST:
            self._lose(forget_id=False)
        elif code in LATER:
            self.fail(now)
        else:
            self._give_up(code, response.error_message)

    def fail(self, now: float) -> None:
        super().fail(now)
        self._said = None

    def commit_refused(self, code: int, generation: int, now: float) -> None:
        if self.phase is not Phase.STABLE:
            return
        if code in _LOST and generation == self.generation:
            self._lose(forget_id=False)
            self._due = now
        elif code == Code.STALE_MEMBER_EPOCH:
            self._due = now

    def _heard(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self.phase = Phase.STABLE
        self.id = response.member_id or self.id
        self.generation = response.member_epoch
        self._said = self._saying
        self._due = now + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._target = response.assignment.topic_partitions
            self._has_news = self._has_news or self._asked_epoch == _JOIN
            self.know(self._names)
        if (self.topics, self.given) != self._saying:
            self._due = now  # the user was quicker than the answer

    def _lose(self, *, forget_id: bool) -> None:
        super()._lose(forget_id=forget_id)
        self._target = []
        self._said = None

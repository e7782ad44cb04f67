"""A KIP-848 group and its clock, for tests that tell a story: each request is worked on, and its records applied."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.config import BrokerConfig
from barnabas.coordinator.consumer import classic_members
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.consumer.member import Member
from barnabas.coordinator.effects import Context, Effects, TopicFacts
from barnabas.coordinator.records import Record
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from tests.coordinator.metadata import subscription_bytes

GROUP = "g"
ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
TOPICS = {"orders": TopicFacts(ORDERS, 4), "payments": TopicFacts(PAYMENTS, 2)}


def rows(owned: dict[UUID, list[int]] | None) -> list[TopicPartitions] | None:
    return None if owned is None else [TopicPartitions(topic, indexes) for topic, indexes in owned.items()]


def told(answer: ConsumerGroupHeartbeatResponse) -> dict[UUID, list[int]] | None:
    """What an answer assigns; None where it says nothing."""
    if answer.assignment is None:
        return None
    return {row.topic_id: row.partitions for row in answer.assignment.topic_partitions}


class Story:
    """Mutable: a group, its topics, its log and the time."""

    def __init__(self, group: ConsumerGroup | None = None, **settings: Any) -> None:
        self.config = BrokerConfig(**settings)
        self.group = group or ConsumerGroup(GROUP, self.config)
        self.topics: dict[str, TopicFacts] = dict(TOPICS)
        self.now = 0
        self.log: list[Record] = []
        self.log_works = True
        self.last: list[Record] = []
        """The records of the last request."""

    @property
    def members(self) -> dict[str, Member]:
        return self.group.state.members

    def apply(self, out: Effects) -> None:
        self.last = out.records
        for record in out.records if self.log_works else ():
            self.log.append(record)
            self.group.apply(record)

    # KIP-848

    def beat(
        self,
        member: str,
        epoch: int,
        owned: dict[UUID, list[int]] | None = None,
        *,
        version: int = 1,
        fresh: str = "made-up",
        client: str = "client",
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(GROUP, member, epoch, topic_partitions=rows(owned))
        for name, value in fields.items():
            setattr(request, name, value)
        out = Effects()
        context = Context(version, client, "/127.0.0.1", fresh)
        answer = self.group.consumer_heartbeat(request, context, self.now, self.topics, out)
        self.apply(out)
        return answer

    def join(self, member: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        names = list(topics) or ["orders"]
        given: dict[str, Any] = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": names} | fields
        return self.beat(member, 0, {}, **given)

    def refused(self, code: Code, action: Any, *args: Any, **fields: Any) -> Refused:
        """Hold a request to be refused with this code, and to leave no trace."""
        before = len(self.log)
        with pytest.raises(Refused) as refused:
            action(*args, **fields)
        assert refused.value.code is code
        assert len(self.log) == before
        return refused.value

    def settle(self, *members: str) -> None:
        """Let these members do what they are told until nothing changes any more."""
        for _ in range(10):
            for member in members:
                known = self.members[member]
                owned = {topic: sorted(indexes) for topic, indexes in known.assigned.items()}
                self.beat(member, known.epoch, owned)

    def owned(self, member: str) -> dict[UUID, list[int]]:
        return {topic: sorted(indexes) for topic, indexes in self.members[member].assigned.items()}

    def pass_time(self, ms: int) -> None:
        self.now += ms
        out = Effects()
        self.group.tick(self.now, self.topics, out)
        self.apply(out)

    def commit(self, member: str, epoch: int, *partitions: int, version: int = 9) -> None:
        topic = OffsetCommitTopic("orders", [OffsetCommitPartition(index) for index in partitions or (0,)])
        request = OffsetCommitRequest(GROUP, epoch, member, topics=[topic])
        self.group.check_commit(request, version, self.now, self.topics)

    # The classic protocol

    def classic_join(
        self,
        member: str,
        *,
        owned: list[tuple[str, int]] | None = None,
        topics: tuple[str, ...] = ("orders",),
        protocols: tuple[str, ...] = ("cooperative-sticky",),
        version: int = 9,
        instance: str | None = None,
        fresh: str = "made-up",
        protocol_type: str = "consumer",
    ) -> JoinGroupResponse:
        metadata = subscription_bytes(topics, owned or ())
        request = JoinGroupRequest(
            GROUP,
            6000,
            5000,
            member,
            instance,
            protocol_type,
            [JoinGroupProtocol(name, metadata) for name in protocols],
        )
        out = Effects()
        context = Context(version, "client", "/127.0.0.1", fresh)
        answer = classic_members.join(self.group, request, context, self.now, self.topics, out)
        self.apply(out)
        return answer

    def classic_sync(self, member: str, generation: int, protocol: str = "cooperative-sticky") -> bytes:
        request = SyncGroupRequest(GROUP, generation, member, None, "consumer", protocol)
        return classic_members.sync(self.group, request, self.now, self.topics).assignment

    def classic_beat(self, member: str, generation: int) -> None:
        classic_members.heartbeat(self.group, HeartbeatRequest(GROUP, generation, member), self.now)

    def classic_leave(self, *members: LeavingMember) -> LeaveGroupResponse:
        out = Effects()
        request = LeaveGroupRequest(GROUP, members=list(members))
        answer = classic_members.leave(self.group, request, self.now, self.topics, out)
        self.apply(out)
        return answer

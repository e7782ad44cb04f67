"""Requests of members of a classic group, short enough to read."""

import struct
from typing import Any

from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from tests.coordinator.shell import Shell

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """Metadata as consumers send it, version 0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


ORDERS = subscription("orders")


def join_request(
    member_id: str = "",
    *,
    group: str = GROUP,
    instance: str | None = None,
    protocols: dict[str, bytes] | None = None,
    kind: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    rows = [JoinGroupProtocol(name, data) for name, data in (protocols or {"range": ORDERS}).items()]
    return JoinGroupRequest(group, session_ms, rebalance_ms, member_id, instance, kind, rows)


def sync_request(
    joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None, instance: str | None = None
) -> SyncGroupRequest:
    rows = [SyncGroupAssignment(member, data) for member, data in (assignments or {}).items()]
    return SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, instance, assignments=rows)


def beat(shell: Shell, member_id: str, generation: int, instance: str | None = None) -> int:
    code: int = shell.ask(HeartbeatRequest(GROUP, generation, member_id, instance), 4).error_code
    return code


def leave(shell: Shell, *members: str) -> list[int]:
    answer = shell.ask(LeaveGroupRequest(GROUP, members=[LeavingMember(member) for member in members]), 5)
    return [row.error_code for row in answer.members]


def commit_request(
    offset: int,
    *,
    member: str = "",
    generation: int = -1,
    topic: str = "orders",
    partition: int = 0,
    metadata: str = "",
    group: str = GROUP,
    instance: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    part = OffsetCommitPartition(partition, offset, -1, metadata)
    topics = [OffsetCommitTopic(topic, [part])]
    return OffsetCommitRequest(group, generation, member, instance, retention_ms, topics)


def commit(shell: Shell, offset: int, version: int = 9, **facts: Any) -> int:
    answer = shell.ask(commit_request(offset, **facts), version)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def committed(shell: Shell, topic: str = "orders", partition: int = 0, group: str = GROUP) -> int:
    """-1 where nothing is."""
    wanted = OffsetFetchGroup(group, topics=[OffsetFetchTopic(topic, [partition])])
    answer = shell.ask(OffsetFetchRequest(groups=[wanted]), 8)
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


class Member:
    """A member that has come this far: what it was told when it joined, and when it synced."""

    def __init__(self, shell: Shell, instance: str | None = None, **facts: Any) -> None:
        self.shell = shell
        self.instance = instance
        self.facts = facts
        self.id = ""
        self.joined = JoinGroupResponse()
        self.synced = SyncGroupResponse()
        self._waits = 0

    def joins(self) -> "Member":
        """Send JoinGroup, twice where an id is needed first. Whether an answer came is seen in `hears`."""
        self._waits = self.shell.send(join_request(self.id, instance=self.instance, **self.facts))
        answer = self.shell.answers.get(self._waits)
        if answer is not None and answer.error_code == 79:
            self.id = answer.member_id
            self._waits = self.shell.send(join_request(self.id, instance=self.instance, **self.facts))
        return self

    def hears(self) -> JoinGroupResponse:
        """The answer to JoinGroup, which must be there by now."""
        self.joined = self.shell.answers.pop(self._waits)
        if self.joined.error_code == 0:
            self.id = self.joined.member_id
        return self.joined

    @property
    def waits(self) -> bool:
        return self._waits in self.shell.waiting

    @property
    def leads(self) -> bool:
        return self.joined.leader == self.id

    def syncs(self, assignments: dict[str, bytes] | None = None) -> "Member":
        self._waits = self.shell.send(sync_request(self.joined, assignments, self.instance), 5)
        return self

    def learns(self) -> SyncGroupResponse:
        """The answer to SyncGroup, which must be there by now."""
        self.synced = self.shell.answers.pop(self._waits)
        return self.synced

    def beats(self) -> int:
        return beat(self.shell, self.id, self.joined.generation_id, self.instance)


def stable(shell: Shell, *members: Member) -> list[Member]:
    """Bring these members into one stable generation; each is assigned its own name."""
    for member in members:
        member.joins()
    early = [member for member in members if not member.waits]
    for member in early:
        member.hears()
    if len(early) < len(members):
        # Those who had a generation to themselves are called again for the others.
        for member in early:
            member.joins()
        for member in members:
            member.hears()
    leader = next(member for member in members if member.leads)
    for member in members:
        if member is not leader:
            member.syncs()
    leader.syncs({member.id: f"for {member.id}".encode() for member in members})
    for member in members:
        assert member.learns().error_code == 0
    return list(members)

"""Encodes by hand the frames of group members, and reads their answers: neutral to both brokers, like bench.wire.

Called by bench.members and the workload groups. The versions are those that Java's client speaks, all flexible; what
members tell one another is the consumer protocol of Java's and librdkafka's assignors, because Kafka reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench import wire

OFFSET_COMMIT, FIND_COORDINATOR = (8, 9), (10, 2)
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = (11, 9), (12, 4), (13, 5), (14, 5)
NO_ERROR, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 27, 79
LOADING = frozenset((14, 15, 16))
"""The coordinator is loading, is not there yet, or does not yet know that it is the one: ask again."""
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
# Longer than any run, so that only those members send heartbeats whose heartbeats are part of a measurement.
SESSION_TIMEOUT_MS = REBALANCE_TIMEOUT_MS = 300_000
NOBODY = -1
NO_TAGS = b"\x00"
NULL = b"\x00"
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Joined:
    """What a JoinGroup answer says. Only the leader is told of the members."""

    error: int
    generation: int
    leader: str
    member: str
    members: tuple[str, ...]


def find_coordinator(group: str) -> bytes:
    """FindCoordinator v2. It also makes Kafka create the topic of the offsets."""
    name = group.encode()
    return wire.frame(wire.header(*FIND_COORDINATOR) + struct.pack(">h", len(name)) + name + b"\x00")


def found(answer: bytes) -> bool:
    return error_at(answer, 8) == NO_ERROR


def join(group: str, member: str, topic: str) -> bytes:
    subscription = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)
    protocol = string(PROTOCOL) + data(subscription) + NO_TAGS
    timeouts = struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
    body = string(group) + timeouts + string(member) + NULL + string(PROTOCOL_TYPE) + array([protocol])
    return _flexible(JOIN_GROUP, body + NULL)  # no reason given


def sync(group: str, generation: int, member: str, assignments: Sequence[tuple[str, bytes]]) -> bytes:
    """The leader's carries what everyone is to read; the others' carries nothing."""
    body = string(group) + struct.pack(">i", generation) + string(member) + NULL
    protocol = string(PROTOCOL_TYPE) + string(PROTOCOL)
    given = array([string(whose) + data(assignment) + NO_TAGS for whose, assignment in assignments])
    return _flexible(SYNC_GROUP, body + protocol + given)


def assignment(topic: str, partition: int) -> bytes:
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">iii", 1, partition, -1)


def heartbeat(group: str, generation: int, member: str) -> bytes:
    return _flexible(HEARTBEAT, string(group) + struct.pack(">i", generation) + string(member) + NULL)


def leave(group: str, member: str) -> bytes:
    return _flexible(LEAVE_GROUP, string(group) + array([string(member) + NULL + NULL + NO_TAGS]))


def commit(
    group: str, topic: str, partition: int, offset: int, *, generation: int = NOBODY, member: str = ""
) -> bytes:
    """One offset. Without generation and member as someone commits who is in no group."""
    what = struct.pack(">iqi", partition, offset, -1) + string("") + NO_TAGS
    topics = array([string(topic) + array([what]) + NO_TAGS])
    body = string(group) + struct.pack(">i", generation) + string(member) + NULL + topics
    return _flexible(OFFSET_COMMIT, body)


def commit_error_offset(topic: str) -> int:
    """Where in the answer to `commit` (its length included) the partition's error code is."""
    # length, correlation id, no tags, throttle time, one topic, its name, one partition, its index
    return 4 + 4 + 1 + 4 + 1 + len(string(topic)) + 1 + 4


def error_of(answer: bytes) -> int:
    """The error code of a JoinGroup, SyncGroup, Heartbeat or LeaveGroup answer (without its length)."""
    return error_at(answer, 9)  # correlation id, no tags, throttle time


def error_at(answer: bytes, at: int) -> int:
    code: int = struct.unpack_from(">h", answer, at)[0]
    return code


def joined(answer: bytes) -> Joined:
    reader = _Reader(answer, 11)
    generation = reader.int32()
    reader.string()  # protocol type
    reader.string()  # protocol
    leader = reader.string()
    reader.at += 1  # whether the leader need not assign
    member = reader.string()
    return Joined(error_of(answer), generation, leader, member, tuple(reader.array(reader.member)))


def string(text: str) -> bytes:
    return data(text.encode())


def data(content: bytes) -> bytes:
    return wire.uvarint(len(content) + 1) + content


def array(items: Sequence[bytes]) -> bytes:
    return wire.uvarint(len(items) + 1) + b"".join(items)


def _flexible(api: tuple[int, int], body: bytes) -> bytes:
    return wire.frame(wire.header(*api) + NO_TAGS + body + NO_TAGS)


class _Reader:
    """Reads an answer from one place on: only what members need to know."""

    def __init__(self, answer: bytes, at: int) -> None:
        self.answer = answer
        self.at = at

    def int32(self) -> int:
        self.at += 4
        value: int = struct.unpack_from(">i", self.answer, self.at - 4)[0]
        return value

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.answer[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def data(self) -> bytes:
        """What null is, is empty here."""
        size = max(0, self.uvarint() - 1)
        self.at += size
        return self.answer[self.at - size : self.at]

    def string(self) -> str:
        return self.data().decode()

    def array(self, item: Callable[[], Item]) -> list[Item]:
        return [item() for _ in range(max(0, self.uvarint() - 1))]

    def member(self) -> str:
        name = self.string()
        self.data()  # group instance id
        self.data()  # subscription
        self.at += 1  # no tagged fields
        return name

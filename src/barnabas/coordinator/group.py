"""What a coordinator asks of a group, whichever protocol made it. `classic` and `consumer` each have one.

A group decides and never acts: it answers, refuses, or puts records and replies into the effects that it is given.
What must last changes by `apply` alone. `topics` are all topics there are: the same object until one of them changes.
"""

from collections.abc import Mapping, Set
from enum import Enum
from typing import Protocol

from barnabas.coordinator.effects import Context, Effects, Token, TopicFacts
from barnabas.coordinator.records import Record
from barnabas.errors import Code
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from barnabas.wire.messages.groups import (
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import OffsetCommitRequest

Topics = Mapping[str, TopicFacts]


class Kind(Enum):
    """The protocol of a group, as ListGroups names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """One group. Every request may raise Refused."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> Kind: ...

    # The classic protocol, which members of either kind of group may speak

    def join(
        self,
        request: JoinGroupRequest,
        context: Context,
        now: int,
        topics: Topics,
        token: Token,
        out: Effects,
    ) -> None:
        """A member wants in, or in again. The answer may come with later effects."""

    def sync(self, request: SyncGroupRequest, now: int, topics: Topics, token: Token, out: Effects) -> None:
        """A member wants its assignment. The answer may come with later effects."""

    def heartbeat(self, request: HeartbeatRequest, now: int) -> HeartbeatResponse:
        """A member lives."""

    def leave(self, request: LeaveGroupRequest, now: int, topics: Topics, out: Effects) -> LeaveGroupResponse:
        """Members go, each answered for itself."""

    # The protocol of KIP-848

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: Context,
        now: int,
        topics: Topics,
        out: Effects,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member joins, lives, changes or leaves."""

    # Offsets: what may be done to them now, by whom

    def check_commit(self, request: OffsetCommitRequest, version: int, now: int, topics: Topics) -> None: ...
    def check_fetch(self, member_id: str | None, epoch: int) -> None: ...
    def check_offset_delete(self) -> None: ...
    def is_subscribed(self, topic: str) -> bool: ...

    # Time and topics

    @property
    def deadline(self) -> int:
        """Never later than the next moment something is due."""

    def tick(self, now: int, topics: Topics, out: Effects) -> None:
        """Do what is due, and find out when the next thing is."""

    def topics_grown(self, names: Set[str], now: int, out: Effects) -> None:
        """These topics are new, or have new partitions."""

    # The log

    def apply(self, record: Record) -> bool:
        """Become what a record of this kind says; False where that is the end of the group."""

    def loaded(self, now: int, out: Effects) -> None:
        """The log has been replayed: members have one session to show that they live."""

    def call_together(self, now: int, out: Effects) -> None:
        """The group was of another kind until now: let its members agree anew, where they have to."""

    def release(self, code: Code, out: Effects) -> None:
        """Answer all waiting requests with this code."""

    def tombstones(self) -> list[Record]:
        """The end of the group."""

    # What is known of it

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    @property
    def is_forgotten(self) -> bool:
        """It has no members, none on the way in, and the log knows nothing of it."""

    @property
    def since(self) -> int:
        """When its last member went, as far as the log knows; -1 where it does not."""

    def listed(self) -> ListedGroup: ...
    def described(self) -> DescribedGroup: ...
    def described_consumer(self, topics: Topics) -> DescribedConsumerGroup: ...

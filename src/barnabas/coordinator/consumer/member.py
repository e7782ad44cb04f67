"""One member of a KIP-848 group, as a value: what it subscribes to, and how far its partitions have come.

Made by consumer_group, reconciliation and upgrade; kept by consumer_group_state. A member is two records: its
subscription (ConsumerGroupMemberMetadata) and its assignment (ConsumerGroupCurrentMemberAssignment).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    Record,
    TopicPartitions,
)

JOINING = 0
LEFT = -1
AWAY = -2
"""The epoch of a static member that has gone, and has said that it will be back."""

Held: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch since which the member has it."""


class Progress(IntEnum):
    """Numbered as in Kafka's records."""

    STABLE = 0
    UNREVOKED = 1
    """It has been told to give partitions back, and has not said yet that it did."""
    UNRELEASED = 2
    """It waits for partitions that others have yet to give back."""
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> "Progress":
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Member:
    """A member. `assigned` is what it has or has been told to take, `revoking` what it was told to give back."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """The names it subscribes to, sorted."""
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """There for a member that speaks the classic protocol in a group that was upgraded."""
    epoch: int = 0
    previous_epoch: int = 0
    progress: Progress = Progress.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.epoch == epoch and self.progress is Progress.STABLE

    def assignment_epoch(self, topic: UUID, partition: int) -> int | None:
        """Since when the member has a partition; None where it does not have it."""
        for held in (self.assigned, self.revoking):
            if (epoch := held.get(topic, {}).get(partition)) is not None:
                return epoch
        return None

    # As records, and from them

    def subscription_record(self, group_id: str) -> Record:
        return Record(
            ConsumerGroupMemberMetadataKey(group_id, self.id),
            ConsumerGroupMemberMetadataValue(
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=self.topics,
                subscribed_topic_regex=self.regex,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                server_assignor=self.assignor,
                classic_member_metadata=self.classic,
            ),
        )

    def assignment_record(self, group_id: str) -> Record:
        return Record(
            ConsumerGroupCurrentMemberAssignmentKey(group_id, self.id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.epoch,
                previous_member_epoch=self.previous_epoch,
                state=self.progress,
                assigned_partitions=_with_epochs(self.assigned),
                partitions_pending_revocation=_with_epochs(self.revoking),
            ),
        )

    def subscribed(self, value: ConsumerGroupMemberMetadataValue) -> "Member":
        """The same member with the subscription of a record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=value.subscribed_topic_names,
            regex=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def assigned_by(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "Member":
        """The same member with the assignment of a record."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            progress=Progress.of(value.state),
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )


def target_rows(target: Target) -> tuple[TopicPartitions, ...]:
    """A target as a record has it, always in the same order."""
    return tuple(
        TopicPartitions(topic, tuple(sorted(target[topic])))
        for topic in sorted(target, key=lambda topic: topic.int)
    )


def target_of(rows: Iterable[TopicPartitions]) -> Target:
    """The target of a record."""
    return {row.topic_id: frozenset(row.partitions) for row in rows if row.partitions}


def _with_epochs(held: Held) -> tuple[TopicPartitions, ...]:
    rows = []
    for topic in sorted(held, key=lambda topic: topic.int):
        partitions = sorted(held[topic])
        rows.append(TopicPartitions(topic, tuple(partitions), tuple(held[topic][p] for p in partitions)))
    return tuple(rows)


def _held(rows: Iterable[TopicPartitions], member_epoch: int) -> Held:
    # Kafka before 4.3 wrote no epochs: the member's own is the strictest that can be right.
    return {
        row.topic_id: dict(
            zip(
                row.partitions,
                row.assignment_epochs or (max(member_epoch, 0),) * len(row.partitions),
                strict=True,
            )
        )
        for row in rows
        if row.partitions
    }

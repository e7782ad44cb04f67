"""Owns what the log says of one KIP-848 group: epochs, members, targets, and the holder of each partition.

Called by consumer_group, which decides, and by upgrade. Changes by `apply` alone: replaying the records gives the same
state. Always holds: `is_held` is true for every partition that a member has, was told to take, or was told to give
back and has not said that it did.
"""

from collections.abc import Mapping
from uuid import UUID

from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.consumer.member import LEFT, Held, Member, target_of, target_rows
from barnabas.coordinator.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Record,
)


class ConsumerGroupState:
    """Mutable: one group as its records have made it."""

    __slots__ = (
        "_holders",
        "epoch",
        "id",
        "members",
        "metadata_hash",
        "regexes",
        "static",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 0
        """Rises when a subscription or a subscribed topic changes. 0 until the log knows the group."""
        self.metadata_hash = 0
        """Stands for the topics as they were when the epoch last rose."""
        self.target_epoch = 0
        """The group epoch the targets were made for."""
        self.targets: dict[str, Target] = {}
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Which member has a group.instance.id."""
        self.regexes: dict[str, frozenset[str]] = {}
        """The topics that each regular expression was found to match."""
        self._holders: dict[UUID, dict[int, str]] = {}

    # Looking

    @property
    def phase(self) -> str:
        """Named as Kafka's tools show it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in list(self.members.values())):
            return "Stable"
        return "Reconciling"

    def is_held(self, topic: UUID, partition: int) -> bool:
        return partition in self._holders.get(topic, ())

    def waits_for_others(self, member: Member) -> bool:
        """Whether something of the member's target is still held by another."""
        return any(
            self.is_held(topic, partition)
            for topic, partitions in self.targets.get(member.id, {}).items()
            for partition in partitions - member.assigned.get(topic, {}).keys()
        )

    # The log

    def apply(self, record: Record) -> None:
        """Become what the record says. Records of other kinds, and of other groups, are none of its business."""
        match record:
            case (ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue() as value):
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case (ConsumerGroupMetadataKey(), None):
                self.epoch = self.metadata_hash = 0
            case (
                ConsumerGroupTargetAssignmentMetadataKey(),
                ConsumerGroupTargetAssignmentMetadataValue() as value,
            ):
                self.target_epoch = value.assignment_epoch
            case (ConsumerGroupTargetAssignmentMetadataKey(), None):
                self.target_epoch = 0
            case (ConsumerGroupTargetAssignmentMemberKey(member_id=member_id), value):
                if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
                    self.targets[member_id] = target_of(value.topic_partitions)
                else:
                    self.targets.pop(member_id, None)
            case (ConsumerGroupMemberMetadataKey(member_id=member_id), value):
                if isinstance(value, ConsumerGroupMemberMetadataValue):
                    self._put(self._member(member_id).subscribed(value))
                else:
                    self._remove(member_id)
            case (ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), value):
                if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                    self._put(self._member(member_id).assigned_by(value))
                elif member_id in self.members:
                    gone = ConsumerGroupCurrentMemberAssignmentValue(LEFT, LEFT)
                    self._put(self.members[member_id].assigned_by(gone))
            case (ConsumerGroupRegularExpressionKey(regular_expression=regex), value):
                if isinstance(value, ConsumerGroupRegularExpressionValue):
                    self.regexes[regex] = frozenset(value.topics)
                else:
                    self.regexes.pop(regex, None)

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _put(self, member: Member) -> None:
        before = self.members.get(member.id)
        if before is None or before.assigned != member.assigned or before.revoking != member.revoking:
            if before is not None:
                self._release(before)
            for held in (member.assigned, member.revoking):
                self._hold(member.id, held)
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]

    def _hold(self, member_id: str, held: Held) -> None:
        for topic, partitions in held.items():
            self._holders.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member: Member) -> None:
        for held in (member.assigned, member.revoking):
            for topic, partitions in held.items():
                holders = self._holders.get(topic, {})
                for partition in partitions:
                    # In a compacted log a release may come after the next owner's record.
                    if holders.get(partition) == member.id:
                        del holders[partition]
                if not holders:
                    self._holders.pop(topic, None)

    # Records that others need too

    def epoch_record(self, epoch: int, metadata_hash: int) -> Record:
        return Record(ConsumerGroupMetadataKey(self.id), ConsumerGroupMetadataValue(epoch, metadata_hash))

    def target_record(self, member_id: str, target: Target) -> Record:
        return Record(
            ConsumerGroupTargetAssignmentMemberKey(self.id, member_id),
            ConsumerGroupTargetAssignmentMemberValue(target_rows(target)),
        )

    def target_epoch_record(self, epoch: int, now: int) -> Record:
        return Record(
            ConsumerGroupTargetAssignmentMetadataKey(self.id),
            ConsumerGroupTargetAssignmentMetadataValue(epoch, now),
        )

    def regex_records(self, regexes: Mapping[str, frozenset[str]], now: int) -> list[Record]:
        """What turns the expressions as they are into these."""
        records = [
            Record(
                ConsumerGroupRegularExpressionKey(self.id, regex),
                ConsumerGroupRegularExpressionValue(tuple(sorted(regexes[regex])), timestamp=now),
            )
            for regex in sorted(regexes)
            if regexes[regex] != self.regexes.get(regex)
        ]
        gone = sorted(self.regexes.keys() - regexes.keys())
        return records + [Record(ConsumerGroupRegularExpressionKey(self.id, regex)) for regex in gone]

    def removal(self, member_id: str) -> list[Record]:
        """Tombstones of all that is known of a member."""
        return [
            Record(ConsumerGroupCurrentMemberAssignmentKey(self.id, member_id)),
            Record(ConsumerGroupTargetAssignmentMemberKey(self.id, member_id)),
            Record(ConsumerGroupMemberMetadataKey(self.id, member_id)),
        ]

    def tombstones(self) -> list[Record]:
        """The end of the group."""
        return [
            *(
                record
                for member_id in sorted(self.members.keys() | self.targets)
                for record in self.removal(member_id)
            ),
            *(Record(ConsumerGroupRegularExpressionKey(self.id, regex)) for regex in self.regexes),
            Record(ConsumerGroupTargetAssignmentMetadataKey(self.id)),
            Record(ConsumerGroupMetadataKey(self.id)),
        ]

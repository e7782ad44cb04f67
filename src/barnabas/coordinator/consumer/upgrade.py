"""How a classic group becomes a KIP-848 group while its members work, and how it becomes one again.

Pure: groups in, records out. Up: a member of the new protocol sends its first heartbeat to a classic group of
consumers; its members are taken over as they are, in the epoch that their generation was, and go on with JoinGroup,
SyncGroup and Heartbeat (see classic_members). Down: the last member of the new protocol goes. The records of one append
end the one group and make the other, so that a replay takes the same way.

The coordinator, going up: `upgrade_records`, a ConsumerGroup that applies them, the heartbeat on it; waiting members of
the classic group are told REBALANCE_IN_PROGRESS. Going down: the classic group that takes the place of a consumer group
has to rebalance at once, for what the last one had is free now.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from barnabas.config import BrokerConfig
from barnabas.coordinator.classic.group import CONSUMERS, ClassicGroup
from barnabas.coordinator.classic.members import Members, MemberState
from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.consumer.member import Member
from barnabas.coordinator.consumer.partition_names import assignment_bytes, ids_of
from barnabas.coordinator.consumer.state import ConsumerGroupState
from barnabas.coordinator.consumer.targets import hash_of, subscribed
from barnabas.coordinator.effects import TopicFacts
from barnabas.coordinator.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    GroupMetadataKey,
    GroupMetadataValue,
    Record,
)
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_protocol import assignment_of, subscription_of
from barnabas.wire.schema import Malformed

WITHOUT_SECRETS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Assignors that every client has. What they tell members beside their partitions (librdkafka's sticky ones do) is
only what those had before, and the coordinator knows that."""


def upgrade_records(
    group: ClassicGroup, now: int, topics: Mapping[str, TopicFacts], config: BrokerConfig
) -> list[Record]:
    """The end of a classic group, and the beginning of a consumer group with the same members. Raises Refused."""
    ends = Record(GroupMetadataKey(group.id))
    if not group.members:
        return [ends]
    _check_upgrade(group, config)
    try:
        members = _taken_over(group, topics)
    except Malformed as malformed:
        raise _no_upgrade(group, f"the metadata of a member cannot be read ({malformed})") from None
    state = ConsumerGroupState(group.id)
    epoch = group.generation
    return [
        ends,
        *(member.subscription_record(group.id) for member in members),
        state.epoch_record(epoch, hash_of(subscribed(members, {}), topics)),
        *(state.target_record(member.id, _target(member)) for member in members),
        state.target_epoch_record(epoch, now),
        *(member.assignment_record(group.id) for member in members),
    ]


def can_downgrade(gone: Iterable[Member], left: Sequence[Member], config: BrokerConfig) -> bool:
    """Whether the members that are left, after these are gone, are a classic group again."""
    if not left or any(member.classic is None for member in left):
        return False
    return (
        any(member.classic is None for member in gone)
        and config.group_consumer_migration_policy in ("bidirectional", "downgrade")
        and len(left) <= config.group_max_size
        and _have_common_protocol(left)
    )


def downgrade_records(
    state: ConsumerGroupState,
    left: Sequence[Member],
    now: int,
    topics: Mapping[str, TopicFacts],
) -> list[Record]:
    """The end of a consumer group, and the beginning of a classic group of these members, with what they hold.

    Not with their targets: until the rebalance has begun, a partition may still be another member's.
    """
    members = Members(_classic_member(member) for member in left)
    protocol = members.elected_protocol()
    rows = tuple(
        classic.recorded(protocol, assignment_bytes(_held(member), topics, classic.metadata(protocol)))
        for member, classic in zip(left, members, strict=True)
    )
    value = GroupMetadataValue(
        protocol_type=CONSUMERS,
        generation=state.epoch,
        protocol=protocol,
        leader=left[0].id,
        current_state_timestamp=now,
        members=rows,
    )
    # The new group first: so a replay sees the one become the other, and not one end and one begin.
    return [Record(GroupMetadataKey(state.id), value), *state.tombstones()]


def _check_upgrade(group: ClassicGroup, config: BrokerConfig) -> None:
    if config.group_consumer_migration_policy not in ("bidirectional", "upgrade"):
        raise _no_upgrade(group, "group.consumer.migration.policy forbids it")
    if group.protocol_type != CONSUMERS:
        raise _no_upgrade(group, "its members are not consumers")
    if len(group.members) > config.group_consumer_max_size:
        raise _no_upgrade(group, "it has more members than group.consumer.max.size")


def _no_upgrade(group: ClassicGroup, why: str) -> Refused:
    return Refused(
        Code.GROUP_ID_NOT_FOUND, f"The classic group {group.id!r} cannot become a consumer group: {why}."
    )


def _taken_over(group: ClassicGroup, topics: Mapping[str, TopicFacts]) -> list[Member]:
    taken: dict[UUID, set[int]] = {}
    return [_consumer_member(group, member, topics, taken) for member in group.members]


def _consumer_member(
    group: ClassicGroup, member: MemberState, topics: Mapping[str, TopicFacts], taken: dict[UUID, set[int]]
) -> Member:
    # A group that never finished a rebalance has chosen no protocol; all of a member's say the same about topics.
    subscription = subscription_of(member.metadata(group.protocol) or member.protocols[0][1])
    assignment = assignment_of(member.assignment)
    if assignment.user_data and group.protocol not in WITHOUT_SECRETS:
        raise _no_upgrade(group, "its assignor tells members more than their partitions")
    assigned: dict[UUID, dict[int, int]] = {}
    for topic, partitions in ids_of(assignment.assigned_partitions, topics).items():
        # A leader may have assigned a partition twice; here it has one holder.
        free = partitions - taken.setdefault(topic, set())
        taken[topic] |= free
        if free:
            assigned[topic] = dict.fromkeys(free, group.generation)
    return Member(
        id=member.id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
    )


def classic_metadata(
    session_timeout_ms: int, protocols: Iterable[tuple[str, bytes]]
) -> ClassicMemberMetadata:
    """What is kept of a member because it speaks the classic protocol."""
    return ClassicMemberMetadata(
        session_timeout_ms, tuple(ClassicProtocol(name, metadata) for name, metadata in protocols)
    )


def _target(member: Member) -> Target:
    return {topic: frozenset(partitions) for topic, partitions in member.assigned.items()}


def _held(member: Member) -> Target:
    """All that no other member may have yet."""
    parts = (member.assigned, member.revoking)
    return {
        topic: frozenset(partition for part in parts for partition in part.get(topic, ()))
        for topic in member.assigned.keys() | member.revoking.keys()
    }


def _protocols(member: Member) -> tuple[tuple[str, bytes], ...]:
    classic = member.classic
    return tuple((p.name, p.metadata) for p in classic.supported_protocols) if classic else ()


def _classic_member(member: Member) -> MemberState:
    return MemberState(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms if member.classic else 0,
        _protocols(member),
    )


def _have_common_protocol(members: Collection[Member]) -> bool:
    common = [{name for name, _ in _protocols(member)} for member in members]
    return bool(set.intersection(*common))

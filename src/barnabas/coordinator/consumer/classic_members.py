"""How members of the classic protocol live in a KIP-848 group: their requests, translated. Called by `group`.

Such a member is told to rejoin (REBALANCE_IN_PROGRESS) whenever its assignment can take a step; it takes the step
with JoinGroup, in which it says what it owns, and asks for the outcome with SyncGroup. No member leads: the coordinator
assigns. Its generation is its member epoch. Nothing waits here: every request is answered at once, or Refused.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.coordinator.classic.group import CONSUMERS, MEMBER_ID_REQUIRED_SINCE
from barnabas.coordinator.classic.members import protocols_of, rebalance_timeout_of
from barnabas.coordinator.consumer.member import Member, Progress
from barnabas.coordinator.consumer.partition_names import assignment_bytes, ids_of
from barnabas.coordinator.consumer.upgrade import classic_metadata
from barnabas.coordinator.effects import Context, Effects, TopicFacts
from barnabas.coordinator.records import ClassicMemberMetadata, Record
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_protocol import Subscription, subscription_of
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.schema import Malformed

if TYPE_CHECKING:
    from barnabas.coordinator.consumer.group import ConsumerGroup


def join(
    group: "ConsumerGroup",
    request: JoinGroupRequest,
    context: Context,
    now: int,
    topics: Mapping[str, TopicFacts],
    out: Effects,
) -> JoinGroupResponse:
    """A classic member wants in, or takes its next step."""
    _check_protocols(group, request)
    instance_id = request.group_instance_id
    member_id = request.member_id or f"{instance_id or context.client_id}-{context.fresh_id}"
    if not request.member_id and instance_id is None and context.version >= MEMBER_ID_REQUIRED_SINCE:
        group.check_room_for(member_id)
        return JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id)
    subscription = _subscription(request)
    records: list[Record] = []
    former, before = _joining(group, request, member_id, records)
    after = _told(before, request, context, subscription)
    owned = ids_of(subscription.owned_partitions, topics)
    if owned and former not in group.state.members:
        # It was put out, and its partitions may have new owners: it must hear of that before it is let in again.
        raise Refused(Code.UNKNOWN_MEMBER_ID)
    replaced = group.state.members.get(former)
    member = group.advance(former, before, after, owned, now, topics, records)
    if replaced is not None and (ended := group.downgrade_to(replaced, member, now, topics)) is not None:
        # The last member of the new protocol came back as a classic one.
        out.records.extend(ended)
        return _joined(member, group.state.epoch)
    out.records.extend(records)
    group.timers.joined(member, now)
    return _joined(member, member.epoch)


def sync(
    group: "ConsumerGroup", request: SyncGroupRequest, now: int, topics: Mapping[str, TopicFacts]
) -> SyncGroupResponse:
    """A classic member asks for its assignment."""
    member, classic = _classic(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.epoch:
        raise Refused(Code.ILLEGAL_GENERATION)
    protocol = classic.supported_protocols[0]
    for said, known in ((request.protocol_type, CONSUMERS), (request.protocol_name, protocol.name)):
        if said is not None and said != known:
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL)
    # One that has to give partitions back has joined already: it learns by this answer which ones.
    if member.epoch < group.state.epoch and member.progress is not Progress.UNREVOKED:
        group.timers.must_join(member, now)
        raise Refused(Code.REBALANCE_IN_PROGRESS)
    group.timers.synced(member, now)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, topics, protocol.metadata),
    )


def heartbeat(group: "ConsumerGroup", request: HeartbeatRequest, now: int) -> HeartbeatResponse:
    """A classic member lives, and learns whether it should join again."""
    member, _ = _classic(group, request.member_id, request.group_instance_id)
    if request.generation_id != member.epoch:
        raise Refused(Code.ILLEGAL_GENERATION)
    group.timers.is_alive(member, now)
    state = group.state
    if (
        member.epoch < state.epoch
        or member.progress is Progress.UNREVOKED
        or (member.progress is Progress.UNRELEASED and not state.waits_for_others(member))
    ):
        group.timers.must_join(member, now)
        raise Refused(Code.REBALANCE_IN_PROGRESS)
    return HeartbeatResponse()


def leave(
    group: "ConsumerGroup",
    request: LeaveGroupRequest,
    now: int,
    topics: Mapping[str, TopicFacts],
    out: Effects,
) -> LeaveGroupResponse:
    """Classic members go, each answered for itself."""
    rows = []
    gone: dict[str, Member] = {}
    for leaving in request.members:
        row = LeftMember(leaving.member_id, leaving.group_instance_id)
        try:
            member = _leaving(group, leaving)
            if member.id in gone:
                raise Refused(Code.UNKNOWN_MEMBER_ID)
            gone[member.id] = member
            row.member_id = member.id
        except Refused as refused:
            row.error_code = refused.code
        rows.append(row)
    if gone:
        group.remove(gone.values(), now, topics, out)
    return LeaveGroupResponse(members=rows)


def _check_protocols(group: "ConsumerGroup", request: JoinGroupRequest) -> None:
    """All classic members must have a protocol in common, or they could never be a classic group again."""
    names = {protocol.name for protocol in request.protocols}
    for member in group.state.members.values():
        if member.classic is not None and member.id != request.member_id:
            names &= {protocol.name for protocol in member.classic.supported_protocols}
    if request.protocol_type != CONSUMERS or not names:
        raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(request: JoinGroupRequest) -> Subscription:
    try:
        return subscription_of(request.protocols[0].metadata)
    except Malformed:
        raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL) from None


def _joining(
    group: "ConsumerGroup", request: JoinGroupRequest, member_id: str, records: list[Record]
) -> tuple[str, Member]:
    """The id under which the member is known, and what is known of it."""
    instance_id = request.group_instance_id
    member = group.state.members.get(member_id)
    if instance_id is not None:
        member = group.static_member(instance_id)
        if request.member_id and member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        if request.member_id and member is not None and member.id != member_id:
            raise Refused(Code.FENCED_INSTANCE_ID)
        if member is not None and member.id != member_id:
            return member.id, group.replacement(member, member_id, records)
    if member is None:
        group.check_room_for(member_id)
    return member_id, member or Member(member_id)


def _told(member: Member, request: JoinGroupRequest, context: Context, subscription: Subscription) -> Member:
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        regex=None,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        assignor=None,
        classic=classic_metadata(request.session_timeout_ms, protocols_of(request)),
    )


def _joined(member: Member, generation: int) -> JoinGroupResponse:
    protocols = member.classic.supported_protocols if member.classic else ()
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMERS,
        protocol_name=protocols[0].name if protocols else "",
        member_id=member.id,
    )


def _classic(
    group: "ConsumerGroup", member_id: str, instance_id: str | None
) -> tuple[Member, ClassicMemberMetadata]:
    member = group.state.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is None:
        raise Refused(Code.UNKNOWN_MEMBER_ID)
    if member.id != member_id:
        raise Refused(Code.FENCED_INSTANCE_ID)
    if member.classic is None:
        raise Refused(Code.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _leaving(group: "ConsumerGroup", leaving: LeavingMember) -> Member:
    if leaving.member_id or leaving.group_instance_id is None:
        return _classic(group, leaving.member_id, leaving.group_instance_id)[0]
    # An administrator names a static member by its instance alone.
    member = group.static_member(leaving.group_instance_id)
    if member is None or member.classic is None:
        raise Refused(Code.UNKNOWN_MEMBER_ID)
    return member

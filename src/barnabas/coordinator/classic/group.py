"""Owns one classic group: what its members may ask, and what the log says of it. Called by `coordinator`.

How members come together is in `rebalance`. What a replay of the log gives is the group as it is whenever it is Stable
or Empty, and the last such generation otherwise. What members tell one another (metadata, assignments) is bytes here.
"""

from barnabas.coordinator.classic.members import (
    Members,
    MemberState,
    member_from_record,
    member_from_request,
    protocols_of,
    rebalance_timeout_of,
)
from barnabas.coordinator.classic.rebalance import CONSUMERS, Rebalance, State
from barnabas.coordinator.effects import NEVER, Context, Effects, Token
from barnabas.coordinator.group import Kind, Topics
from barnabas.coordinator.records import GroupMetadataKey, GroupMetadataValue, Record
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from barnabas.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    ListedGroup,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.offsets import OffsetCommitRequest

__all__ = ["CONSUMERS", "ClassicGroup", "State"]

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member without an id may wait: if its client has gone, its answer is never read."""


class ClassicGroup(Rebalance):
    """Mutable: one group."""

    kind = Kind.CLASSIC

    __slots__ = ()

    # Requests

    def join(
        self,
        request: JoinGroupRequest,
        context: Context,
        now: int,
        topics: Topics,
        token: Token,
        out: Effects,
    ) -> None:
        """A member wants in, or in again. Raises Refused; else the answer comes when all have joined."""
        member_id = request.member_id
        if not self._has_room_for(member_id):
            if member_id in self.members:
                self._remove(member_id, out)
                self._complete_if_all_joined(now, out)
            self._pending.pop(member_id, None)
            raise Refused(Code.GROUP_MAX_SIZE_REACHED)
        self._check_protocols(request)
        if not member_id:
            self._join_new(request, context, now, token, out)
        elif member_id in self._pending:
            if request.group_instance_id is not None:
                raise Refused(Code.UNKNOWN_MEMBER_ID)
            self._add(member_id, request, context, now, token, out)
        else:
            member = self.members.get(member_id, request.group_instance_id)
            self._join_again(member, request, now, token, out)

    def sync(self, request: SyncGroupRequest, now: int, topics: Topics, token: Token, out: Effects) -> None:
        """A member wants its assignment; the leader brings all of them. Raises Refused."""
        member = self.members.get(request.member_id, request.group_instance_id)
        if request.generation_id != self.generation:
            raise Refused(Code.ILLEGAL_GENERATION)
        for said, known in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol),
        ):
            if said is not None and known is not None and said != known:
                raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is State.PREPARING:
            raise Refused(Code.REBALANCE_IN_PROGRESS)
        member.synced = True
        if self.state is State.STABLE:
            self._stop_waiting_for_syncs()
            out.reply(token, self._assigned(member.assignment))
            return
        self._displace(self._syncing.get(member.id), SyncGroupResponse, out)
        self._syncing[member.id] = token
        if member.id == self.leader:
            self._assign({row.member_id: row.assignment for row in request.assignments}, now, out)

    def heartbeat(self, request: HeartbeatRequest, now: int) -> HeartbeatResponse:
        """A member lives. Raises Refused where it must learn something by that."""
        member = self.members.get(request.member_id, request.group_instance_id)
        if request.generation_id != self.generation:
            raise Refused(Code.ILLEGAL_GENERATION)
        member.is_alive(now)
        self._due(member.deadline)
        if self.state is State.PREPARING:
            raise Refused(Code.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, request: LeaveGroupRequest, now: int, topics: Topics, out: Effects) -> LeaveGroupResponse:
        """Members go, each answered for itself."""
        rows = []
        for leaving in request.members:
            row = LeftMember(leaving.member_id, leaving.group_instance_id)
            try:
                self._leave(leaving, out)
            except Refused as refused:
                row.error_code = refused.code
            rows.append(row)
        if any(row.error_code == Code.NONE for row in rows):
            self._after_removal(now, out)
        return LeaveGroupResponse(members=rows)

    def _leave(self, leaving: LeavingMember, out: Effects) -> None:
        if leaving.member_id:
            if self._pending.pop(leaving.member_id, None) is None:
                member = self.members.get(leaving.member_id, leaving.group_instance_id)
                self._remove(member.id, out)
            return
        # An administrator names a static member by its instance alone.
        holder = self.members.holder(leaving.group_instance_id) if leaving.group_instance_id else None
        if holder is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        self._remove(holder.id, out)

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: Context,
        now: int,
        topics: Topics,
        out: Effects,
    ) -> ConsumerGroupHeartbeatResponse:
        """Members of KIP-848 are in groups of their own kind: one that joins makes it of that kind (`upgrade`)."""
        raise Refused(Code.GROUP_ID_NOT_FOUND)

    def check_commit(self, request: OffsetCommitRequest, version: int, now: int, topics: Topics) -> None:
        """Refuse a commit of another generation, of a stranger, or in the middle of a rebalance."""
        generation = request.generation_id_or_member_epoch
        if generation < 0 and self.state is State.EMPTY:
            # An administrator, or a consumer that assigns its partitions itself.
            return
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        member = self.members.get(request.member_id, request.group_instance_id)
        if generation != self.generation:
            raise Refused(Code.ILLEGAL_GENERATION)
        if self.state is State.COMPLETING:
            raise Refused(Code.REBALANCE_IN_PROGRESS)
        member.is_alive(now)
        self._due(member.deadline)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Any client may ask what is committed."""

    def check_offset_delete(self) -> None:
        """Refuse to delete offsets of members we cannot tell the topics of."""
        if self.members and self.protocol_type != CONSUMERS:
            raise Refused(Code.NON_EMPTY_GROUP)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_forgotten(self) -> bool:
        """It has no members, none is on the way in, and the log has no record of it."""
        return not self.recorded and not self.members and not self._pending

    # The log

    def apply(self, record: Record) -> bool:
        """Become what the record says; False where that is the end of the group."""
        if record.value is None:
            return False
        self._become(record.value)  # type: ignore[arg-type]
        return True

    def _become(self, value: GroupMetadataValue) -> None:
        """Members that are known keep what only memory knows of them."""
        protocol = value.protocol
        members = []
        for row in value.members:
            member = self.members.find(row.member_id) or self._successor
            if member is None or member.recorded(protocol, row.assignment) != row:
                member = member_from_record(row, protocol)
            member.assignment = row.assignment
            members.append(member)
        self.members = Members(members)
        self._successor = None
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = protocol
        self.leader = value.leader
        self.since = value.current_state_timestamp
        self.state = State.STABLE if members else State.EMPTY
        self.recorded = True
        self._join_deadline = NEVER
        self._initial = False
        self._find_topics()
        self._stop_waiting_for_syncs()

    @property
    def recording(self) -> GroupMetadataValue:
        """What the log says of the group whenever it is Stable or Empty."""
        return self._value(self.since, self.leader, self.members, self.members.assignments())

    def tombstones(self) -> list[Record]:
        """The end of the group."""
        return [Record(GroupMetadataKey(self.id))] if self.recorded else []

    # What others may know

    def listed(self) -> ListedGroup:
        return ListedGroup(self.id, self.protocol_type or "", self.state.value, self.kind.value)

    def described(self) -> DescribedGroup:
        stable = self.state is State.STABLE
        return DescribedGroup(
            group_id=self.id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=self.protocol or "" if stable else "",
            members=[
                DescribedGroupMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol) if stable else b"",
                    member.assignment if stable else b"",
                )
                for member in self.members
            ],
        )

    def described_consumer(self, topics: Topics) -> DescribedConsumerGroup:
        why = f"Group {self.id!r} is a classic group."
        return DescribedConsumerGroup(Code.GROUP_ID_NOT_FOUND, why, self.id)

    def is_subscribed(self, topic: str) -> bool:
        """Whether the group reads a topic, as far as we can tell: a group of consumers we cannot read may."""
        return self.protocol_type == CONSUMERS if self.topics is None else topic in self.topics

    # Joining

    def _has_room_for(self, member_id: str) -> bool:
        limit = self._config.group_max_size
        if self.state is State.PREPARING:
            # Waiting members count, not all members: a limit that was lowered puts the last ones out.
            return member_id in self._joining or len(self._joining) < limit
        return self.state is State.EMPTY or member_id in self.members or len(self.members) < limit

    def _check_protocols(self, request: JoinGroupRequest) -> None:
        names = [protocol.name for protocol in request.protocols]
        if self.state is State.EMPTY:
            fits = bool(request.protocol_type and names)
        else:
            fits = request.protocol_type == self.protocol_type and self.members.any_common(names)
        if not fits:
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL)

    def _join_new(
        self, request: JoinGroupRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{context.fresh_id}"
            holder = self.members.holder(instance_id)
            if holder is not None:
                self._take_over(holder, member_id, request, context, now, token, out)
            else:
                self._add(member_id, request, context, now, token, out)
            return
        member_id = f"{context.client_id}-{context.fresh_id}"
        if context.version < MEMBER_ID_REQUIRED_SINCE:
            self._add(member_id, request, context, now, token, out)
            return
        # A client that never hears from us must not leave a member behind each time it tries.
        self._pending[member_id] = now + request.session_timeout_ms
        self._due(self._pending[member_id])
        out.reply(token, JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id))

    def _add(
        self,
        member_id: str,
        request: JoinGroupRequest,
        context: Context,
        now: int,
        token: Token,
        out: Effects,
    ) -> None:
        member = member_from_request(member_id, request, context)
        member.is_new = True
        member.deadline = now + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._due(member.deadline)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        if self.leader is None:
            self.leader = member_id
        self._pending.pop(member_id, None)
        self._joining[member_id] = token
        self._newcomers = True
        self._rebalance(now, out)

    def _join_again(
        self, member: MemberState, request: JoinGroupRequest, now: int, token: Token, out: Effects
    ) -> None:
        unchanged = member.protocols == protocols_of(request)
        missed_the_answer = self.state is State.COMPLETING and unchanged
        nothing_new = self.state is State.STABLE and unchanged and member.id != self.leader
        if missed_the_answer or nothing_new:
            out.reply(token, self._joined(member, with_members=missed_the_answer))
            return
        # A leader that joins again has a reason: the topics may have changed, which its metadata does not show.
        self.members.change(member, protocols_of(request))
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_of(request)
        self._displace(self._joining.get(member.id), JoinGroupResponse, out)
        self._joining[member.id] = token
        self._rebalance(now, out)

    def _take_over(
        self,
        old: MemberState,
        member_id: str,
        request: JoinGroupRequest,
        context: Context,
        now: int,
        token: Token,
        out: Effects,
    ) -> None:
        """A static member is back under a new id, with its assignment; a client that still has the old id is fenced."""
        member = member_from_request(member_id, request, context)
        member.assignment = old.assignment
        member.is_alive(now)
        self._due(member.deadline)
        members = self.members.replaced(old, member)
        if self.state is State.STABLE and members.elected_protocol() == self.protocol:
            self._succeed(old, member, members, context, token, out)
            return
        if (waiting := self._joining.pop(old.id, None)) is not None:
            out.reply(waiting, JoinGroupResponse(error_code=Code.FENCED_INSTANCE_ID, member_id=old.id))
        if (waiting := self._syncing.pop(old.id, None)) is not None:
            out.reply(waiting, SyncGroupResponse(error_code=Code.FENCED_INSTANCE_ID))
        self.members = members
        if self.leader == old.id:
            self.leader = member_id
        self._joining[member_id] = token
        # An assignment that is on its way would be for the old id.
        self._rebalance(now, out)

    def _succeed(
        self,
        old: MemberState,
        member: MemberState,
        members: Members,
        context: Context,
        token: Token,
        out: Effects,
    ) -> None:
        """No rebalance for a static member that comes back to a stable group: one record, and it goes on."""
        self._successor = member
        leads = self.leader == old.id
        leader = member.id if leads else self.leader
        value = self._value(self.since, leader, members, members.assignments())
        out.records.append(Record(GroupMetadataKey(self.id), value))
        response = self._joined(member, with_members=False)
        if context.version >= SKIP_ASSIGNMENT_SINCE:
            response.leader = leader or ""
            response.skip_assignment = leads
            if leads:
                response.members = self._member_rows(members)
        # An older client that leads is told of its old id, or it would assign to a member that is gone.
        out.reply(token, response)

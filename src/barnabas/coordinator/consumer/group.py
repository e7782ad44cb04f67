"""Owns one KIP-848 group: which members may be in it, when its epoch rises, and what its members are told.

Called by `coordinator`, and by `classic_members` for members of the classic protocol. A request gives records and an
answer; what must last is in `state` and changes by `apply` alone. Only timers live in memory: a member that has
none, after a load or a conversion, gets them with the next tick, which is then due at once.

Always holds: a partition is held by one member at most (see reconciliation); epochs never fall; a request that is
refused leaves no record.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from barnabas.config import BrokerConfig
from barnabas.coordinator.classic.group import State
from barnabas.coordinator.consumer import classic_members
from barnabas.coordinator.consumer.assignors import Target
from barnabas.coordinator.consumer.described import described
from barnabas.coordinator.consumer.heartbeats import (
    assignment_of,
    check_epoch,
    check_request,
    differ,
    is_full,
    owned_of,
    told,
)
from barnabas.coordinator.consumer.member import AWAY, JOINING, LEFT, Member
from barnabas.coordinator.consumer.reconciliation import Owned, reconcile
from barnabas.coordinator.consumer.state import ConsumerGroupState
from barnabas.coordinator.consumer.targets import (
    assign,
    hash_of,
    offered_assignors,
    resolve,
    subscribed,
)
from barnabas.coordinator.consumer.timers import MemberTimers
from barnabas.coordinator.consumer.upgrade import can_downgrade, downgrade_records
from barnabas.coordinator.effects import Context, Effects, Token, TopicFacts
from barnabas.coordinator.group import Kind, Topics
from barnabas.coordinator.records import ConsumerGroupMetadataKey, Record
from barnabas.errors import Code, Refused
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

MEMBER_EPOCHS_SINCE = 9
"""The first OffsetCommit whose answer can tell a member that its epoch is old."""


class ConsumerGroup:
    """Mutable: one group. `topics` are all topics there are: the same object until something about them changes."""

    kind = Kind.CONSUMER
    since = -1

    __slots__ = ("_config", "_looked_at", "id", "state", "timers")

    def __init__(self, group_id: str, config: BrokerConfig) -> None:
        self.id = group_id
        self.state = ConsumerGroupState(group_id)
        self.timers = MemberTimers(config)
        self._config = config
        self._looked_at: Mapping[str, TopicFacts] | None = None
        """Topics that are known to have brought nothing new."""

    # Requests of members of this protocol

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: Context,
        now: int,
        topics: Mapping[str, TopicFacts],
        out: Effects,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member joins, lives, changes or leaves. Raises Refused."""
        check_request(request, context.version, offered_assignors(self._config))
        if request.member_epoch in (LEFT, AWAY):
            return self._leave(request, now, topics, out)
        records: list[Record] = []
        owned = owned_of(request.topic_partitions)
        former, before = self._member_of(request, context, owned, records)
        after = told(before, request, context)
        member = self.advance(former, before, after, owned, now, topics, records)
        self.timers.is_alive(member, now)
        out.records.extend(records)
        news = request.member_epoch == JOINING or is_full(request) or differ(before.assigned, member.assigned)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._config.group_consumer_heartbeat_interval_ms,
            assignment=assignment_of(member.assigned) if news else None,
        )

    # Requests of classic members

    def join(
        self,
        request: JoinGroupRequest,
        context: Context,
        now: int,
        topics: Topics,
        token: Token,
        out: Effects,
    ) -> None:
        out.reply(token, classic_members.join(self, request, context, now, topics, out))

    def sync(self, request: SyncGroupRequest, now: int, topics: Topics, token: Token, out: Effects) -> None:
        out.reply(token, classic_members.sync(self, request, now, topics))

    def heartbeat(self, request: HeartbeatRequest, now: int) -> HeartbeatResponse:
        return classic_members.heartbeat(self, request, now)

    def leave(self, request: LeaveGroupRequest, now: int, topics: Topics, out: Effects) -> LeaveGroupResponse:
        return classic_members.leave(self, request, now, topics, out)

    # Offsets

    def check_commit(self, request: OffsetCommitRequest, version: int, now: int, topics: Topics) -> None:
        """Refuse a commit from outside the group, or by a member for what is not its own."""
        epoch = request.generation_id_or_member_epoch
        if epoch < 0 and not self.state.members:
            # An administrator, or a consumer that assigns its partitions itself.
            return
        member = self._known(request.member_id)
        if member.classic is None and version < MEMBER_EPOCHS_SINCE:
            raise Refused(
                Code.UNSUPPORTED_VERSION,
                f"Members of a consumer group commit with OffsetCommit {MEMBER_EPOCHS_SINCE} or later.",
            )
        if epoch == member.epoch:
            return
        if member.classic is not None:
            raise Refused(Code.ILLEGAL_GENERATION)
        # The answer with the new epoch may be on its way: what the member had before it, and still has, is its own.
        for topic in request.topics:
            facts = topics.get(topic.name)
            for partition in topic.partitions:
                since = member.assignment_epoch(facts.id, partition.partition_index) if facts else None
                if since is None or not since <= epoch < member.epoch:
                    raise Refused(Code.STALE_MEMBER_EPOCH)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse a member that asks for offsets in an epoch that is not its own. Others may ask what they like."""
        if member_id is None and epoch < 0:
            return
        member = self._known(member_id or "")
        if epoch != member.epoch:
            raise Refused(Code.STALE_MEMBER_EPOCH if member.classic is None else Code.ILLEGAL_GENERATION)

    def check_offset_delete(self) -> None:
        """What members read is known (`is_subscribed`): all else may go."""

    # Time and the log

    @property
    def deadline(self) -> int:
        """Never later than the next moment something is due."""
        return self.timers.deadline

    def tick(self, now: int, topics: Mapping[str, TopicFacts], out: Effects) -> None:
        """Put out late members, and find out when the next one will be late."""
        self.timers.start(self.state.members, now)
        if late := self.timers.late(self.state.members, now):
            self.remove(late, now, topics, out)
        else:
            self.topics_changed(now, topics, out)
        self.timers.settle()

    def topics_changed(self, now: int, topics: Mapping[str, TopicFacts], out: Effects) -> None:
        """Let the epoch rise if the topics that the group reads have changed: members share them out anew.

        Heartbeats look for this too; but classic members send none of those, and theirs bring no topics.
        """
        state = self.state
        if self._looked_at is topics or not state.members:
            return
        members = state.members.values()
        regexes = resolve(members, topics)
        found = hash_of(subscribed(members, regexes), topics)
        if found != state.metadata_hash or regexes != state.regexes:
            out.records.extend(state.regex_records(regexes, now))
            out.records.append(state.epoch_record(state.epoch + 1, found))
        else:
            self._looked_at = topics

    def topics_grown(self, names: Set[str], now: int, out: Effects) -> None:
        """Members are told with their next heartbeat."""

    def loaded(self, now: int, out: Effects) -> None:
        """The log has been replayed: members have one session to show that they live."""
        self.timers.start(self.state.members, now)
        self.timers.settle()

    def call_together(self, now: int, out: Effects) -> None:
        """Members go on as they were, and agree with their next heartbeats."""

    def release(self, code: Code, out: Effects) -> None:
        """Nothing waits here: every request is answered at once."""

    def apply(self, record: Record) -> bool:
        """Become what the record says. In a compacted log a group may begin with any of its records: only one kind of
        tombstone means that it ends."""
        self.state.apply(record)
        member_id = getattr(record.key, "member_id", None)
        if member_id in self.state.members:
            self.timers.expect(member_id)
        elif member_id is not None and record.value is None:
            self.timers.forget(member_id)
        return record.value is not None or type(record.key) is not ConsumerGroupMetadataKey

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def is_forgotten(self) -> bool:
        """The log knows nothing of it, or was told to forget it."""
        return self.state.epoch == 0 and not self.state.members

    def tombstones(self) -> list[Record]:
        """The end of the group."""
        return self.state.tombstones()

    # What others may know

    def listed(self) -> ListedGroup:
        return ListedGroup(self.id, "consumer", self.state.phase, self.kind.value)

    def described(self) -> DescribedGroup:
        """As clients of the classic protocol see it: not at all."""
        return DescribedGroup(group_id=self.id, group_state=State.DEAD.value)

    def described_consumer(self, topics: Topics) -> DescribedConsumerGroup:
        return described(self.state, self._config, topics)

    def is_subscribed(self, topic: str) -> bool:
        return topic in subscribed(self.state.members.values(), self.state.regexes)

    # Steps that members of both protocols take

    def check_room_for(self, member_id: str) -> None:
        members = self.state.members
        if member_id not in members and len(members) >= self._config.group_consumer_max_size:
            raise Refused(Code.GROUP_MAX_SIZE_REACHED)

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.state.static.get(instance_id)
        return None if member_id is None else self.state.members[member_id]

    def replacement(self, old: Member, member_id: str, records: list[Record]) -> Member:
        """A static member that takes the place of `old`, with its subscription and its partitions."""
        new = replace(old, id=member_id, epoch=JOINING, previous_epoch=JOINING)
        records.extend(self.state.removal(old.id))
        records.append(new.subscription_record(self.id))
        records.append(self.state.target_record(member_id, self.state.targets.get(old.id, {})))
        records.append(new.assignment_record(self.id))
        return new

    def advance(
        self,
        former: str,
        before: Member,
        after: Member,
        owned: Owned | None,
        now: int,
        topics: Mapping[str, TopicFacts],
        records: list[Record],
    ) -> Member:
        """Let a member be what it has become, the group follow, and the member take its next step.

        `former` is the id it is known by: another one where it takes the place of a static member.
        """
        state = self.state
        if after is not before and after != before:
            records.append(after.subscription_record(self.id))
        changed = state.epoch == 0 or (before.topics, before.regex) != (after.topics, after.regex)
        epoch, regexes = state.epoch, state.regexes
        members = [after]
        if changed or self._looked_at is not topics or epoch > state.target_epoch:
            members += (member for member in state.members.values() if member.id != former)
            regexes = resolve(members, topics)
            found = hash_of(subscribed(members, regexes), topics)
            if changed or found != state.metadata_hash or regexes != state.regexes:
                epoch += 1
                records.extend(state.regex_records(regexes, now))
                records.append(state.epoch_record(epoch, found))
            else:
                self._looked_at = topics
        targets: Mapping[str, Target] = state.targets
        if former != after.id:
            targets = {**targets, after.id: targets.get(former, {})}
        if epoch > state.target_epoch:
            made = assign(members, targets, regexes, topics, self._config)
            records.extend(state.target_record(m, made[m]) for m in sorted(made) if made[m] != targets.get(m))
            records.append(state.target_epoch_record(epoch, now))
            targets = made
        return self._reconcile(after, epoch, targets.get(after.id, {}), owned, now, records)

    def remove(
        self, members: Iterable[Member], now: int, topics: Mapping[str, TopicFacts], out: Effects
    ) -> None:
        """Members go. If none of the others speaks this protocol, the group becomes a classic one again."""
        state = self.state
        gone = {member.id: member for member in members}
        left = [member for member in state.members.values() if member.id not in gone]
        if can_downgrade(gone.values(), left, self._config):
            out.records.extend(downgrade_records(state, left, now, topics))
            return
        for member_id in gone:
            out.records.extend(state.removal(member_id))
        subscribed_to = {member.regex for member in left}
        regexes = {regex: names for regex, names in state.regexes.items() if regex in subscribed_to}
        out.records.extend(state.regex_records(regexes, now))
        out.records.append(state.epoch_record(state.epoch + 1, hash_of(subscribed(left, regexes), topics)))

    def downgrade_to(
        self, replaced: Member, member: Member, now: int, topics: Mapping[str, TopicFacts]
    ) -> list[Record] | None:
        """What makes this a classic group, if a classic member takes the place of the last one that was none."""
        state = self.state
        heir = replace(member, assigned=replaced.assigned, revoking=replaced.revoking)
        left = [*(other for other in state.members.values() if other.id != replaced.id), heir]
        if not can_downgrade((replaced,), left, self._config):
            return None
        return downgrade_records(state, left, now, topics)

    # Joining and leaving

    def _known(self, member_id: str) -> Member:
        member = self.state.members.get(member_id)
        if member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        return member

    def _member_of(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: Context,
        owned: Owned | None,
        records: list[Record],
    ) -> tuple[str, Member]:
        """The id under which the member is known, and what is known of it."""
        member_id = request.member_id or context.fresh_id
        joins = request.member_epoch == JOINING
        if request.instance_id is None:
            member = self.state.members.get(member_id)
        else:
            member = self.static_member(request.instance_id)
            if member is not None and member.id != member_id and not joins:
                raise Refused(Code.FENCED_INSTANCE_ID)
        if member is None:
            if not joins:
                raise Refused(Code.UNKNOWN_MEMBER_ID)
            self.check_room_for(member_id)
            return member_id, Member(member_id)
        if joins and (member.epoch == AWAY or member.id != member_id):
            if member.epoch != AWAY and member.classic is None:
                raise Refused(
                    Code.UNRELEASED_INSTANCE_ID,
                    f"{request.instance_id!r} is still in use by the member {member.id}.",
                )
            return member.id, self.replacement(member, member_id, records)
        check_epoch(member, request.member_epoch, owned)
        return member_id, member

    def _leave(
        self,
        request: ConsumerGroupHeartbeatRequest,
        now: int,
        topics: Mapping[str, TopicFacts],
        out: Effects,
    ) -> ConsumerGroupHeartbeatResponse:
        member = (
            self.state.members.get(request.member_id)
            if request.instance_id is None
            else self.static_member(request.instance_id)
        )
        if member is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        if member.id != request.member_id:
            raise Refused(Code.FENCED_INSTANCE_ID)
        if request.member_epoch == AWAY:
            # Its partitions wait for it until its session is over.
            out.records.append(replace(member, epoch=AWAY, revoking={}).assignment_record(self.id))
        else:
            self.remove([member], now, topics, out)
        return ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch)

    def _reconcile(
        self,
        member: Member,
        target_epoch: int,
        target: Target,
        owned: Owned | None,
        now: int,
        records: list[Record],
    ) -> Member:
        if member.is_reconciled_to(target_epoch):
            return member
        after = reconcile(member, target_epoch, target, owned, self.state.is_held)
        if after != member:
            records.append(after.assignment_record(self.id))
            self.timers.revocation(after, now)
        return after

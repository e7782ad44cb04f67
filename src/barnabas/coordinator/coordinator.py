"""Owns all groups of one partition of `__consumer_offsets`, and what they have committed. Hosted by the broker.

Events come in (requests, time, changed topics), effects go out: records to append, answers to give. What must last
changes by `apply` alone, which loading calls too: so a replay of the partition gives the coordinator as it was.
A group is of the kind its last record was: a classic one, or one of KIP-848 (see `upgrade`).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from barnabas.config import BrokerConfig
from barnabas.coordinator.classic.group import ClassicGroup, State
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.consumer.member import JOINING
from barnabas.coordinator.consumer.upgrade import upgrade_records
from barnabas.coordinator.effects import (
    NEVER,
    Context,
    Effects,
    Token,
    TopicChanges,
    TopicFacts,
    topic_changes,
)
from barnabas.coordinator.group import Group, Kind
from barnabas.coordinator.offsets import CommittedOffsets
from barnabas.coordinator.pending_offsets import PendingOffsets
from barnabas.coordinator.records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
    decode,
    encode,
)
from barnabas.coordinator.timetable import Timetable
from barnabas.coordinator.transactional_commit import as_commit, as_txn_response, check_member
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
)
from barnabas.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from barnabas.wire.messages.transactions import TxnOffsetCommitRequest

__all__ = ["EXPIRY_BATCH", "GroupCoordinator", "decode", "encode", "make"]

EXPIRY_BATCH = 1000
"""How many tombstones are written at once: one batch must not grow past what the log accepts."""

GROUP_NOT_FOUND_SINCE = 9
"""From this version of OffsetCommit on a client is told that its group does not exist."""

_KINDS: dict[Kind, Callable[[str, BrokerConfig], Group]] = {
    Kind.CLASSIC: ClassicGroup,
    Kind.CONSUMER: ConsumerGroup,
}


class GroupCoordinator:
    """Mutable: the groups. `deadline` is when `tick` has something to do."""

    def __init__(self, config: BrokerConfig, topics: Mapping[str, TopicFacts]) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.pending = PendingOffsets()
        self._config = config
        self._topics = topics
        self._expiry_at = NEVER
        self._timetable = Timetable()
        self._converted: set[str] = set()
        """Groups that the log has made another kind: their members have to be called together."""

    # Events

    def handle(self, request: Any, context: Context, now: int, token: Token) -> Effects:
        """Work on a request. Its answer comes with these effects, or with later ones."""
        out = Effects()
        try:
            _HANDLERS[type(request)](self, request, context, now, token, out)
        except Refused as refused:
            out.reply(token, refused)
        return out

    def tick(self, now: int) -> Effects:
        """Do what is due."""
        out = Effects()
        for group_id in self._timetable.due(now):
            group = self.groups.get(group_id)
            if group is not None:
                group.tick(now, self._topics, out)
                self._keep(group)
        self._call_together(now, out)
        if self.offsets.has_orphans:
            out.records += self.offsets.orphans(EXPIRY_BATCH)
        elif self._expiry_at <= now:
            self._expire(now, out)
        return out

    @property
    def deadline(self) -> int:
        """When `tick` ought to be called. Never later than something is due; `NEVER` where nothing is."""
        if self._converted or self.offsets.has_orphans:
            return 0
        first = self._timetable.first
        return min(first, self._expiry_at) if self.groups else first

    def topics_changed(
        self, topics: Mapping[str, TopicFacts], now: int, changes: TopicChanges | None = None
    ) -> Effects:
        """The cluster has these topics now. Groups share out new partitions; offsets of topics that are gone go.

        `changes` is what is new, where the caller knows it: many coordinators hear of the same change.
        """
        before, self._topics = self._topics, topics
        if changes is None:
            changes = topic_changes(before, topics)
        out = Effects()
        if changes.gone:
            self.offsets.topics_gone(changes.gone)
            out.records += self.offsets.orphans(EXPIRY_BATCH)
        if changes.grown:
            for group in self.groups.values():
                group.topics_grown(changes.grown, now, out)
                self._timetable.enter(group.id, group.deadline)
        return out

    def resign(self, code: Code) -> Effects:
        """Answer all waiting requests: another coordinator has the groups now."""
        out = Effects()
        for group in self.groups.values():
            group.release(code, out)
        self.groups.clear()
        return out

    # The log

    def apply(self, record: Record) -> None:
        """Become what the log says."""
        key, value = record
        if type(key) is OffsetCommitKey:
            self._apply_offset(key, value)  # type: ignore[arg-type]
        elif type(key) is GroupMetadataKey:
            self._apply_group(key.group, Kind.CLASSIC, record)
        else:
            self._apply_group(key.group_id, Kind.CONSUMER, record)  # type: ignore[union-attr]

    def apply_in(self, producer_id: int, record: Record) -> None:
        """Keep an offset until the transaction ends that it was committed in."""
        key, value = record
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            self.pending.stage(producer_id, key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker is in the log: what a producer has committed in its transaction counts, or never did."""
        for key, value in self.pending.settle(producer_id).items():
            if commit and value is not None:
                self._apply_offset(key, value)
                self.offsets.compare_one(key, value, self._topics)

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        self.offsets.apply(key, value)
        if self.pending:
            if value is None:
                self.pending.drop(key)
            else:
                self.pending.overtake(key)
        group = self.groups.get(key.group)
        if group is None and value is not None:
            # A consumer that assigns its partitions itself has a group without members.
            self.groups[key.group] = ClassicGroup(key.group, self._config)
        elif group is not None and value is None:
            self._keep(group)

    def _apply_group(self, group_id: str, kind: Kind, record: Record) -> None:
        """A group is of the kind that its last record was; a tombstone of another kind says nothing of it."""
        group = self.groups.get(group_id)
        if group is None or group.kind is not kind:
            if record.value is None:
                return
            if group is not None:
                self._converted.add(group_id)
            group = self.groups[group_id] = _KINDS[kind](group_id, self._config)
        else:
            self._converted.discard(group_id)
        if group.apply(record):
            self._timetable.enter(group_id, group.deadline)
        else:
            self._end(group_id)

    def _end(self, group_id: str) -> None:
        """The log has done with a group. What it has committed may still be there, in a group without members."""
        del self.groups[group_id]
        if group_id in self.offsets:
            self.groups[group_id] = ClassicGroup(group_id, self._config)

    def loaded(self, now: int) -> Effects:
        """All of the log has been applied: from here on time counts."""
        out = Effects()
        for group in self.groups.values():
            group.loaded(now, out)
            self._timetable.enter(group.id, group.deadline)
        self._call_together(now, out)
        # The broker before us may have died after a topic was deleted, and before the tombstones were in the log.
        self.offsets.compare(self._topics)
        self._expiry_at = now + self._config.offsets_retention_check_interval_ms
        return out

    def _call_together(self, now: int, out: Effects) -> None:
        for group_id in self._converted:
            group = self.groups.get(group_id)
            if group is not None:
                group.call_together(now, out)
                self._timetable.enter(group_id, group.deadline)
        self._converted.clear()

    # The classic protocol

    def _join(
        self, request: JoinGroupRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        _check_id(request.group_id)
        config = self._config
        if (
            not config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            raise Refused(Code.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is not None and group.is_empty and group.kind is not Kind.CLASSIC:
            # An empty group is of whichever kind its next member is.
            out.records += group.tombstones()
            group = None
        if group is None:
            if request.member_id:
                raise Refused(Code.UNKNOWN_MEMBER_ID)
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, self._config)
        try:
            group.join(request, context, now, self._topics, token, out)
        finally:
            self._keep(group)

    def _sync(
        self, request: SyncGroupRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        _check_id(request.group_id)
        group = self._group(request.group_id, Code.UNKNOWN_MEMBER_ID)
        group.sync(request, now, self._topics, token, out)
        self._timetable.enter(group.id, group.deadline)

    def _heartbeat(
        self, request: HeartbeatRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        _check_id(request.group_id)
        group = self._group(request.group_id, Code.UNKNOWN_MEMBER_ID)
        try:
            out.reply(token, group.heartbeat(request, now))
        finally:
            self._timetable.enter(group.id, group.deadline)

    def _leave(
        self, request: LeaveGroupRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        _check_id(request.group_id)
        group = self._group(request.group_id, Code.UNKNOWN_MEMBER_ID)
        out.reply(token, group.leave(request, now, self._topics, out))
        self._keep(group)

    # The protocol of KIP-848

    def _consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: Context,
        now: int,
        token: Token,
        out: Effects,
    ) -> None:
        _check_id(request.group_id)
        group = self.groups.get(request.group_id)
        if request.member_epoch == JOINING and (group is None or group.kind is not Kind.CONSUMER):
            response = self._first_consumer(group, request, context, now, out)
        elif group is None:
            raise Refused(Code.GROUP_ID_NOT_FOUND)
        else:
            response = group.consumer_heartbeat(request, context, now, self._topics, out)
            self._timetable.enter(group.id, group.deadline)
        out.reply(token, response)

    def _first_consumer(
        self,
        former: Group | None,
        request: ConsumerGroupHeartbeatRequest,
        context: Context,
        now: int,
        out: Effects,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member of this protocol makes a group of it, with the members of the classic one that there may be."""
        # The records make the group when they are applied; until then this one only shows what it would be.
        fresh = ConsumerGroup(request.group_id, self._config)
        made = Effects()
        if former is not None:
            assert isinstance(former, ClassicGroup)
            made.records += upgrade_records(former, now, self._topics, self._config)
            for record in made.records:
                fresh.apply(record)
        response = fresh.consumer_heartbeat(request, context, now, self._topics, made)
        out.records += made.records
        if former is not None:
            former.release(Code.REBALANCE_IN_PROGRESS, out)
        return response

    def _consumer_describe(
        self,
        request: ConsumerGroupDescribeRequest,
        context: Context,
        now: int,
        token: Token,
        out: Effects,
    ) -> None:
        rows = []
        for group_id in request.group_ids:
            group = self.groups.get(group_id)
            if group is not None:
                rows.append(group.described_consumer(self._topics))
            else:
                code = Code.GROUP_ID_NOT_FOUND if group_id else Code.INVALID_GROUP_ID
                rows.append(DescribedConsumerGroup(code, code.advice, group_id))
        out.reply(token, ConsumerGroupDescribeResponse(groups=rows))

    # Offsets

    def _commit(
        self, request: OffsetCommitRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_commit(request, context.version, now, self._topics)
            self._timetable.enter(group.id, group.deadline)
        elif request.generation_id_or_member_epoch >= 0:
            found = context.version >= GROUP_NOT_FOUND_SINCE
            raise Refused(Code.GROUP_ID_NOT_FOUND if found else Code.ILLEGAL_GENERATION)
        limit = self._config.offset_metadata_max_bytes
        records, response = self.offsets.commit(request, self._topics, limit, now)
        out.records += records
        out.reply(token, response)

    def _txn_commit(
        self, request: TxnOffsetCommitRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        """The same in a transaction: the host writes the records in its producer's name, and they stay pending."""
        commit = as_commit(request)
        check_member(self.groups.get(request.group_id), commit, now, self._topics)
        limit = self._config.offset_metadata_max_bytes
        records, response = self.offsets.commit(commit, self._topics, limit, now)
        out.records += records
        out.reply(token, as_txn_response(response))

    def _fetch(
        self, request: OffsetFetchRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        pending = self.pending if request.require_stable and self.pending else None
        rows = [self._fetched(group, pending) for group in request.groups]
        out.reply(token, OffsetFetchResponse(groups=rows))

    def _fetched(self, wanted: OffsetFetchGroup, pending: PendingOffsets | None) -> OffsetFetchGroupResult:
        group = self.groups.get(wanted.group_id)
        if group is not None:
            try:
                group.check_fetch(wanted.member_id, wanted.member_epoch)
            except Refused as refused:
                return OffsetFetchGroupResult(wanted.group_id, error_code=refused.code)
        return self.offsets.fetch(wanted, pending)

    def _delete_offsets(
        self, request: OffsetDeleteRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        _check_id(request.group_id)
        group = self._group(request.group_id, Code.GROUP_ID_NOT_FOUND)
        group.check_offset_delete()
        records, response = self.offsets.delete(request, self._topics, group.is_subscribed)
        out.records += records
        out.reply(token, response)

    def _expire(self, now: int, out: Effects) -> None:
        """Write tombstones for what was kept long enough. A group that has members keeps all it has."""
        kept_ms = self._config.offsets_retention_minutes * 60_000
        self._expiry_at = now + self._config.offsets_retention_check_interval_ms
        for group in self.groups.values():
            if not group.is_empty or group.id in self.pending:
                continue
            gone = self.offsets.expired(group.id, group.since, kept_ms, now)
            if len(gone) == self.offsets.count(group.id):
                gone += group.tombstones()
            out.records += gone
            if len(out.records) >= EXPIRY_BATCH:
                self._expiry_at = now
                return

    # Looking after groups

    def _describe(
        self, request: DescribeGroupsRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        rows = []
        for group_id in request.groups:
            group = self.groups.get(group_id)
            if group is not None:
                rows.append(group.described())
            else:
                rows.append(DescribedGroup(group_id=group_id, group_state=State.DEAD.value))
        out.reply(token, DescribeGroupsResponse(groups=rows))

    def _list(
        self, request: ListGroupsRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        states = {state.strip().lower() for state in request.states_filter}
        kinds = {kind.strip().lower() for kind in request.types_filter}
        rows = [
            row
            for row in (group.listed() for group in self.groups.values())
            if (not states or row.group_state.lower() in states)
            and (not kinds or row.group_type.lower() in kinds)
        ]
        out.reply(token, ListGroupsResponse(groups=rows))

    def _delete(
        self, request: DeleteGroupsRequest, context: Context, now: int, token: Token, out: Effects
    ) -> None:
        results = []
        for group_id in request.groups_names:
            row = DeletableGroupResult(group_id)
            group = self.groups.get(group_id)
            if group is None:
                row.error_code = Code.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                row.error_code = Code.NON_EMPTY_GROUP
            else:
                out.records += self.offsets.tombstones(group_id)
                out.records += [Record(key) for key in self.pending.of(group_id)]
                out.records += group.tombstones()
            results.append(row)
        out.reply(token, DeleteGroupsResponse(results=results))

    # Finding and keeping groups

    def _group(self, group_id: str, missing: Code) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(missing)
        return group

    def _keep(self, group: Group) -> None:
        """Look at a group again when it wants to be; a group without members and offsets is forgotten."""
        if group.is_forgotten and group.id not in self.offsets:
            self.groups.pop(group.id, None)
        else:
            self._timetable.enter(group.id, group.deadline)


def _check_id(group_id: str) -> None:
    if not group_id:
        raise Refused(Code.INVALID_GROUP_ID)


_Handler: TypeAlias = Callable[[GroupCoordinator, Any, Context, int, Token, Effects], None]

_HANDLERS: dict[type[Any], _Handler] = {
    JoinGroupRequest: GroupCoordinator._join,
    SyncGroupRequest: GroupCoordinator._sync,
    HeartbeatRequest: GroupCoordinator._heartbeat,
    LeaveGroupRequest: GroupCoordinator._leave,
    OffsetCommitRequest: GroupCoordinator._commit,
    TxnOffsetCommitRequest: GroupCoordinator._txn_commit,
    OffsetFetchRequest: GroupCoordinator._fetch,
    OffsetDeleteRequest: GroupCoordinator._delete_offsets,
    DescribeGroupsRequest: GroupCoordinator._describe,
    ListGroupsRequest: GroupCoordinator._list,
    DeleteGroupsRequest: GroupCoordinator._delete,
    ConsumerGroupHeartbeatRequest: GroupCoordinator._consumer_heartbeat,
    ConsumerGroupDescribeRequest: GroupCoordinator._consumer_describe,
}

make = GroupCoordinator
"""With `encode` and `decode` all that a host needs of this module: see `machine.Factory`."""

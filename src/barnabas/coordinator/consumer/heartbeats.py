"""What a ConsumerGroupHeartbeat says: whether it may be said at all, and what its member has become by it.

Pure functions, called by consumer_group. Null in a heartbeat means "as before".
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from barnabas.coordinator.consumer.member import AWAY, JOINING, Held, Member
from barnabas.coordinator.consumer.pattern import pattern
from barnabas.coordinator.consumer.reconciliation import Owned, owns_only
from barnabas.coordinator.effects import Context
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

OWN_IDS_SINCE = 1
"""From this version on members choose their ids."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Refuse a heartbeat that contradicts itself."""
    if request.instance_id == "" or request.rack_id == "":
        raise Refused(
            Code.INVALID_REQUEST, "The ids of an instance and of a rack may be null, but not empty."
        )
    if not request.member_id and (request.member_epoch != JOINING or version >= OWN_IDS_SINCE):
        raise Refused(Code.INVALID_REQUEST, "A member id is needed.")
    if request.member_epoch == JOINING:
        _check_first(request)
    elif request.member_epoch == AWAY and request.instance_id is None:
        raise Refused(Code.INVALID_REQUEST, "Only a member with an instance id can leave for a while.")
    elif request.member_epoch < AWAY:
        raise Refused(Code.INVALID_REQUEST, f"{request.member_epoch} is no member epoch.")
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        raise Refused(
            Code.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {wanted[:100]!r} here; there are {', '.join(assignors)}.",
        )


def _check_first(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise Refused(Code.INVALID_REQUEST, "A member that joins says its rebalance timeout.")
    if request.topic_partitions is None or request.topic_partitions:
        raise Refused(Code.INVALID_REQUEST, "A member that joins has no partitions, and says so.")
    if not request.subscribed_topic_names and not request.subscribed_topic_regex:
        raise Refused(Code.INVALID_REQUEST, "A member that joins subscribes to topics.")


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Fence a member of another epoch; not one that joins again, nor one that missed the answer to its last step."""
    if epoch in (JOINING, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and owns_only(owned, member.assigned):
        return
    raise Refused(
        Code.FENCED_MEMBER_EPOCH,
        f"The member is in epoch {member.epoch}, not {epoch}: it must give up its partitions and join again.",
    )


def told(member: Member, request: ConsumerGroupHeartbeatRequest, context: Context) -> Member:
    """The member as the request describes it."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    if regex and regex != member.regex:
        pattern(regex)  # Refused where it is none.
    if (
        _says_nothing(request)
        and member.classic is None
        and (context.client_id, context.client_host)
        == (
            member.client_id,
            member.client_host,
        )
    ):
        return member  # Nearly all heartbeats: 3 us less.
    if request.member_epoch == JOINING:
        # It has no "before", not even where it takes the place of another.
        member = replace(member, rack_id=None, topics=(), regex=None, assignor=None)
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=context.client_id,
        client_host=context.client_host,
        topics=member.topics if names is None else tuple(sorted(set(names))),
        regex=member.regex if regex is None else regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _says_nothing(request: ConsumerGroupHeartbeatRequest) -> bool:
    return (
        request.instance_id is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
    )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, as it does when it may have missed an answer."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def owned_of(rows: list[TopicPartitions] | None) -> Owned | None:
    """What the member says it has, by topic."""
    if rows is None:
        return None
    owned: dict[UUID, set[int]] = {}
    for row in rows:
        if row.partitions:
            owned.setdefault(row.topic_id, set()).update(row.partitions)
    return owned


def assignment_of(held: Held) -> Assignment:
    """What the member is told to have."""
    return Assignment([TopicPartitions(topic, sorted(held[topic])) for topic in held])


def differ(before: Held, after: Held) -> bool:
    """Whether these are different partitions, whatever their epochs."""
    return before.keys() != after.keys() or any(before[t].keys() != after[t].keys() for t in after)

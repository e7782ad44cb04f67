"""Groups as others see them: which there are, their members, what they have committed. Used by Admin and Consumer.

Every question goes to the group's coordinator, and is asked again where the coordinator has moved.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.consumer.committed_offsets import commit_request, committed_in, committed_request
from barnabas.client.consumer.reading import Position
from barnabas.client.network.failures import check, raise_first
from barnabas.client.network.routing import Cluster
from barnabas.errors import Code, Refused
from barnabas.types import Offset, TopicPartition
from barnabas.wire.codec import Malformed
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from barnabas.wire.messages.consumer_protocol import assignment_of
from barnabas.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetFetchResponse,
)

CLASSIC = "classic"
CONSUMER = "consumer"
DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group among others; state and type are empty where an old broker does not tell."""

    id: str
    protocol_type: str
    state: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member, and the partitions that it reads."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as it is now. `assignor` is the protocol its members agreed on, or the coordinator's assignor."""

    id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: tuple[MemberDescription, ...]


def list_groups(
    cluster: Cluster, states: Iterable[str], types: Iterable[str], *, timeout: float
) -> list[GroupListing]:
    """The groups of all brokers, in order of their names."""
    wanted_states, wanted_types = list(states), list(types)
    request = ListGroupsRequest(wanted_states, wanted_types)

    def ask() -> list[GroupListing]:
        found: dict[str, GroupListing] = {}
        for broker in cluster.brokers():
            answer = cluster.broker(broker.id).call(request, ListGroupsResponse)
            check(answer.error_code, f"Groups of broker {broker.id}")
            for each in answer.groups:
                if (wanted_states and not each.group_state) or (wanted_types and not each.group_type):
                    raise Refused(
                        Code.UNSUPPORTED_VERSION, f"Broker {broker.id} cannot choose groups by state or type."
                    )
                found[each.group_id] = GroupListing(
                    each.group_id, each.protocol_type, each.group_state, each.group_type
                )
        return [found[name] for name in sorted(found)]

    return cluster.retry(ask, timeout=timeout)


def describe_group(cluster: Cluster, group: str, *, timeout: float) -> GroupDescription:
    """A group of either protocol. Raises Refused where there is none."""

    def ask() -> GroupDescription:
        return _describe_consumer(cluster, group) or _describe_classic(cluster, group)

    return cluster.retry(ask, timeout=timeout)


def _describe_consumer(cluster: Cluster, group: str) -> GroupDescription | None:
    """The group if it is one of KIP-848, and the broker knows of such."""
    coordinator = cluster.coordinator(group)
    request = ConsumerGroupDescribeRequest([group])
    try:
        (found,) = coordinator.call(request, ConsumerGroupDescribeResponse).groups
    except Refused as error:
        if error.code is not Code.UNSUPPORTED_VERSION:
            raise
        return None
    if found.error_code in (Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION):
        return None
    check(found.error_code, f"Group {group!r}", found.error_message)
    members = _consumer_members(found)
    return GroupDescription(
        group, found.group_state, CONSUMER, "consumer", found.assignor_name, coordinator.address, members
    )


def _consumer_members(found: DescribedConsumerGroup) -> tuple[MemberDescription, ...]:
    return tuple(
        MemberDescription(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for each in found.members
    )


def _describe_classic(cluster: Cluster, group: str) -> GroupDescription:
    coordinator = cluster.coordinator(group)
    (found,) = coordinator.call(DescribeGroupsRequest([group]), DescribeGroupsResponse).groups
    check(found.error_code, f"Group {group!r}")
    if found.group_state == DEAD:
        raise Refused(Code.GROUP_ID_NOT_FOUND, f"Group {group!r}: {Code.GROUP_ID_NOT_FOUND.advice}")
    return GroupDescription(
        group,
        found.group_state,
        CLASSIC,
        found.protocol_type,
        found.protocol_data,
        coordinator.address,
        _classic_members(found),
    )


def _classic_members(found: DescribedGroup) -> tuple[MemberDescription, ...]:
    return tuple(
        MemberDescription(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _classic_assignment(found.protocol_type, each.member_assignment),
        )
        for each in found.members
    )


def _classic_assignment(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions, where the members are consumers; others put into these bytes what they like."""
    if protocol_type != "consumer":
        return ()
    try:
        rows = assignment_of(assignment).assigned_partitions
    except Malformed:
        return ()
    return tuple(TopicPartition(row.topic, number) for row in rows for number in row.partitions)


def delete_group(cluster: Cluster, group: str, *, timeout: float) -> None:
    """Delete a group without members, and all that it has committed."""

    def ask() -> None:
        answer = cluster.coordinator(group).call(DeleteGroupsRequest([group]), DeleteGroupsResponse)
        check(answer.results[0].error_code, f"Group {group!r}")

    cluster.retry(ask, timeout=timeout)


def delete_groups(cluster: Cluster, groups: Iterable[str], *, timeout: float) -> None:
    """Delete groups, each at its own coordinator. Raises for the first that is refused, after all were tried."""
    failures: list[Refused] = []
    for group in groups:
        try:
            delete_group(cluster, group, timeout=timeout)
        except Refused as error:
            failures.append(error)
    raise_first(failures)


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None, *, timeout: float
) -> dict[TopicPartition, Offset]:
    """What a group has committed, of these partitions or of all; where nothing is committed nothing is said."""
    request = committed_request(group, partitions)

    def ask() -> dict[TopicPartition, Offset]:
        found = committed_in(cluster.coordinator(group).call(request, OffsetFetchResponse), group)
        return {partition: Offset(at.offset) for partition, at in found.items()}

    return cluster.retry(ask, timeout=timeout)


def alter_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float
) -> None:
    """Commit for a group from outside. Refused while it has members."""
    request = commit_request(group, {each: Position(offset) for each, offset in offsets.items()})

    def ask() -> None:
        answer = cluster.coordinator(group).call(request, OffsetCommitResponse)
        for topic in answer.topics:
            for each in topic.partitions:
                about = f"Group {group!r}, partition {TopicPartition(topic.name, each.partition_index)}"
                if each.error_code == Code.UNKNOWN_MEMBER_ID:
                    raise Refused(Code.NON_EMPTY_GROUP, f"Group {group!r}: {Code.NON_EMPTY_GROUP.advice}")
                check(each.error_code, about)

    cluster.retry(ask, timeout=timeout)


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition], *, timeout: float
) -> None:
    """Forget what a group has committed of partitions that no member subscribes to."""
    topics: dict[str, OffsetDeleteTopic] = {}
    for topic, number in partitions:
        topics.setdefault(topic, OffsetDeleteTopic(topic)).partitions.append(OffsetDeletePartition(number))
    request = OffsetDeleteRequest(group, list(topics.values()))

    def ask() -> None:
        answer = cluster.coordinator(group).call(request, OffsetDeleteResponse)
        check(answer.error_code, f"Group {group!r}")
        for topic in answer.topics:
            for each in topic.partitions:
                about = f"Group {group!r}, partition {TopicPartition(topic.name, each.partition_index)}"
                check(each.error_code, about)

    cluster.retry(ask, timeout=timeout)

"""PURE. The requests with which a group's offsets are committed and read back, and what their answers say.

Used by `commits` for a member and by Admin from outside.
"""

from collections.abc import Iterable, Mapping

from barnabas.client.consumer.reading import Position
from barnabas.client.network.failures import check
from barnabas.types import TopicPartition
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
)


def committed_request(group: str, partitions: Iterable[TopicPartition] | None) -> OffsetFetchRequest:
    """What has the group committed, of these partitions or of all?"""
    topics: dict[str, OffsetFetchTopic] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, OffsetFetchTopic(topic)).partition_indexes.append(number)
    wanted = None if partitions is None else list(topics.values())
    # One group in the fields of old versions, the same in those of new ones: a version sends what it has.
    return OffsetFetchRequest(group, wanted, [OffsetFetchGroup(group, topics=wanted)], require_stable=True)


def committed_in(answer: OffsetFetchResponse, group: str) -> dict[TopicPartition, Position]:
    """What an answer says is committed. Raises Refused."""
    found = answer.groups[0] if answer.groups else answer
    check(found.error_code, f"Group {group!r}")
    offsets: dict[TopicPartition, Position] = {}
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            check(each.error_code, f"Group {group!r}, partition {partition}")
            if each.committed_offset >= 0:
                offsets[partition] = Position(each.committed_offset, each.committed_leader_epoch)
    return offsets


def commit_request(
    group: str,
    offsets: Mapping[TopicPartition, Position],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """A commit; without a member it is one from outside, which a group takes only while it is empty."""
    topics: dict[str, OffsetCommitTopic] = {}
    for (topic, number), at in offsets.items():
        row = topics.setdefault(topic, OffsetCommitTopic(topic))
        row.partitions.append(OffsetCommitPartition(number, at.offset, at.epoch))
    return OffsetCommitRequest(
        group, generation, member_id, instance_id, retention_time_ms=-1, topics=list(topics.values())
    )

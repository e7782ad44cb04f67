"""Moves where a group goes on reading. Used by Admin.

Always holds: no group is sent before a log's start or behind its end, and none is moved while it has members.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.groups import alter_offsets, committed_offsets, describe_group
from barnabas.client.admin.topics import describe_topics
from barnabas.client.consumer.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.network.failures import no_partition
from barnabas.client.network.routing import Cluster
from barnabas.errors import BarnabasError, GroupIdNotFound, NonEmptyGroup
from barnabas.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class MovedOffset:
    """Where a group was in a partition, None where it had committed nothing, and where it goes on."""

    before: Offset | None
    after: Offset


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: the first record at or after a timestamp (or EARLIEST, LATEST), an offset, or some records on."""

    timestamp: int | None = None
    offset: int | None = None
    shift_by: int | None = None

    def __post_init__(self) -> None:
        if [self.timestamp, self.offset, self.shift_by].count(None) != 2:
            raise BarnabasError("Say where the group is to go on: one of to, to_offset and shift_by.")


def reset_offsets(
    cluster: Cluster,
    group: str,
    where: Iterable[str | TopicPartition],
    target: Target,
    *,
    validate_only: bool,
    timeout: float,
) -> dict[TopicPartition, MovedOffset]:
    """Move a group in these topics or partitions; `validate_only` tells where to without doing it."""
    partitions = _partitions(cluster, where, timeout)
    _need_nobody(cluster, group, timeout)
    before = committed_offsets(cluster, group, partitions, timeout=timeout)
    after = _limited(cluster, _wanted(cluster, partitions, before, target, timeout), timeout)
    if not validate_only:
        alter_offsets(cluster, group, after, timeout=timeout)
    return {each: MovedOffset(before.get(each), after[each]) for each in partitions}


def _partitions(
    cluster: Cluster, where: Iterable[str | TopicPartition], timeout: float
) -> list[TopicPartition]:
    """All that is named, in order; raises for what there is not."""
    wanted: set[TopicPartition] = set()
    for each in where:
        name, number = (each, None) if isinstance(each, str) else each
        (topic,) = describe_topics(cluster, [name], timeout=timeout)
        count = len(topic.partitions)
        if number is None:
            wanted |= {TopicPartition(name, index) for index in range(count)}
        elif 0 <= number < count:
            wanted.add(TopicPartition(name, number))
        else:
            raise no_partition(name, number, count)
    return sorted(wanted)


def _need_nobody(cluster: Cluster, name: str, timeout: float) -> None:
    """A group that is not there yet can be given offsets too."""
    try:
        group = describe_group(cluster, name, timeout=timeout)
    except GroupIdNotFound:
        return
    if group.members:
        raise NonEmptyGroup(
            f"Group {name!r} is {group.state}, its members ({len(group.members)}) are reading: stop them, then reset."
        )


def _wanted(
    cluster: Cluster,
    partitions: list[TopicPartition],
    before: Mapping[TopicPartition, int],
    target: Target,
    timeout: float,
) -> dict[TopicPartition, int]:
    if target.shift_by is not None:
        for each in partitions:
            if each not in before:
                raise BarnabasError(f"Partition {each} has no committed offset to be shifted: say where to.")
        return {each: before[each] + target.shift_by for each in partitions}
    if target.offset is not None:
        return dict.fromkeys(partitions, target.offset)
    assert target.timestamp is not None
    found = list_offsets(cluster, dict.fromkeys(partitions, target.timestamp), timeout=timeout)
    late = [each for each in partitions if found[each].offset < 0]
    ends = list_offsets(cluster, dict.fromkeys(late, LATEST), timeout=timeout)
    return {each: ends.get(each, found[each]).offset for each in partitions}


def _limited(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], timeout: float
) -> dict[TopicPartition, Offset]:
    starts = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST), timeout=timeout)
    ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST), timeout=timeout)
    return {each: Offset(min(max(at, starts[each].offset), ends[each].offset)) for each, at in wanted.items()}

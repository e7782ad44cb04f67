"""Ranges of offsets: how a read is split into tasks, how a batch is kept small, what was lost. PURE.

Used by the readers on the driver. Always holds: what is split or cut covers the same offsets, each once.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from barnabas.types import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
JsonOffsets: TypeAlias = dict[str, dict[str, int]]
TopicIds: TypeAlias = dict[str, str]
"""The id of each topic: another one for a topic that was deleted and made anew under its name."""

_BEFORE_ID = "#"
"""Never part of a topic's name."""


class OffsetRange(NamedTuple):
    """Offsets of one partition, from `start` up to but not with `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """What lies between two sets of offsets, without what is empty."""
    found = (OffsetRange(each, start[each], end[each]) for each in sorted(end) if each in start)
    return [each for each in found if each.size]


def split(
    ranges: Iterable[OffsetRange], *, at_least: int | None = None, largest: int | None = None
) -> list[OffsetRange]:
    """The same offsets in at least this many pieces (as far as there are offsets), none larger than `largest`."""
    whole = [each for each in ranges if each.size]
    total = sum(each.size for each in whole)
    piece = min(largest or total, max(total // at_least, 1) if at_least else total)
    found: list[OffsetRange] = []
    for partition, start, end in whole:
        parts = -(-(end - start) // piece)
        edges = [start + (end - start) * part // parts for part in range(parts + 1)]
        found += (OffsetRange(partition, *edge) for edge in pairwise(edges))
    return found


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """An end that is at most this many offsets away; each partition gets its share of what waits."""
    waiting = {each: max(at - start[each], 0) for each, at in end.items()}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    shares = {each: size * most // total for each, size in waiting.items()}
    # What rounding left over goes to those that were cut most, so that every batch is full and small backlogs move.
    left = most - sum(shares.values())
    for each in sorted(waiting, key=lambda each: (-(waiting[each] * most % total), each))[:left]:
        shares[each] += 1
    return {each: start[each] + shares[each] for each in end}


def to_json(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] = MappingProxyType({})
) -> JsonOffsets:
    """Offsets as Spark's Kafka source keeps them in a checkpoint: topic, partition, offset.

    A topic's id is the name of an entry without partitions, `orders#ID`: Spark's Kafka source passes over it.
    """
    found: JsonOffsets = {}
    for each, offset in sorted(offsets.items()):
        found.setdefault(each.topic, {})[str(each.partition)] = offset
    return found | {f"{topic}{_BEFORE_ID}{ids[topic]}": {} for topic in sorted(found) if topic in ids}


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(index)): offset
        for topic, indexes in offsets.items()
        for index, offset in indexes.items()
    }


def ids_in_json(offsets: Iterable[str]) -> TopicIds:
    """The ids that are kept with offsets; none in checkpoints of Spark's Kafka source."""
    parts = (name.partition(_BEFORE_ID) for name in offsets)
    return {topic: id_ for topic, _, id_ in parts if id_}

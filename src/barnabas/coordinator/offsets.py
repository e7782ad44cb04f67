"""Owns what groups have read: the committed offset of each group, topic and partition. Called by `coordinator`.

Changes by `apply` alone, which follows the log. So an offset falls only by a commit of a lower one, and goes
only by a deletion, because its topic is gone, or it was kept for as long as offsets are. An offset of a
topic that is gone is an orphan: it is not shown any more, and stays one until its tombstone is applied, or a commit to
a new topic of that name. Each commit carries the id of its topic, so a replay tells orphans from the rest.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from barnabas.coordinator.effects import TopicFacts
from barnabas.coordinator.pending_offsets import PendingOffsets
from barnabas.coordinator.records import OffsetCommitKey, OffsetCommitValue, Record
from barnabas.errors import Code
from barnabas.wire.messages.offsets import (
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
    OffsetDeletePartitionResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResult,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartitionResult,
    OffsetFetchTopicResult,
)
from barnabas.wire.schema import NO_ID

NO_OFFSET = -1
NO_TIMESTAMP = -1

Topics = Mapping[str, TopicFacts]

_NO_TOPIC = TopicFacts(NO_ID, 0)

LATEST = 2**63 - 1
"""The last moment that a record can name: a later one means for ever."""


class CommittedOffsets:
    """Mutable: the offsets of all groups of one coordinator, by group, topic and partition."""

    __slots__ = ("_by_group", "_orphans")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self._orphans: dict[OffsetCommitKey, None] = {}
        """Offsets of topics that are gone, whose tombstones are not in the log yet."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def __iter__(self) -> Iterator[Record]:
        for group_id in self._by_group:
            yield from self.of(group_id)

    def of(self, group_id: str) -> Iterator[Record]:
        """All that a group has committed, as the log knows it."""
        for topic, partitions in self._by_group.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield Record(OffsetCommitKey(group_id, topic, partition), value)

    def rows(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all there is. Copies each dict before it is gone through."""
        return [
            (group_id, topic, partition, value.offset)
            for group_id, topics in list(self._by_group.items())
            for topic, partitions in list(topics.items())
            for partition, value in list(partitions.items())
        ]

    # The log

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if self._orphans:
            self._orphans.pop(key, None)
        if value is not None:
            self._by_group.setdefault(key.group, {}).setdefault(key.topic, {})[key.partition] = value
            return
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is not None and not partitions:
            del topics[key.topic]
            if not topics:
                del self._by_group[key.group]

    # Requests

    def commit(
        self, request: OffsetCommitRequest, topics: Topics, metadata_limit: int, now: int
    ) -> tuple[list[Record], OffsetCommitResponse]:
        """The records of a commit that the group has allowed; each partition is answered for itself."""
        records = []
        results = []
        group_id = request.group_id
        kept = request.retention_time_ms
        expires = NO_TIMESTAMP if kept < 0 else min(now + kept, LATEST)
        # Hot: every consumer comes here every few seconds, and those that commit each batch all the time.
        for topic in request.topics:
            name = topic.name
            facts = topics.get(name)
            topic_id, count = facts if facts is not None else _NO_TOPIC
            rows = []
            for part in topic.partitions:
                index = part.partition_index
                metadata = part.committed_metadata or ""
                code = Code.NONE
                if not 0 <= index < count:
                    code = Code.UNKNOWN_TOPIC_OR_PARTITION
                elif len(metadata) > metadata_limit:
                    code = Code.OFFSET_METADATA_TOO_LARGE
                else:
                    key = OffsetCommitKey(group_id, name, index)
                    epoch = part.committed_leader_epoch
                    value = OffsetCommitValue(part.committed_offset, epoch, metadata, now, expires, topic_id)
                    records.append(Record(key, value))
                rows.append(OffsetCommitPartitionResult(index, code))
            results.append(OffsetCommitTopicResult(name, rows))
        return records, OffsetCommitResponse(topics=results)

    def fetch(
        self, wanted: OffsetFetchGroup, pending: PendingOffsets | None = None
    ) -> OffsetFetchGroupResult:
        """What a group has committed: of the partitions it asks for, or all. Those in `pending` are refused: a reader
        that wants what is stable has to wait for the end of their transactions."""
        present = self._shown(wanted.group_id)
        if wanted.topics is None:
            asked = {name: list(partitions) for name, partitions in present.items()}
            for key in pending.of(wanted.group_id) if pending is not None else ():
                if key.partition not in present.get(key.topic, ()):
                    asked.setdefault(key.topic, []).append(key.partition)
        else:
            asked = {}
            for topic in wanted.topics:
                asked.setdefault(topic.name, []).extend(topic.partition_indexes)
        results = []
        for name, indexes in asked.items():
            committed = present.get(name, {})
            rows = []
            for index in indexes:
                value = committed.get(index)
                if pending is not None and pending.is_pending(OffsetCommitKey(wanted.group_id, name, index)):
                    code = Code.UNSTABLE_OFFSET_COMMIT
                    rows.append(OffsetFetchPartitionResult(index, NO_OFFSET, error_code=code))
                elif value is None:
                    rows.append(OffsetFetchPartitionResult(index, NO_OFFSET))
                else:
                    rows.append(
                        OffsetFetchPartitionResult(index, value.offset, value.leader_epoch, value.metadata)
                    )
            results.append(OffsetFetchTopicResult(name, rows))
        return OffsetFetchGroupResult(wanted.group_id, results)

    def _shown(self, group_id: str) -> dict[str, dict[int, OffsetCommitValue]]:
        present = self._by_group.get(group_id, {})
        if not self._orphans:
            return present
        shown: dict[str, dict[int, OffsetCommitValue]] = {}
        for topic, partitions in present.items():
            for partition, value in partitions.items():
                if OffsetCommitKey(group_id, topic, partition) not in self._orphans:
                    shown.setdefault(topic, {})[partition] = value
        return shown

    def delete(
        self, request: OffsetDeleteRequest, topics: Topics, is_subscribed: Callable[[str], bool]
    ) -> tuple[list[Record], OffsetDeleteResponse]:
        """Tombstones of the offsets that go; those of a topic the group reads stay."""
        present = self._by_group.get(request.group_id, {})
        gone = []
        results = []
        for topic in request.topics:
            facts = topics.get(topic.name)
            count = facts.partitions if facts is not None else 0
            subscribed = is_subscribed(topic.name)
            committed = present.get(topic.name, {})
            rows = []
            for part in topic.partitions:
                index = part.partition_index
                code = Code.NONE
                if not 0 <= index < count:
                    code = Code.UNKNOWN_TOPIC_OR_PARTITION
                elif subscribed:
                    code = Code.GROUP_SUBSCRIBED_TO_TOPIC
                elif index in committed:
                    gone.append(Record(OffsetCommitKey(request.group_id, topic.name, index)))
                rows.append(OffsetDeletePartitionResult(index, code))
            results.append(OffsetDeleteTopicResult(topic.name, rows))
        return gone, OffsetDeleteResponse(topics=results)

    # What goes by itself

    def tombstones(self, group_id: str) -> list[Record]:
        """All that a group has committed goes."""
        return [Record(key) for key, _ in self.of(group_id)]

    def topics_gone(self, names: Collection[str]) -> None:
        """Topics of these names were deleted: what is committed of them belongs to nothing."""
        for key, _ in self:
            if isinstance(key, OffsetCommitKey) and key.topic in names:
                self._orphans[key] = None

    def compare(self, topics: Topics) -> None:
        """Find the offsets of topics that are not there any more, or not the same: to be called after a replay.

        The broker that deleted the topic may have died before its tombstones were in the log.
        """
        for key, value in self:
            if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
                self.compare_one(key, value, topics)

    def compare_one(self, key: OffsetCommitKey, value: OffsetCommitValue, topics: Topics) -> None:
        """Find out whether a committed offset is an orphan."""
        facts = topics.get(key.topic)
        is_same = facts is not None and value.topic_id in (NO_ID, facts.id)
        if not is_same or facts is None or key.partition >= facts.partitions:
            self._orphans[key] = None

    @property
    def has_orphans(self) -> bool:
        return bool(self._orphans)

    def orphans(self, most: int) -> list[Record]:
        """Tombstones of offsets whose topic is gone, at most `most` at once."""
        return [Record(key) for key in islice(self._orphans, most)]

    def expired(self, group_id: str, since: int, kept_ms: int, now: int) -> list[Record]:
        """Tombstones of what was kept long enough after its commit, and after this moment."""
        return [
            Record(OffsetCommitKey(group_id, topic, partition))
            for topic, partitions in self._by_group.get(group_id, {}).items()
            for partition, value in partitions.items()
            if _is_expired(value, since, kept_ms, now)
        ]

    def count(self, group_id: str) -> int:
        return sum(map(len, self._by_group.get(group_id, {}).values()))


def _is_expired(value: OffsetCommitValue, since: int, kept_ms: int, now: int) -> bool:
    if value.expire_timestamp != NO_TIMESTAMP:
        return now >= value.expire_timestamp
    return now - max(value.commit_timestamp, since) >= kept_ms

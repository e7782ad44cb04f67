"""Asks the leaders of partitions for offsets: by time, or the ends of a log. Used by `fetcher` and `consumer`.

Called in the network's thread. Each partition gets an offset or a reason of its own; nothing is asked twice here.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from barnabas.client.consumer.offsets import OffsetAt
from barnabas.client.network.failures import STALE, check, no_partition
from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, Millis, Offset, TopicPartition
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Found: TypeAlias = dict[TopicPartition, OffsetAt | Refused]


def missing(snapshot: Snapshot, partition: TopicPartition) -> Refused | None:
    """Why a partition has no leader to ask; None where it has one."""
    topic = snapshot.topics.get(partition.topic)
    if topic is None:
        code = snapshot.refused.get(partition.topic, Code.LEADER_NOT_AVAILABLE)
        return Refused(code, f"Topic {partition.topic!r}: {code.advice}")
    count = len(topic.partitions)
    if not 0 <= partition.partition < count:
        return no_partition(topic.name, partition.partition, count)
    if snapshot.leader(partition) is None:
        code = Code.LEADER_NOT_AVAILABLE
        return Refused(code, f"Partition {partition}: {code.advice}")
    return None


def ask_offsets(
    network: Network,
    wanted: Mapping[TopicPartition, int],
    done: Callable[[Found | Refused], None],
    *,
    read_committed: bool = False,
) -> None:
    """The first offset at or after each timestamp, or LATEST, EARLIEST, MAX_TIMESTAMP."""
    unknown = {each.topic for each in wanted} - network.metadata.snapshot.topics.keys()
    if not unknown:
        _Questions(network, wanted, done, read_committed)
        return

    def refreshed(snapshot: Snapshot | Refused) -> None:
        if isinstance(snapshot, Refused):
            done(snapshot)
        else:
            _Questions(network, wanted, done, read_committed)

    network.refresh(unknown, refreshed)


class _Questions:
    """Mutable: one request to each leader; tells when the last has answered."""

    def __init__(
        self,
        network: Network,
        wanted: Mapping[TopicPartition, int],
        done: Callable[[Found | Refused], None],
        read_committed: bool,
    ) -> None:
        self._done = done
        self._network = network
        self._found: Found = {}
        snapshot = network.metadata.snapshot
        by_leader: dict[BrokerId, dict[str, ListOffsetsTopic]] = {}
        asked: dict[BrokerId, list[TopicPartition]] = {}
        for partition, timestamp in wanted.items():
            if (why := missing(snapshot, partition)) is not None:
                self._found[partition] = why
                continue
            leader = snapshot.topics[partition.topic].partitions[partition.partition]
            rows = by_leader.setdefault(leader.leader, {})
            row = rows.setdefault(partition.topic, ListOffsetsTopic(partition.topic))
            row.partitions.append(ListOffsetsPartition(partition.partition, leader.leader_epoch, timestamp))
            asked.setdefault(leader.leader, []).append(partition)
        self._left = len(by_leader)
        if any(isinstance(each, Refused) for each in self._found.values()):
            network.refresh_soon()
        if not by_leader:
            network.soon(lambda: done(self._found))
        for node, rows in by_leader.items():
            request = ListOffsetsRequest(-1, int(read_committed), list(rows.values()))
            network.ask(node, request, ListOffsetsResponse, self._hears(asked[node]))

    def _hears(self, asked: list[TopicPartition]) -> Callable[[ListOffsetsResponse | Refused], None]:
        def told(answer: ListOffsetsResponse | Refused) -> None:
            if isinstance(answer, Refused):
                self._found |= dict.fromkeys(asked, answer)
            else:
                self._take(answer)
            if any(isinstance(each, Refused) and each.code in STALE for each in self._found.values()):
                self._network.refresh_soon()
            self._left -= 1
            if not self._left:
                self._done(self._found)

        return told

    def _take(self, answer: ListOffsetsResponse) -> None:
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                try:
                    check(row.error_code, f"Partition {partition}")
                except Refused as why:
                    self._found[partition] = why
                else:
                    self._found[partition] = OffsetAt(
                        Offset(row.offset), Millis(row.timestamp), row.leader_epoch
                    )

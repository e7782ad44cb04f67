"""Owns the ListOffsets request and what its answer means: offsets by time, or the ends of a log.

`list_offsets` asks a Cluster and waits: for Admin, `partition_reader` and Spark. `offset_lookup` asks in the network's
thread, for the consumer. Always holds: each partition that was asked for gets an offset or a reason of its own.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from barnabas.client.consumer.reading import OffsetAt as OffsetAt
from barnabas.client.network.failures import refusal
from barnabas.client.network.routing import Cluster
from barnabas.errors import Code, Refused
from barnabas.types import Millis, Offset, TopicPartition
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

_CONSUMER = -1

Found: TypeAlias = dict[TopicPartition, OffsetAt | Refused]


class OffsetWish(NamedTuple):
    """An offset to ask a partition's leader for; the epoch is the one that it is known to lead in."""

    partition: TopicPartition
    leader_epoch: int
    timestamp: int
    """In milliseconds; or LATEST, EARLIEST, MAX_TIMESTAMP."""


def request_for(wishes: Iterable[OffsetWish], *, read_committed: bool = False) -> ListOffsetsRequest:
    """The request to a leader of all these partitions."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, number), epoch, timestamp in wishes:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(number, epoch, timestamp))
    return ListOffsetsRequest(_CONSUMER, int(read_committed), list(topics.values()))


def answers_to(wishes: Iterable[OffsetWish], response: ListOffsetsResponse) -> Found:
    """What a leader says of each partition; one that it leaves out may be asked for again."""
    rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
    return {wish.partition: _answer(wish.partition, rows.get(wish.partition)) for wish in wishes}


def _answer(partition: TopicPartition, row: ListOffsetsPartitionResponse | None) -> OffsetAt | Refused:
    code = Code.LEADER_NOT_AVAILABLE if row is None else row.error_code
    if row is None or code:
        return refusal(code, f"Partition {partition}")
    return OffsetAt(Offset(row.offset), Millis(row.timestamp), row.leader_epoch)


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, timeout: float, read_committed: bool = False
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each timestamp, or LATEST, EARLIEST, MAX_TIMESTAMP.

    For a reader of committed records LATEST is the first offset whose transaction is not decided.
    """
    return cluster.retry(lambda: _ask_leaders(cluster, wanted, read_committed), timeout=timeout)


def _ask_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, OffsetAt]:
    found: dict[TopicPartition, OffsetAt] = {}
    for leader, partitions in cluster.by_leader(wanted).items():
        wishes = [OffsetWish(each, cluster.leader_epoch_of(each), wanted[each]) for each in partitions]
        request = request_for(wishes, read_committed=read_committed)
        response = leader.call(request, ListOffsetsResponse)
        for partition, answer in answers_to(wishes, response).items():
            if isinstance(answer, Refused):
                raise answer
            found[partition] = answer
    return found

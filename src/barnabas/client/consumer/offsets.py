"""Where offsets are asked for: by time, or the ends of a log. Used by Admin and Consumer."""

from collections.abc import Mapping

from barnabas.client.consumer.reading import OffsetAt as OffsetAt
from barnabas.client.network.failures import check
from barnabas.client.network.routing import Cluster
from barnabas.types import Millis, Offset, TopicPartition
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, timeout: float
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each timestamp, or LATEST, EARLIEST, MAX_TIMESTAMP."""
    return cluster.retry(lambda: _ask_leaders(cluster, wanted), timeout=timeout)


def _ask_leaders(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
    found: dict[TopicPartition, OffsetAt] = {}
    for leader, partitions in cluster.by_leader(wanted).items():
        topics: dict[str, ListOffsetsTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=cluster.leader_epoch_of(partition),
                    timestamp=wanted[partition],
                )
            )
        request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
        for each in leader.call(request, ListOffsetsResponse).topics:
            for answer in each.partitions:
                partition = TopicPartition(each.name, answer.partition_index)
                check(answer.error_code, f"Partition {partition}")
                found[partition] = OffsetAt(
                    Offset(answer.offset), Millis(answer.timestamp), answer.leader_epoch
                )
    return found

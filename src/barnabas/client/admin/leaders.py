"""What only the leader of a partition does for Admin: deletes its records, names its producers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.network.failures import check
from barnabas.client.network.routing import Cluster
from barnabas.types import Millis, Offset, ProducerId, TopicPartition
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that writes into a partition. `transaction_start` is None where no transaction is open."""

    id: ProducerId
    epoch: int
    last_sequence: int
    last_timestamp: Millis
    transaction_start: Offset | None
    coordinator_epoch: int = -1
    """Of the transaction coordinator whose marker was its last."""


def delete_records(
    cluster: Cluster, below: Mapping[TopicPartition, int], *, timeout: float
) -> dict[TopicPartition, Offset]:
    """Delete what is below an offset of each partition (-1: all); the answer is where each log starts."""

    def ask() -> dict[TopicPartition, Offset]:
        starts: dict[TopicPartition, Offset] = {}
        for leader, partitions in cluster.by_leader(below).items():
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition in partitions:
                topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic))
                topic.partitions.append(DeleteRecordsPartition(partition.partition, below[partition]))
            request = DeleteRecordsRequest(list(topics.values()), int(timeout * 1000))
            for each in leader.call(request, DeleteRecordsResponse, wait=timeout).topics:
                for found in each.partitions:
                    partition = TopicPartition(each.name, found.partition_index)
                    check(found.error_code, f"Partition {partition}")
                    starts[partition] = Offset(found.low_watermark)
        return starts

    return cluster.retry(ask, timeout=timeout)


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, timeout: float
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """The producers with an id that wrote into each partition and are not forgotten yet."""
    wanted = list(partitions)

    def ask() -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        for leader, led in cluster.by_leader(wanted).items():
            topics: dict[str, DescribeProducersTopic] = {}
            for topic, number in led:
                topics.setdefault(topic, DescribeProducersTopic(topic)).partition_indexes.append(number)
            request = DescribeProducersRequest(list(topics.values()))
            for row in leader.call(request, DescribeProducersResponse).topics:
                for each in row.partitions:
                    partition = TopicPartition(row.name, each.partition_index)
                    check(each.error_code, f"Partition {partition}", each.error_message)
                    found[partition] = tuple(
                        ActiveProducer(
                            ProducerId(one.producer_id),
                            one.producer_epoch,
                            one.last_sequence,
                            Millis(one.last_timestamp),
                            Offset(one.current_txn_start_offset)
                            if one.current_txn_start_offset >= 0
                            else None,
                            one.coordinator_epoch,
                        )
                        for one in each.active_producers
                    )
        return found

    return cluster.retry(ask, timeout=timeout)

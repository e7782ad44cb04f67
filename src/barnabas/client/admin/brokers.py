"""The brokers of a cluster and their data directories, as Admin shows them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.network.failures import check
from barnabas.client.network.metadata import Broker
from barnabas.client.network.routing import Cluster
from barnabas.errors import Code
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from barnabas.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster without its topics."""

    id: str
    controller: BrokerId
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition in a data directory, in bytes; `lag` is how far a copy is behind."""

    partition: TopicPartition
    size: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A data directory of a broker; `total` and `usable` are bytes, -1 where unknown."""

    broker: BrokerId
    path: str
    error: Code
    total: int
    usable: int
    partitions: tuple[StoredPartition, ...]


def describe_cluster(cluster: Cluster, *, timeout: float) -> ClusterDescription:
    """The cluster's id, controller and brokers."""

    def ask() -> ClusterDescription:
        found = cluster.any().call(DescribeClusterRequest(), DescribeClusterResponse)
        check(found.error_code, "The cluster", found.error_message)
        brokers = (
            Broker(BrokerId(each.broker_id), each.host, each.port, each.rack) for each in found.brokers
        )
        ordered = tuple(sorted(brokers, key=lambda broker: broker.id))
        return ClusterDescription(found.cluster_id, BrokerId(found.controller_id), ordered)

    return cluster.retry(ask, timeout=timeout)


def describe_log_dirs(cluster: Cluster, brokers: Iterable[int] | None, *, timeout: float) -> list[LogDir]:
    """The data directories of these brokers, or of all, and what lies in them."""
    chosen = None if brokers is None else list(brokers)

    def ask() -> list[LogDir]:
        known = [broker.id for broker in cluster.brokers()]
        return [each for broker in chosen or known for each in _of_broker(cluster, broker)]

    return cluster.retry(ask, timeout=timeout)


def _of_broker(cluster: Cluster, broker: int) -> list[LogDir]:
    answer = cluster.broker(broker).call(DescribeLogDirsRequest(), DescribeLogDirsResponse)
    check(answer.error_code, f"Broker {broker}")
    return [
        LogDir(
            BrokerId(broker),
            found.log_dir,
            Code.of(found.error_code),
            found.total_bytes,
            found.usable_bytes,
            tuple(_stored(found)),
        )
        for found in answer.results
    ]


def _stored(found: DescribeLogDirsResult) -> Iterable[StoredPartition]:
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            yield StoredPartition(partition, each.partition_size, each.offset_lag, each.is_future_key)


def alter_replica_log_dirs(
    cluster: Cluster, broker: int, moves: Mapping[TopicPartition, str], *, timeout: float
) -> None:
    """Move replicas of a broker between its data directories. Raises for the first that is refused."""

    def ask() -> None:
        cluster.brokers()
        folders: dict[str, dict[str, AlterReplicaLogDirTopic]] = {}
        for tp, path in moves.items():
            topics = folders.setdefault(path, {})
            topics.setdefault(tp.topic, AlterReplicaLogDirTopic(tp.topic)).partitions.append(tp.partition)
        dirs = [AlterReplicaLogDir(path, list(topics.values())) for path, topics in folders.items()]
        answer = cluster.broker(broker).call(AlterReplicaLogDirsRequest(dirs), AlterReplicaLogDirsResponse)
        for topic in answer.results:
            for each in topic.partitions:
                check(
                    each.error_code, f"Partition {topic.topic_name}-{each.partition_index} on broker {broker}"
                )

    cluster.retry(ask, timeout=timeout)


def unregister_broker(cluster: Cluster, broker: int, *, timeout: float) -> None:
    """Let the cluster forget a broker that never comes back."""

    def ask() -> None:
        answer = cluster.controller().call(UnregisterBrokerRequest(broker), UnregisterBrokerResponse)
        check(answer.error_code, f"Broker {broker}", answer.error_message)

    cluster.retry(ask, timeout=timeout)

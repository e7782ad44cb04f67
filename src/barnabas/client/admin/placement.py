"""Which brokers have and lead partitions, as Admin changes it: elections, reassignments, throttles.

A reassignment is asked for and goes on by itself; `list_reassignments` tells of those under way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from barnabas.client.network.failures import check, raise_first, refusal
from barnabas.client.network.routing import Cluster
from barnabas.errors import Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopic,
    ReassignablePartition,
    ReassignableTopic,
)


class ElectionType(IntEnum):
    """Which replica is to lead."""

    PREFERRED = 0
    """The first of its replicas, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, where no replica in sync is left: records may be lost."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on its way from some brokers to others; `replicas` has all of them."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


def elect_leaders(
    cluster: Cluster, kind: ElectionType, partitions: Iterable[TopicPartition] | None, *, timeout: float
) -> dict[TopicPartition, Refused | None]:
    """Elect leaders of these partitions, or of all; for each that was tried, why it has no other leader now.

    A partition that needs no election is answered with ELECTION_NOT_NEEDED where it was named.
    """
    wanted = None if partitions is None else _by_topic(partitions)
    topics = (
        None if wanted is None else [ElectLeadersTopic(name, list(found)) for name, found in wanted.items()]
    )

    def ask() -> dict[TopicPartition, Refused | None]:
        request = ElectLeadersRequest(kind, topics, int(timeout * 1000))
        answer = cluster.controller().call(request, ElectLeadersResponse, wait=timeout)
        check(answer.error_code, "The election")
        outcomes: dict[TopicPartition, Refused | None] = {}
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                tp = TopicPartition(topic.topic, each.partition_id)
                outcomes[tp] = (
                    refusal(each.error_code, f"Partition {tp}", each.error_message)
                    if each.error_code
                    else None
                )
        return outcomes

    return cluster.retry(ask, timeout=timeout)


def alter_reassignments(
    cluster: Cluster, wishes: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float
) -> None:
    """Begin to move partitions to other brokers, or cancel with None. Raises for the first that is refused."""
    left = dict(wishes)

    def ask() -> None:
        topics: dict[str, ReassignableTopic] = {}
        for tp, replicas in left.items():
            topic = topics.setdefault(tp.topic, ReassignableTopic(tp.topic))
            brokers = None if replicas is None else list(replicas)
            topic.partitions.append(ReassignablePartition(tp.partition, brokers))
        request = AlterPartitionReassignmentsRequest(int(timeout * 1000), topics=list(topics.values()))
        answer = cluster.controller().call(request, AlterPartitionReassignmentsResponse, wait=timeout)
        check(answer.error_code, "The reassignment", answer.error_message)
        failures: list[Refused] = []
        for each in answer.responses:
            for found in each.partitions:
                tp = TopicPartition(each.name, found.partition_index)
                if found.error_code:
                    failures.append(refusal(found.error_code, f"Partition {tp}", found.error_message))
                else:
                    left.pop(tp, None)
        raise_first(failures)

    if left:
        cluster.retry(ask, timeout=timeout)
        cluster.forget()


def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, timeout: float
) -> dict[TopicPartition, Reassignment]:
    """The reassignments under way, of these partitions or of all."""
    topics = (
        None
        if partitions is None
        else [
            ListPartitionReassignmentsTopic(name, list(found))
            for name, found in _by_topic(partitions).items()
        ]
    )

    def ask() -> dict[TopicPartition, Reassignment]:
        request = ListPartitionReassignmentsRequest(int(timeout * 1000), topics)
        answer = cluster.controller().call(request, ListPartitionReassignmentsResponse, wait=timeout)
        check(answer.error_code, "The reassignments", answer.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(map(BrokerId, each.replicas)),
                tuple(map(BrokerId, each.adding_replicas)),
                tuple(map(BrokerId, each.removing_replicas)),
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    return cluster.retry(ask, timeout=timeout)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found

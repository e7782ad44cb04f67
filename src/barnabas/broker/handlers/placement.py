"""ElectLeaders v0-2, AlterPartitionReassignments v0-1 and ListPartitionReassignments v0. The controller decides.

Each partition of a request stands for itself: one that is refused keeps none of the others from what it wants.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.handlers.topics import change_in_time
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.cluster.deciding import Decided
from barnabas.cluster.image import Change, ClusterImage
from barnabas.cluster.reactions import elect_leaders as elected
from barnabas.cluster.reassignment import alter_reassignments, under_way
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

T = TypeVar("T")
Outcomes = dict[TopicPartition, Refused | None]

log = logging.getLogger("barnabas.controller")


@handles(ApiKey.ELECT_LEADERS, by_controller=True)
async def elect_leaders(
    broker: "Broker", request: ElectLeadersRequest, peer: Connection
) -> ElectLeadersResponse:
    wanted = None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(row.topic, index) for row in request.topic_partitions for index in row.partitions
        ]

    def decide(image: ClusterImage) -> Decided:
        return elected(image, request.election_type, wanted, broker.controlling.facts)

    outcomes = await _decided(broker, "ElectLeaders", decide, request.timeout_ms)
    rows = _by_topic(
        (tp, ElectLeadersPartitionResult(tp.partition, *_told(why))) for tp, why in outcomes.items()
    )
    return ElectLeadersResponse(
        replica_election_results=[ElectLeadersTopicResult(name, results) for name, results in rows.items()]
    )


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, by_controller=True)
async def alter_partition_reassignments(
    broker: "Broker", request: AlterPartitionReassignmentsRequest, peer: Connection
) -> AlterPartitionReassignmentsResponse:
    wishes = {
        TopicPartition(topic.name, row.partition_index): row.replicas
        for topic in request.topics
        for row in topic.partitions
    }

    def decide(image: ClusterImage) -> Decided:
        return alter_reassignments(
            image,
            wishes,
            broker.controlling.facts,
            may_change_factor=request.allow_replication_factor_change,
        )

    outcomes = await _decided(broker, "AlterPartitionReassignments", decide, request.timeout_ms)
    rows = _by_topic(
        (tp, ReassignablePartitionResponse(tp.partition, *_told(why))) for tp, why in outcomes.items()
    )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[ReassignableTopicResponse(name, results) for name, results in rows.items()],
    )


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, by_controller=True)
async def list_partition_reassignments(
    broker: "Broker", request: ListPartitionReassignmentsRequest, peer: Connection
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = [
            TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
        ]
    rows = _by_topic(
        (
            tp,
            OngoingPartitionReassignment(
                tp.partition, list(moving.replicas), list(moving.adding), list(moving.removing)
            ),
        )
        for tp, moving in under_way(broker.metadata.image, wanted)
    )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name, partitions) for name, partitions in rows.items()]
    )


async def _decided(
    broker: "Broker", api: str, decide: Callable[[ClusterImage], Decided], timeout_ms: int
) -> Outcomes:
    """Store what is decided; what became of each partition that it was about."""
    last: Decided | None = None

    def changes(image: ClusterImage) -> list[Change]:
        nonlocal last
        last = decide(image)
        return last.decision.changes

    await change_in_time(broker, changes, timeout_ms)
    if last is None:
        raise Refused(Code.REQUEST_TIMED_OUT)
    for note in last.decision.notes:
        log.warning("%s", note)
    for tp, refused in last.outcomes.items():
        if refused is not None:
            broker.note_refusal(api, refused, tp.topic, tp.partition)
    return last.outcomes


def _told(refused: Refused | None) -> tuple[Code, str | None]:
    return (Code.NONE, None) if refused is None else (refused.code, refused.message)


def _by_topic(rows: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for tp, row in rows:
        found.setdefault(tp.topic, []).append(row)
    return found

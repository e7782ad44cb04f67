"""Between brokers: what the controller announces (LeaderAndIsr, StopReplica, UpdateMetadata), and what it is asked for
(AlterPartition, ControlledShutdown).

An announcement is answered when its logs and roles are as it says. A partition that cannot be had here, because its
directory has failed or its records are gone, is told with KAFKA_STORAGE_ERROR: the controller goes on without it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.cluster.announcements import Announcement
from barnabas.cluster.hearing import Answer, answered, heard
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.controlling import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    RemainingPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.LEADER_AND_ISR)
async def leader_and_isr(broker: "Broker", request: LeaderAndIsrRequest, peer: Connection) -> Answer:
    return await _hear(broker, request)


@handles(ApiKey.STOP_REPLICA)
async def stop_replica(broker: "Broker", request: StopReplicaRequest, peer: Connection) -> Answer:
    return await _hear(broker, request)


@handles(ApiKey.UPDATE_METADATA)
async def update_metadata(broker: "Broker", request: UpdateMetadataRequest, peer: Connection) -> Answer:
    return await _hear(broker, request)


async def _hear(broker: "Broker", request: Announcement) -> Answer:
    if broker.is_alone:
        raise Refused(Code.INVALID_REQUEST, "The request is invalid: this broker is not one of a cluster.")
    before = broker.metadata.image
    await broker.metadata.hear(lambda image: heard(image, request, broker.id, broker.epoch))
    return answered(before, request, dict(_failed(broker, request)))


def _failed(broker: "Broker", request: Announcement) -> Iterator[tuple[TopicPartition, Code]]:
    """The partitions that are announced and cannot be had here."""
    if not isinstance(request, LeaderAndIsrRequest) or not broker.has_roles:
        return
    for topic in request.topic_states:
        for state in topic.partition_states:
            if broker.replicas.find(topic.topic_name, state.partition_index) is None:
                yield TopicPartition(topic.topic_name, state.partition_index), Code.KAFKA_STORAGE_ERROR


@handles(ApiKey.ALTER_PARTITION)
async def alter_partition(
    broker: "Broker", request: AlterPartitionRequest, peer: Connection
) -> AlterPartitionResponse:
    return await broker.controlling.alter_partition(request)


@handles(ApiKey.CONTROLLED_SHUTDOWN)
async def controlled_shutdown(
    broker: "Broker", request: ControlledShutdownRequest, peer: Connection
) -> ControlledShutdownResponse:
    remaining = await broker.controlling.let_stop(BrokerId(request.broker_id), request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(tp.topic, tp.partition) for tp in remaining]
    )

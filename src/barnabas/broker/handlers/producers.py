"""InitProducerId v0-5 (idempotent producers), AllocateProducerIds v0 (between brokers) and DescribeProducers v0."""

from typing import TYPE_CHECKING

from barnabas.broker.metadata import PRODUCER_ID_BLOCK
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.producers import (
    ActiveProducer,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


@handles(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id(
    broker: "Broker", request: InitProducerIdRequest, peer: Connection
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise Refused(Code.COORDINATOR_NOT_AVAILABLE, "Transactions are not supported by this broker.")
    # A producer that lost track (it sends its old id) starts afresh under a new one, as with Kafka.
    return InitProducerIdResponse(producer_id=await broker.metadata.new_producer_id(), producer_epoch=0)


@handles(ApiKey.ALLOCATE_PRODUCER_IDS)
async def allocate_producer_ids(
    broker: "Broker", request: AllocateProducerIdsRequest, peer: Connection
) -> AllocateProducerIdsResponse:
    asker = broker.metadata.image.brokers.get(BrokerId(request.broker_id))
    if asker is None or asker.epoch != request.broker_epoch:
        raise Refused(Code.STALE_BROKER_EPOCH)
    first = await broker.metadata.take_producer_ids()
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK)


@handles(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(
    broker: "Broker", request: DescribeProducersRequest, peer: Connection
) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            row = DescribeProducersPartitionResponse(index)
            try:
                producers = broker.replicas.leader(topic.name, index).log.producers
                row.active_producers = [
                    ActiveProducer(
                        producer_id,
                        state.epoch,
                        state.last_sequence,
                        state.timestamp,
                        state.coordinator_epoch,
                        state.transaction,
                    )
                    for producer_id, state in producers.by_id.items()
                ]
            except Refused as refused:
                row.error_code, row.error_message = refused.code, refused.message
            rows.append(row)
        topics.append(DescribeProducersTopicResponse(topic.name, rows))
    return DescribeProducersResponse(topics=topics)

"""InitProducerId v0-5 (idempotent producers) and DescribeProducers v0."""

from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.producers import (
    ActiveProducer,
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

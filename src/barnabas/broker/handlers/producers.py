"""InitProducerId v0-6, AllocateProducerIds v0 (between brokers) and DescribeProducers v0."""

from typing import TYPE_CHECKING

from barnabas.broker.metadata import PRODUCER_ID_BLOCK
from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
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

FENCED_SINCE = 4
"""The version from which on clients know PRODUCER_FENCED."""


async def _init_transactional(
    broker: "Broker", request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    from barnabas.coordinator.transactions.requests import Init, Initialised
    from barnabas.coordinator.transactions.transaction import NO_ID, Producer

    assert request.transactional_id is not None
    given = Producer(request.producer_id, request.producer_epoch)
    if (given.id == NO_ID) != (given.epoch == NO_ID):
        raise Refused(Code.INVALID_REQUEST, "A producer id needs its epoch, and an epoch its producer id.")
    asked = Init(
        request.transactional_id,
        request.transaction_timeout_ms,
        None if given.id == NO_ID else given,
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    try:
        answer: Initialised = await broker.transactions.ask(asked)
    except Refused as refused:
        raise known_to(refused, version, FENCED_SINCE) from refused
    return InitProducerIdResponse(
        producer_id=answer.producer.id,
        producer_epoch=answer.producer.epoch,
        ongoing_txn_producer_id=answer.ongoing.id,
        ongoing_txn_producer_epoch=answer.ongoing.epoch,
    )


def known_to(refused: Refused, version: int, fenced_since: int) -> Refused:
    """A refusal in a code that clients of this version know."""
    if refused.code is Code.PRODUCER_FENCED and version < fenced_since:
        return Refused(Code.INVALID_PRODUCER_EPOCH, refused.message)
    return refused


def _refuse_init(request: InitProducerIdRequest, version: int, refused: Refused) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=refused.code, producer_epoch=-1)


@handles(ApiKey.INIT_PRODUCER_ID, _refuse_init, with_header=True)
async def init_producer_id(
    broker: "Broker", request: InitProducerIdRequest, peer: Connection, header: RequestHeader
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await _init_transactional(broker, request, header.api_version)
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

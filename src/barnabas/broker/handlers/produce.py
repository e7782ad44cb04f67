"""Produce v3-12: record batches in, their offsets out.

Each partition is answered for itself: one that is refused leaves the others alone. acks=0 gets no answer, and
where a batch of it is refused the connection is closed: there is no other way to tell.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.broker.network.connection import Connection
from barnabas.broker.partitions.acceptance import accept, is_stored, stored
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.log.log import Appended
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


def refuse_all(request: ProduceRequest, version: int, refused: Refused) -> ProduceResponse:
    """The same error for each partition: Produce has no place for one on top."""
    return ProduceResponse(
        [
            ProduceTopicResponse(
                topic.name, [refused_row(part.index, refused) for part in topic.partition_data]
            )
            for topic in request.topic_data
        ]
    )


@handles(ApiKey.PRODUCE, refuse_all, with_header=True)
def produce(
    broker: "Broker", request: ProduceRequest, peer: Connection, header: RequestHeader
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    if request.acks not in (-1, 1, 0):
        raise Refused(Code.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        raise Refused(
            Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not supported by this broker."
        )
    now = broker.clock.now()
    version = header.api_version
    answers = []
    waiting = []
    failed = False
    for topic in request.topic_data:
        name = topic.name
        rows = []
        for part in topic.partition_data:
            try:
                partition, appended = accept(broker, name, part.index, part.records, version=version, now=now)
                log = partition.log
                row = ProducePartitionResponse(part.index, 0, appended.first, appended.append_time, log.start)
                if not is_stored(partition, appended):
                    waiting.append((partition, appended, row))
            except Refused as refused:
                failed = True
                broker.note_refusal("Produce", refused, name, part.index)
                row = refused_row(part.index, refused)
            rows.append(row)
        answers.append(ProduceTopicResponse(name, rows))
    if request.acks == 0:
        if failed:
            peer.close()
        return None
    response = ProduceResponse(answers)
    return _when_stored(broker, response, waiting) if waiting else response


async def _when_stored(
    broker: "Broker",
    response: ProduceResponse,
    waiting: list[tuple[Leader, Appended, ProducePartitionResponse]],
) -> ProduceResponse:
    """Answer only when every batch counts as stored."""
    for partition, appended, row in waiting:
        try:
            await stored(broker, partition, appended)
        except Refused as refused:
            row.error_code, row.base_offset, row.error_message = refused.code, -1, refused.message
    return response


def refused_row(index: int, refused: Refused) -> ProducePartitionResponse:
    """A partition's part of the answer, where it is no."""
    return ProducePartitionResponse(index, refused.code, -1, error_message=refused.message)

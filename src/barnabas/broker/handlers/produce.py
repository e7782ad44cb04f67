"""Produce v3-12: record batches in, their offsets out.

Each partition is answered for itself: one that is refused leaves the others alone. acks=0 gets no answer, and
where a batch of it is refused the connection is closed: there is no other way to tell.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.broker.connection import Connection
from barnabas.broker.partition import Partition
from barnabas.broker.router import handles
from barnabas.cluster.controller import INTERNAL_TOPICS
from barnabas.errors import Code, Refused
from barnabas.types import Offset
from barnabas.wire.apis import ApiKey
from barnabas.wire.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE
from barnabas.wire.compression import Compression
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)

ZSTD_SINCE = 7

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
    get = broker.replicas.get
    now = broker.clock.now()
    answers = []
    unflushed = []
    failed = False
    for topic in request.topic_data:
        name = topic.name
        rows = []
        for part in topic.partition_data:
            try:
                if name in INTERNAL_TOPICS:
                    raise Refused(Code.INVALID_TOPIC_EXCEPTION, "Only the broker writes to its own topics.")
                partition = get(name, part.index)
                if part.records is None:
                    raise Refused(Code.INVALID_RECORD, "there is no record batch for the partition")
                if header.api_version < ZSTD_SINCE:
                    _refuse_zstd(part.records)
                appended = partition.append(part.records, now)
                log = partition.log
                row = ProducePartitionResponse(part.index, 0, appended.first, appended.append_time, log.start)
                if appended.last >= partition.high_watermark:
                    unflushed.append((partition, row, Offset(appended.last + 1)))
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
    return _when_flushed(broker, response, unflushed) if unflushed else response


async def _when_flushed(
    broker: "Broker",
    response: ProduceResponse,
    unflushed: list[tuple[Partition, ProducePartitionResponse, Offset]],
) -> ProduceResponse:
    """Answer only when all that flush.messages wants on the disk is there."""
    for partition, row, end in unflushed:
        try:
            await broker.flusher.flush(partition, end)
        except Refused as refused:
            broker.note_refusal("Produce", refused, *partition.tp)
            row.error_code, row.base_offset, row.error_message = refused.code, -1, refused.message
    return response


def _refuse_zstd(records: memoryview) -> None:
    """Who speaks an older version could not have read it back: Kafka refuses it, and so do we."""
    if len(records) >= HEADER_SIZE and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Compression.ZSTD:
        raise Refused(
            Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce in version {ZSTD_SINCE} or newer"
        )


def refused_row(index: int, refused: Refused) -> ProducePartitionResponse:
    """A partition's part of the answer, where it is no."""
    return ProducePartitionResponse(index, refused.code, -1, error_message=refused.message)

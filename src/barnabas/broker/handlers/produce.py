"""Produce v3-12: record batches in, their offsets out.

Each partition is answered for itself: one that is refused leaves the others alone. acks=0 gets no answer, and
where a batch of it is refused the connection is closed: there is no other way to tell.
"""

from typing import TYPE_CHECKING

from barnabas.broker.connection import Connection
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.produce import (
    ProducePartition,
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
            ProduceTopicResponse(topic.name, [_refused(part, refused) for part in topic.partition_data])
            for topic in request.topic_data
        ]
    )


@handles(ApiKey.PRODUCE, refuse_all)
def produce(broker: "Broker", request: ProduceRequest, peer: Connection) -> ProduceResponse | None:
    if request.acks not in (-1, 1, 0):
        raise Refused(Code.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        raise Refused(
            Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not supported by this broker."
        )
    get = broker.replicas.get
    now = broker.clock.now()
    answers = []
    failed = False
    for topic in request.topic_data:
        name = topic.name
        rows = []
        for part in topic.partition_data:
            try:
                partition = get(name, part.index)
                if part.records is None:
                    raise Refused(Code.INVALID_RECORD, "there is no record batch for the partition")
                appended = partition.append(part.records, now)
                rows.append(
                    ProducePartitionResponse(
                        part.index, 0, appended.first, appended.append_time, partition.log.start
                    )
                )
            except Refused as refused:
                failed = True
                broker.note_refusal("Produce", refused, name, part.index)
                rows.append(_refused(part, refused))
        answers.append(ProduceTopicResponse(name, rows))
    if request.acks == 0:
        if failed:
            peer.close()
        return None
    return ProduceResponse(answers)


def _refused(part: ProducePartition, refused: Refused) -> ProducePartitionResponse:
    return ProducePartitionResponse(part.index, refused.code, -1, error_message=refused.message)

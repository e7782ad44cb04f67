"""Produce v3-12: record batches in, their offsets out.

Each partition is answered for itself: one that is refused leaves the others alone. acks=0 gets no answer, and
where a batch of it is refused the connection is closed: there is no other way to tell. The first batch of a transaction
in a partition waits for the transaction coordinator's word (`verification`).
"""

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.acceptance import accept, when_stored
from barnabas.broker.partitions.acknowledgements import Outcome
from barnabas.broker.partitions.verification import Verifying
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
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
) -> "ProduceResponse | Promise[ProduceResponse] | Coroutine[Any, Any, ProduceResponse] | None":
    if request.acks not in (-1, 1, 0):
        raise Refused(Code.INVALID_REQUIRED_ACKS)
    version = header.api_version
    if request.transactional_id is None:
        return _append(broker, request, peer, version, None)
    if request.acks == 0:
        # Nothing of a transaction may be lost without a word, and there is no place for one.
        peer.close()
        return None
    batches = [
        (TopicPartition(topic.name, part.index), part.records)
        for topic in request.topic_data
        for part in topic.partition_data
    ]
    verifying = Verifying(broker, request.transactional_id, batches, version, broker.clock.now())
    if not verifying.must_ask:
        return _append(broker, request, peer, version, verifying)
    for topic in request.topic_data:
        for part in topic.partition_data:
            if part.records is not None:
                # The frame's bytes are the connection's again as soon as this returns.
                part.records = memoryview(bytearray(part.records))
    return _append_verified(broker, request, peer, version, verifying)


async def _append_verified(
    broker: "Broker", request: ProduceRequest, peer: Connection, version: int, verifying: Verifying
) -> ProduceResponse:
    await verifying.ask(broker.transactions)
    response = _append(broker, request, peer, version, verifying)
    assert response is not None
    return await response if isinstance(response, Promise) else response


def _append(
    broker: "Broker", request: ProduceRequest, peer: Connection, version: int, verifying: Verifying | None
) -> ProduceResponse | Promise[ProduceResponse] | None:
    """Append what may enter; the answer, or, where it waits for other replicas or the disk, its promise."""
    acks = request.acks
    now = broker.clock.now()
    answers = []
    waiting = []
    failed = False
    for topic in request.topic_data:
        name = topic.name
        rows = []
        for part in topic.partition_data:
            try:
                verified = None
                if verifying is not None:
                    verified = verifying.verified(TopicPartition(name, part.index))
                partition, appended, is_stored = accept(
                    broker, name, part.index, part.records, version, acks, now, verified
                )
                log = partition.log
                row = ProducePartitionResponse(part.index, 0, appended.first, appended.append_time, log.start)
                if acks != 0 and not is_stored:
                    outcome = when_stored(broker, partition, appended, acks, request.timeout_ms)
                    waiting.append((outcome, row))
            except Refused as refused:
                failed = True
                broker.note_refusal("Produce", refused, name, part.index)
                row = refused_row(part.index, refused)
            rows.append(row)
        answers.append(ProduceTopicResponse(name, rows))
    if acks == 0:
        if failed:
            peer.close()
        return None
    response = ProduceResponse(answers)
    return WaitingProduce(response, waiting).answer if waiting else response


class WaitingProduce:
    """Mutable: an answer that leaves when every batch counts as stored, or cannot be."""

    __slots__ = ("_left", "_response", "answer")

    def __init__(
        self, response: ProduceResponse, waiting: list[tuple[Outcome, ProducePartitionResponse]]
    ) -> None:
        self.answer: Promise[ProduceResponse] = Promise()
        self._response = response
        self._left = len(waiting)
        for outcome, row in waiting:
            outcome.add_done_callback(partial(self._stored, row))

    def _stored(self, row: ProducePartitionResponse, outcome: Outcome) -> None:
        refused = outcome.result()
        if refused is not None:
            row.error_code, row.base_offset, row.error_message = refused.code, -1, refused.message
        self._left -= 1
        if not self._left:
            self.answer.give(self._response)


def refused_row(index: int, refused: Refused) -> ProducePartitionResponse:
    """A partition's part of the answer, where it is no."""
    return ProducePartitionResponse(index, refused.code, -1, error_message=refused.message)

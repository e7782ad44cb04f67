"""Fetch v4-12: offsets in, record batches out, straight from the files.

A fetch that finds less than `min_bytes` parks: it watches its partitions and is tried again when one of them
grows, until `max_wait_ms` has passed. The first batch comes back whole whatever its size, or a reader with
small limits would be stuck. No fetch sessions: the answer's session id 0 tells clients to ask in full.
"""

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.connection import Connection
from barnabas.broker.partition import Partition
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import LeaderEpoch, Offset
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

READ_COMMITTED = 1
NOTHING = b""
"""Not null: librdkafka takes null records for a broken answer."""


@handles(ApiKey.FETCH)
def fetch(
    broker: "Broker", request: FetchRequest, peer: Connection
) -> "FetchResponse | asyncio.Future[FetchResponse]":
    if request.session_id != 0:
        raise Refused(Code.FETCH_SESSION_ID_NOT_FOUND)
    response, found, failed = collect(broker, request)
    if found >= request.min_bytes or failed or request.max_wait_ms <= 0:
        return response
    return ParkedFetch(broker, request).answer


def collect(broker: "Broker", request: FetchRequest) -> tuple[FetchResponse, int, bool]:
    """The answer as it would be now, how many bytes of records it has, and whether a partition was refused."""
    find = broker.replicas.find
    committed = request.isolation_level == READ_COMMITTED
    left = min(request.max_bytes, broker.config.fetch_max_bytes)
    found = 0
    failed = False
    topics = []
    for topic in request.topics:
        name = topic.topic
        rows = []
        for wanted in topic.partitions:
            try:
                partition = find(name, wanted.partition) or broker.replicas.get(name, wanted.partition)
                row = _read(partition, wanted, left, committed, found == 0)
            except Refused as refused:
                failed = True
                broker.note_refusal("Fetch", refused, name, wanted.partition)
                row = _refused(broker, wanted, name, refused)
            if row.records:
                size = len(row.records)
                found += size
                left -= size
            rows.append(row)
        topics.append(FetchTopicResponse(name, rows))
    return FetchResponse(responses=topics), found, failed


def _read(
    partition: Partition, wanted: FetchPartition, left: int, committed: bool, first: bool
) -> FetchPartitionResponse:
    known = wanted.current_leader_epoch
    if known != -1:
        partition.check_epoch(known)
    if wanted.fetch_offset == partition.high_watermark and wanted.last_fetched_epoch < 0:
        return _at_the_end(partition)
    row = _nothing(partition)
    if wanted.last_fetched_epoch >= 0:
        back = partition.divergence(LeaderEpoch(wanted.last_fetched_epoch), Offset(wanted.fetch_offset))
        if back is not None:
            row.diverging_epoch = EpochEndOffset(*back)
            return row
    limit = min(wanted.partition_max_bytes, left)
    if limit > 0 or first:
        piece = partition.read(Offset(wanted.fetch_offset), limit, committed=committed)
        # Only the first partition with records may overrun the limits, so that every reader gets on.
        if piece is not None and (first or piece.size <= limit):
            row.records = piece
    return row


def _nothing(partition: Partition) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        partition.tp.partition,
        0,
        partition.high_watermark,
        partition.last_stable,
        partition.log.start,
        records=NOTHING,
    )


def _at_the_end(partition: Partition) -> FetchPartitionResponse:
    """What a reader gets that has read all. Made again only when the log has moved: a reader of 1,000 partitions
    asks for all of them each time, and nearly all are idle (0.3 us each instead of 1.0)."""
    row: FetchPartitionResponse | None = partition.idle_answer
    if (
        row is None
        or row.high_watermark != partition.high_watermark
        or row.log_start_offset != partition.log.start
        or row.last_stable_offset != partition.last_stable
    ):
        row = partition.idle_answer = _nothing(partition)
    return row


def _refused(
    broker: "Broker", wanted: FetchPartition, topic: str, refused: Refused
) -> FetchPartitionResponse:
    row = FetchPartitionResponse(wanted.partition, refused.code, -1, records=NOTHING)
    partition = broker.replicas.find(topic, wanted.partition)
    if partition is not None and refused.code is Code.OFFSET_OUT_OF_RANGE:
        row.high_watermark = partition.high_watermark
        row.log_start_offset = partition.log.start
    return row


class ParkedFetch:
    """Mutable: a fetch that waits for records. Gone as soon as its answer is there, or its client is not."""

    __slots__ = ("_broker", "_deadline", "_partitions", "_request", "_woken", "answer")

    def __init__(self, broker: "Broker", request: FetchRequest) -> None:
        loop = asyncio.get_running_loop()
        self._broker = broker
        self._request = request
        self._woken = False
        self.answer: asyncio.Future[FetchResponse] = loop.create_future()
        self.answer.add_done_callback(self._leave)
        self._deadline = loop.call_later(request.max_wait_ms / 1000, self._expire)
        self._partitions = [
            partition
            for topic in request.topics
            for wanted in topic.partitions
            if (partition := broker.replicas.find(topic.topic, wanted.partition)) is not None
        ]
        for partition in self._partitions:
            partition.watch(self)

    def wake(self) -> None:
        """Try again soon: several partitions may grow by one produce request."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._try)

    def _try(self) -> None:
        self._woken = False
        if self.answer.done():
            return
        response, found, failed = collect(self._broker, self._request)
        if found >= self._request.min_bytes or failed:
            self.answer.set_result(response)

    def _expire(self) -> None:
        if not self.answer.done():
            self.answer.set_result(collect(self._broker, self._request)[0])

    def _leave(self, answer: "asyncio.Future[FetchResponse]") -> None:
        self._deadline.cancel()
        for partition in self._partitions:
            partition.unwatch(self)

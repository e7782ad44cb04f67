"""Fetch v4-12: offsets in, record batches out, straight from the files.

A fetch that finds less than `min_bytes` parks: it watches its partitions and is tried again when one of them
grows, until `max_wait_ms` has passed. The first batch comes back whole whatever its size, or a reader with
small limits would be stuck. No fetch sessions: the answer's session id 0 tells clients to ask in full.
"""

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.network.connection import FLAT, Connection
from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.router import handles
from barnabas.errors import Code, Refused
from barnabas.types import LeaderEpoch, Offset
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from barnabas.wire.schema import Chunk

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

READ_COMMITTED = 1
ZSTD_SINCE = 10
NOTHING = b""
"""Not null: librdkafka takes null records for a broken answer."""

Answer: TypeAlias = FetchResponse | list[Chunk]
"""The second where it is encoded already."""


@handles(ApiKey.FETCH, with_header=True)
def fetch(
    broker: "Broker", request: FetchRequest, peer: Connection, header: RequestHeader
) -> FetchResponse | Promise[Answer]:
    if request.session_id != 0:
        raise Refused(Code.FETCH_SESSION_ID_NOT_FOUND)
    reading = Reading(broker, request, knows_zstd=header.api_version >= ZSTD_SINCE)
    for topic in request.topics:
        name = topic.topic
        rows = [reading.row(name, wanted) for wanted in topic.partitions]
        reading.response.responses.append(FetchTopicResponse(name, rows))
    if reading.is_enough or request.max_wait_ms <= 0:
        return reading.response
    return ParkedFetch(broker, request, reading).answer


class Reading:
    """Mutable: an answer as it grows, and how much of its limits is left."""

    __slots__ = (
        "_broker",
        "_committed",
        "_find",
        "_knows_zstd",
        "_left",
        "_min_bytes",
        "failed",
        "found",
        "response",
    )

    def __init__(self, broker: "Broker", request: FetchRequest, *, knows_zstd: bool) -> None:
        self._broker = broker
        self._find = broker.replicas.find_leader
        self._committed = request.isolation_level == READ_COMMITTED
        self._left = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = request.min_bytes
        self._knows_zstd = knows_zstd
        self.response = FetchResponse()
        self.found = 0
        self.failed = False

    @property
    def is_enough(self) -> bool:
        """Whether it may go: with the bytes that were asked for, or with an error, which leaves at once."""
        return self.found >= self._min_bytes or self.failed

    def row(self, topic: str, wanted: FetchPartition) -> FetchPartitionResponse:
        """One partition's part. 0.35 us for a reader that has read all, and there may be a thousand of these."""
        partition = self._find(topic, wanted.partition)
        if partition is not None:
            idle = self._broker.idle_rows.find(topic, partition, wanted)
            if idle is not None:
                return idle
        try:
            row = self.read(partition or self._broker.replicas.leader(topic, wanted.partition), wanted)
        except Refused as refused:
            self.failed = True
            self._broker.note_refusal("Fetch", refused, topic, wanted.partition)
            return _refused(partition, wanted, refused)
        if wanted.fetch_offset == row.high_watermark and row.diverging_epoch is None:
            self._broker.idle_rows.keep(topic, row, len(self._broker.replicas))
        return row

    def read(self, partition: Leader, wanted: FetchPartition) -> FetchPartitionResponse:
        """One partition's part, looked for in its log; raises Refused."""
        row = self._read(partition, wanted)
        if row.records:
            self._count(len(row.records))
        return row

    def take_back(self, row: FetchPartitionResponse) -> None:
        """Forget a row: the partition is about to be read again."""
        if row.records:
            self._count(-len(row.records))

    def newest(self, partition: Leader, wanted: FetchPartition) -> bytes | None:
        """All there is to say to a reader that waits for the batch which was just appended; None where it is more."""
        if wanted.last_fetched_epoch >= 0:
            return None
        try:
            self._check(partition, wanted)
            records = partition.read_newest(Offset(wanted.fetch_offset), FLAT, committed=self._committed)
        except (Refused, OSError):
            return None
        return records if records is not None and len(records) >= self._min_bytes else None

    def _count(self, size: int) -> None:
        self.found += size
        self._left -= size

    def _check(self, partition: Leader, wanted: FetchPartition) -> None:
        partition.check_epoch(wanted.current_leader_epoch)
        if not self._knows_zstd and partition.log.config.compression_type == "zstd":
            raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE)

    def _read(self, partition: Leader, wanted: FetchPartition) -> FetchPartitionResponse:
        self._check(partition, wanted)
        row = FetchPartitionResponse(
            wanted.partition,
            0,
            partition.high_watermark,
            partition.last_stable,
            partition.log.start,
            records=NOTHING,
        )
        offset = Offset(wanted.fetch_offset)
        if wanted.last_fetched_epoch >= 0:
            back = partition.divergence(LeaderEpoch(wanted.last_fetched_epoch), offset)
            if back is not None:
                row.diverging_epoch = EpochEndOffset(*back)
                return row
        if offset == row.high_watermark:
            return row
        limit = min(wanted.partition_max_bytes, self._left)
        first = self.found == 0
        if limit > 0 or first:
            piece = partition.read(offset, limit, committed=self._committed)
            # Only the first partition with records may overrun the limits, so that every reader gets on.
            if piece is not None and (first or piece.size <= limit):
                row.records = piece
        return row


def _refused(partition: Leader | None, wanted: FetchPartition, refused: Refused) -> FetchPartitionResponse:
    row = FetchPartitionResponse(wanted.partition, refused.code, -1, records=NOTHING)
    if partition is not None and refused.code is Code.OFFSET_OUT_OF_RANGE:
        row.high_watermark = partition.high_watermark
        row.log_start_offset = partition.log.start
    return row


class ParkedFetch:
    """Mutable: a fetch that waits for records. Gone as soon as its answer is there, or its client is not.

    Only the partitions that grew are looked at again: nothing has changed in the others.
    """

    __slots__ = (
        "_deadline",
        "_places",
        "_reading",
        "_rounds",
        "_woken",
        "answer",
    )

    def __init__(self, broker: "Broker", request: FetchRequest, reading: Reading) -> None:
        self._rounds = broker.server.rounds
        self._reading = reading
        self._woken: list[Partition] = []
        self._places: dict[Partition, tuple[FetchTopicResponse, int, FetchPartition]] = {}
        find = broker.replicas.find_leader
        for topic, answered in zip(request.topics, reading.response.responses, strict=True):
            for number, wanted in enumerate(topic.partitions):
                partition = find(topic.topic, wanted.partition)
                if partition is not None:
                    self._places[partition] = answered, number, wanted
                    partition.watch(self)
        self.answer: Promise[Answer] = Promise()
        self.answer.add_done_callback(self._leave)
        self._deadline = asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, self._finish)

    def wake(self, partition: Partition) -> None:
        """Try again soon: several partitions may grow by one produce request."""
        if not self._woken:
            self._rounds.wake(self._try)
        self._woken.append(partition)

    def _try(self) -> None:
        woken, self._woken = self._woken, []
        if self.answer.done():
            return
        reading = self._reading
        for partition in woken:
            answered, number, wanted = self._places[partition]
            reading.take_back(answered.partitions[number])
            answered.partitions[number] = reading.row(answered.topic, wanted)
        if reading.is_enough:
            self._finish()

    def _finish(self) -> None:
        self.answer.give(self._reading.response)

    def _leave(self, answer: Promise[Answer]) -> None:
        self._rounds.afterwards(self._clear)

    def _clear(self) -> None:
        self._deadline.cancel()
        for partition in self._places:
            partition.unwatch(self)

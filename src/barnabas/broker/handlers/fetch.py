"""Fetch v4-17: offsets in, record batches out, straight from the files. Followers are served by their sessions.

A fetch that finds less than `min_bytes` parks: it watches its partitions and is tried again when one of them
grows, until `max_wait_ms` has passed. The first batch comes back whole whatever its size, or a reader with
small limits would be stuck. A client may keep a session (`fetch_sessions`), and may read from a replica in its rack
(KIP-392): the leader tells it which, and that one serves what it knows to be committed.
"""

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.fetch_sessions import FINAL_EPOCH, FetchSession
from barnabas.broker.network.connection import FLAT, Connection
from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.follower import Follower
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.router import handles
from barnabas.disk import FileSlice
from barnabas.errors import Code, Refused
from barnabas.types import LeaderEpoch, Offset
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
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
IDS_SINCE = 13
NOTHING = b""
"""Not null: librdkafka takes null records for a broken answer."""

Answer: TypeAlias = FetchResponse | list[Chunk]
"""The second where it is encoded already."""


@handles(ApiKey.FETCH, with_header=True)
def fetch(
    broker: "Broker", request: FetchRequest, peer: Connection, header: RequestHeader
) -> FetchResponse | Promise[Answer] | Promise[FetchResponse]:
    if request.replica_id >= 0 or request.replica_state is not None:
        return broker.replication.serve(request, peer)
    if header.api_version >= IDS_SINCE:
        _name_topics(broker, request)
    session = None
    if request.session_id or request.session_epoch != FINAL_EPOCH:
        slots = broker.config.max_incremental_fetch_session_cache_slots
        session = broker.fetch_sessions.begin(request, slots, broker.clock.now())
    reading = Reading(broker, request, knows_zstd=header.api_version >= ZSTD_SINCE, session=session)
    for topic in request.topics:
        name = topic.topic
        rows = reading.rows(name, topic.partitions)
        reading.response.responses.append(FetchTopicResponse(name, rows, topic_id=topic.topic_id))
    if reading.is_enough or request.max_wait_ms <= 0:
        return reading.answer()
    return ParkedFetch(broker, request, reading).answer


def _name_topics(broker: "Broker", request: FetchRequest) -> None:
    """Give the topics of a request the names that go with their ids."""
    find = broker.metadata.image.topic_by_id
    for topic in request.topics:
        found = find(topic.topic_id)
        topic.topic = found.name if found is not None else ""


class Reading:
    """Mutable: an answer as it grows, and how much of its limits is left."""

    __slots__ = (
        "_broker",
        "_committed",
        "_find",
        "_knows_zstd",
        "_left",
        "_min_bytes",
        "_rack",
        "_session",
        "failed",
        "found",
        "response",
    )

    def __init__(
        self,
        broker: "Broker",
        request: FetchRequest,
        *,
        knows_zstd: bool,
        session: FetchSession | None = None,
    ) -> None:
        self._broker = broker
        self._rack = request.rack_id
        self._session = session
        self._find = broker.replicas.lookup_leader
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

    def answer(self) -> FetchResponse:
        """All of it, or, in a session, what has changed."""
        return self.response if self._session is None else self._session.tell(self.response)

    def find(self, topic: str, index: int) -> Leader | Follower | None:
        """The partition to read: where it is led, or, for a reader that looks for the nearest replica, any."""
        leader = self._find((topic, index))
        if leader is not None or not self._rack:
            return leader
        found = self._broker.replicas.find(topic, index)
        return found if isinstance(found, Follower) else None

    def rows(self, topic: str, partitions: list[FetchPartition]) -> list[FetchPartitionResponse]:
        """A topic's part of the answer."""
        if self._rack:
            return [self._row_for_rack(topic, wanted) for wanted in partitions]
        find, knows_zstd = self._find, self._knows_zstd
        rows = []
        # Hot: 0.25 us for a partition of which all is read, and there may be a thousand of these.
        for wanted in partitions:
            index, offset = wanted.partition, wanted.fetch_offset
            partition = find((topic, index))
            if partition is not None and offset == partition.high_watermark:
                log, epoch = partition.log, partition.epoch
                known, fetched = wanted.current_leader_epoch, wanted.last_fetched_epoch
                if (
                    (known == -1 or known == epoch)
                    and (fetched == -1 or fetched == epoch)
                    and log.producers.first_unstable is None
                    and (knows_zstd or log.config.compression_type != "zstd")
                ):
                    rows.append(_idle_row(index, offset, log.start))
                    continue
            rows.append(self.row(topic, wanted))
        return rows

    def row(self, topic: str, wanted: FetchPartition) -> FetchPartitionResponse:
        """One partition's part."""
        if self._rack:
            return self._row_for_rack(topic, wanted)
        partition = self._find((topic, wanted.partition))
        try:
            return self.read(partition or self._broker.replicas.leader(topic, wanted.partition), wanted)
        except Refused as refused:
            self.failed = True
            self._broker.note_refusal("Fetch", refused, topic, wanted.partition)
            return _refused(partition, wanted, refused)

    def _row_for_rack(self, topic: str, wanted: FetchPartition) -> FetchPartitionResponse:
        """The same for a reader that may be told of a replica in its rack."""
        partition = self.find(topic, wanted.partition)
        try:
            if partition is None:
                partition = self._broker.replicas.leader(topic, wanted.partition)
            nearest = self._broker.replication.nearest(partition, self._rack, Offset(wanted.fetch_offset))
            if nearest is None:
                return self.read(partition, wanted)
            self._check(partition, wanted)
        except Refused as refused:
            self.failed = True
            self._broker.note_refusal("Fetch", refused, topic, wanted.partition)
            return _refused(partition, wanted, refused)
        self.failed = True  # to be told at once
        return FetchPartitionResponse(
            wanted.partition,
            0,
            partition.high_watermark,
            partition.last_stable,
            partition.log.start,
            preferred_read_replica=nearest,
            records=NOTHING,
        )

    def read(self, partition: Leader | Follower, wanted: FetchPartition) -> FetchPartitionResponse:
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

    def _check(self, partition: Leader | Follower, wanted: FetchPartition) -> None:
        partition.check_epoch(wanted.current_leader_epoch)
        if not self._knows_zstd and partition.log.config.compression_type == "zstd":
            raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE)

    def _read(self, partition: Leader | Follower, wanted: FetchPartition) -> FetchPartitionResponse:
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
                if self._committed:
                    row.aborted_transactions = _aborted(partition, offset, piece)
        return row


def _aborted(partition: Partition, offset: Offset, records: FileSlice) -> list[AbortedTransaction] | None:
    """What a reader of committed records has to skip of these; None where that is nothing."""
    found = partition.log.aborted_in(offset, records)
    return [AbortedTransaction(each.producer_id, each.first) for each in found] or None


@lru_cache(1 << 14)
def _idle_row(index: int, high_watermark: int, log_start: int) -> FetchPartitionResponse:
    """What a reader that has read all of a partition is told: the same of all partitions with the same numbers."""
    return FetchPartitionResponse(index, 0, high_watermark, high_watermark, log_start, records=NOTHING)


def _refused(
    partition: Leader | Follower | None, wanted: FetchPartition, refused: Refused
) -> FetchPartitionResponse:
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
        find = reading.find
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
        self.answer.give(self._reading.answer())

    def _leave(self, answer: Promise[Answer]) -> None:
        self._rounds.afterwards(self._clear)

    def _clear(self) -> None:
        self._deadline.cancel()
        for partition in self._places:
            partition.unwatch(self)

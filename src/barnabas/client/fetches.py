"""What a consumer reads: where in each partition it is, what is being fetched, and what was fetched and waits.

PURE. Driven by `fetcher` (requests and answers) and by `consumer` (what the user wants); the caller sees to it that
they take turns. Always holds: a partition's records come in order and each once, from its position on; what was asked
for before a seek is never given after it; a partition is asked for only while little of it waits.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from barnabas.client.failures import RETRIABLE, STALE, check
from barnabas.client.offsets import OffsetAt
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.batch import HEADER_SIZE, LAST_OFFSET_DELTA_AT, LOG_OVERHEAD
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

COMMITTED = -(1 << 62)
"""Asks for what the group has committed, where a timestamp would ask for an offset by time."""

NEVER = float("inf")

_LANES = ("fetch", "fetch-too", "fetch-here")
"""A second fetch to the same broker goes beside the one that waits for new records: nobody waits for its end. When both
wait, what is known to be there is still fetched, by the last lane, which never waits."""

_START = Struct(">qi")
_DELTA = Struct(">i")


class Leader(NamedTuple):
    """Who leads a partition, and since which epoch."""

    node: BrokerId
    epoch: int


class Chunk(NamedTuple):
    """What one fetch brought of a partition: whole batches."""

    reading: "Reading"
    data: memoryview
    start: int
    """Records before this offset were not asked for."""
    end: int
    """The offset behind the last batch."""
    aborted: tuple[AbortedTransaction, ...]


class Reading:
    """Mutable: one partition that is read."""

    __slots__ = (
        "buffered",
        "chunks",
        "end",
        "fetch_offset",
        "is_asked",
        "is_paused",
        "is_queued",
        "partition",
        "position",
        "retry_at",
        "version",
        "want",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        """The offset of the next record for the user; None until somebody has found out."""
        self.want: int | None = None
        """A timestamp or COMMITTED: where to look for a position. None where there is one, or nothing helps."""
        self.fetch_offset = 0
        self.end = -1
        """The high watermark, or the last stable offset where only committed records count."""
        self.is_paused = False
        self.is_asked = False
        """A request is under way: a fetch, or one for a position."""
        self.is_queued = False
        self.chunks: deque[Chunk] = deque()
        self.buffered = 0
        self.retry_at = 0.0
        self.version = 0
        """Counts the seeks: an answer to what was asked before one means nothing."""

    @property
    def is_caught_up(self) -> bool:
        """Whether all that is known to be there has been fetched."""
        return 0 <= self.end <= self.fetch_offset


class Asked(NamedTuple):
    """A partition in a request under way."""

    reading: Reading
    version: int
    offset: int


class Fetch(NamedTuple):
    """A request to be sent, and what it asks for."""

    node: BrokerId
    lane: str
    request: FetchRequest
    asked: dict[TopicPartition, Asked]


class Lookup(NamedTuple):
    """Positions to be asked for: what the group has committed, and offsets by time."""

    committed: list[Asked]
    by_time: list[tuple[Asked, int]]


class Fetches:
    """Mutable: all that a consumer reads. Times are seconds of any clock that never goes back."""

    def __init__(
        self,
        *,
        reset: int | None,
        min_bytes: int = 1,
        max_bytes: int = 52_428_800,
        max_partition_bytes: int = 1_048_576,
        max_wait_ms: int = 500,
        read_committed: bool = False,
        retry_backoff_ms: int = 100,
    ) -> None:
        self.failures: deque[Refused] = deque()
        """What the user has to hear."""
        self.was_full = False
        """The last plan had no room for anything: whoever takes a chunk should see to the next plan."""
        self._reset = reset
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._max_partition_bytes = max_partition_bytes
        self._max_wait_ms = max_wait_ms
        self._read_committed = read_committed
        self._backoff = retry_backoff_ms / 1000
        self._readings: dict[TopicPartition, Reading] = {}
        self._ready: deque[Reading] = deque()
        self._busy: dict[BrokerId, set[str]] = {}
        self._buffered = 0

    # What the user wants

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._readings)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(each.partition for each in self._readings.values() if each.is_paused)

    def reading(self, partition: TopicPartition) -> Reading:
        found = self._readings.get(partition)
        if found is None:
            raise BarnabasError(f"Partition {TopicPartition(*partition)} is not assigned to this consumer.")
        return found

    def positions(self) -> dict[TopicPartition, int]:
        """Where the user is, as far as that is known."""
        return {
            partition: each.position
            for partition, each in self._readings.items()
            if each.position is not None
        }

    def add(self, partitions: Iterable[TopicPartition], want: int | None) -> None:
        """Read these too, from where `want` says; None for where auto.offset.reset says."""
        for partition in partitions:
            reading = self._readings[partition] = Reading(partition)
            if want is None:
                self._start_over(reading, "no position is known")
            else:
                reading.want = want

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more, and forget what was fetched."""
        for partition in partitions:
            reading = self._readings.pop(partition, None)
            if reading is not None:
                self._forget(reading)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        reading = self.reading(partition)
        self._forget(reading)
        reading.want = None
        reading.position = reading.fetch_offset = offset

    def seek_to(self, partition: TopicPartition, timestamp: int) -> None:
        """Go to where a timestamp says, once the leader has told where that is."""
        reading = self.reading(partition)
        self._forget(reading)
        reading.position = None
        reading.want = timestamp

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing of these; what was fetched waits."""
        for each in [self.reading(partition) for partition in partitions]:
            each.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for each in [self.reading(partition) for partition in partitions]:
            each.is_paused = False
            self._queue(each)

    def has_chunk(self) -> bool:
        return any(not each.is_paused and each.chunks for each in self._ready)

    def next_chunk(self) -> Chunk | None:
        """What is to be given next: partitions take turns. Whoever takes it moves the position."""
        while self._ready:
            reading = self._ready.popleft()
            reading.is_queued = False
            if reading.is_paused or not reading.chunks:
                continue
            chunk = reading.chunks.popleft()
            self._release(chunk)
            self._queue(reading)
            return chunk
        return None

    def put_back(self, chunk: Chunk) -> None:
        """It is not wanted yet, after all."""
        reading = chunk.reading
        reading.chunks.appendleft(chunk)
        reading.buffered += len(chunk.data)
        self._buffered += len(chunk.data)
        self._queue(reading)

    def is_current(self, reading: Reading, version: int) -> bool:
        """Whether the partition is still read, and nobody has sought since."""
        return self._readings.get(reading.partition) is reading and reading.version == version

    def _forget(self, reading: Reading) -> None:
        reading.version += 1
        reading.is_asked = False
        reading.retry_at = 0.0
        for chunk in reading.chunks:
            self._release(chunk)
        reading.chunks.clear()

    def _release(self, chunk: Chunk) -> None:
        chunk.reading.buffered -= len(chunk.data)
        self._buffered -= len(chunk.data)

    def _queue(self, reading: Reading) -> None:
        if reading.chunks and not reading.is_paused and not reading.is_queued:
            reading.is_queued = True
            self._ready.append(reading)

    # Positions that have to be asked for

    def look_up(self, now: float) -> Lookup:
        """Positions that nobody has asked for yet; they count as asked for from here on."""
        found = Lookup([], [])
        for reading in self._readings.values():
            if reading.want is None or reading.is_asked or now < reading.retry_at:
                continue
            reading.is_asked = True
            asked = Asked(reading, reading.version, -1)
            if reading.want == COMMITTED:
                found.committed.append(asked)
            else:
                found.by_time.append((asked, reading.want))
        return found

    def found_committed(self, asked: Iterable[Asked], offsets: Mapping[TopicPartition, int]) -> None:
        """What the group has committed; where that is nothing, auto.offset.reset says where to begin."""
        for reading in self._answered(asked):
            offset = offsets.get(reading.partition)
            if offset is None:
                self._start_over(reading, "its group has committed nothing")
            else:
                self._found(reading, offset)

    def found_by_time(
        self, asked: Iterable[Asked], offsets: Mapping[TopicPartition, OffsetAt | Refused], now: float
    ) -> None:
        """Offsets by time; without a record so late, the end is looked for instead."""
        for reading in self._answered(asked):
            found = offsets.get(reading.partition)
            if isinstance(found, Refused):
                self._fail(reading, found, now)
            elif found is None:
                reading.retry_at = now + self._backoff
            elif found.offset < 0:
                reading.want = -1
            else:
                self._found(reading, found.offset)

    def not_found(self, asked: Iterable[Asked], why: Refused, now: float) -> None:
        for reading in self._answered(asked):
            self._fail(reading, why, now)

    def _answered(self, asked: Iterable[Asked]) -> Iterator[Reading]:
        for reading, version, _ in asked:
            if self.is_current(reading, version):
                reading.is_asked = False
                yield reading

    def _found(self, reading: Reading, offset: int) -> None:
        reading.want = None
        reading.position = reading.fetch_offset = offset

    def _start_over(self, reading: Reading, why: str) -> None:
        """To where auto.offset.reset says; `none` leaves that to the user."""
        reading.position = None
        reading.want = self._reset
        if self._reset is None:
            text = f"Partition {reading.partition}: {why}, and auto.offset.reset is none: seek first."
            self.failures.append(Refused(Code.OFFSET_OUT_OF_RANGE, text))

    def _fail(self, reading: Reading, why: Refused, now: float) -> None:
        """Try again after a while; what no other try can help is for the user to hear, once."""
        if why.code in RETRIABLE and why.code is not Code.CORRUPT_MESSAGE:
            reading.retry_at = now + self._backoff
        else:
            reading.retry_at = NEVER
            self.failures.append(why)

    def retry_at(self, now: float) -> float:
        """When something that failed is due to be tried again."""
        return min((each.retry_at for each in self._readings.values() if each.retry_at > now), default=NEVER)

    # Fetching

    def plan(self, now: float, leader_of: Callable[[TopicPartition], Leader | None]) -> list[Fetch]:
        """The requests to be sent now. Partitions that gave something last come last, so that none starves."""
        room = self._max_bytes - self._buffered
        self.was_full = room <= 0
        if self.was_full:
            return []
        wanted: dict[BrokerId, list[tuple[Reading, Leader]]] = {}
        for partition, reading in self._readings.items():
            if (
                reading.position is None
                or reading.is_asked
                or reading.is_paused
                or reading.buffered >= self._max_partition_bytes
                or now < reading.retry_at
            ):
                continue
            leader = leader_of(partition)
            if leader is not None:
                wanted.setdefault(leader.node, []).append((reading, leader))
        found = []
        for node, rows in wanted.items():
            lane = self._free_lane(node)
            if lane == _LANES[-1]:
                rows = [(reading, leader) for reading, leader in rows if not reading.is_caught_up]
            if lane is not None and rows:
                found.append(self._fetch(node, lane, rows, room))
        return found

    def _free_lane(self, node: BrokerId) -> str | None:
        busy = self._busy.get(node, ())
        return next((lane for lane in _LANES if lane not in busy), None)

    def _fetch(self, node: BrokerId, lane: str, rows: list[tuple[Reading, Leader]], room: int) -> Fetch:
        topics: dict[str, FetchTopic] = {}
        asked: dict[TopicPartition, Asked] = {}
        for reading, leader in rows:
            partition = reading.partition
            row = topics.setdefault(partition.topic, FetchTopic(partition.topic))
            row.partitions.append(
                FetchPartition(
                    partition.partition,
                    leader.epoch,
                    reading.fetch_offset,
                    partition_max_bytes=self._max_partition_bytes,
                )
            )
            reading.is_asked = True
            asked[partition] = Asked(reading, reading.version, reading.fetch_offset)
        self._busy.setdefault(node, set()).add(lane)
        request = FetchRequest(
            max_wait_ms=0 if lane == _LANES[-1] else self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=room,
            isolation_level=int(self._read_committed),
            topics=list(topics.values()),
        )
        return Fetch(node, lane, request, asked)

    def take(self, fetch: Fetch, answer: FetchResponse | Refused, now: float) -> bool:
        """What a fetch brought. True where what is known of leaders is stale."""
        self._busy[fetch.node].discard(fetch.lane)
        if not isinstance(answer, Refused) and answer.error_code:
            answer = Refused(Code.of(answer.error_code))
        if isinstance(answer, Refused):
            for reading in self._answered(fetch.asked.values()):
                self._fail(reading, answer, now)
            return answer.code in STALE
        is_stale = False
        left = dict(fetch.asked)
        for topic in answer.responses:
            for row in topic.partitions:
                partition = TopicPartition(topic.topic, row.partition_index)
                asked = left.pop(partition, None)
                if asked is None or not self.is_current(asked.reading, asked.version):
                    continue
                asked.reading.is_asked = False
                if row.error_code:
                    is_stale |= self._take_error(asked.reading, row.error_code, now)
                else:
                    self._take_records(asked.reading, row, now)
                is_stuck = asked.offset == asked.reading.fetch_offset and not asked.reading.is_caught_up
                if fetch.lane == _LANES[-1] and is_stuck:
                    # It was said to be there and is not: nobody asks again and again without waiting.
                    asked.reading.retry_at = max(asked.reading.retry_at, now + self._backoff)
        for reading in self._answered(left.values()):
            reading.retry_at = now + self._backoff  # a broker owes an answer for every partition
        return is_stale

    def _take_error(self, reading: Reading, code: int, now: float) -> bool:
        if code == Code.OFFSET_OUT_OF_RANGE:
            if reading.chunks:
                reading.retry_at = now + self._backoff  # what is here already comes first
            else:
                why = f"offset {reading.fetch_offset} is not in the log"
                self._start_over(reading, why)
            return False
        try:
            check(code, f"Partition {reading.partition}")
        except Refused as why:
            self._fail(reading, why, now)
        return code in STALE

    def _take_records(self, reading: Reading, row: FetchPartitionResponse, now: float) -> None:
        reading.end = row.last_stable_offset if self._read_committed else row.high_watermark
        records = row.records
        if records is None or len(records) == 0:
            return
        assert isinstance(records, memoryview)
        try:
            size, end = _whole_batches(records)
        except Refused as why:
            self._fail(reading, why, now)
            return
        if end <= reading.fetch_offset:
            return
        aborted = tuple(row.aborted_transactions or ()) if self._read_committed else ()
        reading.chunks.append(Chunk(reading, records[:size], reading.fetch_offset, end, aborted))
        reading.fetch_offset = end
        reading.buffered += size
        self._buffered += size
        self._queue(reading)
        self._readings[reading.partition] = self._readings.pop(reading.partition)


def _whole_batches(records: memoryview) -> tuple[int, int]:
    """How many bytes the whole batches are, and the offset behind the last of them; -1 where there is none."""
    at, end = 0, -1
    last = len(records) - HEADER_SIZE
    while at <= last:
        base, length = _START.unpack_from(records, at)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise Refused(Code.CORRUPT_MESSAGE, f"The batch at offset {base} claims {length} bytes.")
        following = at + length + LOG_OVERHEAD
        if following > len(records):
            break
        (delta,) = _DELTA.unpack_from(records, at + LAST_OFFSET_DELTA_AT)
        end = base + delta + 1
        at = following
    return at, end

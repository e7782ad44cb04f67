"""What a consumer reads: where in each partition it is, what is being fetched, and what was fetched and waits.

PURE. Driven by `fetcher` (requests and answers) and by `consumer` (what the user wants); the caller sees to it that
they take turns. Always holds: a partition's records come in order and each once, from its position on; what was asked
for before a seek is never given after it; a partition is asked for only while little of it waits. A leader that is new
is asked first whether its log has what was read before (KIP-320): it may have lost a tail and written other records.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.client.consumer.reading import (
    NO_EPOCH,
    Check,
    Chunk,
    EpochEnd,
    Leader,
    OffsetAt,
    PendingRead,
    Position,
    Reading,
    Truncation,
    whole_batches,
)
from barnabas.client.network.failures import RETRIABLE, STALE, check, rewritten, truncated
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.wire.schema import NO_ID

COMMITTED = -(1 << 62)
"""Asks for what the group has committed, where a timestamp would ask for an offset by time."""

NEVER = float("inf")

_LANES = ("fetch", "fetch-too", "fetch-here")
"""A second fetch to the same broker goes beside the one that waits for new records, and need not wait for it. When both
wait, what is known to be there is still fetched, by the last lane, which never waits."""


class Fetch(NamedTuple):
    """A request to be sent, and what it asks for."""

    node: BrokerId
    lane: str
    request: FetchRequest
    asked: dict[TopicPartition, PendingRead]


class Lookup(NamedTuple):
    """Positions to be asked for: what the group has committed, and offsets by time."""

    committed: list[PendingRead]
    by_time: list[tuple[PendingRead, int]]


FIRST_EPOCH = 0

_DOUBTS = 3
"""How often a leader with an older epoch than ours is asked again before its word counts: it may be one of old."""


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
        """The last plan had no room for anything: the taker of a chunk should see to the next plan."""
        self.truncations: deque[Truncation] = deque()
        """Logs that lack what was read: `settle` goes back, in the user's thread, which moves the positions."""
        self._checks: list[Check] = []
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

    def with_epochs(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
        """Offsets of next records with the epochs of the records before them, as far as those were read here."""
        found = {}
        for partition, offset in offsets.items():
            reading = self._readings.get(partition)
            epoch = NO_EPOCH if reading is None else reading.epoch_before(offset)
            found[TopicPartition(*partition)] = Position(offset, epoch)
        return found

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
        reading.begin(Position(offset))

    def fetch_again(self, reading: Reading, offset: int) -> None:
        """From an offset of what was fetched: that cannot be read as it came."""
        self._forget(reading)
        reading.go_back(offset)

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
        """What is to be given next: partitions take turns. The caller moves the position."""
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
        """Whether the partition is still read, and there was no seek since."""
        return self._readings.get(reading.partition) is reading and reading.version == version

    def _forget(self, reading: Reading) -> None:
        reading.version += 1
        self._take_back(reading)
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
        """Positions that were not asked for yet; they count as asked for from here on."""
        found = Lookup([], [])
        for reading in self._readings.values():
            if reading.want is None or reading.is_asked or now < reading.retry_at:
                continue
            reading.is_asked = True
            asked = PendingRead(reading, reading.version, -1)
            if reading.want == COMMITTED:
                found.committed.append(asked)
            else:
                found.by_time.append((asked, reading.want))
        return found

    def found_committed(
        self, asked: Iterable[PendingRead], offsets: Mapping[TopicPartition, Position]
    ) -> None:
        """What the group has committed; where that is nothing, auto.offset.reset says where to begin."""
        for reading in self._answered(asked):
            at = offsets.get(reading.partition)
            if at is None:
                self._start_over(reading, "its group has committed nothing")
            else:
                self._found(reading, at)

    def found_by_time(
        self, asked: Iterable[PendingRead], offsets: Mapping[TopicPartition, OffsetAt | Refused], now: float
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
                self._found(reading, Position(found.offset, found.leader_epoch))

    def not_found(self, asked: Iterable[PendingRead], why: Refused, now: float) -> None:
        for reading in self._answered(asked):
            self._fail(reading, why, now)

    def _answered(self, asked: Iterable[PendingRead]) -> Iterator[Reading]:
        for reading, version, _ in asked:
            if self.is_current(reading, version):
                reading.is_asked = False
                yield reading

    def _found(self, reading: Reading, at: Position) -> None:
        reading.want = None
        reading.begin(at)

    def _start_over(self, reading: Reading, why: str) -> None:
        """To where auto.offset.reset says; `none` leaves that to the user."""
        reading.position = None
        reading.want = self._reset
        if self._reset is None:
            text = f"Partition {reading.partition}: {why}, and auto.offset.reset is none: seek first."
            self._need_seek(reading, Refused(Code.OFFSET_OUT_OF_RANGE, text))

    def _need_seek(self, reading: Reading, why: Refused) -> None:
        """Only the user knows where to go on; a seek answers it."""
        reading.position = reading.want = None
        self._tell(reading, why)

    def _fail(self, reading: Reading, why: Refused, now: float) -> None:
        """Try again after a while; what no other try can help is for the user to hear."""
        if why.code in RETRIABLE and why.code is not Code.CORRUPT_MESSAGE:
            reading.retry_at = now + self._backoff
        else:
            reading.retry_at = NEVER
            self._tell(reading, why)

    def _tell(self, reading: Reading, why: Refused) -> None:
        """The user hears of it at once, and again whenever there is nothing else to give, until a seek answers it."""
        if reading.failure is None:
            reading.failure = why
            self.failures.append(why)

    def _take_back(self, reading: Reading) -> None:
        """The partition can be read again."""
        if reading.failure is not None:
            self.failures = deque(each for each in self.failures if each is not reading.failure)
            reading.failure = None

    @property
    def standing_failure(self) -> Refused | None:
        """What keeps a partition from being read for now; None where all can be."""
        found = (each.failure for each in self._readings.values() if each.failure is not None)
        return next(found, None)

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
            if leader is not None and (leader == reading.leader or self._trusts(reading, leader)):
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
        asked: dict[TopicPartition, PendingRead] = {}
        for reading, leader in rows:
            partition = reading.partition
            row = topics.setdefault(partition.topic, FetchTopic(partition.topic))
            row.partitions.append(
                FetchPartition(
                    partition.partition,
                    leader.epoch,
                    reading.fetch_offset,
                    reading.epoch_before(reading.fetch_offset) if reading.leader_tells else NO_EPOCH,
                    partition_max_bytes=self._max_partition_bytes,
                )
            )
            reading.is_asked = True
            asked[partition] = PendingRead(reading, reading.version, reading.fetch_offset)
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
                    self._take_records(asked, row, now)
                is_stuck = asked.offset == asked.reading.fetch_offset and not asked.reading.is_caught_up
                if fetch.lane == _LANES[-1] and is_stuck:
                    # It was said to be there and is not: without a pause it would be asked for again and again.
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

    def _take_records(self, asked: PendingRead, row: FetchPartitionResponse, now: float) -> None:
        reading = asked.reading
        if row.diverging_epoch is not None:
            self._take_end(asked, EpochEnd(row.diverging_epoch.epoch, row.diverging_epoch.end_offset))
            return
        reading.leader_tells = False
        reading.end = row.last_stable_offset if self._read_committed else row.high_watermark
        records = row.records
        if records is None or len(records) == 0:
            return
        assert isinstance(records, memoryview)
        size, end, epochs = whole_batches(records)
        if not size:
            # A broker sends its first batch whole: this one is damaged. A good answer later takes the failure back.
            text = f"Partition {reading.partition}: no whole batch begins at offset {reading.fetch_offset}, its log is"
            self._tell(
                reading, Refused(Code.CORRUPT_MESSAGE, f"{text} damaged there. A seek past it goes on.")
            )
            reading.retry_at = now + self._backoff
            return
        if end <= reading.fetch_offset:
            return
        self._take_back(reading)
        aborted = tuple(row.aborted_transactions or ()) if self._read_committed else ()
        reading.chunks.append(Chunk(reading, records[:size], reading.fetch_offset, end, aborted))
        reading.note(epochs)
        reading.fetch_offset = end
        reading.buffered += size
        self._buffered += size
        self._queue(reading)
        self._readings[reading.partition] = self._readings.pop(reading.partition)

    # Logs that were cut and written anew (KIP-320)

    def _trusts(self, reading: Reading, leader: Leader) -> bool:
        """Whether a new leader's log surely has what was read; else it is asked before anything is fetched."""
        asked = PendingRead(reading, reading.version, reading.fetch_offset)
        if reading.leader is not None and NO_ID != leader.topic_id != reading.leader.topic_id != NO_ID:
            # Another topic of the same name: nothing of what was read is in its log.
            reading.leader = leader
            self._take_end(asked, EpochEnd(FIRST_EPOCH, 0))
            return not reading.is_asked
        epoch = reading.epoch_before(reading.fetch_offset)
        if NO_EPOCH in (epoch, leader.epoch) or epoch == leader.epoch:
            reading.leader, reading.leader_tells = leader, False
            return True
        reading.is_asked = True
        self._checks.append(Check(asked, leader, epoch))
        return False

    def checks(self) -> list[Check]:
        """What the last plan needs to know before it can fetch; asked for from here on."""
        found, self._checks = self._checks, []
        return found

    def checked(self, check: Check, found: EpochEnd | Refused, now: float) -> bool:
        """What a leader says to a check. True where what is known of leaders is stale."""
        asked = check.asked
        reading = asked.reading
        if not self.is_current(reading, asked.version):
            return False
        reading.is_asked = False
        if isinstance(found, Refused):
            if found.code is not Code.UNSUPPORTED_VERSION:
                self._fail(reading, found, now)
                return found.code in STALE
            reading.leader = check.leader  # an old broker cannot tell
        elif found.epoch < 0 and check.epoch > check.leader.epoch and reading.doubts < _DOUBTS:
            reading.doubts += 1
            reading.retry_at = now + self._backoff
            return True
        else:
            reading.leader, reading.leader_tells = check.leader, True
            self._take_end(asked, found)
        return False

    def _take_end(self, asked: PendingRead, found: EpochEnd) -> None:
        reading = asked.reading
        reading.doubts = 0
        if found.epoch < 0 or reading.divergence(found) is not None:
            reading.is_asked = True  # until the user's thread has settled it
            self.truncations.append(Truncation(asked, found))
        elif found.epoch < reading.epoch_before(reading.fetch_offset):
            # An epoch without records, which a leader told of when it was asked for an offset: no reason to ask again.
            reading.leader_tells = False

    def settle(self) -> list[str]:
        """Go back to where logs part, or fail where auto.offset.reset is none; what a user should be told."""
        told = []
        while self.truncations:
            asked, found = self.truncations.popleft()
            if self.is_current(asked.reading, asked.version):
                told += self._go_back(asked.reading, found)
        return told

    def _go_back(self, reading: Reading, found: EpochEnd) -> list[str]:
        partition, position = reading.partition, reading.position
        assert position is not None
        divergent = reading.divergence(found) if found.epoch >= 0 else None
        self._forget(reading)
        if divergent is not None and position <= divergent:
            reading.go_back(position)  # none of it has been given
        elif self._reset is None:
            self._need_seek(reading, truncated(partition, position, divergent))
        elif divergent is None:
            self._start_over(reading, "")
            return [
                f"Partition {partition}: {rewritten(position, None)}; going where auto.offset.reset says."
            ]
        else:
            reading.go_back(divergent, found.epoch if divergent == found.end else NO_EPOCH)
            return [
                f"Partition {partition}: {rewritten(position, divergent)}; going on from offset {divergent}."
            ]
        return []

"""Records on their way to a partition: the batch they wait in, and the handle their sender holds.

Filled by `producer`, kept by `accumulator`, told of by `sender`. Always holds: a batch is settled once, and then
every handle of its records has an answer; each callback is called once, whichever thread settles or asks first.
"""

from _thread import TIMEOUT_MAX, LockType, allocate_lock
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from barnabas.client.network.failures import TimedOut
from barnabas.client.network.guarded import show_failure
from barnabas.errors import BarnabasError
from barnabas.types import Buffer, Millis, Offset, TopicPartition
from barnabas.wire.batch import HEADER_SIZE
from barnabas.wire.records import Headers, decode_records, encode_flat

RECORD_OVERHEAD: Final = 32
"""No less than the lengths and deltas of a record take."""


class RecordMetadata(NamedTuple):
    """Where a record is stored; the offset is -1 with acks=0, or where only a lost answer had told it."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis


class Section(NamedTuple):
    """The record section of a wire batch, uncompressed."""

    body: Buffer
    count: int  # type: ignore[assignment]  # Kafka's word
    base_timestamp: int
    max_timestamp: int


class Carrier(Protocol):
    """What brings batches to their brokers, as a waiting thread sees it."""

    def wait(self, gate: LockType, timeout: float | None) -> bool:
        """Wait until the gate, a lock, is released; false after the timeout."""

    def nudge(self) -> None:
        """No thread is about to wait: be quick. Raises where batches are no longer brought."""


class Batch:
    """Records of one partition that are settled together, in flat lists, or as a section that was encoded before."""

    __slots__ = (
        "append_time",
        "base_offset",
        "callbacks",
        "carrier",
        "claim",
        "created",
        "failure",
        "halves",
        "headers",
        "hurry",
        "is_seen",
        "is_settled",
        "keys",
        "partition",
        "reserved",
        "room",
        "section",
        "timestamps",
        "values",
    )

    def __init__(self, partition: TopicPartition, reserved: int, created: float) -> None:
        self.partition = partition
        self.reserved = reserved
        """Bytes of buffer.memory that this batch holds until it is settled."""
        self.room = reserved
        """Bytes that records may still take: only `Producer.send` and the accumulator touch it."""
        self.created = created
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Headers] | None = None
        self.timestamps: list[int] = []
        self.section: Section | None = None
        self.is_settled = False
        self.is_seen = False
        """Its failure was told, or will be."""
        self.base_offset = -1
        self.append_time = -1
        self.failure: BarnabasError | None = None
        self.halves: tuple[Batch, Batch] | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.hurry: Callable[[TopicPartition], None] | None = None
        """Tells that a batch that would linger is waited for."""
        self.carrier: Carrier | None = None
        self.claim: list[Batch] | None = None
        """Holds the batch while more may come into it without the producer's lock, and no thread has it in hand."""

    @property
    def size(self) -> int:
        """About what its records take on the wire."""
        return HEADER_SIZE + self.reserved - self.room

    def __len__(self) -> int:
        return len(self.values) if self.section is None else self.section.count

    def add(self, value: bytes | None, key: bytes | None, headers: Headers, timestamp: int) -> int:
        """Append a record, whatever it has; the answer is its index."""
        values = self.values
        index = len(values)
        if key is not None and self.keys is None:
            self.keys = [None] * index
        if self.keys is not None:
            self.keys.append(key)
        if headers and self.headers is None:
            self.headers = [()] * index
        if self.headers is not None:
            self.headers.append(headers)
        values.append(value)
        self.timestamps.append(timestamp)
        return index

    def finish(self) -> None:
        """No more records. One whose `send` was interrupted halfway was never promised."""
        self.claim = None
        columns: list[list[Any]] = [self.values, self.timestamps]
        columns += [each for each in (self.keys, self.headers) if each is not None]
        whole = min(map(len, columns))
        for column in columns:
            del column[whole:]

    def settle(self, base_offset: int, append_time: int, failure: BarnabasError | None) -> None:
        """The end: what the records were made of is let go."""
        self.base_offset = base_offset
        self.append_time = append_time
        self.failure = failure
        # Handles may be kept for ever; they need the timestamps, and nothing else that is large.
        self.values, self.keys, self.headers, self.section, self.claim = [], None, None, None, None
        self.is_settled = True

    def tell(self) -> None:
        """Run the callbacks. Any thread, after `settle`."""
        callbacks = self.callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread was faster
                return
            try:
                callback()
            except Exception:
                show_failure()
            except BaseException:
                self.tell()  # the others have a right to know
                raise

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call it once, when the batch is settled or now. A batch that is split settles in its halves."""
        self.callbacks.append(callback)
        # Looked at afterwards: what settles or splits it meanwhile has seen the callback, or we see what it did.
        if self.is_settled:
            self.tell()
        elif self.halves is not None:
            self._follow_halves(self.halves)

    def split(self) -> "tuple[Batch, Batch]":
        """Two batches with the records of this one, which the broker found too large."""
        if self.section is not None:
            self._decode(self.section)
        middle = len(self.values) // 2
        halves = []
        for part in (slice(0, middle), slice(middle, None)):
            half = Batch(self.partition, self.reserved // 2, self.created)
            half.room = self.room // 2
            half.is_seen = self.is_seen
            half.carrier = self.carrier
            half.values = self.values[part]
            half.keys = None if self.keys is None else self.keys[part]
            half.headers = None if self.headers is None else self.headers[part]
            half.timestamps = self.timestamps[part]
            halves.append(half)
        halves[1].reserved = self.reserved - halves[0].reserved
        first, second = self.halves = halves[0], halves[1]
        self._follow_halves(self.halves)
        return first, second

    def _follow_halves(self, halves: "tuple[Batch, Batch]") -> None:
        """The callbacks of the whole wait for both halves."""
        while self.callbacks:
            try:
                both = _After(2, self.callbacks.pop(0))
            except IndexError:  # another thread was faster
                return
            for half in halves:
                half.when_settled(both)

    def _decode(self, section: Section) -> None:
        records = decode_records(bytes(section.body), section.count, 0, section.base_timestamp, None)
        self.values, self.keys = list(records.values), list(records.keys)
        self.headers, self.timestamps = list(records.headers), list(records.timestamps)
        self.section = None


class _After:
    """Calls an action when it was itself called a number of times, from any threads."""

    def __init__(self, times: int, action: Callable[[], None]) -> None:
        self._left = times
        self._action = action
        self._lock = allocate_lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._action()


def section_of(batches: Sequence[Batch]) -> Section:
    """One record section with the records of these batches, which are more than one only if none is encoded yet."""
    first = batches[0]
    if first.section is not None:
        return first.section
    values, keys, headers, timestamps = first.values, first.keys, first.headers, first.timestamps
    if len(batches) > 1:
        values, timestamps = [], []
        for batch in batches:
            values += batch.values
            timestamps += batch.timestamps
        if any(batch.keys is not None for batch in batches):
            keys = []
            for batch in batches:
                keys += batch.keys or [None] * len(batch.values)
        if any(batch.headers is not None for batch in batches):
            headers = [each for batch in batches for each in batch.headers or [()] * len(batch.values)]
    body = encode_flat(values, keys, headers, timestamps)
    return Section(body, len(values), timestamps[0], max(timestamps))


@mypyc_attr(acyclic=True, free_list_len=1)
class Sent:
    """A record on its way: a future. `result` waits for it, and says where it is stored or raises why it is not."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        batch, index = self._place()
        state = (
            "on its way" if not batch.is_settled else batch.failure or f"offset {batch.base_offset + index}"
        )
        return f"<Sent to {batch.partition}: {state}>"

    def done(self) -> bool:
        """Whether it is stored, or known not to be."""
        return self._place()[0].is_settled

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is stored. Raises why it is not, or TimedOut after the timeout."""
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        batch, index = self._place()
        timestamp = batch.timestamps[index] if batch.append_time < 0 else batch.append_time
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        return RecordMetadata(*batch.partition, Offset(offset), Millis(timestamp))

    def exception(self, timeout: float | None = None) -> BarnabasError | None:
        """Why the record is not stored; None if it is."""
        while True:
            batch, _ = self._place()
            batch.is_seen = True
            if batch.is_settled:
                return batch.failure
            if batch.hurry is not None:
                batch.hurry(batch.partition)
            wait_for([batch], timeout, "The record")

    def add_done_callback(self, callback: Callable[["Sent"], Any]) -> None:
        """Call it with this future when it is done; now, if it is done already.

        It is called in the client's own thread or in one that waits for a record: it must not wait itself.
        """
        batch = self._batch
        batch.is_seen = True
        batch.when_settled(partial(callback, self))
        nudge([batch])

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, _ = self._place()
        if batch.hurry is not None and not batch.is_settled:
            batch.hurry(batch.partition)
        self._batch.is_seen = True
        yield from settled_in_loop(self._batch)
        return self.result()

    def _place(self) -> tuple[Batch, int]:
        batch, index = self._batch, self._index
        while batch.halves is not None:
            first, second = batch.halves
            middle = len(first.timestamps)
            batch, index = (first, index) if index < middle else (second, index - middle)
        return batch, index


def settled_in_loop(batch: Batch) -> Generator[Any, None, None]:
    """Wait for a batch in the asyncio loop that runs now."""
    from asyncio import get_running_loop

    loop = get_running_loop()
    future = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def tell() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            return  # the loop is closed: nothing waits any more

    batch.when_settled(tell)
    nudge([batch])
    yield from future


def nudge(batches: Sequence[Batch]) -> None:
    """Have the first of these that is not settled carried soon, and the others with it. Raises in a forked process."""
    for batch in batches:
        if batch.carrier is not None and not batch.is_settled:
            batch.carrier.nudge()
            return


def wait_for(batches: Sequence[Batch], timeout: float | None, what: str) -> None:
    """Wait until all of these are settled; TimedOut after the timeout."""
    if timeout is not None and timeout != timeout:
        raise BarnabasError("A timeout is a number of seconds, not nan.")
    # A plain lock is a third of what an Event costs, and this is the path of `send().result()`.
    gate = allocate_lock()
    gate.acquire()
    all_done = gate.release if len(batches) == 1 else _After(len(batches), gate.release)
    for batch in batches:
        batch.when_settled(all_done)
    patience = None if timeout is None or timeout > TIMEOUT_MAX else max(timeout, 0.0)
    carrier = batches[0].carrier
    if carrier is not None:
        is_open = carrier.wait(gate, patience)
    else:
        is_open = gate.acquire(timeout=-1 if patience is None else patience)
    if not is_open:
        raise TimedOut(f"{what} is still on its way after {timeout:g} s.")

"""Owns what a partition remembers of its producers: their last five batches, epochs and open transactions.

The log calls `check` before it appends a client's batch (a refusal changes nothing) and `note` after it, `check_marker`
and `note_marker` for the end of a transaction, and `replay` for batches that were checked before: those of a leader,
and those read again at recovery. So a batch that is sent twice is stored once, and in order. It holds no file: the log
keeps `to_bytes()` as `<offset>.snapshot`, in Kafka's format, which has the last batch of a producer only;
`recent_batches` keeps the others.

A producer is forgotten a while after its last append, by the broker's clock: its records may be as old as they like.
What is read again, and whose time of append nothing tells, counts as appended when the log was opened: a producer
is rather remembered for too long than forgotten while it may still repeat a batch.
"""

from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from barnabas.errors import BarnabasError, Code, Refused
from barnabas.log.transactions.aborted import AbortedTransaction
from barnabas.log.transactions.markers import Marker, read_marker
from barnabas.log.transactions.verifications import ONGOING, TRUSTED, Verification, Verifications
from barnabas.types import NO_OFFSET, NO_TIMESTAMP, Buffer, Millis, Offset, ProducerId
from barnabas.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader

EXPIRATION_MS = 86_400_000
"""producer.id.expiration.ms, unless the broker says otherwise."""

KEPT_BATCHES = 5
"""A Java producer has at most five requests in flight, so none older can be repeated."""

_START = Offset(0)
_LAST_SEQUENCE = 2**31 - 1

_SNAPSHOT_VERSION = 1
_SNAPSHOT = Struct(">hIi")
_CRC_FROM = 6
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(BarnabasError):
    """A snapshot that cannot be believed: the log goes back to an older one, or reads its records again."""


class StoredBatch(NamedTuple):
    """Where a batch of a producer went. A repeated one is answered with this, and not stored."""

    first_sequence: int
    last_sequence: int
    first: Offset
    last: Offset
    timestamp: Millis


class EndedTransaction(NamedTuple):
    """A transaction whose marker has been written at `last`; `first` is its first record here.

    `last_stable` is where the first transaction began that was open then, or else what follows the marker.
    """

    producer_id: ProducerId
    first: Offset
    last: Offset
    aborted: bool
    last_stable: Offset

    @property
    def entry(self) -> AbortedTransaction:
        """What the segment's index keeps of it, if it was aborted."""
        return AbortedTransaction(self.producer_id, self.first, self.last, self.last_stable)


class ProducerState:
    """Mutable: what is remembered of one producer id."""

    __slots__ = (
        "appended",
        "batches",
        "coordinator_epoch",
        "epoch",
        "next_sequence",
        "timestamp",
        "transaction",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: list[StoredBatch] = []
        self.timestamp: Millis = NO_TIMESTAMP
        """The largest one in its last batch: what Kafka's snapshot has."""
        self.appended: Millis = NO_TIMESTAMP
        """When its last batch was appended, by the broker's clock."""
        self.coordinator_epoch = -1
        self.transaction: Offset = NO_OFFSET
        """The first offset of the transaction it has open; -1 when none is."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


def after(sequence: int) -> int:
    """The sequence number that follows: they wrap to 0 after 2^31-1."""
    return 0 if sequence == _LAST_SEQUENCE else sequence + 1


class ProducerStates:
    """Mutable: the producers of one partition, and the offset up to which their batches are in it."""

    __slots__ = ("_ended", "_open", "by_id", "end", "first_unstable", "verifications")

    def __init__(self, end: Offset = _START) -> None:
        self.by_id: dict[int, ProducerState] = {}
        self.end = end
        """Everything below is in this state: the next snapshot's name. The log moves it on each append."""
        self._open: dict[Offset, ProducerId] = {}  # in the order of offsets, because appends are
        self._ended: list[EndedTransaction] = []  # their markers are not below the high watermark yet
        self.first_unstable: Offset | None = None
        """The first offset of a transaction that is open, or whose end the high watermark has not passed."""
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self.by_id)

    def check(self, header: BatchHeader, verified: Verification | None = TRUSTED) -> StoredBatch | None:
        """Look at a client's batch before its append: None lets it in, a StoredBatch was here before.

        A producer that is not known may begin at any sequence number: its state expired or its records were
        deleted, and it would be stuck otherwise; but not under transaction.version 2, where another epoch heals it.
        `verified` counts for batches in a transaction; None says that they came without a transactional id.
        0.2 us when all is in order.
        """
        state = self.by_id.get(header.producer_id)
        if state is not None and header.producer_epoch == state.epoch:
            sequence = header.base_sequence
            if sequence != state.next_sequence:
                last_sequence = _last_sequence(sequence, header.last_offset_delta)
                for stored in state.batches:
                    if stored.first_sequence == sequence and stored.last_sequence == last_sequence:
                        return stored
                raise Refused(
                    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} sent sequence {sequence} where {state.next_sequence} is due",
                )
        elif state is not None:
            _check_new_epoch(header, state)
        if header.attributes & TRANSACTIONAL:
            if verified is not TRUSTED:
                self._check_transaction(header, state, verified)
        elif state is not None and state.transaction >= 0:
            raise Refused(
                Code.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open and sent a batch outside of it",
            )
        return None

    def check_own(self, header: BatchHeader, verified: Verification | None) -> None:
        """The same for a batch that this broker writes in a producer's name: it has no sequence number."""
        state = self.by_id.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            raise _fenced(header, state)
        if verified is not TRUSTED:
            self._check_transaction(header, state, verified)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written in a transaction that has not ended here: the coordinator knows of it."""
        state = self.by_id.get(producer_id)
        return state is not None and state.transaction >= 0 and state.epoch == epoch

    def _check_transaction(
        self, header: BatchHeader, state: ProducerState | None, verified: Verification | None
    ) -> None:
        if verified is None:
            raise Refused(
                Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch needs a request with a transactional id",
            )
        producer_id, sequence = header.producer_id, header.base_sequence
        if state is not None and state.transaction >= 0 and state.epoch == header.producer_epoch:
            return
        if verified is ONGOING or self.verifications.get(producer_id) is not verified:
            raise Refused(
                Code.INVALID_TXN_STATE,
                f"producer {producer_id} has no transaction open here, or it has ended meanwhile",
            )
        if sequence < 0:
            return
        if sequence > verified.lowest_sequence:
            raise Refused(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} sent sequence {sequence} before {verified.lowest_sequence}, "
                "which was sent earlier",
            )
        if verified.bumps_epochs and sequence and (state is None or not state.batches):
            raise Refused(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} is not known here and began with sequence {sequence} instead of 0",
            )

    def check_marker(self, header: BatchHeader, marker: Marker, transaction_version: int = 0) -> None:
        """Look at a transaction coordinator's marker before it is appended.

        Under transaction.version 2 its epoch is one above the transaction's: one that is not is late, and must not
        end a transaction that has begun since. One whose transaction it has ended before may come again.
        """
        state = self.by_id.get(header.producer_id)
        if state is None:
            return
        epoch = header.producer_epoch
        is_late = transaction_version >= 2 and epoch == state.epoch and state.transaction >= 0
        if epoch < state.epoch or is_late:
            raise _fenced(header, state)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise Refused(
                Code.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {state.coordinator_epoch}",
            )

    def note(self, header: BatchHeader, first: Offset, now: Millis) -> None:
        """Remember a batch of records that is in the log now, from offset `first` on. 0.7 us."""
        producer_id = header.producer_id
        last_delta = header.last_offset_delta
        timestamp = Millis(header.max_timestamp)
        state = self.by_id.get(producer_id)
        if state is None:
            state = self.by_id[producer_id] = ProducerState(header.producer_epoch)
        elif state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        sequence = header.base_sequence
        last_sequence = sequence + last_delta
        if last_sequence > _LAST_SEQUENCE or sequence < 0:
            last_sequence = _last_sequence(sequence, last_delta)
        batches = state.batches
        batches.append(StoredBatch(sequence, last_sequence, first, Offset(first + last_delta), timestamp))
        if len(batches) > KEPT_BATCHES:
            del batches[0]
        state.next_sequence = after(last_sequence)
        state.timestamp = timestamp
        state.appended = now
        if header.attributes & TRANSACTIONAL and state.transaction < 0:
            state.transaction = first
            self._open[first] = ProducerId(producer_id)
            self._find_unstable()
            self.verifications.pop(producer_id)

    def note_marker(
        self, header: BatchHeader, first: Offset, marker: Marker, now: Millis
    ) -> EndedTransaction | None:
        """Remember that a control batch ended the producer's transaction, if it had one open here."""
        producer_id = ProducerId(header.producer_id)
        state = self.by_id.get(producer_id)
        if state is None:
            state = self.by_id[producer_id] = ProducerState(header.producer_epoch)
        elif state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
            state.next_sequence = 0
        ended = None
        if state.transaction >= 0:
            self._open.pop(state.transaction, None)
            last_stable = next(iter(self._open), Offset(first + 1))
            ended = EndedTransaction(producer_id, state.transaction, first, not marker.commit, last_stable)
            self._ended.append(ended)
            self._find_unstable()
        self.verifications.pop(producer_id)
        state.transaction = NO_OFFSET
        state.coordinator_epoch = marker.coordinator_epoch
        state.timestamp = Millis(header.max_timestamp)
        state.appended = now
        return ended

    def replay(self, header: BatchHeader, batch: Buffer, now: Millis) -> EndedTransaction | None:
        """Apply a batch that a leader has checked before: offsets are as they stand in it.

        `now` counts as the time of its append. `batch` begins with the header; its records are read only where it
        is a control batch.
        """
        if header.producer_id < 0:
            return None
        first = Offset(header.base_offset)
        if not header.attributes & CONTROL:
            self.note(header, first, now)
            return None
        marker = read_marker(batch)
        # Once the cleaner has removed a whole transaction its marker goes too: an empty batch says nothing.
        return self.note_marker(header, first, marker, now) if marker else None

    def _find_unstable(self) -> None:
        """Transactions have begun or ended. Kept, because each fetch of each partition asks."""
        first = next(iter(self._open), None)
        for ended in self._ended:
            if first is None or ended.first < first:
                first = ended.first
        self.first_unstable = first

    def acknowledge(self, high_watermark: Offset) -> None:
        """Let go of the transactions whose markers are below the high watermark (or the log's start)."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended.last >= high_watermark]
            self._find_unstable()

    def expire(self, now: Millis, expiration_ms: int = EXPIRATION_MS) -> int:
        """Forget producers that appended nothing for this long and have no transaction open; returns their number."""
        limit = now - expiration_ms
        gone = [i for i, state in self.by_id.items() if state.appended <= limit and state.transaction < 0]
        for producer_id in gone:
            del self.by_id[producer_id]
        self.verifications.expire(Millis(limit))
        return len(gone)

    @property
    def last_append(self) -> Millis:
        """When the producers remembered here last appended something."""
        return max((state.appended for state in self.by_id.values()), default=NO_TIMESTAMP)

    def clear(self, end: Offset = _START) -> None:
        """Forget everything. A truncated log then loads the newest snapshot it has, and replays."""
        self.by_id.clear()
        self._open.clear()
        self._ended.clear()
        self.verifications.clear()
        self.first_unstable = None
        self.end = end

    def to_bytes(self) -> bytes:
        """The snapshot of this state."""
        entries = [_SNAPSHOT.pack(_SNAPSHOT_VERSION, 0, len(self.by_id))]
        for producer_id, state in self.by_id.items():
            last = state.batches[-1] if state.batches else None
            entries.append(
                _ENTRY.pack(
                    producer_id,
                    state.epoch,
                    last.last_sequence if last else -1,
                    last.last if last else -1,
                    last.last - last.first if last else 0,
                    state.timestamp,
                    state.coordinator_epoch,
                    state.transaction,
                )
            )
        data = bytearray(b"".join(entries))
        _SNAPSHOT.pack_into(data, 0, _SNAPSHOT_VERSION, crc32c(memoryview(data)[_CRC_FROM:]), len(self.by_id))
        return bytes(data)

    def load(self, data: bytes, end: Offset, now: Millis) -> None:
        """Become what a snapshot taken at `end` says; raises CorruptSnapshot. `expire` knows what is too old.

        `now` counts as the time of all appends: Kafka's format does not tell it.
        """
        if len(data) < _SNAPSHOT.size:
            raise CorruptSnapshot(f"the producer snapshot has {len(data)} bytes only")
        version, crc, count = _SNAPSHOT.unpack_from(data)
        if version != _SNAPSHOT_VERSION:
            raise CorruptSnapshot(
                f"the producer snapshot has version {version}; only {_SNAPSHOT_VERSION} is known"
            )
        if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
            raise CorruptSnapshot("the producer snapshot fails its checksum")
        if len(data) != _SNAPSHOT.size + count * _ENTRY.size:
            raise CorruptSnapshot(f"the producer snapshot promises {count} producers and has not as many")
        self.clear(end)
        for entry in _ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT.size :]):
            producer_id, epoch, last_sequence, last, delta, timestamp, coordinator_epoch, transaction = entry
            state = self.by_id[producer_id] = ProducerState(epoch)
            state.timestamp = timestamp
            state.appended = now
            state.coordinator_epoch = coordinator_epoch
            state.transaction = transaction
            if last >= 0:
                first_sequence = _first_sequence(last_sequence, delta)
                state.batches.append(
                    StoredBatch(first_sequence, last_sequence, last - delta, last, timestamp)
                )
                state.next_sequence = after(last_sequence)
        open_here = ((state.transaction, i) for i, state in self.by_id.items() if state.transaction >= 0)
        self._open.update((offset, ProducerId(i)) for offset, i in sorted(open_here))
        self._find_unstable()


def _last_sequence(first: int, last_delta: int) -> int:
    return -1 if first < 0 else (first + last_delta) & _LAST_SEQUENCE


def _first_sequence(last: int, last_delta: int) -> int:
    return -1 if last < 0 else (last - last_delta) & _LAST_SEQUENCE


def _check_new_epoch(header: BatchHeader, state: ProducerState) -> None:
    if header.producer_epoch < state.epoch:
        raise _fenced(header, state)
    if header.base_sequence != 0:
        raise Refused(
            Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} began epoch {header.producer_epoch} "
            f"with sequence {header.base_sequence} instead of 0",
        )


def _fenced(header: BatchHeader, state: ProducerState) -> Refused:
    return Refused(
        Code.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} sent epoch {header.producer_epoch}; {state.epoch} has taken over",
    )

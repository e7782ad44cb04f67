"""Decides what compaction leaves of a batch: bytes in, bytes out. Only the cleaner calls it, in a worker thread.

Of each key the record with the largest offset stays. Offsets and sequence numbers never change: a batch keeps its
range when records go out of it, and one that is needed for its range or its producer alone becomes an empty
header. Tombstones and the markers of vanished transactions stay until the delete horizon that is written into
their batch (as its base timestamp, attribute bit 6, as Kafka does) has passed.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.log.records import Span, record_section, spans
from barnabas.log.transactions.markers import read_marker
from barnabas.types import Millis, Offset
from barnabas.wire.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    seal,
)
from barnabas.wire.compression import compress
from barnabas.wire.records import varint

KEY_COST = 200
"""Bytes that a key costs in the map: the digest, the offset, and the dictionary's own share."""

_DIGEST = 16


def _digest() -> Callable[[bytes], bytes]:
    from hashlib import blake2b  # 3 ms to import: not at the broker's start

    return lambda key: blake2b(key, digest_size=_DIGEST).digest()


class KeyMap:
    """Mutable: the newest offset of each key in the part of a log that is being cleaned; bounded in size."""

    def __init__(self, max_bytes: int) -> None:
        self._newest: dict[bytes, int] = {}
        self._digest = _digest()
        self._room = max(max_bytes // KEY_COST, 1)

    @property
    def is_full(self) -> bool:
        """Looked at between batches only, so that each of them is in the map as a whole or not at all."""
        return len(self._newest) >= self._room

    def note(self, batch: memoryview, header: BatchHeader, start: Offset) -> None:
        """Take in the keys of a batch, from offset `start` on: 2 us a record."""
        newest, digest, base = self._newest, self._digest, header.base_offset
        section = record_section(batch, header)
        for span in spans(section, header.count):
            offset = base + span.offset_delta
            if span.key_end >= 0 and offset >= start:
                key = section[span.key_start : span.key_end]
                # A short key is its own digest: no digest is as short.
                newest[key if len(key) < _DIGEST else digest(key)] = offset

    def kept(self, section: bytes, header: BatchHeader, *, tombstones: bool) -> list[Span]:
        """The records of a batch that nothing newer replaces; without the tombstones where those may go."""
        newest, digest, base = self._newest.get, self._digest, header.base_offset
        out = []
        for span in spans(section, header.count):
            # A record without a key cannot be compacted; Kafka drops it, too.
            if span.key_end < 0 or not (span.has_value or tombstones):
                continue
            key = section[span.key_start : span.key_end]
            if base + span.offset_delta >= newest(key if len(key) < _DIGEST else digest(key), -1):
                out.append(span)
        return out


class Outcomes:
    """Mutable: how the transactions in a stretch of log ended. Fed with all its batches in order."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, list[tuple[int, int]]] = {}

    def note(self, batch: memoryview, header: BatchHeader) -> None:
        producer_id = header.producer_id
        if header.attributes & CONTROL:
            marker = read_marker(batch) if header.count else None
            if marker is not None:
                first = self._open.pop(producer_id, None)
                if first is not None and not marker.commit:
                    self._aborted.setdefault(producer_id, []).append((first, header.base_offset))
        elif header.attributes & TRANSACTIONAL:
            self._open.setdefault(producer_id, header.base_offset)

    @property
    def first_undecided(self) -> Offset | None:
        """Where the first transaction begins whose marker is not in the stretch."""
        return Offset(min(self._open.values())) if self._open else None

    def is_aborted(self, header: BatchHeader) -> bool:
        ranges = self._aborted.get(header.producer_id, ())
        return any(first <= header.base_offset < last for first, last in ranges)


class Survivor(NamedTuple):
    """A batch as it goes into the cleaned segment. `changed` says that it is not byte for byte what it was."""

    data: memoryview
    header: BatchHeader
    changed: bool


class Compactor:
    """Mutable: goes over the batches of a log in order and says what is left of each."""

    def __init__(
        self,
        keys: KeyMap,
        outcomes: Outcomes,
        *,
        mapped_to: Offset,
        now: Millis,
        delete_retention_ms: int,
        last_batches: Iterable[tuple[int, Offset, int]],
    ) -> None:
        """`last_batches`: of each producer its id, its last record's offset (-1: none) and its epoch."""
        self._keys = keys
        self._outcomes = outcomes
        self._mapped_to = mapped_to
        self._now = now
        self._horizon = now + delete_retention_ms
        self._last = {producer_id: (last, epoch) for producer_id, last, epoch in last_batches}
        self._seen: set[int] = set()

    def survivor(self, batch: memoryview, header: BatchHeader) -> Survivor | None:
        """What is left of a batch: to be asked once, and of one after the other."""
        if header.base_offset >= self._mapped_to:
            return Survivor(batch, header, False)
        is_control = header.attributes & CONTROL
        left = self._of_marker(batch, header) if is_control else self._of_records(batch, header)
        if left is None and self._is_last_of_producer(header):
            left = emptied(batch, header)
        return left

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a producer's state hangs on this batch: its last sequence number, or else its epoch."""
        last = self._last.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        if last[0] >= 0:
            return header.last_offset == last[0]
        return bool(header.attributes & CONTROL) and header.producer_epoch == last[1]

    def _of_records(self, batch: memoryview, header: BatchHeader) -> Survivor | None:
        attributes = header.attributes
        if attributes & TRANSACTIONAL:
            # Even when all of it goes now: its marker stays for another round, for readers that are under way.
            self._seen.add(header.producer_id)
            if self._outcomes.is_aborted(header):
                return None
        if not header.count:
            return None
        has_horizon = attributes & DELETE_HORIZON
        expired = has_horizon and header.base_timestamp <= self._now
        section = record_section(batch, header)
        kept = self._keys.kept(section, header, tombstones=not expired)
        if not kept:
            return None
        if not has_horizon and not all(span.has_value for span in kept):
            return _rebuilt(batch, header, section, kept, self._horizon)
        if len(kept) == header.count:
            return Survivor(batch, header, False)
        return _rebuilt(batch, header, section, kept, None)

    def _of_marker(self, batch: memoryview, header: BatchHeader) -> Survivor | None:
        if not header.count:
            return None
        if read_marker(batch) is None:
            return Survivor(batch, header, False)
        if header.producer_id in self._seen:
            self._seen.discard(header.producer_id)
            return Survivor(batch, header, False)
        if not header.attributes & DELETE_HORIZON:
            section = record_section(batch, header)
            return _rebuilt(batch, header, section, list(spans(section, header.count)), self._horizon)
        return None if header.base_timestamp <= self._now else Survivor(batch, header, False)


def _rebuilt(
    batch: memoryview, header: BatchHeader, section: bytes, kept: list[Span], horizon: int | None
) -> Survivor:
    """A batch of the kept records. With a new horizon their timestamps count from there."""
    base_timestamp = header.base_timestamp
    attributes = header.attributes
    if horizon is None:
        body = b"".join([section[span.start : span.end] for span in kept])
    else:
        parts: list[bytes] = []
        for span in kept:
            delta = varint(base_timestamp + span.timestamp_delta - horizon)
            rest = section[span.after_timestamp : span.end]
            parts += (varint(1 + len(delta) + len(rest)), b"\x00", delta, rest)
        body = b"".join(parts)
        attributes |= DELETE_HORIZON
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(base_timestamp + span.timestamp_delta for span in kept)
    codec = header.codec
    return _assembled(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp if horizon is None else horizon,
            max_timestamp=max_timestamp,
            count=len(kept),
        ),
        compress(codec, body) if codec else body,
    )


def emptied(batch: memoryview, header: BatchHeader) -> Survivor:
    """Only the header, for its offsets, sequence numbers and epochs."""
    if not header.count and header.batch_length + LOG_OVERHEAD == HEADER_SIZE:
        return Survivor(batch, header, False)
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _assembled(header._replace(attributes=attributes, base_timestamp=-1, count=0), b"")


def _assembled(header: BatchHeader, body: bytes) -> Survivor:
    size = HEADER_SIZE + len(body)
    header = header._replace(batch_length=size - LOG_OVERHEAD)
    data = bytearray(HEADER.pack(*header))
    data += body
    seal(data, 0, size)
    return Survivor(memoryview(data), header, True)

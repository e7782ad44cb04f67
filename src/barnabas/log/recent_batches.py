"""The bytes of `<offset>.producers`, our own file beside a producer snapshot; `snapshots` writes and reads it.

Kafka's format has room for the last batch of a producer. This file has all that are remembered, so that a batch that
is repeated after a restart is known, and the time of the last append, by which a producer is forgotten. It names the
snapshot it belongs to by that one's checksum: a file that is torn, damaged or another snapshot's is refused as a
whole, and what Kafka's snapshot says stands.
"""

from itertools import chain
from struct import Struct, error

from fastcrc.crc32 import iscsi as crc32c

from barnabas.log.producers import KEPT_BATCHES, CorruptSnapshot, ProducerStates, StoredBatch
from barnabas.types import Millis, Offset

_VERSION = 1
_HEAD = Struct(">hI")
_CRC_FROM = _HEAD.size
_BODY = Struct(">4si")
"""The snapshot's checksum, and the number of producers."""
_SNAPSHOT_CRC = slice(2, 6)
_PRODUCER = Struct(">qqb")
"""Its id, when it appended last, and the number of its batches."""
_BATCHES = [Struct(">" + "iiqqq" * count) for count in range(KEPT_BATCHES + 1)]
_FIELDS = len(StoredBatch._fields)


def encode(producers: ProducerStates, snapshot: bytes) -> bytes:
    """The file that belongs to this snapshot of these producers."""
    parts = [_BODY.pack(snapshot[_SNAPSHOT_CRC], len(producers))]
    for producer_id, state in producers.by_id.items():
        batches = state.batches
        parts.append(_PRODUCER.pack(producer_id, state.appended, len(batches)))
        parts.append(_BATCHES[len(batches)].pack(*chain.from_iterable(batches)))
    body = b"".join(parts)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def restore(producers: ProducerStates, data: bytes, snapshot: bytes) -> None:
    """Add what the file says to producers loaded from its snapshot; raises CorruptSnapshot and changes nothing."""
    try:
        known = _decode(data, snapshot)
    except (error, IndexError):
        raise CorruptSnapshot("its file of recent batches is cut short") from None
    if known.keys() != producers.by_id.keys() or any(
        _place_of_last(producers.by_id[producer_id].batches) != _place_of_last(batches)
        for producer_id, (_, batches) in known.items()
    ):
        raise CorruptSnapshot("its file of recent batches speaks of other producers")
    for producer_id, (appended, batches) in known.items():
        state = producers.by_id[producer_id]
        state.appended, state.batches = appended, batches


def _place_of_last(batches: list[StoredBatch]) -> tuple[int, ...] | None:
    """The last batch without its time: that of the snapshot is a marker's, where one has come behind it."""
    return batches[-1][:-1] if batches else None


def _decode(data: bytes, snapshot: bytes) -> dict[int, tuple[Millis, list[StoredBatch]]]:
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"its file of recent batches has version {version}; only {_VERSION} is known")
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise CorruptSnapshot("its file of recent batches fails its checksum")
    belongs_to, count = _BODY.unpack_from(data, _CRC_FROM)
    if belongs_to != snapshot[_SNAPSHOT_CRC]:
        raise CorruptSnapshot("its file of recent batches belongs to another snapshot")
    at = _CRC_FROM + _BODY.size
    known: dict[int, tuple[Millis, list[StoredBatch]]] = {}
    for _ in range(count):
        producer_id, appended, stored = _PRODUCER.unpack_from(data, at)
        at += _PRODUCER.size
        fields = _BATCHES[stored].unpack_from(data, at)
        at += _BATCHES[stored].size
        batches = [_batch(*fields[i : i + _FIELDS]) for i in range(0, len(fields), _FIELDS)]
        known[producer_id] = Millis(appended), batches
    return known


def _batch(first_sequence: int, last_sequence: int, first: int, last: int, timestamp: int) -> StoredBatch:
    return StoredBatch(first_sequence, last_sequence, Offset(first), Offset(last), Millis(timestamp))

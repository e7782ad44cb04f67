"""Record batches (magic 2): their header, their checksum, their records. Called by log, broker and client.

Brokers look at headers only (`headers`, `crc_of`); clients, the cleaner and the dump read and write records.
Always holds: nothing is believed before it is checked against the bytes at hand; what is broken is `Refused`.
The checksum is fastcrc's CRC-32C, which takes memoryviews in place: 0.09 us for 100 B, 18 us for 1 MiB,
import 1.1 ms (the package crc32c: 0.10 us, 37 us, 37 ms; google-crc32c takes bytes only).
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from fastcrc.crc32 import iscsi

from barnabas.errors import Code, Refused
from barnabas.types import Buffer, Offset
from barnabas.wire.compression import Compression, compress, decompress
from barnabas.wire.records import FlatRecords, corrupt, decode_records, encode_records
from barnabas.wire.records import Record as Record

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12
"""Bytes before those that `batch_length` counts."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
COUNT_AT = 57
RECORDS_AT = HEADER_SIZE

MAGIC = 2
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Set by compaction: the base timestamp tells when tombstones may go."""

DECODED_LIMIT = 128 * 1024 * 1024
"""What a batch may decompress to unless the caller says otherwise."""

crc32c = iscsi
"""CRC-32C of any buffer; a second argument goes on from the checksum of what came before."""

_CRC = Struct(">I")
_UNCHECKED = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii")
"""The header's two halves: the second is what the checksum covers, together with the records."""

_COMPRESSIONS = tuple(Compression)


class BatchHeader(NamedTuple):
    """The 61 bytes before the records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word; a header's equal fields are never counted

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> Compression:
        number = self.attributes & CODEC_MASK
        if number >= len(_COMPRESSIONS):
            raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression number {number}.")
        return _COMPRESSIONS[number]

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences wrap round to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at this place; only that it is all there has been checked."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, at))
    except StructError:
        raise corrupt("its header is cut short") from None


def headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Places and headers of the whole batches in a buffer; a batch cut off at the end is left out."""
    at = 0
    last = len(buffer) - HEADER_SIZE
    while at <= last:
        header = BatchHeader._make(HEADER.unpack_from(buffer, at))
        length = header.batch_length
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise corrupt(f"a length of {length}")
        following = at + length + LOG_OVERHEAD
        if following > len(buffer):
            return
        yield at, header
        at = following


def crc_of(buffer: Buffer, at: int, size: int) -> int:
    """The checksum that the batch of `size` bytes at this place ought to carry."""
    return crc32c(memoryview(buffer)[at + ATTRIBUTES_AT : at + size])


def seal(batch: bytearray | memoryview, at: int, size: int) -> None:
    """Write the right checksum into a batch whose header was changed."""
    _CRC.pack_into(batch, at + CRC_AT, crc_of(batch, at, size))


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    log_append_time: int | None = None,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
) -> bytes:
    """A batch of these records, whose offsets count from `base_offset` (0, 1, 2... for a producer).

    `last_offset_delta` is for compaction, which keeps a batch's range when its last records are gone.
    """
    base_timestamp = delete_horizon
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else -1
    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )
    if log_append_time is not None:
        max_timestamp = log_append_time
    else:
        max_timestamp = max((record.timestamp for record in records), default=-1)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset
    return wrap_records(
        b"".join(encode_records(records, base_offset, base_timestamp)),
        len(records),
        attributes=attributes,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )


def wrap_records(
    body: Buffer,
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    """A batch around a record section, which is compressed with the codec in `attributes`. 2 us, and one copy."""
    codec = _COMPRESSIONS[attributes & CODEC_MASK]
    if codec:
        body = compress(codec, body, level)
    fields = (
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return b"".join((*_start(fields, body, base_offset, leader_epoch), body))


def _start(fields: tuple[int, ...], body: Buffer, base_offset: int, leader_epoch: int) -> tuple[bytes, bytes]:
    """The header's two halves."""
    checked = _CHECKED.pack(*fields)
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    crc = crc32c(body, crc32c(checked))
    return _UNCHECKED.pack(base_offset, length, leader_epoch, MAGIC, crc), checked


class BatchInTwo:
    """A batch whose header and records lie apart, so that no megabyte is copied: a chunk for a sender of both."""

    __slots__ = ("body", "start")

    def __init__(self, start: bytes, body: Buffer) -> None:
        self.start = start
        self.body = body

    def __len__(self) -> int:
        return len(self.start) + len(self.body)


def wrap_apart(
    body: Buffer,
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    attributes: int = 0,
) -> BatchInTwo:
    """What `wrap_records` makes of a record section that is not to be compressed, without the copy."""
    numbers = (producer_id, producer_epoch, base_sequence)
    fields = (attributes, count - 1, base_timestamp, max_timestamp, *numbers, count)
    return BatchInTwo(b"".join(_start(fields, body, 0, -1)), body)


def decode_batch(buffer: Buffer, at: int = 0, *, max_bytes: int = DECODED_LIMIT) -> list[Record]:
    """The records of the batch at this place. The checksum is the caller's business."""
    columns = decode_flat(buffer, at, max_bytes=max_bytes)
    # tuple.__new__ takes the tuple that zip has made: 100 ns a record less than calling the class.
    return list(map(tuple.__new__, repeat(Record), zip(*columns, strict=True)))


def decode_flat(buffer: Buffer, at: int = 0, *, max_bytes: int = DECODED_LIMIT) -> FlatRecords:
    """The records of the batch at this place as columns, for callers that make their own objects of them."""
    header = read_header(buffer, at)
    if header.magic != MAGIC:
        raise Refused(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or at + header.size > len(buffer):
        raise corrupt(f"a length of {header.batch_length}")
    body = decompress(
        header.codec, memoryview(buffer)[at + RECORDS_AT : at + header.size], max_bytes=max_bytes
    )
    append_time = header.max_timestamp if header.is_log_append_time else None
    return decode_records(body, header.count, header.base_offset, header.base_timestamp, append_time)

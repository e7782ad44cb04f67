"""Record batches (magic 2): their header, their checksum, their records. Called by log, broker and client.

Brokers look at headers only (`headers`, `crc_of`); clients, the cleaner and the dump read and write records.
Always holds: nothing is believed before it is checked against the bytes at hand; what is broken is `Refused`.
The checksum is fastcrc's CRC-32C, which takes memoryviews in place: 0.09 us for 100 B, 18 us for 1 MiB,
import 1.1 ms (the package crc32c: 0.10 us, 37 us, 37 ms; google-crc32c takes bytes only).
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from fastcrc.crc32 import iscsi

from barnabas.errors import Code, Refused
from barnabas.types import Buffer, Offset
from barnabas.wire.compression import Compression, compress, decompress

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
    count: int  # type: ignore[assignment]  # Kafka's word; nobody counts equal fields of a header

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


class Record(NamedTuple):
    """One record as people see it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _corrupt(why: str) -> Refused:
    return Refused(Code.CORRUPT_MESSAGE, f"A record batch is malformed: {why}.")


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at this place; only that it is all there has been checked."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, at))
    except StructError:
        raise _corrupt("its header is cut short") from None


def headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Places and headers of the whole batches in a buffer; a batch cut off at the end is left out."""
    at = 0
    last = len(buffer) - HEADER_SIZE
    while at <= last:
        header = BatchHeader._make(HEADER.unpack_from(buffer, at))
        length = header.batch_length
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise _corrupt(f"a length of {length}")
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
    body = b"".join(encode_records(records, base_offset, base_timestamp))
    if codec:
        body = compress(codec, body, level)
    batch = bytearray(HEADER_SIZE + len(body))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(body),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER_SIZE:] = body
    seal(batch, 0, len(batch))
    return bytes(batch)


_SHORT_VARINTS = tuple((byte >> 1) ^ -(byte & 1) if byte < 0x80 else None for byte in range(256))
"""What a byte says as a varint; None where more bytes follow."""

_VARINTS: list[bytes] = []
"""Zigzag varints of 0, 1, 2..., made (1 ms) when the first batch is encoded: a broker may never need them."""


def varint(number: int) -> bytes:
    """A signed number, zigzag, seven bits a byte."""
    rest = (number << 1) ^ (number >> 63)
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> list[bytes]:
    """The pieces of a batch's record section, uncompressed, to be joined."""
    ready = _VARINTS
    if not ready:
        ready.extend(map(varint, range(4096)))
    limit = len(ready)
    out: list[bytes] = []
    # Hot: about 480 ns a record of 100 B (a loop with local names; most varints come from the table).
    for offset, timestamp, key, value, record_headers in records:
        delta = timestamp - base_timestamp
        timestamp_delta = ready[delta] if 0 <= delta < limit else varint(delta)
        delta = offset - base_offset
        offset_delta = ready[delta] if 0 <= delta < limit else varint(delta)
        if key is None:
            key_size, key = b"\x01", b""
            size = 1
        else:
            size = len(key)
            key_size = ready[size] if size < limit else varint(size)
            size += len(key_size)
        if value is None:
            value_size, value = b"\x01", b""
            size += 1
        else:
            length = len(value)
            value_size = ready[length] if length < limit else varint(length)
            size += length + len(value_size)
        packed = b"\x00" if not record_headers else _encode_headers(record_headers)
        size += 1 + len(timestamp_delta) + len(offset_delta) + len(packed)
        prefix = ready[size] if size < limit else varint(size)
        out += (prefix, b"\x00", timestamp_delta, offset_delta, key_size, key, value_size, value, packed)
    return out


def _encode_headers(record_headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    out = [varint(len(record_headers))]
    for name, value in record_headers:
        key = name.encode()
        out += (varint(len(key)), key)
        out += (b"\x01",) if value is None else (varint(len(value)), value)
    return b"".join(out)


def decode_batch(buffer: Buffer, at: int = 0, *, max_bytes: int = DECODED_LIMIT) -> list[Record]:
    """The records of the batch at this place. The checksum is the caller's business."""
    header = read_header(buffer, at)
    if header.magic != MAGIC:
        raise Refused(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or at + header.size > len(buffer):
        raise _corrupt(f"a length of {header.batch_length}")
    body = decompress(
        header.codec, memoryview(buffer)[at + RECORDS_AT : at + header.size], max_bytes=max_bytes
    )
    append_time = header.max_timestamp if header.is_log_append_time else None
    try:
        records = _decode_records(body, header.count, header.base_offset, header.base_timestamp, append_time)
    except (IndexError, UnicodeDecodeError):
        raise _corrupt("a record is cut short") from None
    return records


def _decode_records(
    body: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    # Hot: about 1.3 us a record of 100 B. A varint of one byte, the common one, is a table look-up.
    at = 0
    end_of_body = len(body)
    out: list[Record] = []
    short = _SHORT_VARINTS
    for _ in range(count):
        if (size := short[body[at]]) is not None:
            at += 1
        else:
            size, at = read_varint(body, at)
        end = at + size
        if size < 0 or end > end_of_body:
            raise _corrupt("a record reaches past its end")
        at += 1  # attributes, unused
        if (timestamp := short[body[at]]) is not None:
            at += 1
        else:
            timestamp, at = read_varint(body, at)
        if (offset := short[body[at]]) is not None:
            at += 1
        else:
            offset, at = read_varint(body, at)
        if (size := short[body[at]]) is not None:
            at += 1
        else:
            size, at = read_varint(body, at)
        if size < 0:
            key = None
        else:
            key = body[at : at + size]
            at += size
        if (size := short[body[at]]) is not None:
            at += 1
        else:
            size, at = read_varint(body, at)
        if size < 0:
            value = None
        else:
            value = body[at : at + size]
            at += size
        if body[at]:
            record_headers, at = _decode_headers(body, at, end)
        else:
            record_headers = ()
            at += 1
        if at != end:
            raise _corrupt("a record's length is wrong")
        timestamp = base_timestamp + timestamp if append_time is None else append_time
        out.append(Record(base_offset + offset, timestamp, key, value, record_headers))
    if at != end_of_body:
        raise _corrupt("there is more behind the last record")
    return out


def _decode_headers(body: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    if not 0 <= count <= end - at:
        raise _corrupt(f"a record with {count} headers")
    out: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(body, at)
        if not 0 <= size <= end - at:
            raise _corrupt("a header's name does not fit")
        name = body[at : at + size].decode()
        at += size
        size, at = read_varint(body, at)
        if size > end - at:
            raise _corrupt("a header's value does not fit")
        if size < 0:
            out.append((name, None))
        else:
            out.append((name, body[at : at + size]))
            at += size
    return tuple(out), at


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the place behind it."""
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    second = body[at + 1]
    if second < 0x80:
        number = byte & 0x7F | second << 7
        return (number >> 1) ^ -(number & 1), at + 2
    number = byte & 0x7F | (second & 0x7F) << 7
    for shift in range(14, 70, 7):
        at += 1
        byte = body[at + 1]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + 2
    raise _corrupt("a number of more than ten bytes")

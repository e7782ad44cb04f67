"""Encodes by hand the few frames that the bench sends itself, so that they are neutral to both brokers.

Called by server (probing) and by the workloads that send frames encoded beforehand. Every batch has a right
CRC.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

from fastcrc.crc32 import iscsi as crc32c

Check = Callable[[bytes], bool]
CLIENT_ID = b"bench"
API_PRODUCE, API_METADATA, API_VERSIONS = 0, 3, 18
PRODUCE_VERSION = 9
LENGTH_BYTES = 4
BATCH_HEADER_BYTES = 61


def api_versions_request() -> bytes:
    return frame(header(API_VERSIONS, 0))


def metadata_request() -> bytes:
    """Metadata v1 about no topic at all: brokers and the controller only."""
    return frame(header(API_METADATA, 1) + struct.pack(">i", 0))


def is_answer(answer: bytes) -> bool:
    return len(answer) >= 6 and struct.unpack_from(">h", answer, 4)[0] == 0


def names_a_broker(answer: bytes) -> bool:
    return len(answer) >= 8 and struct.unpack_from(">i", answer, 4)[0] >= 1


def ask(sock: socket.socket, request: bytes) -> bytes:
    """Sends one frame and returns the answer behind its length: correlation id and body."""
    sock.sendall(request)
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def produce_request(
    topic: str, partition: int, batch: bytes, *, acks: int = 1, timeout_ms: int = 30_000
) -> bytes:
    """A whole Produce v9 frame with one batch for one partition. See `error_offset` for the answer."""
    name = topic.encode()
    body = b"".join(
        (
            b"\x00",  # transactional id: null
            struct.pack(">hi", acks, timeout_ms),
            b"\x02",  # one topic
            uvarint(len(name) + 1),
            name,
            b"\x02",  # one partition
            struct.pack(">i", partition),
            uvarint(len(batch) + 1),
            batch,
            b"\x00\x00\x00",  # no tagged fields: partition, topic, request
        )
    )
    return frame(header(API_PRODUCE, PRODUCE_VERSION) + b"\x00" + body)


def error_offset(topic: str) -> int:
    """Where in the answer to produce_request (its length included) the partition's error code is."""
    # length, correlation id, no tags, one topic, its name, one partition, its index
    return 4 + 4 + 1 + 1 + (1 + len(topic.encode())) + 1 + 4


def batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """An uncompressed record batch of magic 2 without keys, headers or a producer id."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    count = len(values)
    covered = struct.pack(">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def batch_of_size(size: int, record_bytes: int, timestamp_ms: int) -> tuple[bytes, int]:
    """The largest batch of equal records that is no larger than `size`, and how many records it holds."""
    value = b"x" * record_bytes
    count = (size - BATCH_HEADER_BYTES) // len(_record(size, value))
    return batch([value] * count, timestamp_ms), count


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint(number: int) -> bytes:
    return uvarint((number << 1) ^ (number >> 63))


def _record(offset_delta: int, value: bytes) -> bytes:
    inner = b"\x00\x00" + varint(offset_delta) + b"\x01" + varint(len(value)) + value + b"\x00"
    return varint(len(inner)) + inner


def header(api: int, version: int) -> bytes:
    """Of a request before it was flexible; a flexible one has a 0 byte (no tagged fields) behind it."""
    return struct.pack(">hhih", api, version, 1, len(CLIENT_ID)) + CLIENT_ID


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

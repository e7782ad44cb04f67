"""Encodes by hand the few frames that the bench sends itself, so that they are neutral to both brokers.

Called by server (probing) and by the workloads that send frames encoded beforehand. Every batch has a right
CRC.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

Check = Callable[[bytes], bool]
CLIENT_ID = b"bench"
API_PRODUCE, API_FETCH, API_METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION, FETCH_VERSION = 9, 11
FLEXIBLE_PRODUCE = 9
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


def topic_request(topic: str) -> bytes:
    """Metadata v1 about one topic."""
    name = topic.encode()
    return frame(header(API_METADATA, 1) + struct.pack(">ih", 1, len(name)) + name)


class Partitions(NamedTuple):
    """What a broker says of a topic: how many of its partitions have a leader, and how many their full ISR."""

    all: int
    led: int
    in_sync: int

    @property
    def are_well(self) -> bool:
        return self.all > 0 and self.led == self.in_sync == self.all


def partitions_of(answer: bytes) -> Partitions:
    """Of the answer to topic_request."""
    read = _Reader(answer, 4)
    for _ in range(read.int32()):
        read.skip(4)
        read.text()
        read.skip(4)
        read.text()
    read.skip(4)
    every = led = in_sync = 0
    for _ in range(read.int32()):
        read.skip(2)
        read.text()
        read.skip(1)
        for _ in range(read.int32()):
            read.skip(2 + 4)
            leader = read.int32()
            replicas = read.array_of_int32()
            isr = read.array_of_int32()
            every += 1
            led += leader >= 0
            in_sync += isr == replicas
    return Partitions(every, led, in_sync)


class _Reader:
    """Mutable: where an answer is read."""

    def __init__(self, answer: bytes, at: int) -> None:
        self._answer, self._at = answer, at

    def skip(self, size: int) -> None:
        self._at += size

    def int32(self) -> int:
        (found,) = struct.unpack_from(">i", self._answer, self._at)
        self._at += 4
        return int(found)

    def text(self) -> None:
        (size,) = struct.unpack_from(">h", self._answer, self._at)
        self._at += 2 + max(0, size)

    def array_of_int32(self) -> int:
        """Its length."""
        count = self.int32()
        self._at += 4 * count
        return count


def ask(sock: socket.socket, request: bytes) -> bytes:
    """Sends one frame and returns the answer behind its length: correlation id and body."""
    sock.sendall(request)
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def produce_request(
    topic: str,
    partition: int,
    batch: bytes,
    *,
    acks: int = 1,
    timeout_ms: int = 30_000,
    version: int = PRODUCE_VERSION,
) -> bytes:
    """A whole Produce frame with one batch for one partition. See `error_offset` for the answer."""
    name = topic.encode()
    if version < FLEXIBLE_PRODUCE:
        body = b"".join(
            (
                struct.pack(">hhii", -1, acks, timeout_ms, 1),  # no transactional id; one topic
                struct.pack(">h", len(name)) + name,
                struct.pack(">iii", 1, partition, len(batch)),  # one partition
                batch,
            )
        )
        return frame(header(API_PRODUCE, version) + body)
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
    return frame(header(API_PRODUCE, version) + b"\x00" + body)


def error_offset(topic: str, version: int = PRODUCE_VERSION) -> int:
    """Where in the answer to produce_request (its length included) the partition's error code is."""
    if version < FLEXIBLE_PRODUCE:
        # length, correlation id, one topic, its name, one partition, its index
        return 4 + 4 + 4 + (2 + len(topic.encode())) + 4 + 4
    # length, correlation id, no tags, one topic, its name, one partition, its index
    return 4 + 4 + 1 + 1 + (1 + len(topic.encode())) + 1 + 4


def fetch_request(topic: str, offset: int, *, max_wait_ms: int = 500) -> bytes:
    """A whole Fetch v11 frame for partition 0 of one topic, which waits for the first byte."""
    name = topic.encode()
    body = b"".join(
        (
            # a consumer, its patience, 1 byte at least, 1 MiB at most, uncommitted, no session
            struct.pack(">iiiibii", -1, max_wait_ms, 1, 1 << 20, 0, 0, -1),
            struct.pack(">ih", 1, len(name)) + name,
            # partition 0, no leader epoch, where it reads from, no log start offset, 1 MiB at most
            struct.pack(">iiiqqi", 1, 0, -1, offset, -1, 1 << 20),
            struct.pack(">ih", 0, 0),  # nothing to forget, no rack
        )
    )
    return frame(header(API_FETCH, FETCH_VERSION) + body)


def fetch_offset_at(topic: str) -> int:
    """Where in the frame of fetch_request (its length included) the int64 is that it reads from."""
    return len(fetch_request(topic, 0)) - 6 - 4 - 8 - 8


def empty_fetch_bytes(topic: str) -> int:
    """How long an answer to fetch_request without records is, its length included."""
    # length, correlation id, throttle, error, session; topics, name; partitions, index, error, two watermarks, log
    # start, aborted transactions, replica to prefer, size of the records
    return 4 + 4 + 4 + 2 + 4 + 4 + (2 + len(topic.encode())) + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4


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

"""The answer to a fetch of one partition, made before its numbers and its records are there. For `repeated_fetch`.

Always holds: what is made here is what the general way would make, byte for byte.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from barnabas.disk import FileSlice
from barnabas.wire.encoding import put_varint
from barnabas.wire.frames import encode_response
from barnabas.wire.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse
from barnabas.wire.schema import Chunk

LOG_START_SINCE = 5
"""The oldest version that any client of today speaks."""

_COMPACT_SINCE = 12
_NUMBERS = Struct(">qqq")
_OPEN = -0x0102030405060708, -0x1112131415161718, -0x2122232425262728
_RECORDS = bytes(range(16, 64))
_INT32 = Struct(">i")


class FetchTemplate(NamedTuple):
    """An answer in pieces: the numbers and the records go in between."""

    pack: Callable[..., bytes]
    start: bytes
    middle: bytes
    end: bytes
    is_compact: bool

    def frame(
        self, correlation_id: int, high_watermark: int, last_stable: int, log_start: int, records: Any
    ) -> list[Chunk]:
        """The whole answer. Records are bytes, or a slice of a file, which stays a chunk of its own."""
        pack, start, middle, end, is_compact = self
        if is_compact:
            size = bytearray()
            put_varint(size, len(records) + 1)
        else:
            size = bytearray(_INT32.pack(len(records)))
        length = 28 + len(start) + len(middle) + len(size) + len(records) + len(end)
        head = pack(length, correlation_id, start, high_watermark, last_stable, log_start)
        if type(records) is FileSlice:
            return [b"".join((head, middle, size)), records, end]
        return [b"".join((head, middle, size, records, end))]


@lru_cache(4096)
def fetch_template(topic: str, index: int, version: int) -> FetchTemplate:
    """For one partition and one version of Fetch, from `LOG_START_SINCE` on."""
    row = FetchPartitionResponse(index, 0, *_OPEN, records=_RECORDS)
    chunks = encode_response(FetchResponse(responses=[FetchTopicResponse(topic, [row])]), version, 0)
    whole = b"".join(map(bytes, chunks))  # type: ignore[arg-type]
    at = whole.index(_NUMBERS.pack(*_OPEN))
    records_at = whole.index(_RECORDS, at)
    is_compact = version >= _COMPACT_SINCE
    size_at = records_at - (1 if is_compact else _INT32.size)
    start, middle, end = whole[8:at], whole[at + _NUMBERS.size : size_at], whole[records_at + len(_RECORDS) :]
    return FetchTemplate(Struct(f">ii{len(start)}sqqq").pack, start, middle, end, is_compact)

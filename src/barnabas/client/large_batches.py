"""Many records as columns of Python objects, found with numpy and cut out by Python. Used by `consumer_record`.

Always holds: it gives what `wire.records.decode_records` gives, or nothing: what is rare (headers, and broken bytes) is
left to that.
"""

from collections.abc import Sequence

import numpy as np

from barnabas.client.record_places import Body, record_places
from barnabas.client.varints import Ints, read_varints
from barnabas.errors import Refused
from barnabas.types import Buffer
from barnabas.wire.batch import DECODED_LIMIT, RECORDS_AT, BatchHeader, decode_flat
from barnabas.wire.compression import decompress
from barnabas.wire.records import FlatRecords


def decode_large(data: memoryview, at: int, header: BatchHeader) -> FlatRecords:
    """The records of the batch at this place, whose checksum is right. About 250 ns each, 450 ns with keys."""
    section: Buffer = data[at + RECORDS_AT : at + header.size]
    body = decompress(header.codec, section, max_bytes=DECODED_LIMIT)
    return decode_together([header], [body]) or decode_flat(data, at)


def decode_together(headers: Sequence[BatchHeader], bodies: Sequence[Buffer]) -> FlatRecords | None:
    """The records of several batches, whose bodies are decompressed; None where they are not of the plain kind."""
    places, size = [], 0
    for header, body in zip(headers, bodies, strict=True):
        places.append(Body(size, size + len(body), header, 0))
        size += len(body)
    joined = b"".join(bodies)
    try:
        return _decode(joined, places)
    except Refused:
        return None  # whoever reads them one by one can say which it is


def _decode(buffer: bytes, bodies: Sequence[Body]) -> FlatRecords | None:
    view = np.frombuffer(buffer, np.uint8)
    place, ends = record_places(buffer, view, bodies)
    timestamp, place = read_varints(view, place + 1)
    offset, place = read_varints(view, place)
    key_size, key_at = read_varints(view, place)
    value_size, value_at = read_varints(view, key_at + np.maximum(key_size, 0))
    place = value_at + np.maximum(value_size, 0)
    if not np.array_equal(place + 1, ends) or view[place].any():
        return None
    counts = [body.header.count for body in bodies]
    offset += np.repeat([body.header.base_offset for body in bodies], counts)
    for index, body in enumerate(bodies):
        if body.header.is_log_append_time:
            first = sum(counts[:index])
            timestamp[first : first + counts[index]] = body.header.max_timestamp - body.header.base_timestamp
    timestamp += np.repeat([body.header.base_timestamp for body in bodies], counts)
    return FlatRecords(
        offset.tolist(),
        timestamp.tolist(),
        _pieces(buffer, key_at, key_size),
        _pieces(buffer, value_at, value_size),
        [()] * len(ends),
    )


def _pieces(body: bytes, at: Ints, size: Ints) -> list[bytes | None]:
    is_null = size < 0
    if is_null.all():
        return [None] * len(at)
    pieces: list[bytes | None] = [
        body[start:end] for start, end in zip(at.tolist(), (at + size).tolist(), strict=True)
    ]
    for row in np.flatnonzero(is_null):
        pieces[row] = None
    return pieces

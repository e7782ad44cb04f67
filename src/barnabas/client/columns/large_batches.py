"""Many records as columns of Python objects, found with numpy and cut out by Python. Used by `consumer_record`.

Always holds: it gives what `wire.records.decode_records` gives, or nothing: what is rare (headers, and broken bytes) is
left to that.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from struct import Struct

import numpy as np

from barnabas.client.columns.record_places import Body, record_places
from barnabas.client.columns.varints import Ints, read_varints
from barnabas.errors import Refused
from barnabas.types import Buffer
from barnabas.wire.batch import DECODED_LIMIT, RECORDS_AT, BatchHeader, decode_flat
from barnabas.wire.compression import decompress
from barnabas.wire.records import FlatRecords

_AT_ONCE = 50
_SHORTEST_ROW = 64
"""Rows of pieces of one size are looked for where they have, on average, this many pieces."""


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
        return None  # a reader of single records can say which it is


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
        _counted(offset),
        _shared(timestamp),
        _pieces(buffer, key_at, key_size),
        _pieces(buffer, value_at, value_size),
        [()] * len(ends),
    )


def _counted(numbers: Ints) -> Sequence[int]:
    """Numbers without a hole need no objects before each is used."""
    first, count = int(numbers[0]), len(numbers)
    if numbers[-1] - first == count - 1 and (np.diff(numbers) == 1).all():
        return range(first, first + count)
    each: list[int] = numbers.tolist()
    return each


def _shared(numbers: Ints) -> Sequence[int]:
    """Many records are of the same millisecond: one object will do."""
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    out: list[int] = []
    if len(edges) * _SHORTEST_ROW > len(numbers):
        out = numbers.tolist()
    else:
        for first, end in pairwise(edges):
            out += [int(numbers[first])] * (end - first)
    return out


def _pieces(body: bytes, at: Ints, size: Ints) -> list[bytes | None]:
    """Cut out what lies at these places; null where the size is negative."""
    is_null = size < 0
    if is_null.all():
        return [None] * len(at)
    edges = _edges(at, size)
    if len(edges) * _SHORTEST_ROW < len(at):
        return [*chain.from_iterable(_row(body, at, size, *edge) for edge in pairwise(edges))]
    # 90 ns each.
    pieces: list[bytes | None] = [
        body[start:end] for start, end in zip(at.tolist(), (at + size).tolist(), strict=True)
    ]
    for row in np.flatnonzero(is_null):
        pieces[row] = None
    return pieces


def _edges(at: Ints, size: Ints) -> list[int]:
    """Where rows of pieces begin and end that are of one size and equally far apart."""
    step = np.diff(at)
    is_edge = np.empty(len(at), np.bool_)
    is_edge[:1] = True
    is_edge[1:] = size[1:] != size[:-1]
    is_edge[2:] |= step[1:] != step[:-1]
    return [*np.flatnonzero(is_edge).tolist(), len(at)]


def _row(body: bytes, at: Ints, size: Ints, first: int, end: int) -> Iterable[bytes | None]:
    """Pieces of one size, equally far apart: struct cuts out fifty at a time, at 17 ns each."""
    each = int(size[first])
    if each < 0:
        return [None] * (end - first)
    place = int(at[first])
    step = int(at[first + 1]) - place if end - first > 1 else each + 1
    out: list[bytes] = []
    # The last ones are cut one by one: behind the very last there may be less than between two.
    if blocks := (end - first - 1) // _AT_ONCE:
        cut = _cutter(each, step - each)
        for _ in range(blocks):
            out += cut.unpack_from(body, place)
            place += _AT_ONCE * step
    out += [body[start : start + each] for start in range(place, int(at[end - 1]) + 1, step)]
    return out


@lru_cache(maxsize=256)
def _cutter(size: int, gap: int) -> Struct:
    return Struct(f"{size}s{gap}x" * _AT_ONCE)

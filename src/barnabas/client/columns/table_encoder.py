"""Tables as the record sections of batches, ready to be sent. The encoding half of `columns`; used by send_table.

Always holds: rows of one partition stay in the order of the table; a key goes where `partitioner` sends it; what
comes out is what `wire.records.encode_flat` makes of the same rows.

How: a table is taken in slices of about 4 MiB, or 10,000 rows: larger ones do not fit the processor's cache, and numpy
takes 0.2 ms for a slice, however small. For each, numpy makes the varints before keys and values, and `interleave`
writes all pieces (varints, keys, varints, values, headers) in the order they have on the wire, partition by partition.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.columns.interleave import NOTHING, are_short, pieces, same, varints, weave
from barnabas.client.columns.key_hashes import murmur2_of
from barnabas.client.columns.table_slices import Pieces, Slice, columns_of, longest, slices_of
from barnabas.client.columns.varints import Ints, Offsets, Varints, varint_sizes
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import Buffer
from barnabas.wire.records import varint

_SLICE = 4 * 1024 * 1024
_MOST_SLICE = 4 * _SLICE
_AROUND = 32
"""Bytes that the lengths and deltas of a record take at most."""
_OFFSET_SIZE = 3
"""Bytes that the offset of a row in a slice takes at most: there are 10,000 rows at most."""

_NO_HEADERS = same(b"\x00")
_ZERO, _NO_KEY = Varints(np.array(0)), Varints(np.array(-1))


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """The uncompressed record section of one batch, its offsets 0 to `count` - 1; `wrap_records` makes the batch."""

    partition: int
    body: Buffer
    count: int
    base_timestamp: int
    max_timestamp: int


def encode(
    table: Any,
    *,
    partitions: int,
    key: str | None = None,
    value: str = "value",
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    now_ms: int,
    batch_bytes: int,
    first_turn: int = 0,
    largest: int | None = None,
) -> Iterator[EncodedRecords]:
    """Batches of a table's rows; `key`, `value`... name its columns. Arrow, pandas, polars, whatever speaks Arrow.

    Rows go to the partition they name, else by their key, else in turn, a batch to each partition, beginning with
    `first_turn`. Text is sent as UTF-8. Headers are a list of (key, value) structs or a map. Rows without a
    timestamp get `now_ms`; numbers are milliseconds. A row larger than `batch_bytes` is a batch of its own; one
    larger than `largest` is refused, before there is any batch.
    """
    names = {
        "key": key,
        "value": value,
        "headers": headers,
        "partition": partition,
        "timestamp": timestamp,
    }
    columns = columns_of(table, {role: name for role, name in names.items() if name is not None})
    if "partition" in columns:
        _check_partitions(columns["partition"], partitions)
    if "timestamp" in columns:
        _check_times(columns["timestamp"])
    if largest is not None:
        _check_sizes(columns, largest, now_ms)
    return _batches(columns, partitions, now_ms, batch_bytes, first_turn)


def _check_partitions(column: pa.ChunkedArray, partitions: int) -> None:
    """Looked at before the first row is sent, so that a wrong one does not leave half a table behind."""
    for named in _bounds(column):
        if not 0 <= named < partitions:
            raise Refused(
                Code.UNKNOWN_TOPIC_OR_PARTITION,
                f"A row names partition {named}, but the topic has {partitions}.",
            )


def _check_times(column: pa.ChunkedArray) -> None:
    for time in _bounds(column):
        if not 0 <= time < 1 << 63:
            raise BarnabasError(f"A row has the timestamp {time}: before 1970 there is none.")


def _bounds(column: pa.ChunkedArray) -> list[int]:
    """The least and the greatest of the numbers, if there are any."""
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    found = pc.min_max(plain.cast(pa.int64()) if pa.types.is_timestamp(plain.type) else plain).as_py()
    return [each for each in (found["min"], found["max"]) if each is not None]


def _check_sizes(columns: Mapping[str, pa.ChunkedArray], largest: int, now_ms: int) -> None:
    """As above. Row by row only where the longest key, value and headers would not fit together."""
    sized = [columns[role] for role in ("key", "value", "headers") if role in columns]
    if sum(map(longest, sized)) + _AROUND <= largest:
        return
    at = 0
    for rows in slices_of(columns, target_bytes=_SLICE, now_ms=now_ms):
        size = _sizes_alone(rows, None if rows.headers is None else _pack_headers(rows.headers))
        if size.max() > largest:
            row = int(size.argmax())
            text = f"Row {at + row} of the table takes {size[row]} bytes, but {largest} is the most."
            raise Refused(Code.MESSAGE_TOO_LARGE, text)
        at += len(rows)


def _sizes_alone(rows: Slice, headers: Pieces | None) -> Ints:
    """What each row takes in a batch of its own."""
    length = 3 + _taken(rows.value.size)
    length += 1 if rows.key is None else _taken(rows.key.size)
    length += 1 if headers is None else headers.size
    return length + varint_sizes(length)


def _batches(
    columns: Mapping[str, pa.ChunkedArray], partitions: int, now_ms: int, batch_bytes: int, turn: int
) -> Iterator[EncodedRecords]:
    # Enough of the table at once that every partition gets a batch worth sending.
    target = min(max(_SLICE, partitions * _SLICE // 64), _MOST_SLICE)
    for rows in slices_of(columns, target_bytes=target, now_ms=now_ms):
        headers = None if rows.headers is None else _pack_headers(rows.headers)
        size = _sizes(rows, headers)
        if rows.key is None and rows.partition is None:
            order = None
            starts, partition = _in_turn(size, partitions, batch_bytes, turn)
            turn += len(starts)
        else:
            partition, turn = _route(rows, size, partitions, batch_bytes, turn)
            order = _by_partition(partition)
            partition = partition[order]
            starts = _starts(partition, size[order], batch_bytes)
            partition = partition[starts]
        yield from _encode(rows, headers, now_ms, order, partition, starts)


def _sizes(rows: Slice, headers: Pieces | None) -> Ints:
    """What each row may take in a batch; a few bytes less, perhaps."""
    size = np.maximum(rows.value.size, 0)
    around = 2 + _OFFSET_SIZE + _longest(rows.value.size)
    if rows.key is not None:
        size += np.maximum(rows.key.size, 0)
        around += _longest(rows.key.size)
    if headers is not None:
        size += headers.size
    if rows.times is not None:
        around += _longest(rows.times - rows.times.min())
    around += 2  # where there is no key, no time, no header
    return size + around + _longest(size + around)


def _longest(numbers: Ints) -> int:
    """How many bytes the varint of the greatest takes."""
    return len(varint(int(numbers.max(initial=0))))


def _taken(size: Ints) -> Ints:
    """What bytes take with their length before them."""
    return np.maximum(size, 0) + varint_sizes(size)


def _route(rows: Slice, size: Ints, partitions: int, batch_bytes: int, turn: int) -> tuple[Ints, int]:
    """Each row's partition: the one it names, else its key's, else the one whose turn it is, batch by batch."""
    found = np.full(len(rows), -1, np.int64) if rows.partition is None else rows.partition.copy()
    if rows.key is not None:
        keyed = np.flatnonzero((found < 0) & (rows.key.size >= 0))
        hashes = murmur2_of(rows.key.buffer, rows.key.at[keyed], rows.key.size[keyed])
        found[keyed] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)
    free = np.flatnonzero(found < 0)
    if free.size:
        starts, whose = _in_turn(size[free], partitions, batch_bytes, turn)
        found[free] = np.repeat(whose, np.diff(np.append(starts, free.size)))
        turn += len(starts)
    return found, turn


def _in_turn(size: Ints, partitions: int, batch_bytes: int, turn: int) -> tuple[Ints, Ints]:
    """Where batches of rows without a partition of their own begin, and the partition of each, in turn."""
    starts = _cut(size, batch_bytes)
    return starts, (turn + np.arange(len(starts))) % partitions


def _by_partition(partition: Ints) -> Ints:
    """The order that brings rows of a partition together and keeps them in order."""
    if (partition == partition[0]).all():
        return np.arange(len(partition))
    # Up to 16 bits are sorted by their digits: 4 ns a row instead of 20.
    small = partition.astype(np.uint16) if partition.max() < 1 << 16 else partition
    return np.argsort(small, kind="stable")


def _starts(partition: Ints, size: Ints, batch_bytes: int) -> Ints:
    """Where batches begin in rows that are together by partition."""
    edges = [0, *(np.flatnonzero(np.diff(partition)) + 1), len(partition)]
    return np.concatenate([first + _cut(size[first:last], batch_bytes) for first, last in pairwise(edges)])


def _cut(size: Ints, batch_bytes: int) -> Ints:
    """Where batches begin, none larger than `batch_bytes` (unless of one row), and of about the same size."""
    ends = np.cumsum(size)
    total = int(ends[-1])
    if total <= batch_bytes:
        return np.zeros(1, np.int64)
    share = min(batch_bytes, total // -(-total // batch_bytes) + int(size.max()))
    starts = [0]
    while True:
        first = starts[-1]
        before = int(ends[first - 1]) if first else 0
        following = max(int(ends.searchsorted(before + share, "right")), first + 1)
        if following >= len(size):
            return np.array(starts)
        starts.append(following)


def _encode(
    rows: Slice, headers: Pieces | None, now_ms: int, order: Ints | None, partition: Ints, starts: Ints
) -> Iterator[EncodedRecords]:
    """Batches of rows in this order, None if it is the one they have; each begins at one of `starts`."""

    def sorted_(column: Ints) -> Ints:
        return column if order is None else column[order]

    edges = np.append(starts, len(rows))
    counts = np.diff(edges)
    offset = Offsets(counts.tolist())
    time = _ZERO
    first = last = np.full(len(starts), now_ms)
    if rows.times is not None:
        times = sorted_(rows.times)
        first = times[starts]
        last = np.maximum.reduceat(times, starts)
        time = Varints(times - np.repeat(first, counts))
    value = Varints(sorted_(rows.value.size))
    length = np.maximum(value.numbers, 0)
    length += offset.size
    length += value.size + time.size + 1
    length += 1 if headers is None else sorted_(headers.size)
    values = pieces(rows.value).of(order)
    if rows.key is None:
        before = [Varints(length + 1), _ZERO, time, offset, _NO_KEY, value]
        strands = [values]
    else:
        key = Varints(sorted_(rows.key.size))
        length += key.size
        length += np.maximum(key.numbers, 0)
        before = [Varints(length), _ZERO, time, offset, key]
        strands = [pieces(rows.key).of(order), varints(value, rows=len(rows)), values]
    tail, lead = NOTHING, 0
    if headers is not None:
        strands.append(pieces(headers).of(order))
    elif are_short(_ZERO, *before):
        # No headers are a byte, and a piece of its own takes as long as any: the next row begins with it instead.
        before, tail, lead = [_ZERO, *before], _NO_HEADERS, 1
    else:
        strands.append(_NO_HEADERS)
    strands.insert(0, varints(*before, rows=len(rows)))
    woven, places = weave(strands, len(rows), tail)
    body = memoryview(woven).cast("B")
    edges = places[len(strands) * edges] + lead
    for number, count in enumerate(counts.tolist()):
        yield EncodedRecords(
            partition=int(partition[number]),
            body=body[edges[number] : edges[number + 1]],
            count=count,
            base_timestamp=int(first[number]),
            max_timestamp=int(last[number]),
        )


def _pack_headers(rows: pa.Array) -> Pieces | None:
    """The headers of each row as the wire has them: how many, then each key and value; None if no row has any."""
    counts = pc.list_value_length(rows).fill_null(0).to_numpy().astype(np.int64)
    if not counts.any():
        return None
    keys, values = (Pieces(each) for each in pc.list_flatten(rows).flatten())
    if (keys.size < 0).any():
        raise BarnabasError("A header must have a key: there is one that is null.")
    every = len(keys.array)
    before, between = (varints(Varints(each.size), rows=every) for each in (keys, values))
    pairs, places = weave([before, pieces(keys), between, pieces(values)], every)
    # The headers of a row lie one behind the other.
    of_row = Pieces(_binary(pairs, places[4 * np.append(0, np.cumsum(counts))]))
    packed, places = weave([varints(Varints(counts), rows=len(rows)), pieces(of_row)], len(rows))
    return Pieces(_binary(packed, places[::2]))


def _binary(data: pa.Buffer, offsets: Ints) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)

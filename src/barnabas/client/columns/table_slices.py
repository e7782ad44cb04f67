"""A table's columns by the role they play in a record, in slices of plain arrays. Used by `table_encoder`.

Always holds: what cannot be sent is a `BarnabasError` before the first row is; a slice is bounded in bytes, whatever
the rows hold, because it is measured when it is cut.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.columns.varints import Bytes, Ints
from barnabas.errors import BarnabasError

_MOST_ROWS = 10_000
"""So few that numpy's columns stay below 128 KiB: for larger ones the C library gets new pages from the system every
time, and to touch those costs half as much as all the rest."""
_FAR_TOO_LARGE = 4
_LENGTH = 5
"""Bytes that the length of a header's key or value takes at most."""

HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


class Pieces:
    """A binary array with the places and sizes of what is in it; the size of null is -1."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        _, offsets, data = array.buffers()
        self.offsets: pa.Buffer = offsets.slice(array.offset * 4, (len(array) + 1) * 4)
        self.data: pa.Buffer = pa.py_buffer(b"") if data is None else data
        places = np.frombuffer(self.offsets, np.int32).astype(np.int64)
        self.at: Ints = places[:-1]
        self.size: Ints = places[1:] - places[:-1]
        self.bytes = int(places[-1] - places[0])
        if array.null_count:
            self.size[array.is_null().to_numpy(zero_copy_only=False)] = -1

    @property
    def buffer(self) -> Bytes:
        return np.frombuffer(self.data, np.uint8)


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rows of a table. `headers` is a list of structs of key and value; a partition of -1 is none."""

    value: Pieces
    key: Pieces | None
    headers: pa.Array | None
    partition: Ints | None
    times: Ints | None

    def __len__(self) -> int:
        return len(self.value.array)

    @property
    def bytes(self) -> int:
        size = self.value.bytes + (0 if self.key is None else self.key.bytes)
        return size + (0 if self.headers is None else _bytes_of(self.headers))


def slices_of(columns: Mapping[str, pa.ChunkedArray], *, target_bytes: int, now_ms: int) -> Iterator[Slice]:
    """All rows in order, in slices of about `target_bytes`."""
    total = len(columns["value"])
    size = sum(map(_bytes_of, columns.values()))
    at = 0
    while at < total:
        rows = _fair_share(total - at, min(max(1, total * target_bytes // max(size, 1)), _MOST_ROWS))
        found = _slice(columns, at, rows, now_ms)
        while found is None or (rows > 1 and found.bytes > _FAR_TOO_LARGE * target_bytes):
            rows = max(1, rows // 8)
            found = _slice(columns, at, rows, now_ms)
        yield found
        at += rows


def _bytes_of(column: pa.Array | pa.ChunkedArray) -> int:
    try:
        return int(column.nbytes)
    except pa.ArrowException:  # of views, as polars has them, only newer pyarrows know what a part takes
        return int(column.get_total_buffer_size())


def _fair_share(left: int, most: int) -> int:
    """At most `most` rows, and in the end not a small rest."""
    return -(-left // -(-left // most))


def _slice(columns: Mapping[str, pa.ChunkedArray], at: int, rows: int, now_ms: int) -> Slice | None:
    """These rows; None if 32 bits cannot count their bytes."""
    found = {role: _one_array(column.slice(at, rows)) for role, column in columns.items()}
    try:
        return Slice(
            value=Pieces(_bytes(found["value"])),
            key=Pieces(_bytes(found["key"])) if "key" in found else None,
            headers=found["headers"].cast(HEADERS) if "headers" in found else None,
            partition=_partitions(found["partition"]) if "partition" in found else None,
            times=_times(found["timestamp"], now_ms) if "timestamp" in found else None,
        )
    except pa.ArrowInvalid as error:
        if rows == 1:
            raise BarnabasError(f"Row {at} of the table cannot be sent: {error}") from None
        return None


def longest(column: pa.ChunkedArray) -> int:
    """No row of keys, values or headers has more bytes than this. 0.2 ns a row."""
    return max(map(_longest, column.chunks), default=0)


def _longest(array: pa.Array) -> int:
    kind = array.type
    if not len(array) or kind == pa.null():
        return 0
    if pa.types.is_dictionary(kind):
        return _longest(array.dictionary)
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        most = int(np.diff(array.offsets.to_numpy()).max(initial=0))
        parts = (array.keys, array.items) if pa.types.is_map(kind) else array.values.flatten()
        return most * sum(_longest(part) + _LENGTH for part in parts)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # Sixteen bytes a row, of which the first four are the length; those of a null mean nothing.
        views = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)
        return int(views[::4].max(initial=0))
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        places = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
        return int((places[1:] - places[:-1]).max())
    return pc.max(pc.binary_length(array)).as_py() or 0


def columns_of(table: Any, names: Mapping[str, str]) -> dict[str, pa.ChunkedArray]:
    """The columns that are to be sent, by the role they play."""
    if hasattr(table, "collect_schema") and not hasattr(table, "to_arrow"):
        raise BarnabasError(f"A {type(table).__name__} is no table yet: collect() it first.")
    has: list[Any] = list(getattr(table, "column_names" if hasattr(table, "column_names") else "columns", ()))
    for name in names.values():
        if has and has.count(name) != 1:
            count = f"{has.count(name)} columns" if name in has else "no column"
            raise BarnabasError(f"The table has {count} {name!r}: it has {', '.join(map(str, has))}.")
    wanted = list(dict.fromkeys(names.values()))
    try:
        if isinstance(table, pa.RecordBatch):
            arrow = pa.Table.from_batches([table.select(wanted)])
        elif isinstance(table, pa.Table):
            arrow = table.select(wanted)
        else:
            arrow = pa.table(table[wanted] if has else table)
        columns = {role: arrow.column(name) for role, name in names.items()}
    except (TypeError, ValueError, KeyError, pa.ArrowException) as error:
        raise BarnabasError(f"This is no table of columns that can be sent: {error}") from None
    for role, column in columns.items():
        _check_type(role, names[role], column.type)
    return columns


def _check_type(role: str, name: str, found: pa.DataType) -> None:
    kind = found.value_type if pa.types.is_dictionary(found) else found
    match role:
        case "key" | "value":
            is_right = kind == pa.null() or _is_bytes(kind)
            wanted = "binary or text: cast it first, or make it JSON"
        case "partition":
            is_right = pa.types.is_integer(kind)
            wanted = "a whole number"
        case "timestamp":
            is_right = pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
            wanted = "a timestamp or milliseconds as a whole number"
        case _:
            is_right = kind == pa.null() or _is_headers(kind)
            wanted = "a list of structs of key and value, or a map, of binary or text"
    if not is_right:
        raise BarnabasError(f"Column {name!r} is {found}, but the {role} of a record must be {wanted}.")


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (
            types.is_binary,
            types.is_string,
            types.is_large_binary,
            types.is_large_string,
            types.is_binary_view,
            types.is_string_view,
            types.is_fixed_size_binary,
        )
    )


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_bytes(kind.key_type) and (_is_bytes(kind.item_type) or kind.item_type == pa.null())
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return fields.keys() == {"key", "value"} and all(
        _is_bytes(each) or each == pa.null() for each in fields.values()
    )


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary.cast(pa.binary()).take(column.indices)
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _partitions(column: pa.Array) -> Ints:
    """What the rows say; -1 where they say nothing."""
    found: Ints = column.cast(pa.int64()).fill_null(-1).to_numpy()
    return found


def _times(column: pa.Array, now_ms: int) -> Ints:
    """Milliseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    found: Ints = column.cast(pa.int64()).fill_null(now_ms).to_numpy()
    return found

"""Fetched record batches as Arrow columns, and Arrow columns as record batches: no Python object for any record.

Used by Consumer.poll_arrow, `partition_reader` (and through it Spark) and Producer.send_table. Needs numpy and
pyarrow (`pip install barnabas[columns]`), so nothing imports it before columns are asked for.

Always holds: what `decode` gives is what `wire.batch.decode_batch` gives, record for record; only the columns asked
for are made; broken bytes are `Refused` (CORRUPT_MESSAGE).

How: `record_places` finds where records begin, then each field of all records is read at once. Keys and values
are cut out by Arrow's `take`: in a binary array over the fetched bytes whose offsets run start, end, start, end...
the values are at the even places.
"""

from collections.abc import Collection, Sequence

from barnabas.errors import BarnabasError

try:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
except ImportError as missing:
    raise BarnabasError(
        f"Columns need {missing.name}, which is not installed: pip install barnabas[columns]."
    ) from None

from barnabas.client.columns.record_places import MOST_BYTES, Body, Fetched, gather, record_places
from barnabas.client.columns.table_encoder import EncodedRecords, encode
from barnabas.client.columns.varints import Bytes, Ints, corrupt, read_varints
from barnabas.wire.batch import DECODED_LIMIT
from barnabas.wire.records import read_varint

__all__ = ["COLUMNS", "SCHEMA", "EncodedRecords", "Fetched", "decode", "encode", "schema_of"]

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""All columns, with the names and types of Spark's Kafka source; a record without headers has null there."""

COLUMNS = tuple(SCHEMA.names)

_LATEST = np.iinfo(np.int64).max
_MOST_MILLIS = _LATEST // 1000
_FEW = 8
"""Fewer records than this are read one by one: a round of numpy takes 25 us."""

_READ_UP_TO = ("timestamp", "offset", "key", "value", "headers")
"""The fields of a record in the order they are written: to read one, those before it have to be passed."""


def decode(
    fetched: Sequence[Fetched],
    columns: Collection[str] | None = None,
    *,
    check_crcs: bool = True,
    max_batch_bytes: int = DECODED_LIMIT,
) -> pa.RecordBatch:
    """The records of these batches as one Arrow batch with these columns, in the order given; None means all.

    Feed it about 4 MiB at a time: smaller chunks pay for each step of numpy.
    A timestamp that microseconds cannot tell becomes the nearest that they can.
    """
    schema = schema_of(columns)
    buffer, bodies = gather(fetched, check_crcs=check_crcs, max_batch_bytes=max_batch_bytes)
    rows = _Rows(fetched, buffer, bodies)
    if len(rows):
        rows.read(schema.names)
    if not len(rows):
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    if not schema.names:
        # Only a struct array can say how many rows have no columns.
        none = pa.StructArray.from_buffers(pa.struct([]), len(rows), [None])
        return pa.RecordBatch.from_struct_array(none)
    return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)


def schema_of(columns: Collection[str] | None) -> pa.Schema:
    """The schema of what `decode` gives for these columns."""
    if columns is None:
        return SCHEMA
    for name in columns:
        if name not in COLUMNS:
            raise BarnabasError(f"There is no column {name!r}: there are {', '.join(COLUMNS)}.")
    return pa.schema([SCHEMA.field(name) for name in columns])


class _Rows:
    """The records being taken apart: arrays with an entry for each, `_at` being where each one's next field begins."""

    def __init__(
        self, fetched: Sequence[Fetched], buffer: bytes | memoryview, bodies: Sequence[Body]
    ) -> None:
        self._fetched = fetched
        self._bodies = bodies
        self._bytes = buffer
        self._buffer = pa.py_buffer(buffer)
        self._view: Bytes = np.frombuffer(buffer, np.uint8)
        self._at, self._end = record_places(buffer, self._view, bodies)
        self._batch: Ints = np.repeat(np.arange(len(bodies)), [body.header.count for body in bodies])
        self._offset = self._timestamp = self._header_count = np.empty(0, np.int64)
        self._key = self._value = (self._at, self._at)

    def __len__(self) -> int:
        return len(self._end)

    def read(self, wanted: Collection[str]) -> None:
        """Go through the fields of all records in the order they are written, as far as they are wanted."""
        is_cut = any(body.is_cut(self._fetched[body.source]) for body in self._bodies)
        last = max((_READ_UP_TO.index(name) for name in wanted if name in _READ_UP_TO), default=-1)
        if is_cut or last >= _READ_UP_TO.index("timestamp"):
            delta, self._at = read_varints(self._view, self._at + 1)  # behind a byte of attributes, unused
            self._timestamp = self._of_batch([body.header.base_timestamp for body in self._bodies]) + delta
        if is_cut or last >= _READ_UP_TO.index("offset"):
            delta, self._at = read_varints(self._view, self._at)
            self._offset = self._of_batch([body.header.base_offset for body in self._bodies]) + delta
        if is_cut:
            self._keep_wanted()
        if last >= _READ_UP_TO.index("key"):
            self._key = self._read_bytes()
        if last >= _READ_UP_TO.index("value"):
            self._value = self._read_bytes()
        if last >= _READ_UP_TO.index("headers"):
            self._header_count, self._at = read_varints(self._view, self._at)
        if (self._at > self._end).any():
            raise corrupt("a record's length is wrong")

    def column(self, name: str) -> pa.Array:
        match name:
            case "key":
                return self._cut_out(*self._key)
            case "value":
                return self._cut_out(*self._value)
            case "topic":
                return self._topics()
            case "partition":
                return self._numbers([self._fetched[body.source].partition for body in self._bodies])
            case "offset":
                return pa.array(self._offset)
            case "timestamp":
                return self._timestamps()
            case "timestampType":
                return self._numbers([body.header.is_log_append_time for body in self._bodies])
            case _:
                return self._headers()

    def _of_batch(self, numbers: Sequence[int]) -> Ints:
        """For each record what its batch says."""
        return np.array(numbers, np.int64)[self._batch]

    def _numbers(self, numbers: Sequence[int]) -> pa.Array:
        return pa.array(np.array(numbers, np.int32)[self._batch])

    def _keep_wanted(self) -> None:
        """Drop the records of batches at the edges that lie outside of what was asked for."""
        sources = [self._fetched[body.source] for body in self._bodies]
        start = self._of_batch([source.start for source in sources])
        end = self._of_batch([_LATEST if source.end is None else source.end for source in sources])
        kept = np.flatnonzero((self._offset >= start) & (self._offset < end))
        self._at, self._end, self._batch = self._at[kept], self._end[kept], self._batch[kept]
        self._offset, self._timestamp = self._offset[kept], self._timestamp[kept]

    def _read_bytes(self) -> tuple[Ints, Ints]:
        """Where a key or a value of each record lies and how long it is; -1 is null."""
        at, size, self._at = _read_bytes(self._view, self._at)
        return at, size

    def _cut_out(self, at: Ints, size: Ints) -> pa.Array:
        return _cut_out(self._buffer, at, size, pa.binary())

    def _timestamps(self) -> pa.Array:
        millis = self._timestamp
        headers = [body.header for body in self._bodies]
        if any(header.is_log_append_time for header in headers):
            appended = self._of_batch([header.max_timestamp for header in headers])
            millis = np.where(
                self._of_batch([header.is_log_append_time for header in headers]), appended, millis
            )
        micros = np.clip(millis, -_MOST_MILLIS, _MOST_MILLIS) * 1000
        return pa.array(micros).view(SCHEMA.field("timestamp").type)

    def _topics(self) -> pa.Array:
        topics = [each.topic for each in self._fetched]
        if len(set(topics)) == 1:
            return pa.repeat(pa.scalar(topics[0], pa.string()), len(self))
        return pa.array(topics, pa.string()).take(
            pa.array(self._of_batch([body.source for body in self._bodies]))
        )

    def _headers(self) -> pa.Array:
        """Headers are read in rounds: the first of every record, the second of those that have two..."""
        count = self._header_count
        if (count < 0).any() or (count > self._end - self._at).any():
            raise corrupt("a record's headers do not fit")
        at = self._at.copy()
        having = np.flatnonzero(count)
        found: list[tuple[Ints, Ints, Ints, Ints]] = []
        read = 0
        while having.size:
            name_at, name_size, behind = _read_bytes(self._view, at[having])
            value_at, value_size, behind = _read_bytes(self._view, behind)
            found.append((name_at, name_size, value_at, value_size))
            at[having] = behind
            read += 1
            having = having[count[having] > read]
            if having.size < _FEW:
                break
        for row in having:
            few, at[row] = _read_headers(
                self._bytes, int(at[row]), int(self._end[row]), int(count[row]) - read
            )
            found.append(few)
        if not np.array_equal(at, self._end):
            raise corrupt("a record's length is wrong")
        if any((name_size < 0).any() for _, name_size, _, _ in found):
            raise corrupt("a header without a name")
        type_ = SCHEMA.field("headers").type
        if not found:
            return pa.nulls(len(self), type_)
        name_at, name_size, value_at, value_size = (np.concatenate(each) for each in zip(*found, strict=True))
        order = name_at.argsort()  # the order they are written in: record by record
        names = _cut_out(self._buffer, name_at[order], name_size[order], pa.string())
        try:
            names.validate(full=True)
        except pa.ArrowInvalid:
            raise corrupt("a header's name is not UTF-8") from None
        values = _cut_out(self._buffer, value_at[order], value_size[order], pa.binary())
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(count, out=offsets[1:])
        pairs = pa.StructArray.from_arrays([names, values], fields=list(type_.value_type))
        return pa.Array.from_buffers(
            type_, len(self), [_bitmap(count > 0), pa.py_buffer(offsets)], children=[pairs]
        )


def _read_bytes(view: Bytes, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Where bytes with a length before them lie, that length (-1 for null), and where they end."""
    size, at = read_varints(view, at)
    # A length beyond what a buffer can hold must not overflow the place behind it.
    if (size > MOST_BYTES).any():
        raise corrupt("a length reaches past its end")
    return at, size, at + np.maximum(size, 0)


def _read_headers(
    buffer: bytes | memoryview, start: int, end: int, count: int
) -> tuple[tuple[Ints, Ints, Ints, Ints], int]:
    """As many headers of one record, one by one, for a record that has more than nearly all others."""
    places: list[tuple[int, int, int, int]] = []
    record = bytes(buffer[start:end])
    at = 0
    try:
        for _ in range(count):
            name_size, name_at = read_varint(record, at)
            value_size, value_at = read_varint(record, name_at + max(name_size, 0))
            places.append((name_at, name_size, value_at, value_size))
            at = value_at + max(value_size, 0)
    except IndexError:
        raise corrupt("a record is cut short") from None
    names, name_sizes, values, value_sizes = np.array(places, np.int64).T
    return (start + names, name_sizes, start + values, value_sizes), start + at


def _cut_out(buffer: pa.Buffer, at: Ints, size: Ints, type_: pa.DataType) -> pa.Array:
    """The pieces of a buffer at these places, which must be in order. 11 ns for 100 B."""
    rows = len(at)
    valid = size >= 0
    nulls = rows - int(np.count_nonzero(valid))
    if nulls == rows:
        return pa.nulls(rows, type_)
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2] = at
    offsets[1::2] = at + np.maximum(size, 0)
    pieces = pa.Array.from_buffers(type_, 2 * rows - 1, [None, pa.py_buffer(offsets), buffer])
    taken = pieces.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    if not nulls:
        return taken
    return pa.Array.from_buffers(type_, rows, [_bitmap(valid), *taken.buffers()[1:]], null_count=nulls)


def _bitmap(valid: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))

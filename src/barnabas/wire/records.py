"""The record section of a batch, uncompressed: records in, bytes out, and back. Called by `batch` and by clients.

Always holds: nothing is believed before it is checked against the bytes at hand; what is broken is `Refused`.
The hot loops are plain Python with local names: compared with numpy (980 ns a record at 2,000 records a batch)
they win for lists of objects, and the broker stays light. Columns have their own way, in `client.columns`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, count, repeat
from typing import Any, Final, NamedTuple, TypeAlias, cast

from barnabas.errors import Code, Refused

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_Row: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]
"""What a `Record` is too: offset, timestamp, key, value, headers."""


class Record(NamedTuple):
    """One record as people see it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def corrupt(why: str) -> Refused:
    return Refused(Code.CORRUPT_MESSAGE, f"A record batch is malformed: {why}.")


_SHORT_VARINTS = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
"""What a byte says as a varint, unless more bytes follow."""

_HALVES = tuple((byte & 0x7F) >> 1 for byte in range(256))
"""What the first byte of two adds to a number that is not negative; the second counts in 64s."""

_VARINTS: list[bytes] = []
"""Zigzag varints of 0, 1, 2..., made (1 ms) when the first batch is encoded: a broker may never need them."""

_ENDS: list[bytes] = []
"""What lies between two records that have no headers: the first one's number of them, the second one's length."""

_TAKEN: list[int] = []
"""What 0, 1, 2... bytes take with their length before them."""

_NAMES: dict[str, bytes] = {}
"""Names of headers with their length before them."""

_MOST_NAMES = 1000
_LONG_NAME = 100

_MANY_ALIKE: Final = 64
"""Records to a millisecond, on average, that are worth being looked at together."""

_TABLE: Final = 4096
_MOST_READY: Final = 1 << 16


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


def _ready_varints(count: int) -> list[bytes]:
    """At least `count` varints from the table, or as many as it may hold."""
    ready = _VARINTS
    if len(ready) < min(count, _MOST_READY):
        ready.extend(map(varint, range(len(ready), min(max(count, _TABLE), _MOST_READY))))
    return ready


def encode_flat(
    values: Sequence[bytes | None],
    keys: Iterable[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps: Sequence[int] = (),
) -> bytes:
    """The record section of a batch from its columns, each None where no record has any; offsets are 0, 1, 2...

    `timestamps` has one for each value and the first is the batch's base timestamp. `wrap_records` makes the batch.
    """
    # Hot: 170 ns a record of 100 B, 200 ns with keys. `out +=` of a tuple beats several appends, a table beats
    # making a varint, and one piece says how the last record ends and how long this one is.
    if len(timestamps) != len(values):
        raise ValueError(f"{len(values)} values have {len(timestamps)} timestamps")
    if headers is not None and any(headers):
        return _encode_slowly(values, keys, headers, timestamps)
    if len(values) == 1 and values[0] is not None:
        return _encode_one(values[0], None if keys is None else next(iter(keys)))
    ready = _ready_varints(len(values))
    if keys is None and _are_alike(values, timestamps):
        pieces = _encode_alike(cast("Sequence[bytes]", values), timestamps, ready)
        if pieces:
            return b"".join(pieces)
    if not _ENDS:
        _ENDS.extend([b"\x00" + size for size in ready[:_TABLE]])
        _TAKEN.extend([len(size) + n for n, size in enumerate(ready[:_TABLE])])
    ends, taken = _ENDS, _TAKEN
    offsets: Iterable[bytes] = ready
    if len(values) > len(ready):
        offsets = chain(ready, map(varint, count(len(ready))))
    base_timestamp = last = timestamps[0] if timestamps else 0
    times = b"\x00\x00"
    fixed = 3
    out: list[bytes] = []
    rows = zip(offsets, keys or repeat(None), cast("Sequence[bytes]", values), timestamps, strict=False)
    try:
        for offset, key, value, timestamp in rows:
            if timestamp != last:
                last = timestamp
                delta = timestamp - base_timestamp
                times = b"\x00" + (ready[delta] if 0 <= delta < _TABLE else varint(delta))
                fixed = len(times) + 1
            size = len(value)
            if key is None:
                out += (
                    ends[taken[size] + len(offset) + fixed + 1],
                    times,
                    offset,
                    b"\x01",
                    ready[size],
                    value,
                )
            else:
                length = len(key)
                out += (
                    ends[taken[size] + taken[length] + len(offset) + fixed],
                    times,
                    offset,
                    ready[length],
                    key,
                    ready[size],
                    value,
                )
    except (IndexError, TypeError):
        # A record beyond the table, or without a value.
        return _encode_slowly(values, keys, (), timestamps)
    if out:
        out[0] = out[0][1:]  # there is no record before the first
        out.append(b"\x00")
    return b"".join(out)


def _encode_one(value: bytes, key: bytes | None) -> bytes:
    # 0.7 us, 0.9 us with a key: a batch that its sender waits for has one record, as a rule.
    size = varint(len(value))
    if key is None:
        return b"".join((varint(len(size) + len(value) + 5), b"\x00\x00\x00\x01", size, value, b"\x00"))
    key_size = varint(len(key))
    length = len(key_size) + len(key) + len(size) + len(value) + 4
    return b"".join((varint(length), b"\x00\x00\x00", key_size, key, size, value, b"\x00"))


def _are_alike(values: Sequence[bytes | None], timestamps: Sequence[int]) -> bool:
    """Whether there are many values of one size, and many to a millisecond."""
    many = len(values) // _MANY_ALIKE
    if not many or len(values) > _MOST_READY or not 0 <= timestamps[-1] - timestamps[0] < many:
        return False
    sized = cast("Sequence[bytes]", values)
    try:
        return len(sized[0]) == len(sized[1]) == len(sized[-1]) and len(set(map(len, sized))) == 1
    except TypeError:
        return False


def _encode_alike(values: Sequence[bytes], timestamps: Sequence[int], ready: Sequence[bytes]) -> list[bytes]:
    """The pieces of records without keys whose values are of one size; nothing where their times are in disorder."""
    # Hot: 60 ns a record. What records have in common is made once, and nothing is done in Python for any one; slices
    # are filled in a quarter of the time that `chain` of `zip` takes.
    size = len(values[0])
    before_value = b"\x01" + varint(size)
    out: list[bytes] = []
    at = 0
    while at < len(values):
        time = timestamps[at]
        end = bisect_right(timestamps, time, at)
        width = len(ready[at])
        end = min(end, 1 << (7 * width - 1))  # where offsets begin to take a byte more
        if timestamps[at:end].count(time) != end - at:
            return []
        times = b"\x00" + varint(time - timestamps[0])
        length = len(times) + width + len(before_value) + size + 1
        before_offset = b"\x00" + varint(length) + times
        row = [before_offset, b"", before_value, b""] * (end - at)
        row[1::4] = ready[at:end]
        row[3::4] = values[at:end]
        out += row
        at = end
    out[0] = out[0][1:]  # there is no record before the first
    out.append(b"\x00")
    return out


def _encode_slowly(
    values: Sequence[bytes | None],
    keys: Iterable[bytes | None] | None,
    headers: Sequence[Headers],
    timestamps: Sequence[int],
) -> bytes:
    rows = zip(count(), timestamps, keys or repeat(None), values, headers or repeat(()), strict=False)
    return b"".join(encode_records(rows, 0, timestamps[0] if timestamps else 0))


def encode_records(
    records: Iterable[tuple[int, int, bytes | None, bytes | None, Headers]],
    base_offset: int,
    base_timestamp: int,
) -> list[bytes]:
    """The pieces of a batch's record section, uncompressed, to be joined."""
    ready = _ready_varints(_TABLE)
    limit = len(ready)
    out: list[bytes] = []
    # Hot: about 400 ns a record of 100 B (a loop with local names; most varints come from the table).
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


def _encode_headers(record_headers: Headers) -> bytes:
    # 300 ns for one: names are few and come again and again, so they are kept as they go out.
    ready = _VARINTS  # filled by the encoder of the record
    names = _NAMES
    out = [varint(len(record_headers)) if len(record_headers) > 1 else b"\x02"]
    for name, value in record_headers:
        key = names.get(name) or _encode_name(name)
        if value is None:
            out += (key, b"\x01")
        else:
            size = len(value)
            out += (key, ready[size] if size < _TABLE else varint(size), value)
    return b"".join(out)


def _encode_name(name: str) -> bytes:
    data = name.encode()
    encoded = varint(len(data)) + data
    if len(_NAMES) < _MOST_NAMES and len(data) < _LONG_NAME:
        _NAMES[name] = encoded
    return encoded


class FlatRecords(NamedTuple):
    """The records of a batch as columns of equal length: what `encode_flat` takes, and their offsets."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[tuple[str, bytes | None], ...]]


def decode_records(
    body: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> FlatRecords:
    """The records of a batch as columns; `append_time` is the time of them all where the broker gave it."""
    # Hot: about 650 ns a record of 100 B. Varints of one byte are a table look-up, those of two are put together
    # on the spot: a function call costs as much as the rest of a record.
    at = 0
    out: list[Any] = []
    short, half = _SHORT_VARINTS, _HALVES
    try:
        for _ in range(count):
            if (byte := body[at]) < 0x80:
                at += 1
                end = at + short[byte]
            elif (second := body[at + 1]) < 0x80 and not byte & 1:
                at += 2
                end = at + half[byte] + (second << 6)
            else:
                size, at = read_varint(body, at)
                end = at + size
            at += 1  # attributes, unused
            if (byte := body[at]) < 0x80:
                timestamp = short[byte]
                at += 1
            elif (second := body[at + 1]) < 0x80 and not byte & 1:
                timestamp = half[byte] + (second << 6)
                at += 2
            else:
                timestamp, at = read_varint(body, at)
            if (byte := body[at]) < 0x80:
                offset = short[byte]
                at += 1
            elif (second := body[at + 1]) < 0x80 and not byte & 1:
                offset = half[byte] + (second << 6)
                at += 2
            else:
                offset, at = read_varint(body, at)
            if (byte := body[at]) < 0x80:
                size = short[byte]
                at += 1
            else:
                size, at = read_varint(body, at)
            if size < 0:
                key = None
            else:
                start = at
                at += size
                key = body[start:at]
            if (byte := body[at]) < 0x80:
                size = short[byte]
                at += 1
            elif (second := body[at + 1]) < 0x80 and not byte & 1:
                size = half[byte] + (second << 6)
                at += 2
            else:
                size, at = read_varint(body, at)
            if size < 0:
                value = None
            else:
                start = at
                at += size
                value = body[start:at]
            if body[at]:
                headers, at = _decode_headers(body, at, end)
            else:
                headers = ()
                at += 1
            if at != end:
                raise corrupt("a record's length is wrong")
            out += (base_offset + offset, base_timestamp + timestamp, key, value, headers)
    except (IndexError, UnicodeDecodeError):
        raise corrupt("a record is cut short") from None
    if at != len(body):
        raise corrupt("there is more behind the last record")
    times = out[1::5] if append_time is None else [append_time] * count
    return FlatRecords(out[0::5], times, out[2::5], out[3::5], out[4::5])


def _decode_headers(body: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    if not 0 <= count <= end - at:
        raise corrupt(f"a record with {count} headers")
    out: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(body, at)
        if not 0 <= size <= end - at:
            raise corrupt("a header's name does not fit")
        name = body[at : at + size].decode()
        at += size
        size, at = read_varint(body, at)
        if size > end - at:
            raise corrupt("a header's value does not fit")
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
    raise corrupt("a number of more than ten bytes")

"""Promises of wire/records.py; that records come back as they were is told in test_batch.py."""

import pytest
from aiokafka.record.util import decode_varint
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import Refused
from barnabas.wire.batch import (
    CODEC_MASK,
    Record,
    crc_of,
    decode_batch,
    encode_batch,
    read_header,
    wrap_records,
)
from barnabas.wire.compression import Compression
from barnabas.wire.records import encode_flat, encode_records, varint

contents = st.none() | st.binary(max_size=80) | st.integers(4000, 4200).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=20)), max_size=3)
rows = st.tuples(contents, contents, st.just(()) | headers, st.integers(0, 1 << 44))


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
)
def test_varints_are_kafkas(number: int) -> None:
    encoded = varint(number)
    assert decode_varint(encoded) == (number, len(encoded))


@given(st.binary(max_size=80) | st.integers(4000, 9000).map(bytes), contents)
@settings(deadline=None)
def test_one_record_is_a_batch_of_one(value: bytes, key: bytes | None) -> None:
    assert encode_flat([value], [key], timestamps=[0]) == b"".join(
        encode_records([(0, 0, key, value, ())], 0, 0)
    )


@given(st.lists(rows, min_size=1, max_size=30), st.booleans(), st.booleans(), st.sampled_from(Compression))
@settings(deadline=None)
def test_a_batch_from_columns_is_the_batch_from_records(
    found: list[tuple], with_keys: bool, with_headers: bool, codec: Compression
) -> None:
    keys, values, record_headers, timestamps = (list(column) for column in zip(*found, strict=True))
    body = encode_flat(
        values, keys if with_keys else None, record_headers if with_headers else None, timestamps
    )
    batch = wrap_records(
        body,
        len(values),
        attributes=codec,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
    )
    records = [
        Record(n, timestamp, key if with_keys else None, value, tuple(pairs) if with_headers else ())
        for n, (key, value, pairs, timestamp) in enumerate(found)
    ]
    assert batch == encode_batch(records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    header = read_header(batch)
    assert header.crc == crc_of(batch, 0, len(batch))
    assert header.attributes & CODEC_MASK == codec


@pytest.mark.parametrize("count", [0, 1, 64, 65, 4097, 8193, 70_000])
def test_any_number_of_records_can_be_encoded(count: int) -> None:
    values = [b"%d" % n for n in range(count)]
    times = [1000 + n // 100 for n in range(count)]
    body = encode_flat(values, None, None, times)
    batch = wrap_records(body, count, base_timestamp=1000, max_timestamp=1000 + count)
    assert [(r.offset, r.timestamp, r.value) for r in decode_batch(batch)] == list(
        zip(range(count), times, values, strict=True)
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.integers(0, 3) | st.sampled_from([-1, 70, 9000])),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 200) | st.just(5000),
    st.lists(st.integers(0, 3000), max_size=2),
)
@settings(deadline=None)
def test_records_that_are_alike_are_encoded_like_any(
    runs: list[tuple[int, int]], size: int, odd: list[int]
) -> None:
    """Values of one size, but for a few, and runs of equal times."""
    times, now = [], 1_700_000_000_000
    for count, step in runs:
        now += step
        times += [now] * count
    values: list[bytes | None] = [bytes([n % 256]) * size for n in range(len(times))]
    for place in odd:
        values[place % len(values)] = None if place % 2 else b"odd"
    batch = wrap_records(
        encode_flat(values, None, None, times), len(values), base_timestamp=times[0], max_timestamp=max(times)
    )
    rows = zip(times, values, strict=True)
    assert batch == encode_batch([Record(n, time, None, value) for n, (time, value) in enumerate(rows)])


def test_times_may_run_backwards() -> None:
    times = [1000, 10, 10, 5000]
    batch = wrap_records(
        encode_flat([b""] * 4, None, None, times), 4, base_timestamp=1000, max_timestamp=5000
    )
    assert [record.timestamp for record in decode_batch(batch)] == times


def test_columns_of_unequal_length_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="2 values have 1 timestamps"):
        encode_flat([b"a", b"b"], None, None, [1])


def test_what_is_no_bytes_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        encode_flat([5], None, None, [1])  # type: ignore[list-item]


def test_a_codec_that_there_is_not_is_refused() -> None:
    batch = bytearray(wrap_records(b"", 0, base_timestamp=0, max_timestamp=0))
    batch[22] |= 7
    with pytest.raises(Refused):
        decode_batch(batch)

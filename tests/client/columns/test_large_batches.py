"""Promises of client/columns/large_batches.py: numpy's way and the plain way give the same records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.columns.large_batches import decode_large
from barnabas.errors import Refused
from barnabas.wire.batch import COUNT_AT, Record, decode_flat, encode_batch, read_header, seal
from barnabas.wire.compression import Compression
from barnabas.wire.records import FlatRecords

contents = st.none() | st.binary(max_size=20) | st.sampled_from([63, 64, 100, 8191, 9000]).map(bytes)
headers = st.just(()) | st.just((("h", b"1"),))
records = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 1 << 43), contents, contents, headers),
    min_size=1,
    max_size=40,
)


def both_ways(batch: bytes) -> tuple[FlatRecords | None, FlatRecords | None]:
    """What each makes of a batch; None where it is refused."""
    found: list[FlatRecords | None] = []
    for decode in (
        lambda: decode_large(memoryview(batch), 0, read_header(batch)),
        lambda: decode_flat(batch),
    ):
        try:
            columns = decode()
            found.append(columns._replace(offsets=[*columns.offsets], timestamps=[*columns.timestamps]))
        except Refused:
            found.append(None)
    return found[0], found[1]


@given(
    records, st.integers(1, 60), st.sampled_from(Compression), st.none() | st.integers(0, 1 << 42), st.data()
)
@settings(deadline=None)
def test_numpy_gives_what_python_gives(
    found: list[tuple], times: int, codec: Compression, append_time: int | None, data: st.DataObject
) -> None:
    offset = 10
    rows = []
    for step, *rest in data.draw(
        st.sampled_from([found * times, [row for row in found for _ in range(times * 5)]])
    ):
        offset += step
        rows.append(Record(offset, *rest))
    batch = encode_batch(rows, base_offset=10, codec=codec, log_append_time=append_time)
    large, plain = both_ways(batch)
    assert large == plain
    assert plain is not None
    assert plain.offsets == [row.offset for row in rows]


@given(records, st.data())
@settings(deadline=None, max_examples=200)
def test_what_one_refuses_the_other_refuses(found: list[tuple], data: st.DataObject) -> None:
    batch = bytearray(encode_batch([Record(n, *rest) for n, (_, *rest) in enumerate(found)]))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(COUNT_AT, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch, 0, len(batch))
    large, plain = both_ways(bytes(batch))
    assert large == plain


@pytest.mark.parametrize("count", [1, 300])
def test_null_and_empty_are_told_apart(count: int) -> None:
    rows = [Record(n, 5, b"" if n % 2 else None, None if n % 2 else b"") for n in range(count)]
    large, _ = both_ways(encode_batch(rows))
    assert large is not None
    assert large.keys == [row.key for row in rows]
    assert large.values == [row.value for row in rows]

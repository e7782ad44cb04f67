"""Records cut out of a batch without being made: where they lie, and what is refused."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import Code, Refused
from barnabas.log.records import first_reaching, record_section, spans
from barnabas.wire.batch import Record, decode_batch, encode_batch, read_header
from barnabas.wire.compression import Compression

RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@given(RECORDS, st.sampled_from(list(Compression)))
def test_spans_say_what_decoding_says(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: Compression,
) -> None:
    batch = encode_batch([Record(i, *row) for i, row in enumerate(rows)], codec=codec)
    header = read_header(batch)
    section = record_section(batch, header)
    found = list(spans(section, header.count))
    assert [span.start for span in found] == [0, *(span.end for span in found[:-1])]
    for span, record in zip(found, decode_batch(batch), strict=True):
        key = None if span.key_end < 0 else section[span.key_start : span.key_end]
        assert (span.offset_delta, key, span.has_value) == (
            record.offset,
            record.key,
            record.value is not None,
        )
        assert header.base_timestamp + span.timestamp_delta == record.timestamp


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=40), st.data())
def test_the_first_record_of_a_time_is_the_one_that_decoding_finds(
    times: list[int], data: st.DataObject
) -> None:
    sizes = [0, 30, 60, 200, 9000]
    rows = [(None, b"x" * data.draw(st.sampled_from(sizes))) for _ in times]
    batch = encode_batch([Record(i, at, *row) for i, (at, row) in enumerate(zip(times, rows, strict=True))])
    header = read_header(batch)
    section = record_section(batch, header)
    for _ in range(5):
        since = data.draw(st.sampled_from(times) | st.integers(-(2**21), 2**21)) - header.base_timestamp
        offset = data.draw(st.integers(-3, len(times) + 1))
        due = [(at - header.base_timestamp, i) for i, at in enumerate(times)]
        wanted = next((row for row in due if row[0] >= since and row[1] >= offset), None)
        assert first_reaching(section, header.count, since, offset) == wanted


def test_what_does_not_add_up_is_refused_and_nothing_else_happens() -> None:
    chance = Random(11)
    batch = encode_batch([Record(i, i * 1000, b"key", b"value" * 30, (("h", b"x"),)) for i in range(5)])
    section = record_section(batch, read_header(batch))
    for _ in range(3000):
        broken = bytearray(section)
        broken[chance.randrange(len(broken))] = chance.randrange(256)
        del broken[chance.randrange(len(broken)) + 1 :]
        try:
            first_reaching(bytes(broken), 5, 10_000, 0)
        except Refused as refused:
            assert refused.code is Code.INVALID_RECORD  # noqa: PT017
        try:
            found = list(spans(bytes(broken), 5))
        except Refused as refused:
            assert refused.code is Code.INVALID_RECORD  # noqa: PT017
        else:
            assert found[-1].end == len(broken)


@pytest.mark.parametrize("count", [0, 1, 4, 6, 2**31 - 1])
def test_a_wrong_count_is_refused(count: int) -> None:
    batch = encode_batch([Record(i, 0, None, b"v") for i in range(5)])
    with pytest.raises(Refused):
        list(spans(record_section(batch, read_header(batch)), count))

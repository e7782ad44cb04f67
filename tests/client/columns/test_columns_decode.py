"""Promises of client/columns/columns.py: what comes as columns is what comes as records."""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.columns import columns as to_columns
from barnabas.client.columns.columns import COLUMNS, SCHEMA, Fetched
from barnabas.client.consumer.consumer_record import RecordDecoder
from barnabas.client.consumer.reading import Chunk, Reading
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.batch import ATTRIBUTES_AT, COUNT_AT, Record, decode_batch, encode_batch, headers, seal
from barnabas.wire.compression import Compression
from barnabas.wire.messages.fetch import AbortedTransaction

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fetched(*batches: bytes, start: int = 0, end: int | None = None, **more: Any) -> Fetched:
    return Fetched("orders", 3, memoryview(b"".join(batches)), start, end, **more)


def decode(
    all_fetched: Sequence[Fetched], columns: Sequence[str] | None = None, **more: Any
) -> pa.RecordBatch:
    """The records of one fetch are taken apart in place, those of several in a copy: both say the same."""
    outcomes: list[pa.RecordBatch | BarnabasError] = []
    for each in (all_fetched, [*all_fetched, fetched()]):
        try:
            outcomes.append(to_columns.decode(each, columns, **more))
        except BarnabasError as error:
            outcomes.append(error)
    in_place, copied = outcomes
    if isinstance(copied, BarnabasError):
        assert str(in_place) == str(copied)
        raise copied
    assert copied.equals(in_place)
    return copied


def rows_of(
    found: Iterable[Record], *, topic: str = "orders", partition: int = 3, kind: int = 0
) -> list[dict]:
    """Records as the rows they should be."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": kind,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in found
    ]


def decoded(*all_fetched: Fetched, columns: Sequence[str] | None = None) -> list[dict]:
    batch = decode(all_fetched, columns)
    batch.validate(full=True)
    return batch.to_pylist()


def numbered(values: Iterable[bytes | None], *, base: int = 0) -> list[Record]:
    return [Record(base + n, 1000 + n, None, value) for n, value in enumerate(values)]


sizes = st.integers(0, 5) | st.integers(60, 70) | st.sampled_from([127, 128, 129, 8191, 8192, 20_000])
contents = st.none() | st.binary(max_size=20) | sizes.map(bytes)
record_lists = st.lists(
    st.builds(
        Record,
        st.integers(1, 3) | st.just(200),
        st.integers(0, 1 << 43) | st.integers(1_700_000_000_000, 1_700_000_000_100),
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=40,
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches of one partition, with holes, every codec, either kind of time, and some shape repeated."""
    offset = draw(st.integers(0, 1 << 40))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        records = draw(record_lists)
        if draw(st.booleans()):
            records = records[:1] * draw(st.integers(1, 200)) + records
        base = offset
        placed = []
        for record in records:
            offset += record.offset
            placed.append(record._replace(offset=offset))
        found.append(
            encode_batch(
                placed,
                base_offset=base,
                codec=draw(st.sampled_from(Compression)),
                last_offset_delta=offset - base + draw(st.integers(0, 3)),
                log_append_time=draw(st.none() | st.integers(0, 1 << 42)),
                control=draw(st.sampled_from([False, False, False, True])),
            )
        )
        offset += 10
    return found


@given(logs(), st.data())
@settings(deadline=None, max_examples=150)
def test_columns_say_what_records_say(log: list[bytes], data: st.DataObject) -> None:
    every = [(header, decode_batch(batch)) for batch in log for _, header in headers(batch)]
    offsets = [record.offset for _, records in every for record in records]
    edges = st.sampled_from(offsets).flatmap(lambda offset: st.integers(offset - 1, offset + 1))
    start = data.draw(st.just(0) | edges)
    end = data.draw(st.none() | edges)
    columns = data.draw(st.none() | st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1))
    wanted = [
        row
        for header, records in every
        if not header.is_control
        for row in rows_of(records, kind=header.is_log_append_time)
        if start <= row["offset"] and (end is None or row["offset"] < end)
    ]
    asked = columns or COLUMNS
    found = decode([fetched(*log, start=start, end=end)], columns)
    found.validate(full=True)
    assert found.schema.names == list(asked)
    assert found.to_pylist() == [{name: row[name] for name in asked} for row in wanted]


def test_several_partitions_come_as_one_batch() -> None:
    first = [Record(5, 10, b"k", b"v")]
    second = [Record(0, 20, None, b"w"), Record(1, 21, b"", None)]
    a = Fetched("a", 0, memoryview(encode_batch(first, base_offset=5)))
    b = Fetched("b", 7, memoryview(encode_batch(second)))
    assert decoded(a, b, a) == [
        *rows_of(first, topic="a", partition=0),
        *rows_of(second, topic="b", partition=7),
        *rows_of(first, topic="a", partition=0),
    ]


def test_nothing_fetched_is_an_empty_batch_of_the_same_schema() -> None:
    assert decode([]).schema == SCHEMA
    assert decode([fetched()]).num_rows == 0
    narrow = decode([fetched(encode_batch(numbered([b"v"])), start=7)], ["value", "offset"])
    assert (narrow.num_rows, narrow.schema.names) == (0, ["value", "offset"])
    emptied = encode_batch([], base_offset=4, last_offset_delta=9)
    assert decode([fetched(emptied)]).num_rows == 0


def test_rows_can_be_counted_without_any_column() -> None:
    log = fetched(encode_batch(numbered([b"v"] * 300)), start=100, end=250)
    assert decode([log], ()).num_rows == 150


def test_a_batch_cut_off_at_the_end_is_left_out() -> None:
    whole = encode_batch(numbered([b"a", b"b"]))
    log = fetched(whole, encode_batch(numbered([b"c"], base=2), base_offset=2)[:-1])
    assert [row["value"] for row in decoded(log)] == [b"a", b"b"]


@pytest.mark.parametrize("codec", Compression)
def test_values_of_all_sizes_and_codecs_come_whole(codec: Compression) -> None:
    values = [
        bytes([n % 251]) * size for n, size in enumerate([0, 1, 63, 64, 8191, 8192, 1 << 20, 5_000_000])
    ]
    log = fetched(encode_batch(numbered(values), codec=codec))
    assert decode([log], ["value"])["value"].to_pylist() == values


def test_records_of_one_size_are_found_whatever_their_number() -> None:
    for count in (31, 32, 33, 64, 65, 8191, 8193, 20_000):
        log = fetched(encode_batch(numbered([b"x" * 100] * count)))
        assert decode([log], ["offset"])["offset"].to_pylist() == list(range(count))


def test_a_large_record_may_come_before_many_small_ones() -> None:
    for large in range(
        6000, 6064
    ):  # one of them has a length that begins with the same byte as the next one's
        values = [b"L" * large, *[b"s" * 70] * 50]
        log = fetched(encode_batch(numbered(values)))
        assert decode([log], ["value"])["value"].to_pylist() == values


def test_times_outside_of_what_microseconds_can_tell_become_the_nearest() -> None:
    log = fetched(encode_batch([Record(0, (1 << 62), None, b""), Record(1, -(1 << 62), None, b"")]))
    most = ((1 << 63) - 1) // 1000 * 1000
    assert decode([log], ["timestamp"])["timestamp"].cast(pa.int64()).to_pylist() == [most, -most]


def test_a_record_may_have_very_many_headers() -> None:
    many = tuple((f"h{n}", b"%d" % n) for n in range(20_000))
    log = [Record(0, 0, None, b"", (("one", None),)), Record(1, 0, None, b"", many), Record(2, 0, b"k", b"v")]
    assert decoded(fetched(encode_batch(log))) == rows_of(log)


def test_transactions_that_came_to_nothing_are_not_seen() -> None:
    def batch(offset: int, producer: int, key: bytes | None = None) -> bytes:
        return encode_batch(
            [Record(offset, 0, key, b"%d" % producer)],
            base_offset=offset,
            producer_id=producer,
            transactional=producer >= 0,
            control=key is not None,
        )

    abort, commit = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
    log = [
        batch(0, 7),
        batch(1, 8),
        batch(2, -1),
        batch(3, 7),
        batch(4, 7, abort),
        batch(5, 8, commit),
        batch(6, 7),
        batch(7, 8),
        batch(8, 8, abort),
        batch(9, 7, commit),
    ]
    log_fetched = fetched(*log, aborted=[AbortedTransaction(8, 7), AbortedTransaction(7, 0)])
    assert decode([log_fetched], ["offset"])["offset"].to_pylist() == [1, 2, 6]


def test_what_was_aborted_is_not_even_decompressed() -> None:
    def batch(offset: int, producer: int, *, is_garbage: bool = False, key: bytes | None = None) -> bytes:
        made = bytearray(
            encode_batch(
                [Record(offset, 0, key, b"%d" % producer)],
                base_offset=offset,
                producer_id=producer,
                transactional=True,
                control=key is not None,
            )
        )
        made[ATTRIBUTES_AT + 1] |= Compression.LZ4 if is_garbage else 0
        seal(made, 0, len(made))
        return bytes(made)

    log = b"".join([batch(0, 7, is_garbage=True), batch(1, 8), batch(2, 7, key=bytes(4)), batch(3, 7)])
    aborted = (AbortedTransaction(7, 0),)
    assert decode([fetched(log, aborted=aborted)], ["offset"])["offset"].to_pylist() == [1, 3]
    reading = Reading(TopicPartition("orders", 3))
    runs = RecordDecoder().runs(Chunk(reading, memoryview(log), 0, 4, aborted))
    assert [offset for run in runs for offset in run.columns.offsets] == [1, 3]


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    with pytest.raises(BarnabasError, match="There is no column 'vale': there are key, value, topic"):
        decode([], ["vale"])


def test_a_missing_library_is_said_with_how_to_get_it() -> None:
    code = "import sys; sys.modules['pyarrow'] = None; import barnabas.client.consumer.partition_reader"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "Columns need pyarrow, which is not installed: pip install barnabas[columns]." in done.stderr


# What is broken


def test_a_wrong_checksum_is_refused_unless_checks_are_off() -> None:
    batch = bytearray(encode_batch(numbered([b"value"])))
    batch[-3] ^= 1
    with pytest.raises(Refused, match="Partition orders-3: the batch at offset 0 is corrupt") as caught:
        decode([fetched(bytes(batch))])
    assert caught.value.code is Code.CORRUPT_MESSAGE
    assert decode([fetched(bytes(batch))], check_crcs=False).num_rows == 1


def test_an_old_message_format_is_refused() -> None:
    batch = bytearray(encode_batch(numbered([b"value"])))
    batch[16] = 1
    with pytest.raises(Refused) as caught:
        decode([fetched(bytes(batch))])
    assert caught.value.code is Code.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 1 << 30])
def test_a_wrong_count_is_refused(count: int) -> None:
    batch = bytearray(encode_batch(numbered([b"a", b"b"])))
    batch[COUNT_AT : COUNT_AT + 4] = count.to_bytes(4, "big", signed=True)
    seal(batch, 0, len(batch))
    with pytest.raises(Refused) as caught:
        decode([fetched(bytes(batch))])
    assert caught.value.code is Code.CORRUPT_MESSAGE


def test_more_than_arrow_can_count_is_refused_before_memory_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.client.columns.record_places.MOST_BYTES", 1000)
    with pytest.raises(BarnabasError, match="decode fewer batches"):
        decode([fetched(encode_batch(numbered([b"x" * 2000])))])


@given(logs(), st.data())
@settings(deadline=None, max_examples=300)
def test_bytes_changed_at_random_are_refused_or_read_as_records_read_them(
    log: list[bytes], data: st.DataObject
) -> None:
    batch = bytearray(log[0])
    batch[ATTRIBUTES_AT + 1] &= ~0x20  # no control batch, which would be passed over
    changes = data.draw(
        st.lists(
            st.tuples(st.integers(COUNT_AT, len(batch) - 1), st.integers(0, 255)), min_size=1, max_size=4
        )
    )
    for place, byte in changes:
        batch[place] = byte
    seal(batch, 0, len(batch))
    try:
        wanted: list[Record] | None = decode_batch(batch)
    except Refused:
        wanted = None
    columns = ["key", "value", "offset", "headers"]
    try:
        found = decode([fetched(bytes(batch), *log[1:])], columns)
    except Refused:
        assert wanted is None
        return
    assert wanted is not None
    asked = [(row.key, row.value, row.offset, [*row.headers]) for row in wanted]
    told = [
        (
            row["key"],
            row["value"],
            row["offset"],
            [(each["key"], each["value"]) for each in row["headers"] or ()],
        )
        for row in found.to_pylist()[: len(wanted)]
    ]
    assert told == asked

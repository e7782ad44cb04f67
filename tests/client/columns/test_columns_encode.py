"""Promises of client/columns/columns.py: a table is sent as its rows would be."""

from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas import Admin
from barnabas.client.columns.columns import EncodedRecords, encode
from barnabas.client.columns.interleave import same, varints, weave
from barnabas.client.columns.key_hashes import murmur2_of
from barnabas.client.columns.varints import Varints
from barnabas.client.consumer.partition_reader import read_partition
from barnabas.client.network.routing import Cluster
from barnabas.client.partitioner import murmur2, partition_of
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from barnabas.wire.batch import Record, decode_batch, wrap_records
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from barnabas.wire.records import varint

NOW = 1_700_000_000_000
Row = dict[str, Any]


def batches(table: Any, **options: Any) -> list[EncodedRecords]:
    return list(encode(table, **{"partitions": 3, "now_ms": NOW, "batch_bytes": 1 << 20, **options}))


def wrapped(found: EncodedRecords) -> bytes:
    return wrap_records(
        found.body, found.count, base_timestamp=found.base_timestamp, max_timestamp=found.max_timestamp
    )


def records_of(found: list[EncodedRecords]) -> dict[int, list[Record]]:
    """The records by partition, in the order they would be stored."""
    sent: dict[int, list[Record]] = defaultdict(list)
    for each in found:
        decoded = decode_batch(wrapped(each))
        assert [record.offset for record in decoded] == list(range(each.count))
        assert decoded[0].timestamp == each.base_timestamp
        assert max(record.timestamp for record in decoded) == each.max_timestamp
        sent[each.partition] += decoded
    return dict(sent)


def values_of(table: Any, **options: Any) -> list[bytes | None]:
    """What is sent to the only partition."""
    return [record.value for record in records_of(batches(table, **options, partitions=1))[0]]


contents = st.none() | st.binary(max_size=12) | st.sampled_from([b"x" * size for size in (63, 64, 127, 9000)])
pairs = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=9)}),
    max_size=3,
)
rows = st.fixed_dictionaries(
    {
        "k": contents,
        "v": contents,
        "h": st.none() | pairs,
        "p": st.none() | st.integers(0, 4),
        "t": st.none() | st.integers(0, 1 << 42) | st.integers(NOW, NOW + 5),
        "n": st.integers(1, 3) | st.just(100),
    }
)
TYPES = pa.schema(
    [
        ("k", pa.binary()),
        ("v", pa.binary()),
        ("h", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("p", pa.int32()),
        ("t", pa.int64()),
    ]
)


ROLES = {"key": "k", "headers": "h", "partition": "p", "timestamp": "t"}


@given(
    found=st.lists(rows, min_size=1, max_size=30),
    roles=st.sets(st.sampled_from(sorted(ROLES))),
    batch_bytes=st.sampled_from([300, 20_000, 1 << 20]),
    data=st.data(),
)
@settings(deadline=None, max_examples=150)
def test_a_table_is_sent_as_its_rows_would_be(
    found: list[Row], roles: set[str], batch_bytes: int, data: st.DataObject
) -> None:
    table = [{name: row[name] for name in TYPES.names} for row in found for _ in range(row["n"])]
    cut = data.draw(st.integers(0, len(table)))
    arrow = pa.concat_tables([pa.Table.from_pylist(part, TYPES) for part in (table[:cut], table[cut:])])
    asked = {role: ROLES[role] for role in roles}
    sent = batches(arrow, value="v", partitions=5, batch_bytes=batch_bytes, **asked)
    assert all(len(each.body) <= batch_bytes or each.count == 1 for each in sent)

    wanted: dict[int | None, list[Record]] = defaultdict(list)
    for row in table:
        key = row["k"] if "key" in roles else None
        target = row["p"] if "partition" in roles else None
        if target is None and key is not None:
            target = partition_of(key, 5)
        time = row["t"] if "timestamp" in roles and row["t"] is not None else NOW
        pairs = [(each["key"], each["value"]) for each in row["h"] or ()] if "headers" in roles else []
        wanted[target].append(Record(0, time, key, row["v"], tuple(pairs)))
    by_partition = {
        partition: [record._replace(offset=0) for record in records]
        for partition, records in records_of(sent).items()
    }
    in_turn = wanted.pop(None, [])
    if not in_turn:
        assert by_partition == wanted
    everything = [*chain(in_turn, *wanted.values())]
    assert Counter(chain(*by_partition.values())) == Counter(everything)


@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("span", [0, 9_000, 1 << 24, 1 << 41])
def test_rows_of_long_keys_and_values_are_sent_as_they_are(
    span: int, with_keys: bool, with_headers: bool
) -> None:
    """None of them short, none null; in the end the varints before a row leave no room for a byte more."""
    count, cut = 12_000, 5
    wanted = [
        Record(
            0,
            NOW + number * span // count,
            b"a long key: %07d" % number if with_keys else None,
            b"%07d" % number + b"v" * (6 + number % 90),
            (("name", b"1"),) if with_headers and number % 3 else (),
        )
        for number in range(count)
    ]
    table = pa.table(
        {
            "value": [record.value for record in wanted],
            "key": pa.array([record.key for record in wanted], pa.binary()),
            "t": [record.timestamp for record in wanted],
            "h": pa.array([list(record.headers) for record in wanted], pa.map_(pa.string(), pa.binary())),
        }
    ).slice(cut)
    key, headers = "key" if with_keys else None, "h" if with_headers else None
    sent = batches(table, partitions=1, batch_bytes=100_000, timestamp="t", key=key, headers=headers)
    assert len(sent) > 5
    assert all(len(each.body) <= 100_000 for each in sent)
    assert [record._replace(offset=0) for record in records_of(sent)[0]] == wanted[cut:]


@given(st.lists(st.binary(max_size=40) | st.integers(500, 530).map(lambda size: b"\xff" * size), min_size=1))
def test_hashes_are_javas(keys: list[bytes]) -> None:
    buffer = np.frombuffer(b"".join(keys), np.uint8)
    size = np.array([len(key) for key in keys])
    assert murmur2_of(buffer, np.cumsum(size) - size, size).tolist() == [murmur2(key) for key in keys]


widths = st.sampled_from([1, 6, 7, 13, 14, 20, 21, 27, 28, 35, 62])


@settings(max_examples=200)
@given(st.data(), st.lists(widths, min_size=1, max_size=7), st.integers(1, 20))
def test_varints_are_those_of_the_wire(data: st.DataObject, bits: list[int], rows: int) -> None:
    """Also where they do not fit into two words, and where a field is the same in all rows."""
    fields: list[Any] = []
    for each in bits:
        numbers = st.integers(-(1 << each), (1 << each) - 1)
        one = st.lists(numbers, min_size=rows, max_size=rows)
        fields.append(np.array(data.draw(numbers | one)))
    fields.append(np.arange(rows))
    woven, places = weave([varints(*map(Varints, fields), rows=rows), same(b"")], rows)
    found = [bytes(woven)[first:end] for first, end in pairwise(places[::2])]
    columns = [np.broadcast_to(field, rows).tolist() for field in fields]
    assert found == [b"".join(map(varint, row)) for row in zip(*columns, strict=True)]


def test_rows_without_key_fill_one_partition_after_the_other() -> None:
    table = pa.table({"value": [b"x" * 100] * 1000})
    counts = {
        partition: len(records)
        for partition, records in records_of(batches(table, batch_bytes=11_000)).items()
    }
    assert counts.keys() == {0, 1, 2}
    assert max(counts.values()) < 1.5 * min(counts.values())
    for turn in range(3):
        assert [(each.partition, each.count) for each in batches(table, first_turn=turn)] == [(turn, 1000)]


def test_order_is_kept_where_keys_and_turns_meet() -> None:
    table = pa.table(
        {"key": [None if n % 2 else b"k" for n in range(5000)], "value": [b"%d" % n for n in range(5000)]}
    )
    for partition, records in records_of(batches(table, key="key", batch_bytes=5000)).items():
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers), partition


TEXTS = ["a", None, "", "gr\u00fc\u00df", "b" * 300]
BYTES = [None if text is None else text.encode() for text in TEXTS]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array(BYTES, pa.binary()),
        pa.array(BYTES, pa.large_binary()),
        pa.array(BYTES, pa.binary_view()),
        pa.chunked_array(
            [pa.array(BYTES[:2], pa.binary()), pa.array([], pa.binary()), pa.array(BYTES[2:], pa.binary())]
        ),
        pa.array(["gone", *TEXTS, "gone"]).slice(1, len(TEXTS)),
    ],
    ids=lambda column: str(column.type),
)
def test_every_kind_of_bytes_and_text_can_be_sent(column: Any) -> None:
    assert values_of(pa.table({"value": column})) == BYTES
    keyed = records_of(batches(pa.table({"value": column, "k": column}), key="k", partitions=1))[0]
    assert [record.key for record in keyed] == BYTES


def test_other_shapes_of_columns() -> None:
    assert values_of(pa.table({"value": pa.array([b"ab", None], pa.binary(2))})) == [b"ab", None]
    assert values_of(pa.table({"value": pa.nulls(3)})) == [None] * 3
    assert values_of(pa.record_batch({"value": [b"a"]})) == [b"a"]
    assert values_of({"value": [b"a", None]}) == [b"a", None]
    assert batches(pa.table({"value": pa.array([], pa.binary())})) == []


def test_frames_of_pandas_and_polars_can_be_sent() -> None:
    class Odd: ...

    data: dict[str, list] = {"value": TEXTS, "id": [b"1", b"2", None, b"4", b"5"]}
    for frame in (pd.DataFrame({**data, "odd": [Odd()] * 5}), pl.DataFrame(data)):
        sent = records_of(batches(frame, key="id", partitions=1))[0]
        assert [(record.key, record.value) for record in sent] == list(zip(data["id"], BYTES, strict=True))
    category = pl.DataFrame({"value": pl.Series(TEXTS, dtype=pl.Categorical)})
    assert values_of(category) == BYTES
    filtered = pd.DataFrame(data)[lambda frame: frame["id"].notna()]
    assert values_of(filtered) == [BYTES[0], BYTES[1], *BYTES[3:]]


def test_headers_may_be_a_map() -> None:
    entries = [[("a", b"1"), ("b", None)], None, [], [("c", b"")]]
    for kind in (pa.map_(pa.string(), pa.binary()), pa.map_(pa.large_string(), pa.large_binary())):
        table = pa.table({"value": [b"v"] * 4, "h": pa.array(entries, kind)})
        (sent,) = records_of(batches(table, headers="h")).values()
        assert [list(record.headers) for record in sent] == [each or [] for each in entries]
    listed = pl.DataFrame({"value": ["v"], "h": [[{"key": "a", "value": b"1"}]]})
    (sent,) = records_of(batches(listed, headers="h")).values()
    assert sent[0].headers == (("a", b"1"),)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_become_milliseconds(unit: str) -> None:
    moment = datetime(2026, 5, 17, 12, 30, 15, tzinfo=UTC)
    table = pa.table({"value": [b"a", b"b"], "t": pa.array([moment, None], pa.timestamp(unit, "UTC"))})
    (sent,) = records_of(batches(table, timestamp="t")).values()
    assert [record.timestamp for record in sent] == [int(moment.timestamp()) * 1000, NOW]


def test_rows_of_very_different_sizes_are_cut_well() -> None:
    values = [b"s"] * 3000 + [b"L" * 3_000_000] * 5 + [b"s"] * 3000
    sent = batches(pa.table({"value": values}), partitions=1)
    assert [record.value for each in sent for record in decode_batch(wrapped(each))] == values
    assert max(len(each.body) for each in sent if each.count > 1) <= 1 << 20


@pytest.mark.parametrize(
    ("table", "options", "complaint"),
    [
        ({"value": [1, 2]}, {}, "Column 'value' is int64, but the value of a record must be binary or text"),
        ({"value": [b""], "k": [1.5]}, {"key": "k"}, "Column 'k' is double, but the key of a record must be"),
        (
            {"value": [b""], "p": ["a"]},
            {"partition": "p"},
            "the partition of a record must be a whole number",
        ),
        (
            {"value": [b""], "t": ["a"]},
            {"timestamp": "t"},
            "the timestamp of a record must be a timestamp or",
        ),
        ({"value": [b""], "h": ["a"]}, {"headers": "h"}, "the headers of a record must be a list of structs"),
        ({"value": [b""], "h": [[1]]}, {"headers": "h"}, "the headers of a record must be a list of structs"),
        ({"payload": [b""], "id": [1]}, {}, "The table has no column 'value': it has payload, id"),
        ({"value": [b""], "t": [-5]}, {"timestamp": "t"}, "the timestamp -5: before 1970 there is none"),
    ],
)
def test_what_cannot_be_sent_is_said_before_anything_is(
    table: dict[str, list], options: Row, complaint: str
) -> None:
    with pytest.raises(BarnabasError, match=complaint):
        encode(pa.table(table), partitions=1, now_ms=NOW, batch_bytes=1000, **options)
    with pytest.raises(BarnabasError, match=complaint):
        encode(pl.DataFrame(table), partitions=1, now_ms=NOW, batch_bytes=1000, **options)


def test_partitions_may_be_of_any_whole_number_type() -> None:
    for column in (
        pa.array([2, None], pa.int8()),
        pa.array([2, None], pa.uint64()),
        pa.array([2, None]).dictionary_encode(),
    ):
        sent = records_of(
            batches(pa.table({"value": [b"a", b"b"], "p": column}), partition="p", first_turn=1)
        )
        assert {partition: [each.value for each in found] for partition, found in sent.items()} == {
            1: [b"b"],
            2: [b"a"],
        }


def test_what_is_no_table_is_said() -> None:
    with pytest.raises(BarnabasError, match="This is no table"):
        encode([b"a"], partitions=1, now_ms=NOW, batch_bytes=1000)
    with pytest.raises(BarnabasError, match=r"A LazyFrame is no table yet: collect\(\) it first"):
        encode(pl.DataFrame({"value": [b"a"]}).lazy(), partitions=1, now_ms=NOW, batch_bytes=1000)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.table([["a"], ["b"]], names=["value", "value"])
    for table in (twice, twice.to_batches()[0], pd.DataFrame([["a", "b"]], columns=["value", "value"])):
        with pytest.raises(BarnabasError, match="The table has 2 columns 'value'"):
            encode(table, partitions=1, now_ms=NOW, batch_bytes=1000)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
)
@pytest.mark.parametrize(
    "headers",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.large_list(pa.struct([("key", pa.string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
)
def test_a_row_is_too_large_from_the_byte_on_that_it_takes(kind: pa.DataType, headers: pa.DataType) -> None:
    """Whatever its columns are, and however they are sliced."""
    texts = ["v" * 900, None, "v" * 100, "v" * 300, "v" * 900]
    pairs = [[("k", b"h" * 900)], None, [("k", b"h" * 50)] * 3, [("k", b"h")], []]
    rows = pa.array([_pairs(each, headers) for each in pairs], headers)
    plain = pa.array(texts, pa.string() if kind == pa.string_view() else pa.binary())
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    table = pa.table({"value": column, "key": column, "h": rows}).slice(1, 3)
    options: Row = {"key": "key", "headers": "h", "partitions": 1, "now_ms": NOW, "batch_bytes": 1}
    sizes = [len(each.body) for each in encode(table, **options)]
    assert len(sizes) == 3
    assert [len(each.body) for each in encode(table, **options, largest=max(sizes))] == sizes
    with pytest.raises(
        Refused, match=f"Row 2 of the table takes {max(sizes)} bytes, but {max(sizes) - 1} is"
    ):
        encode(table, **options, largest=max(sizes) - 1)


def _pairs(pairs: list[tuple[str, bytes]] | None, kind: pa.DataType) -> Any:
    if pairs is None or pa.types.is_map(kind):
        return pairs
    return [{"key": key, "value": value} for key, value in pairs]


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(Refused, match="A row names partition 3, but the topic has 3") as caught:
        batches(pa.table({"value": [b"", b""], "p": [0, 3]}), partition="p")
    assert caught.value.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    late = pa.table({"value": [b"x" * 1000] * 5000, "p": [None] * 4999 + [-1]})
    with pytest.raises(Refused, match="A row names partition -1, but the topic has 3"):
        encode(late, partition="p", partitions=3, now_ms=NOW, batch_bytes=1000)
    nameless = pa.array([[{"key": None, "value": b""}]], TYPES.field("h").type)
    with pytest.raises(BarnabasError, match="A header must have a key"):
        batches(pa.table({"value": [b""], "h": nameless}), headers="h")


def test_our_broker_takes_what_is_encoded() -> None:
    table = pa.table(
        {"value": [b"%d" % n for n in range(20_000)], "k": [b"%d" % (n % 77) for n in range(20_000)]}
    )
    with Broker() as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("t", partitions=3)
        cluster = Cluster(broker.bootstrap, client_id="test", request_timeout_ms=10_000, retry_backoff_ms=10)
        cluster.allow(30)
        for each in batches(table, key="k", batch_bytes=50_000):
            part = ProducePartition(index=each.partition, records=memoryview(wrapped(each)))
            request = ProduceRequest(
                acks=-1, timeout_ms=9000, topic_data=[ProduceTopic(name="t", partition_data=[part])]
            )
            answer = cluster.leader_of(TopicPartition("t", 0)).call(request, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0
        cluster.close()
        read = [
            batch
            for partition in range(3)
            for batch in read_partition(
                broker.bootstrap, TopicPartition("t", partition), 0, _end(admin, partition)
            )
        ]
    found = pa.Table.from_batches(read).select(["value", "key"]).rename_columns(["value", "k"])
    number = pa.compute.cast(found["value"].cast(pa.string()), pa.int64())
    assert found.append_column("n", number).sort_by("n").select(["value", "k"]).equals(table)


def _end(admin: Admin, partition: int) -> int:
    wanted = TopicPartition("t", partition)
    return admin.list_offsets({wanted: -1})[wanted].offset

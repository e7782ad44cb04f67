"""Promises of wire/batch.py."""

from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import Code, Refused
from barnabas.wire import batch as batches
from barnabas.wire.batch import (
    Record,
    crc_of,
    decode_batch,
    decode_flat,
    encode_batch,
    headers,
    read_header,
    seal,
)
from barnabas.wire.compression import Compression

RECORDS = [
    Record(0, 1_700_000_000_000, b"k", b"v"),
    Record(1, 1_699_999_999_000, None, b"", (("h", b"1"), ("h", None), ("", b""))),
    Record(2, 1_700_000_500_000, b"", None),
    Record(3, 1_700_000_000_001, b"x" * 70_000, b"y" * 5000, (("name", b"z" * 300),)),
]

records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 1 << 50),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
).map(lambda found: [record._replace(offset=n) for n, record in enumerate(found)])


@given(records, st.sampled_from(Compression))
@settings(deadline=None)
def test_records_come_back_as_they_were(found: list[Record], codec: Compression) -> None:
    encoded = encode_batch(found, codec=codec)
    assert decode_batch(encoded) == found
    assert all(type(record) is Record for record in decode_batch(encoded))
    assert [Record(*row) for row in zip(*decode_flat(encoded), strict=True)] == found


@pytest.mark.parametrize("codec", Compression)
def test_another_client_reads_our_batches(codec: Compression) -> None:
    theirs = DefaultRecordBatch(encode_batch(RECORDS, codec=codec, base_offset=0))
    assert theirs.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == RECORDS


@pytest.mark.parametrize("codec", Compression)
def test_we_read_another_clients_batches(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), False, 7, 1, 5, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    header = read_header(theirs)
    assert decode_batch(theirs) == RECORDS
    assert crc_of(theirs, 0, header.size) == header.crc
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)


def test_a_header_tells_all_about_its_batch() -> None:
    shifted = [record._replace(offset=record.offset + 100) for record in RECORDS]
    encoded = encode_batch(
        shifted,
        base_offset=100,
        codec=Compression.ZSTD,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        leader_epoch=4,
        transactional=True,
        control=True,
    )
    header = read_header(encoded)
    assert header.size == len(encoded)
    assert (header.base_offset, header.last_offset, header.next_offset, header.count) == (100, 103, 104, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_500_000)
    assert (header.codec, header.is_transactional, header.is_control) == (Compression.ZSTD, True, True)
    assert not header.is_log_append_time
    assert header.last_sequence == 1, "sequences wrap round to 0"
    assert (header.leader_epoch, header.magic) == (4, 2)
    assert decode_batch(encoded) == shifted


def test_the_constants_name_the_places_of_the_fields() -> None:
    encoded = bytearray(encode_batch(RECORDS))
    encoded[batches.BASE_OFFSET_AT : batches.BASE_OFFSET_AT + 8] = (77).to_bytes(8, "big")
    encoded[batches.LEADER_EPOCH_AT : batches.LEADER_EPOCH_AT + 4] = (5).to_bytes(4, "big")
    encoded[batches.MAX_TIMESTAMP_AT : batches.MAX_TIMESTAMP_AT + 8] = (3).to_bytes(8, "big")
    encoded[batches.PRODUCER_EPOCH_AT : batches.PRODUCER_EPOCH_AT + 2] = (6).to_bytes(2, "big")
    header = read_header(encoded)
    assert (header.base_offset, header.leader_epoch, header.max_timestamp, header.producer_epoch) == (
        77,
        5,
        3,
        6,
    )
    assert header.crc != crc_of(encoded, 0, len(encoded))
    seal(encoded, 0, len(encoded))
    assert read_header(encoded).crc == crc_of(encoded, 0, len(encoded))


def test_offsets_and_epoch_can_be_assigned_without_a_new_checksum() -> None:
    encoded = bytearray(encode_batch(RECORDS))
    encoded[: batches.LENGTH_AT] = (1 << 40).to_bytes(8, "big")
    encoded[batches.LEADER_EPOCH_AT : batches.MAGIC_AT] = (8).to_bytes(4, "big")
    assert read_header(encoded).crc == crc_of(encoded, 0, len(encoded))
    assert [record.offset for record in decode_batch(encoded)] == [(1 << 40) + n for n in range(4)]


def test_log_append_time_is_the_time_of_every_record() -> None:
    encoded = encode_batch(RECORDS, log_append_time=42)
    assert read_header(encoded).is_log_append_time
    assert {record.timestamp for record in decode_batch(encoded)} == {42}


def test_a_compacted_batch_keeps_its_range_and_its_gaps() -> None:
    kept = [RECORDS[1]._replace(offset=13)]
    encoded = encode_batch(kept, base_offset=10, last_offset_delta=9, delete_horizon=5)
    header = read_header(encoded)
    assert (header.base_offset, header.last_offset, header.count) == (10, 19, 1)
    assert header.attributes & batches.DELETE_HORIZON
    assert header.base_timestamp == 5
    assert decode_batch(encoded) == kept
    assert decode_batch(encode_batch([], base_offset=10, last_offset_delta=9)) == []


def test_headers_walks_over_whole_batches_only() -> None:
    one, two = encode_batch(RECORDS), encode_batch(RECORDS[:1])
    whole = one + two
    assert [at for at, _ in headers(whole)] == [0, len(one)]
    for cut in (1, 50, len(two) - 1):
        assert [at for at, _ in headers(whole[:-cut])] == [0]
    assert list(headers(b"")) == []


def test_a_length_that_goes_nowhere_is_refused() -> None:
    encoded = bytearray(encode_batch(RECORDS))
    for length in (0, -1, 48):
        encoded[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(Refused):
            list(headers(encoded))
        with pytest.raises(Refused):
            decode_batch(encoded)


def test_every_truncation_is_refused() -> None:
    encoded = encode_batch(RECORDS[:3])
    for size in range(len(encoded)):
        with pytest.raises(Refused):
            decode_batch(encoded[:size])


@given(st.integers(batches.RECORDS_AT), st.integers(0, 255), st.sampled_from(Compression))
@settings(max_examples=500, deadline=None)
def test_a_changed_byte_gives_records_or_a_refusal(at: int, byte: int, codec: Compression) -> None:
    encoded = bytearray(encode_batch(RECORDS[:3], codec=codec))
    encoded[batches.RECORDS_AT + at % (len(encoded) - batches.RECORDS_AT)] = byte
    with suppress(Refused):
        decode_batch(encoded)


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_wrong_count_is_refused(count: int) -> None:
    encoded = bytearray(encode_batch(RECORDS[:3]))
    encoded[batches.COUNT_AT : batches.COUNT_AT + 4] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(Refused):
        decode_batch(encoded)


def test_an_old_message_format_is_refused() -> None:
    encoded = bytearray(encode_batch(RECORDS))
    encoded[batches.MAGIC_AT] = 1
    with pytest.raises(Refused) as refused:
        decode_batch(encoded)
    assert refused.value.code is Code.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_an_unknown_compression_is_refused() -> None:
    encoded = bytearray(encode_batch(RECORDS))
    encoded[batches.ATTRIBUTES_AT + 1] = 5
    with pytest.raises(Refused) as refused:
        decode_batch(encoded)
    assert refused.value.code is Code.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    encoded = encode_batch([Record(0, 0, None, bytes(1 << 20))], codec=Compression.GZIP)
    with pytest.raises(Refused) as refused:
        decode_batch(encoded, max_bytes=1 << 19)
    assert refused.value.code is Code.MESSAGE_TOO_LARGE


def test_the_checksum_is_crc_32c_and_takes_views_in_place() -> None:
    assert batches.crc32c(b"123456789") == 0xE3069283
    assert batches.crc32c(memoryview(bytearray(b"-123456789-"))[1:-1]) == 0xE3069283

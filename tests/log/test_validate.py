"""Which batches may enter a log, and with which code the others are refused."""
# mypy: disable-error-code="arg-type"
# Offsets and times are plain numbers in here.

import random
from dataclasses import replace
from random import Random
from struct import pack_into
from typing import Any

import pytest

from barnabas.config import TopicConfig
from barnabas.errors import Code, Refused
from barnabas.log.validate import Validated, validate
from barnabas.wire.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    COUNT_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    Record,
    crc_of,
    decode_batch,
    encode_batch,
    read_header,
    seal,
)
from barnabas.wire.compression import Compression, compress

NOW = 1_700_000_000_000
HOUR = 3_600_000
PLAIN = TopicConfig()


def records(count: int = 3, *, timestamp: int = NOW, key: bytes | None = b"key") -> list[Record]:
    return [Record(i, timestamp, key, b"value %d" % i, (("h", b"x"),)) for i in range(count)]


def batch(count: int = 3, **more: Any) -> memoryview:
    return memoryview(bytearray(encode_batch(records(count), **more)))


def altered(place: int, shape: str, *values: int, count: int = 3) -> memoryview:
    """A batch with one field overwritten and the right checksum for it."""
    data = bytearray(encode_batch(records(count)))
    pack_into(shape, data, place, *values)
    seal(data, 0, len(data))
    return memoryview(data)


def accept(data: memoryview, config: TopicConfig = PLAIN, **more: Any) -> Validated:
    return validate(data, config=config, now=NOW, **more)


def refusal(data: memoryview, config: TopicConfig = PLAIN) -> Code:
    before = bytes(data)
    with pytest.raises(Refused) as caught:
        validate(data, config=config, now=NOW)
    assert bytes(data) == before, "what is refused is left as it came"
    return caught.value.code


def test_a_good_batch_passes_untouched() -> None:
    for codec in Compression:
        data = batch(codec=codec)
        before = bytes(data)
        result = accept(data)
        assert bytes(result.batch) == before
        assert result.header == read_header(before)
        assert result.append_time == -1


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_refused(magic: int) -> None:
    data = batch()
    data[MAGIC_AT] = magic
    assert refusal(data) is Code.INVALID_RECORD
    assert refusal(data[:30]) is Code.INVALID_RECORD


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    data = batch()
    data[MAGIC_AT] = magic
    assert refusal(data) is Code.CORRUPT_MESSAGE
    assert refusal(data[:30]) is Code.CORRUPT_MESSAGE


def test_a_flipped_bit_is_corrupt_wherever_the_checksum_reaches() -> None:
    chance = random.Random(3)
    for _ in range(200):
        data = batch()
        data[chance.randrange(ATTRIBUTES_AT, len(data))] ^= 1 << chance.randrange(8)
        assert refusal(data) is Code.CORRUPT_MESSAGE


def test_a_batch_over_the_limit_is_too_large() -> None:
    data = batch()
    assert refusal(data, replace(PLAIN, max_message_bytes=len(data) - 1)) is Code.MESSAGE_TOO_LARGE
    accept(data, replace(PLAIN, max_message_bytes=len(data)))


def test_records_over_a_segments_size_are_too_large() -> None:
    data = batch()
    assert refusal(data, replace(PLAIN, segment_bytes=len(data) - 1)) is Code.RECORD_LIST_TOO_LARGE


def test_nothing_at_all_is_refused() -> None:
    assert refusal(memoryview(bytearray())) is Code.INVALID_RECORD


def test_a_batch_cut_short_is_refused() -> None:
    data = batch()
    for size in range(len(data)):
        assert refusal(data[:size]) in (Code.INVALID_RECORD, Code.CORRUPT_MESSAGE)


@pytest.mark.parametrize("length", [-1, 0, 13, 48, -(2**31)])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    assert refusal(altered(LENGTH_AT, ">i", length)) is Code.CORRUPT_MESSAGE


def test_a_length_beyond_the_request_is_refused() -> None:
    assert refusal(altered(LENGTH_AT, ">i", 2**31 - 1)) is Code.INVALID_RECORD


def test_a_request_holds_one_batch_a_partition() -> None:
    two = memoryview(bytearray(bytes(batch()) * 2))
    assert refusal(two) is Code.INVALID_RECORD


def test_a_fragment_behind_the_batch_is_cut() -> None:
    whole = bytes(batch())
    for extra in (b"\0", whole[:-1]):
        result = accept(memoryview(bytearray(whole + extra)))
        assert bytes(result.batch) == whole


@pytest.mark.parametrize(
    ("place", "value"),
    [(COUNT_AT, 0), (COUNT_AT, -1), (COUNT_AT, 4), (LAST_OFFSET_DELTA_AT, 5), (LAST_OFFSET_DELTA_AT, -1)],
)
def test_offsets_and_count_must_agree(place: int, value: int) -> None:
    assert refusal(altered(place, ">i", value)) is Code.INVALID_RECORD


def test_an_empty_batch_is_refused() -> None:
    data = memoryview(bytearray(encode_batch([], last_offset_delta=-1)))
    assert refusal(data) is Code.INVALID_RECORD


def test_offsets_are_the_brokers_to_give() -> None:
    assert refusal(altered(BASE_OFFSET_AT, ">q", 5)) is Code.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    assert refusal(altered(ATTRIBUTES_AT, ">h", codec)) is Code.UNSUPPORTED_COMPRESSION_TYPE


def test_clients_write_no_control_batches() -> None:
    data = batch(1, control=True, transactional=True, producer_id=1, producer_epoch=0)
    assert refusal(data) is Code.INVALID_RECORD
    assert accept(data, internal=True).header.is_control


def test_clients_set_no_delete_horizon() -> None:
    assert refusal(batch(delete_horizon=NOW)) is Code.INVALID_RECORD


def test_clients_do_not_say_log_append_time() -> None:
    assert refusal(batch(log_append_time=NOW)) is Code.INVALID_TIMESTAMP


def test_a_transactional_batch_needs_a_producer() -> None:
    assert refusal(batch(transactional=True)) is Code.INVALID_RECORD
    accept(batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0))


def test_a_producer_id_needs_an_epoch_and_a_sequence() -> None:
    assert refusal(batch(producer_id=1, producer_epoch=0, base_sequence=-1)) is Code.INVALID_RECORD
    assert refusal(batch(producer_id=1, producer_epoch=-1, base_sequence=0)) is Code.INVALID_RECORD


def test_a_timestamp_too_far_ahead_is_refused() -> None:
    ahead = memoryview(bytearray(encode_batch(records(timestamp=NOW + HOUR + 1))))
    assert refusal(ahead) is Code.INVALID_TIMESTAMP
    accept(memoryview(bytearray(encode_batch(records(timestamp=NOW + HOUR)))))
    assert refusal(altered(MAX_TIMESTAMP_AT, ">q", 2**63 - 1)) is Code.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_timestamp_too_far_behind_is_refused_wherever_in_the_batch(codec: Compression) -> None:
    strict = replace(PLAIN, message_timestamp_before_max_ms=HOUR)
    one_old = [*records(2), Record(2, NOW - HOUR - 1, None, b"")]
    data = memoryview(bytearray(encode_batch(one_old, codec=codec)))
    assert refusal(data, strict) is Code.INVALID_TIMESTAMP
    accept(data)
    none = memoryview(bytearray(encode_batch(records(timestamp=-1), codec=codec)))
    accept(none, strict)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_brokers_time_is_written_where_the_topic_wants_it(codec: Compression) -> None:
    stamped = replace(PLAIN, message_timestamp_type="LogAppendTime")
    data = memoryview(bytearray(encode_batch(records(timestamp=5), codec=codec)))
    result = accept(data, stamped)
    assert result.append_time == NOW
    assert result.header == read_header(result.batch)
    assert result.header.crc == crc_of(result.batch, 0, len(result.batch))
    assert result.header.max_timestamp == NOW
    assert [record.timestamp for record in decode_batch(result.batch)] == [NOW] * 3
    assert result.batch.obj is data.obj, "in place: nothing is copied"


@pytest.mark.parametrize("codec", list(Compression))
def test_a_compacted_topic_needs_keys(codec: Compression) -> None:
    compacted = replace(PLAIN, cleanup_policy=frozenset({"compact"}))
    keyless = [*records(2), Record(2, NOW, None, b"v")]
    assert (
        refusal(memoryview(bytearray(encode_batch(keyless, codec=codec))), compacted) is Code.INVALID_RECORD
    )
    accept(batch(codec=codec), compacted)
    accept(memoryview(bytearray(encode_batch([Record(0, NOW, b"", None)]))), compacted)


def test_records_that_do_not_add_up_are_refused_where_they_are_read() -> None:
    compacted = replace(PLAIN, cleanup_policy=frozenset({"compact", "delete"}))
    chance = random.Random(5)
    codes = set()
    for _ in range(300):
        data = bytearray(encode_batch(records()))
        data[chance.randrange(61, len(data))] = chance.randrange(256)
        seal(data, 0, len(data))
        try:
            accept(memoryview(data), compacted)
        except Refused as error:
            codes.add(error.code)
    assert codes == {Code.INVALID_RECORD}


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", list(Compression))
def test_a_batch_is_stored_in_the_codec_of_the_topic(source: Compression, target: str) -> None:
    data = batch(50, codec=source, producer_id=4, producer_epoch=1, base_sequence=7)
    result = accept(data, replace(PLAIN, compression_type=target))
    wanted = Compression.NONE if target == "uncompressed" else Compression.named(target)
    assert result.header.codec is wanted
    assert decode_batch(result.batch) == records(50)
    assert result.header == read_header(result.batch)
    assert result.header.crc == crc_of(result.batch, 0, len(result.batch))
    assert result.header.size == len(result.batch)
    assert (result.header.producer_id, result.header.base_sequence) == (4, 7)
    if source is wanted:
        assert result.batch.obj is data.obj


def test_a_batch_that_grows_over_the_limit_by_recompression_is_too_large() -> None:
    data = memoryview(bytearray(encode_batch([Record(0, NOW, None, bytes(5000))], codec=Compression.ZSTD)))
    config = replace(PLAIN, compression_type="uncompressed", max_message_bytes=1000)
    assert refusal(data, config) is Code.MESSAGE_TOO_LARGE


def test_a_bomb_costs_its_sender_an_error() -> None:
    bomb = compress(Compression.GZIP, bytes(200 * 1024 * 1024), 1)
    data = bytearray(encode_batch(records())[:61]) + bomb
    pack_into(">i", data, LENGTH_AT, len(data) - 12)
    pack_into(">h", data, ATTRIBUTES_AT, Compression.GZIP)
    seal(data, 0, len(data))
    assert refusal(memoryview(data), replace(PLAIN, compression_type="lz4")) is Code.MESSAGE_TOO_LARGE
    compacted = replace(PLAIN, cleanup_policy=frozenset({"compact"}))
    assert refusal(memoryview(data), compacted) is Code.MESSAGE_TOO_LARGE


def with_body(body: bytes, count: int, codec: Compression = Compression.NONE) -> memoryview:
    """A batch that says of these bytes that they are so many records."""
    data = bytearray(encode_batch(records(1)))[:HEADER_SIZE] + body
    pack_into(">i", data, LENGTH_AT, len(data) - 12)
    pack_into(">h", data, ATTRIBUTES_AT, codec)
    pack_into(">i", data, LAST_OFFSET_DELTA_AT, count - 1)
    pack_into(">i", data, COUNT_AT, count)
    seal(data, 0, len(data))
    return memoryview(data)


def body_of(count: int) -> bytes:
    return encode_batch(records(count))[HEADER_SIZE:]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (body_of(3), 1),
        (body_of(1), 5),
        (body_of(1), 2**31 - 1),
        (body_of(3), 1_000),
        (b"", 1),
        (b"\x80", 1),
        (b"\xff" * 60, 1),
        (b"\x01" * 60, 3),
    ],
)
def test_a_batch_cannot_hold_more_records_than_it_has_bytes_for(body: bytes, count: int) -> None:
    with pytest.raises(Refused, match="does not hold the") as caught:
        validate(with_body(body, count), config=PLAIN, now=NOW)
    assert caught.value.code is Code.INVALID_RECORD


@pytest.mark.parametrize("size", [1, 57, 58, 120, 8_185, 8_186, 100_000])
@pytest.mark.parametrize("count", [1, 2])
def test_records_of_any_size_are_let_in(size: int, count: int) -> None:
    made = encode_batch([Record(i, NOW, None, b"x" * size, ()) for i in range(count)])
    assert validate(memoryview(bytearray(made)), config=PLAIN, now=NOW).header.count == count


def test_the_smallest_records_are_let_in() -> None:
    made = bytearray(encode_batch([Record(i, NOW, None, None, ()) for i in range(50)]))
    assert len(made) == HEADER_SIZE + 50 * 7
    assert validate(memoryview(made), config=PLAIN, now=NOW).header.count == 50


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_compressed_records_begin_as_their_codec_says(codec: Compression) -> None:
    made = with_body(compress(codec, body_of(3)), 3, codec)
    assert validate(made, config=PLAIN, now=NOW).header.count == 3
    with pytest.raises(Refused, match=f"not {codec.name.lower()}") as caught:
        validate(with_body(body_of(3), 3, codec), config=PLAIN, now=NOW)
    assert caught.value.code is Code.CORRUPT_MESSAGE


@pytest.mark.parametrize("place", [BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT])
@pytest.mark.parametrize("timestamp", [-(2**63), -2])
def test_times_before_all_time_are_refused(place: int, timestamp: int) -> None:
    with pytest.raises(Refused) as caught:
        validate(altered(place, ">q", timestamp), config=PLAIN, now=NOW)
    assert caught.value.code is Code.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD, Compression.GZIP])
def test_what_is_compressed_anew_has_all_the_records_it_counts(codec: Compression) -> None:
    """Two frames in one body: the second was once lost, and the count stayed."""
    second = encode_batch(records(2))[HEADER_SIZE:][len(body_of(1)) :]
    made = with_body(compress(codec, body_of(1)) + compress(codec, second), 2, codec)
    config = replace(PLAIN, compression_type="uncompressed")
    if codec is Compression.LZ4:  # of which Java reads one frame only
        with pytest.raises(Refused, match="does not hold the 2 records"):
            validate(made, config=config, now=NOW)
    else:
        fresh = validate(made, config=config, now=NOW).batch
        assert [record.value for record in decode_batch(fresh)] == [b"value 0", b"value 1"]


def test_a_bomb_is_refused_before_it_has_unpacked() -> None:
    bomb = with_body(compress(Compression.ZSTD, bytes(40 << 20)), 3, Compression.ZSTD)
    with pytest.raises(Refused) as caught:
        validate(bomb, config=replace(PLAIN, cleanup_policy=frozenset({"compact"})), now=NOW)
    assert caught.value.code is Code.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("codec", "quick", "thorough"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 9, 12), (Compression.LZ4, 9, 1), (Compression.ZSTD, -7, 19)],
)
def test_what_is_compressed_anew_has_the_level_that_is_set(
    codec: Compression, quick: int, thorough: int
) -> None:
    name = codec.name.lower()
    words = Random(1).choices([b"lorem", b"ipsum", b"dolor", b"sit", b"amet"], k=20_000)
    made = encode_batch([Record(0, NOW, None, b" ".join(words), ())])

    def size(level: int) -> int:
        setting: Any = {f"compression_{name}_level": level}
        config = replace(PLAIN, compression_type=name, **setting)
        fresh = validate(memoryview(bytearray(made)), config=config, now=NOW).batch
        assert decode_batch(fresh)[0].value == b" ".join(words)
        return len(fresh)

    assert size(thorough) < size(quick)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_what_compresses_well_is_no_bomb(codec: Compression) -> None:
    made = encode_batch([Record(i, NOW, b"k", b"x" * 700, ()) for i in range(800)], codec=codec)
    compacted = replace(PLAIN, cleanup_policy=frozenset({"compact"}), max_message_bytes=len(made))
    assert validate(memoryview(bytearray(made)), config=compacted, now=NOW).header.count == 800

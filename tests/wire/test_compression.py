"""Promises of wire/compression.py."""

import gzip
import random
import struct
import zlib
from contextlib import suppress

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import Code, Refused
from barnabas.wire.compression import Compression, compress, decompress

PACKED = [codec for codec in Compression if codec]
TEXT = b"the messenger waits at the castle gate " * 5000


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, random.Random(1).randbytes(100_000)])
def test_what_is_compressed_comes_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", Compression)
def test_memoryviews_are_taken_as_they_are(codec: Compression) -> None:
    packed = bytearray(b"??" + compress(codec, memoryview(bytearray(TEXT))) + b"??")
    assert decompress(codec, memoryview(packed)[2:-2], max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"), [(Compression.GZIP, 1), (Compression.LZ4, 9), (Compression.ZSTD, 19)]
)
def test_a_level_can_be_asked_for(codec: Compression, level: int) -> None:
    packed = compress(codec, TEXT, level)
    assert decompress(codec, packed, max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", Compression)
def test_one_byte_more_than_allowed_is_refused(codec: Compression) -> None:
    with pytest.raises(Refused) as refused:
        decompress(codec, compress(codec, TEXT), max_bytes=len(TEXT) - 1)
    assert refused.value.code is Code.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED)
def test_every_truncation_is_refused(codec: Compression) -> None:
    packed = compress(codec, TEXT[:200])
    for size in range(len(packed)):
        if codec is Compression.SNAPPY and size == 16:
            continue  # a xerial header with no blocks is a whole, empty stream
        with pytest.raises(Refused):
            decompress(codec, packed[:size], max_bytes=1 << 20)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_garbage_is_refused_or_bounded(codec: Compression, data: bytes) -> None:
    with suppress(Refused):
        assert len(decompress(codec, data, max_bytes=10_000)) <= 10_000


def _bombs() -> list[tuple[Compression, bytes]]:
    zeros = bytes(64 << 20)
    streaming = zstandard.ZstdCompressor().compressobj()
    return [
        (Compression.GZIP, gzip.compress(zeros, 9)),
        (Compression.LZ4, lz4.frame.compress(zeros)),
        (Compression.LZ4, lz4.frame.compress(zeros, store_size=False)),
        (Compression.ZSTD, zstandard.ZstdCompressor().compress(zeros)),
        (Compression.ZSTD, streaming.compress(zeros) + streaming.flush()),
        (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        (Compression.SNAPPY, compress(Compression.SNAPPY, zeros)),
    ]


def test_a_bomb_is_refused_before_the_memory_is_spent() -> None:
    import tracemalloc

    bombs = _bombs()
    for codec, bomb in bombs:
        tracemalloc.start()
        with pytest.raises(Refused) as refused:
            decompress(codec, bomb, max_bytes=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert refused.value.code is Code.MESSAGE_TOO_LARGE
        assert peak < 16 << 20, codec


def test_a_claimed_size_costs_nothing() -> None:
    claim = b"\xff\xff\xff\xff\x07" + b"\x00" * 10
    with pytest.raises(Refused):
        decompress(Compression.SNAPPY, claim, max_bytes=1 << 40)


def test_zstd_frames_without_a_content_size_are_read() -> None:
    data = random.Random(2).randbytes(3_000_000)
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(data[:1_000_000]) + stream.compress(data[1_000_000:]) + stream.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert decompress(Compression.ZSTD, packed, max_bytes=len(data)) == data


def test_gzip_members_in_a_row_are_one_text() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed, max_bytes=7) == b"one two"
    with pytest.raises(Refused):
        decompress(Compression.GZIP, packed, max_bytes=6)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("sized", [True, False])
def test_every_shape_of_an_lz4_frame_is_read(linked: bool, checksums: bool, sized: bool) -> None:
    packed = lz4.frame.compress(
        TEXT, block_linked=linked, content_checksum=checksums, block_checksum=checksums, store_size=sized
    )
    assert decompress(Compression.LZ4, packed, max_bytes=len(TEXT)) == TEXT


def test_lz4_is_written_in_the_shape_java_reads() -> None:
    packed = compress(Compression.LZ4, TEXT)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    flags, block = packed[4], packed[5]
    assert flags >> 6 == 1, "version 1"
    assert flags & 0x20, "independent blocks"
    assert not flags & 0x08, "no content size"
    assert block >> 4 == 4, "blocks of 64 KiB"


def test_snappy_is_written_in_xerial_framing_and_read_in_both() -> None:
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (size,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == TEXT[: 32 * 1024]
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw, max_bytes=len(TEXT)) == TEXT


def test_gzip_is_plain_gzip() -> None:
    assert zlib.decompress(compress(Compression.GZIP, TEXT), 31) == TEXT


def test_a_codec_is_known_by_its_name() -> None:
    assert Compression.named("zstd") is Compression.ZSTD
    with pytest.raises(Refused, match="no compression 'brotli'"):
        Compression.named("brotli")


def test_zstd_frames_behind_one_another_are_all_read() -> None:
    packer = zstandard.ZstdCompressor()
    empty = bytes.fromhex("28b52ffd2000010000")  # which says that it is
    for frames in ((b"a", b"b"), (b"", TEXT, b"c"), (TEXT, TEXT)):
        packed = b"".join(packer.compress(each) if each else empty for each in frames)
        whole = b"".join(frames)
        assert decompress(Compression.ZSTD, packed, max_bytes=len(whole)) == whole
        with pytest.raises(Refused):
            decompress(Compression.ZSTD, packed, max_bytes=len(whole) - 1)

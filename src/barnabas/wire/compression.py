"""The codecs of record batches. Called by `batch`; bytes in, bytes out, in the framings Java's clients use.

Always holds: `decompress` spends memory in proportion to `max_bytes`, whatever the input claims.

One library a codec, by measurement (writing 16 KiB of JSON, MB/s): gzip by zlib, 97 against cramjam's 57; lz4
by lz4.frame, 1353 against 117; zstd by zstandard, 432 against 331; snappy by cramjam, 1300 (python-snappy is
cramjam too). Each is imported when first used, because that takes 5 to 14 ms.
"""

from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from struct import Struct

from barnabas.errors import Code, Refused
from barnabas.types import Buffer


class Compression(IntEnum):
    """The codec number in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Compression":
        """The codec that `compression.type` calls by this name."""
        try:
            return cls[name.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in cls)
            raise Refused(
                Code.UNSUPPORTED_COMPRESSION_TYPE, f"There is no compression {name!r}: use one of {names}."
            ) from None


# Four bytes of zstd may stand for a block of 128 KiB.
_ZSTD_RATIO = 32 * 1024

_XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 * 1024
_INT32 = Struct(">i")

# A snappy element of three bytes yields 64 at most, so a larger claim is a lie.
_SNAPPY_RATIO = 22


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress as Java's readers accept it. A level means what the codec's own library means by it."""
    if codec is Compression.GZIP:
        import zlib

        gzip = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return gzip.compress(data) + gzip.flush()
    if codec is Compression.LZ4:
        import lz4.frame  # type: ignore[import-untyped]

        # Java reads independent blocks only.
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=level or 0,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if codec is Compression.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    if codec is Compression.SNAPPY:
        return b"".join(_snappy_blocks(data))
    return bytes(data)


def decompress(codec: Compression, data: Buffer, *, max_bytes: int) -> bytes:
    """The original bytes. Refused when they are broken, or more than `max_bytes`."""
    if codec is Compression.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    if codec is Compression.GZIP:
        return _gunzip(data, max_bytes)
    if codec is Compression.SNAPPY:
        return _unsnappy(memoryview(data), max_bytes)
    if codec is Compression.LZ4:
        return _unlz4(data, max_bytes)
    return _unzstd(data, max_bytes)


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        Code.MESSAGE_TOO_LARGE, f"A batch decompresses to more than the {max_bytes} bytes allowed."
    )


def _corrupt(codec: str, why: object) -> Refused:
    return Refused(Code.CORRUPT_MESSAGE, f"A batch is not valid {codec}: {why}.")


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    room = max_bytes + 1  # one more than allowed, because 0 means no limit to zlib
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(31)
        try:
            part = member.decompress(rest, room)
        except zlib.error as error:
            raise _corrupt("gzip", error) from None
        room -= len(part)
        if room <= 0:
            raise _too_large(max_bytes)
        if not member.eof:
            raise _corrupt("gzip", "it ends too early")
        parts.append(part)
        rest = member.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    feed: Buffer = data
    chunk = max(65536, 8 * len(data))
    while not frame.eof:
        try:
            part = frame.decompress(feed, min(chunk, max_bytes + 1 - size))
        except RuntimeError as error:
            raise _corrupt("lz4", error) from None
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not part and not frame.eof:
            raise _corrupt("lz4", "it ends too early")
        parts.append(part)
        feed = b""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    import zstandard

    try:
        claimed = zstandard.frame_content_size(data)
        if claimed > max_bytes:
            raise _too_large(max_bytes)
        decompressor = zstandard.ZstdDecompressor()
        if claimed > 0:
            with suppress(zstandard.ZstdError):  # there may be another frame behind the first
                return decompressor.decompress(data, allow_extra_data=False)
        # A streaming frame, as Java writes it, does not say how much comes: feed it in pieces so small
        # that none can hold more than is allowed.
        stream = None
        view = memoryview(data)
        parts: list[bytes] = []
        room = max_bytes
        step = max(256, max_bytes // _ZSTD_RATIO)
        for at in range(0, len(view), step):
            feed: Buffer = view[at : at + step]
            while len(feed):
                stream = stream or decompressor.decompressobj()
                part = stream.decompress(feed)
                room -= len(part)
                if room < 0:
                    raise _too_large(max_bytes)
                parts.append(part)
                feed = stream.unused_data if stream.eof else b""
                if stream.eof:
                    stream = None
        if stream is not None:
            raise _corrupt("zstd", "it ends too early")
        return b"".join(parts)
    except zstandard.ZstdError as error:
        raise _corrupt("zstd", error) from None


def _snappy_blocks(data: Buffer) -> Iterator[bytes]:
    from cramjam import snappy

    yield _XERIAL_HEADER
    view = memoryview(data)
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        yield _INT32.pack(len(block))
        yield block


def _unsnappy(view: memoryview, max_bytes: int) -> bytes:
    if len(view) == 0 or (view[:8] == _XERIAL_MAGIC and len(view) < len(_XERIAL_HEADER)):
        raise _corrupt("snappy", "it ends too early")
    if view[:8] != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    at = len(_XERIAL_HEADER)
    while at < len(view):
        if at + 4 > len(view):
            raise _corrupt("snappy", "it ends too early")
        (size,) = _INT32.unpack_from(view, at)
        at += 4
        if not 0 < size <= len(view) - at:
            raise _corrupt("snappy", "a block does not fit")
        part = _unsnappy_block(view[at : at + size], room, max_bytes)
        room -= len(part)
        parts.append(part)
        at += size
    return b"".join(parts)


def _unsnappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    import cramjam

    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > room:
            raise _too_large(max_bytes)
        if claimed > _SNAPPY_RATIO * len(block):
            raise _corrupt("snappy", "a block claims more than it can hold")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", error) from None

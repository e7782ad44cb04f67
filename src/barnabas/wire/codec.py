"""Turns messages into bytes and back. Called by frames.py and by the broker's and the client's connections.

The work is done by functions written for each (class, version) on first use (see source.py) and kept here.
Decoding raises `Malformed` and nothing else, whatever the bytes.
"""

import struct
from typing import Any, TypeVar

from barnabas.types import Buffer
from barnabas.wire.decoding import Decoder, DecoderSource
from barnabas.wire.encoding import Encoder, EncoderSource
from barnabas.wire.schema import Chunk, Malformed, Message

__all__ = ["Chunk", "Malformed", "Message", "decode", "encode", "encode_onto"]

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Any], int], Decoder] = {}
_encoders: dict[tuple[type[Any], int], Encoder] = {}


def decode(cls: type[M], version: int, buffer: Buffer, at: int = 0) -> M:
    """The message that fills `buffer` from `at` to its end."""
    run = _decoders.get((cls, version)) or _decoder(cls, version)
    try:
        return run(buffer, at)  # type: ignore[no-any-return]
    except (struct.error, IndexError) as problem:
        raise Malformed(f"{cls.__name__} v{version} is cut short") from problem
    except UnicodeDecodeError as problem:
        raise Malformed(f"{cls.__name__} v{version} has a string that is not UTF-8") from problem


def encode(message: Message, version: int) -> list[Chunk]:
    """The chunks of a message, to be sent in this order. A `Records` value is a chunk of its own."""
    return encode_onto(bytearray(), message, version)


def encode_onto(start: bytearray, message: Message, version: int) -> list[Chunk]:
    """As `encode`; the first chunk is `start` itself, grown: a frame has its length and header there."""
    cls = type(message)
    run = _encoders.get((cls, version)) or _encoder(cls, version)
    try:
        return run(message, start)
    except (struct.error, UnicodeEncodeError) as problem:
        raise Malformed(f"{cls.__name__} v{version} cannot carry this: {problem}") from problem


def _decoder(cls: type[Any], version: int) -> Decoder:
    run = _decoders[cls, version] = DecoderSource(cls, version).compiled()
    return run


def _encoder(cls: type[Any], version: int) -> Encoder:
    run = _encoders[cls, version] = EncoderSource(cls, version).compiled()
    return run

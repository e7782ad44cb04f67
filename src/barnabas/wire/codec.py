"""Turns messages into bytes and back. Called by frames.py and by the broker's and the client's connections.

The work is done by functions written for each (class, version) on first use (see source.py) and kept here.
Decoding raises `Malformed` and nothing else, whatever the bytes.

Measured (Python 3.11, CPU time, best of 40 runs; half as much again when others fight for the caches): a
produce v12 of one partition is decoded in 1.7 us, and its response encoded and framed in 1.2: the budget is
4 together. A fetch v12 of ten partitions takes 4.2 and 6.5 (3.9 without records): the budget is 20.
"""

from typing import Any, TypeVar

from barnabas.types import Buffer
from barnabas.wire.decoding import Decoder, DecoderSource
from barnabas.wire.encoding import Encoder, EncoderSource
from barnabas.wire.schema import Chunk, Malformed, Message

__all__ = ["Chunk", "Malformed", "Message", "decode", "decoder", "encode", "encoder"]

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Any], int], Decoder] = {}
_encoders: dict[tuple[type[Any], int], Encoder] = {}


def decode(cls: type[M], version: int, buffer: Buffer, at: int = 0) -> M:
    """The message that fills `buffer` from `at` to its end."""
    run = _decoders.get((cls, version)) or decoder(cls, version)
    return run(buffer, at)  # type: ignore[no-any-return]


def encode(message: Message, version: int) -> list[Chunk]:
    """The chunks of a message, to be sent in this order. A `Records` value is a chunk of its own."""
    return encoder(type(message), version)(message, bytearray())


def decoder(cls: type[Any], version: int) -> Decoder:
    """The function behind `decode`."""
    run = _decoders.get((cls, version))
    if run is None:
        run = _decoders[cls, version] = DecoderSource(cls, version).compiled()
    return run


def encoder(cls: type[Any], version: int) -> Encoder:
    """The function behind `encode`. It appends to the bytearray it is given, its first chunk.

    A class may bring its own (`encoder_of(version)`), which must write just what that of another class would.
    """
    run = _encoders.get((cls, version))
    if run is None:
        own = getattr(cls, "encoder_of", None)
        run = _encoders[cls, version] = own(version) if own else EncoderSource(cls, version).compiled()
    return run

"""Zigzag varints, thousands at once, in numpy. Used by the columnar decoder and encoder.

Always holds: nothing is read outside the buffer; a number that is not one is `Refused` (CORRUPT_MESSAGE).
"""

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from barnabas.errors import Code, Refused

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
_Number = TypeVar("_Number", np.int64, np.uint64)

LONGEST = 10
"""Bytes of a number of 64 bits."""

_WORD = 8
_SEVEN = np.uint64(0x7F)
_EIGHT = np.uint64(8)
_BITS = np.uint64(64)
"""Bits of a byte, and bytes of a word. Older numpys make a float of a word and a plain number."""
_WORTH_ALL = 4
"""A part of all rows so large that they are better looked at together."""

_READY = 1 << 14
"""Numbers whose varints are at hand: the offsets in a batch of a table, and most sizes."""


def read_varints(buffer: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The number at each of these places, and the places behind them.

    4 ns a number where all take one byte, 10 ns where they take one to three.
    """
    try:
        byte = buffer[at]
        number = (byte & 0x7F).astype(np.int64)
        at = at + 1
        more = byte >= 0x80
        shift = 7
        while count := np.count_nonzero(more):
            if shift == 7 * LONGEST:
                raise corrupt("a number of more than ten bytes")
            if count > at.size // _WORTH_ALL and int(at.max()) < buffer.size:
                # The byte of all rows, and nothing of those whose number has ended: half the time of picking rows.
                byte = buffer[at]
                byte *= more
                number |= (byte & 0x7F).astype(np.int64) << shift
                at += more
                more = byte >= 0x80
            else:
                longer = np.flatnonzero(more)
                byte = buffer[at[longer]]
                number[longer] |= (byte & 0x7F).astype(np.int64) << shift
                at[longer] += 1
                more[longer] = byte >= 0x80
            shift += 7
    except IndexError:
        raise corrupt("a record is cut short") from None
    half = (number.view(np.uint64) >> np.uint64(1)).view(np.int64)
    number &= 1
    return half ^ -number, at


def corrupt(why: str) -> Refused:
    return Refused(Code.CORRUPT_MESSAGE, f"A record batch is malformed: {why}.")


class Varints:
    """The varints of many numbers, or of one that is the same in all rows: an array without a dimension."""

    def __init__(self, numbers: Ints) -> None:
        self.numbers = numbers
        least = int(np.minimum.reduce(numbers, axis=None, initial=_READY))
        most = int(np.maximum.reduce(numbers, axis=None, initial=0))
        self._are_ready = least >= 0 and most < _READY
        self._only = most if self._are_ready and least == most else None
        self.are_zero = least == most == 0
        self.size: Ints = _ready_sizes(numbers, least, most) if self._are_ready else _sizes(_zigzag(numbers))
        """How many bytes each takes; without a dimension where all take as many."""
        self.longest = int(self.size.max(initial=1))

    def words(self) -> Words:
        """Each as a word, its first byte lowest, or the one that all have. They must fit."""
        if not self._are_ready:
            return _packed(_zigzag(self.numbers), self.longest)
        words = _ready()[1]
        return words[self.numbers] if self._only is None else words[self._only : self._only + 1]


class Offsets(Varints):
    """The varints of 0, 1, 2... again and again, each time a given number; never more than are at hand."""

    def __init__(self, counts: Sequence[int]) -> None:
        most = max(counts)
        assert most <= _READY
        self._counts = counts
        numbers, _, sizes = _ready()
        self.numbers = self._as_far(numbers)
        self.size = self._as_far(sizes)
        self.longest = int(sizes[most - 1])
        self.are_zero = most == 1

    def words(self) -> Words:
        return self._as_far(_ready()[1])

    def _as_far(self, ready: NDArray[_Number]) -> NDArray[_Number]:
        first, *others = (ready[:count] for count in self._counts)
        return np.concatenate([first, *others]) if others else first


def fit(fields: Sequence[Varints], most: int) -> bool:
    """Whether all fields of a row never take more than `most` bytes, of which there are 16 in two words."""
    return sum(field.longest for field in fields) <= most and all(field.longest <= _WORD for field in fields)


def pack_varints(fields: Sequence[Varints]) -> tuple[Words, Words, Ints]:
    """Row by row the varints of all fields, one behind the other: two words, their first byte lowest, and the size."""
    low = high = np.zeros(1, np.uint64)
    size: Ints = np.zeros(1, np.int64)
    longest = 0
    for field in fields:
        if not field.are_zero:
            words, shift = field.words(), _EIGHT * size.view(np.uint64)
            low = low | words << shift
            if longest + field.longest > _WORD:
                # A shift by less than 0 or more than 63 bits leaves nothing: one of the two does, unless they agree.
                high = high | words >> _BITS - shift | words << shift - _BITS
        size = size + field.size
        longest += field.longest
    return low, high, size


def write_varints(fields: Sequence[Varints], rows: int) -> tuple[Bytes, Ints]:
    """Row by row the varints of all fields, and where each row's begin and the last one's end. 5 ns a byte."""
    zigzags = [np.broadcast_to(_zigzag(field.numbers), rows) for field in fields]
    sizes = [np.broadcast_to(field.size, rows) for field in fields]
    edges = np.zeros(rows + 1, np.int64)
    np.cumsum(np.sum(sizes, axis=0), out=edges[1:])
    out = np.empty(int(edges[-1]), np.uint8)
    at = edges[:-1].copy()
    for zigzag, size in zip(zigzags, sizes, strict=True):
        _write(out, at, zigzag, size)
        at += size
    return out, edges


def varint_sizes(numbers: Ints) -> Ints:
    """How many bytes each number takes; without a dimension where all take as many."""
    return Varints(numbers).size


def _zigzag(numbers: Ints) -> Words:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


@cache
def _ready() -> tuple[Ints, Words, Ints]:
    """0, 1, 2..., their varints, and the sizes of those."""
    numbers = np.arange(_READY)
    zigzags = _zigzag(numbers)
    sizes = _sizes(zigzags)
    return numbers, _packed(zigzags, int(sizes.max())), sizes


def _ready_sizes(numbers: Ints, least: int, most: int) -> Ints:
    sizes = _ready()[2]
    return sizes[most] if sizes[least] == sizes[most] else sizes[numbers]


def _packed(zigzag: Words, most: int) -> Words:
    """Each number's varint as a word, its first byte lowest; none takes more than `most` bytes."""
    word: Words = zigzag & _SEVEN
    for place in range(1, most):
        rest = zigzag >> np.uint64(7 * place)
        word = (
            word
            | (rest & _SEVEN) << np.uint64(8 * place)
            | (rest > 0).astype(np.uint64) << np.uint64(8 * place - 1)
        )
    return word


def _sizes(zigzag: Words) -> Ints:
    size = np.ones(zigzag.shape, np.int64)
    most = int(zigzag.max(initial=0))
    for bits in range(7, 64, 7):
        if most >> bits == 0:
            break
        size += zigzag >= np.uint64(1 << bits)
    return size


def _write(out: Bytes, at: Ints, zigzag: Words, size: Ints) -> None:
    more = size > 1
    out[at] = (zigzag.astype(np.uint8) & 0x7F) | (more.view(np.uint8) << 7)
    shift = 0
    while more.any():
        if not more.all():
            at, zigzag, size = at[more], zigzag[more], size[more]
        shift += 1
        more = size > shift + 1
        seven = (zigzag >> np.uint64(7 * shift)).astype(np.uint8) & 0x7F
        out[at + shift] = seven | (more.view(np.uint8) << 7)

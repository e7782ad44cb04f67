"""Weaves pieces of bytes into one buffer, row by row: of each the first piece, the second... Used by `table_encoder`.

Always holds: every view stands for bytes that are there; Arrow follows them as it finds them.

How: an Arrow view is 16 bytes, a size and either the bytes themselves, if there are 12 or less, or where they lie. To
put views in order is to move 16 bytes, whatever they stand for; and Arrow writes out what they stand for in one go:
8 ns for a row of 100 B in two pieces, 30 ns for one of 1 KiB, which is what any copy takes.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.client.columns.table_slices import Pieces
from barnabas.client.columns.varints import Ints, Varints, Words, fit, pack_varints, write_varints

_INLINE = 12
_HALF = np.uint64(32)
_kept = threading.local()


class Strand(NamedTuple):
    """A piece for each row, or one that is the same in all, as views: two words each."""

    first: Words
    second: Words
    data: pa.Buffer | None = None
    """Where those lie that are too long for their view."""

    def of(self, rows: Ints | None) -> "Strand":
        """The pieces of these rows; None is all, as they are."""
        return self if rows is None else Strand(self.first[rows], self.second[rows], self.data)


def same(piece: bytes) -> Strand:
    """A short piece that is the same in all rows."""
    view = len(piece).to_bytes(4, "little") + piece.ljust(_INLINE, b"\x00")
    return Strand(*np.frombuffer(view, "<u8").reshape(2, 1))


NOTHING = same(b"")


def pieces(of: Pieces) -> Strand:
    """The pieces of an array; null has no bytes."""
    if of.size.min(initial=_INLINE + 1) > _INLINE:
        # None lies in its view, so they can be written down: 1 ns each instead of 8. Arrow does not look at what else
        # a view has, the first four bytes, when it copies what the view stands for.
        return Strand(of.size.view(np.uint64), of.at.view(np.uint64) << _HALF, of.data)
    strand = _strand(of.offsets, of.data)
    if of.array.null_count:
        return strand._replace(first=np.where(of.size < 0, np.uint64(0), strand.first))
    return strand


def are_short(*fields: Varints) -> bool:
    """Whether the varints of every row fit into their view: others are written byte by byte, 5 ns each."""
    return fit(fields, _INLINE)


def varints(*fields: Varints, rows: int) -> Strand:
    """The varints of each row, one behind the other."""
    if not are_short(*fields):
        data, edges = write_varints(fields, rows)
        return _strand(pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(data))
    low, high, size = pack_varints(fields)
    return Strand(size.view(np.uint64) | low << _HALF, low >> _HALF | high << _HALF)


def weave(strands: Sequence[Strand], rows: int, last: Strand = NOTHING) -> tuple[pa.Buffer, Ints]:
    """One buffer, where each of its pieces begins, and the last one ends: one that comes behind all rows."""
    count = rows * len(strands) + 1
    room = _views(2 * count)
    room[-2:] = last.first[0], last.second[0]
    views = room[:-2].reshape(rows, len(strands), 2)
    parts = views.view("<i4")
    data: list[pa.Buffer] = []
    for number, (first, second, lying) in enumerate(strands):
        views[:, number, 0] = first
        views[:, number, 1] = second
        if lying is not None:
            if data:
                is_elsewhere = parts[:, number, 0] > _INLINE
                parts[is_elsewhere, number, 2] = len(data)
            data.append(lying)
    laid_out = pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(room), *data])
    _, offsets, woven = laid_out.cast(pa.binary()).buffers()
    return woven, np.frombuffer(offsets, np.int32, count + 1)


def _views(words: int) -> Words:
    """Room for views, the same again and again: new pages take 60 to 80 ns a row to be touched."""
    room: Words | None = getattr(_kept, "views", None)
    if room is None or len(room) < words:
        room = _kept.views = np.empty(words, "<u8")
    return room[:words]


def _strand(offsets: pa.Buffer, data: pa.Buffer) -> Strand:
    """What lies in `data` between each of these places and the next."""
    count = offsets.size // 4 - 1
    array = pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])
    _, views, *lying = array.cast(pa.binary_view()).buffers()
    words = np.frombuffer(views, "<u8", 2 * count)
    return Strand(words[0::2], words[1::2], lying[0] if lying else None)

"""Reads all of a log that can be read, however it is damaged. Coordinators load through it, by way of `Log.salvage`.

Always holds: what is given are whole batches whose checksum is right, in the order of the log. A stretch of damage
ends where the next such batch begins; what was passed over is counted, never an error. A disk that does not let
itself be read is one: an OSError, as it came.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.disk import File
from barnabas.log.chain import SegmentChain
from barnabas.types import Offset
from barnabas.wire.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, crc_of

_BLOCK = 64 << 10
"""How much is read and checked at a time: a caller that has other work does it between two pieces."""

_SMALLEST = HEADER_SIZE - LOG_OVERHEAD

_BATCH = re.compile(rb"(?s)(?=\0\0.{6}[\0-\x0f].{7}\x02.{4}\0[\0-\x7f][\0-\x7f])")
"""What may be the beginning of a batch of ours: its offset, its length, its magic, its attributes, its last offset."""


class Salvaged(NamedTuple):
    """Batches that lie in `data`, each with its place; before them `damaged` bytes were passed over."""

    data: bytes
    batches: list[tuple[int, BatchHeader]]
    damaged: int = 0


def salvage(chain: SegmentChain, offset: Offset, below: Offset) -> Iterator[Salvaged]:
    """All whole batches with offsets from `offset` on and below `below`. The cleaner may work meanwhile."""
    while offset < below:
        segment, *behind = chain.from_offset(offset)
        # A file of its own: the log keeps those of few segments open, and the cleaner may remove this one.
        file = segment.disk.open(segment.path)
        try:
            yield from _read(file, offset, below)
        finally:
            file.close()
        if not behind:
            return
        offset = max(offset, behind[0].base)


def _read(file: File, offset: Offset, below: Offset) -> Iterator[Salvaged]:
    position, size = 0, file.size
    while position < size:
        data = file.pread(_BLOCK, position)
        batches, reached, wanted = _whole(data, size - position)
        if wanted:
            # One batch that is larger than a block, or a length that is damaged: its checksum tells.
            data = file.pread(wanted, position)
            batches, reached, wanted = _whole(data, size - position)
        if batches:
            wholes = [row for row in batches if offset < row[1].next_offset and row[1].base_offset < below]
            yield Salvaged(data, wholes)
            position += reached
        else:
            damaged_at, position = position, position + 1
            while (found := _search(file, position, size)) is None:
                position += _BLOCK
                yield Salvaged(b"", [])
            position = found
            yield Salvaged(b"", [], position - damaged_at)


def find_batch(file: File, position: int) -> int:
    """Where the first whole batch from `position` on begins, or the end of the file."""
    size = file.size
    while (found := _search(file, position, size)) is None:
        position += _BLOCK
    return found


def _whole(data: bytes, left: int) -> tuple[list[tuple[int, BatchHeader]], int, int]:
    """The batches from the beginning of `data` on up to the first that is not whole, where that lies, and its size if
    it is the first one and goes on behind `data`; `left` bytes of the file there are from here on."""
    batches: list[tuple[int, BatchHeader]] = []
    at, end = 0, len(data)
    while at + HEADER_SIZE <= end:
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        size = header.size
        if header.batch_length < _SMALLEST or header.magic != MAGIC or at + size > left:
            break
        if at + size > end:
            return batches, at, 0 if batches else size
        if crc_of(data, at, size) != header.crc:
            break
        batches.append((at, header))
        at += size
    return batches, at, 0


def _search(file: File, position: int, size: int) -> int | None:
    """Where the first whole batch lies that begins in the block at `position`; the end of the file is one, too."""
    if position + HEADER_SIZE > size:
        return size
    block = file.pread(_BLOCK + HEADER_SIZE, position)
    for found in _BATCH.finditer(block):
        at = found.start()
        if at >= _BLOCK or at + HEADER_SIZE > len(block):
            break
        length = HEADER.unpack_from(block, at)[1]
        wanted = length + LOG_OVERHEAD
        if length < _SMALLEST or position + at + wanted > size:
            continue
        if _whole(file.pread(wanted, position + at), wanted)[0]:
            return position + at
    return None

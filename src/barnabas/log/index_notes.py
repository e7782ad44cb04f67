"""Owns `index-lengths`, our own file in a partition's folder: how long index files were when they were synced.

The log adds a note whenever a flush has synced a segment together with its indexes; recovery asks for them. A note says
that at this size and end the segment and that much of each index were on the disk. So an index that lost entries is
found out, whatever it still holds, and of a large active segment only what follows its last note is read again.

A note that is lost costs time, never truth: the segment is read through instead. So the file is not synced, each note
has a checksum of its own, and a truncation takes the notes of what it drops away first, for good.
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from barnabas.disk import Disk, read_whole, write_atomically
from barnabas.types import Offset

NAME = "index-lengths"

_NOTE = Struct(">qqqqqq")
_CRC = Struct(">I")
_SIZE = _NOTE.size + _CRC.size
_MOST = 1024
"""Notes in the file before those that are no longer needed are left out."""
_A_SEGMENT = 64
"""Notes kept of one segment: the recovery point that counts is at most a minute older than the newest."""


class IndexNote(NamedTuple):
    """What was on the disk of the segment that begins at `base`."""

    base: Offset
    end: Offset
    size: int
    index_bytes: int
    time_index_bytes: int
    aborted_bytes: int = 0


class IndexNotes:
    """Mutable: the notes of a partition's segments, the newest of each last."""

    __slots__ = ("_by_base", "_count", "_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._by_base: dict[Offset, list[IndexNote]] = {}
        self._count = 0
        try:
            data = read_whole(disk, self._path)
        except FileNotFoundError:
            return
        for at in range(0, len(data) - _SIZE + 1, _SIZE):
            body = data[at : at + _NOTE.size]
            if _CRC.unpack_from(data, at + _NOTE.size)[0] == crc32c(body):
                self._remember(IndexNote._make(_NOTE.unpack(body)))
        self._count = -(-len(data) // _SIZE)
        if len(data) % _SIZE:
            disk.open(self._path).truncate(len(data) // _SIZE * _SIZE)

    def _remember(self, note: IndexNote) -> None:
        notes = self._by_base.setdefault(note.base, [])
        notes.append(note)
        del notes[:-_A_SEGMENT]

    def newest(self, base: Offset) -> IndexNote | None:
        """The last note of a segment."""
        notes = self._by_base.get(base)
        return notes[-1] if notes else None

    def newest_below(self, base: Offset, recovery_point: Offset) -> IndexNote | None:
        """The last note of a segment that speaks of nothing above the recovery point."""
        notes = reversed(self._by_base.get(base, []))
        return next((note for note in notes if note.end <= recovery_point), None)

    def add(self, notes: Iterable[IndexNote], bases: Iterable[Offset]) -> None:
        """Note what has been synced; `bases` are those of the segments there are."""
        fresh = [note for note in notes if note != self.newest(note.base)]
        if not fresh:
            return
        for note in fresh:
            self._remember(note)
        file = self._disk.open(self._path, create=True)
        kept = set(bases)
        if self._count + len(fresh) > _MOST + 2 * len(kept):
            self._by_base = {
                base: known if base == max(kept) else known[-1:]
                for base, known in self._by_base.items()
                if base in kept
            }
            fresh = [note for known in self._by_base.values() for note in known]
            file.truncate(0)
            self._count = 0
        file.append(b"".join(map(_bytes, fresh)))
        self._count += len(fresh)

    def drop_above(self, offset: Offset) -> None:
        """Forget for good what is noted of batches from `offset` on: others will be in their place."""
        kept = {base: [note for note in notes if note.end <= offset] for base, notes in self._by_base.items()}
        if kept == self._by_base:
            return
        self._by_base = {base: notes for base, notes in kept.items() if notes}
        left = [note for notes in self._by_base.values() for note in notes]
        write_atomically(self._disk, self._path, b"".join(map(_bytes, left)))
        self._count = len(left)


def _bytes(note: IndexNote) -> bytes:
    body = _NOTE.pack(*note)
    return body + _CRC.pack(crc32c(body))

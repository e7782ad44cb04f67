"""Owns a segment's aborted transactions: `.txnindex`, in Kafka's file format. Segments call it.

An entry is written when the marker that aborts a transaction is appended, in the marker's segment, and goes with the
marker. Entries are in the order of their markers; those that are not in the file yet are kept in memory, in the file's
own format. A segment without any has no file. Readers of committed records are told of those that overlap with what
they fetch, and skip their batches.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from barnabas.disk import Disk, File, write_atomically
from barnabas.types import Offset, ProducerId

ABORTED = ".txnindex"

_VERSION = 0
_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_LAST_AT = Struct(">18xq8x")
_BLOCK = 128
"""Entries read at once from a file."""


class AbortedTransaction(NamedTuple):
    """Its first record here, its marker, and where the first transaction began that was open when it ended."""

    producer_id: ProducerId
    first: Offset
    last: Offset
    last_stable: Offset


class AbortedIndex:
    """Mutable: entries sorted by their markers. The first `_stored` are in the file, others in memory."""

    __slots__ = ("_disk", "_file", "_stored", "_tail", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._file: File | None = None
        self._stored = 0
        self._tail = bytearray()

    @classmethod
    def load(cls, disk: Disk, path: str, length: int | None = None) -> "AbortedIndex | None":
        """The index in a file; an empty one where there is none. None where that cannot be an index.

        With a `length` only the first `length` bytes count, and it is None where the file is shorter.
        """
        index = cls(disk, path)
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return None if length else index
        if length is not None:
            if file.size < length:
                return None
            if file.size > length:
                file.truncate(length)
        index._file = file
        index._stored, torn = divmod(file.size, ENTRY_SIZE)
        return None if torn or not index._makes_sense() else index

    def _makes_sense(self) -> bool:
        if not self._stored:
            return True
        ends = {0, self._stored - 1}
        return all(_ENTRY.unpack(self._read(number, 1))[0] == _VERSION for number in ends)

    def __len__(self) -> int:
        return self._stored + len(self._tail) // ENTRY_SIZE

    @property
    def last(self) -> AbortedTransaction | None:
        return next(_entries(self._read(len(self) - 1, 1))) if len(self) else None

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker lies behind all others. In memory: an append does not fail by it."""
        self._tail += _ENTRY.pack(_VERSION, *aborted)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self._from(0)

    def overlapping(self, offset: Offset, upper: Offset) -> tuple[list[AbortedTransaction], bool]:
        """The transactions with records or their marker in [offset, upper), and whether later segments may have more.

        An entry at whose time all transactions below `upper` had ended is the last that can matter.
        """
        found = []
        for aborted in self._from(bisect_left(range(len(self)), offset, key=self._marker_of)):
            if aborted.first < upper:
                found.append(aborted)
            if aborted.last_stable >= upper:
                return found, False
        return found, True

    def cut(self, end: Offset) -> None:
        """Drop the entries whose markers are not below `end`: they are gone."""
        keep = bisect_left(range(len(self)), end, key=self._marker_of)
        if keep >= self._stored:
            del self._tail[(keep - self._stored) * ENTRY_SIZE :]
            return
        self._tail.clear()
        self._opened().truncate(keep * ENTRY_SIZE)
        self._stored = keep

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """Become these entries, in the file too: a crash leaves the old ones or the new ones."""
        data = b"".join(_ENTRY.pack(_VERSION, *aborted) for aborted in entries)
        if data or self._disk.exists(self.path):
            write_atomically(self._disk, self.path, data)
        self._file, self._stored, self._tail = None, len(data) // ENTRY_SIZE, bytearray()

    def create(self) -> None:
        """Begin without a file, whatever one of this name held."""
        if self._disk.exists(self.path):
            self._disk.remove(self.path)

    @property
    def stored_bytes(self) -> int:
        """How long the file is."""
        return self._stored * ENTRY_SIZE

    @property
    def is_written(self) -> bool:
        """Whether the file has all entries."""
        return not self._tail

    def write(self) -> File | None:
        """Put all entries into the file, if there are any. Nothing changes when that fails.

        A segment that is sealed is followed by another: the flush that syncs both of them syncs names, too.
        """
        if not self._stored and not self._tail:
            return None
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path, create=True)
            if file.size > self._stored * ENTRY_SIZE:
                # Left behind by a segment of the same name.
                file.truncate(self._stored * ENTRY_SIZE)
        if self._tail:
            file.append(self._tail)
            self._stored += len(self._tail) // ENTRY_SIZE
            self._tail = bytearray()
        return file

    def release(self) -> None:
        """Let the file go until it is needed again."""
        self._file = None

    def _marker_of(self, number: int) -> Offset:
        return Offset(_LAST_AT.unpack(self._read(number, 1))[0])

    def _from(self, number: int) -> Iterator[AbortedTransaction]:
        count = len(self)
        while number < count:
            block = self._read(number, _BLOCK)
            yield from _entries(block)
            number += len(block) // ENTRY_SIZE

    def _read(self, number: int, most: int) -> bytes:
        """Up to `most` entries, all of the file or all from memory."""
        if number >= self._stored:
            at = (number - self._stored) * ENTRY_SIZE
            return bytes(self._tail[at : at + most * ENTRY_SIZE])
        count = min(most, self._stored - number)
        return self._opened().pread(count * ENTRY_SIZE, number * ENTRY_SIZE)

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file


def _entries(block: bytes) -> Iterator[AbortedTransaction]:
    for _, producer_id, first, last, last_stable in _ENTRY.iter_unpack(block):
        yield AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(last_stable))

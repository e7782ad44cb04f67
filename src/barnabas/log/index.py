"""Owns one sparse index of a segment: sorted pairs of numbers, in Kafka's file formats. Segments call it.

`.index` pairs the last offset of a batch (relative to the segment) with the batch's place in the file;
`.timeindex` pairs the largest timestamp so far with the last offset of the batch that had it. Entries that
are not in the file yet are kept in memory, in the file's own format; a look-up reads one block of a file.
An index holds nothing that its segment does not: what is missing or broken is made again.
"""

from bisect import bisect_right
from contextlib import suppress
from struct import Struct

from barnabas.disk import Disk, File
from barnabas.types import Buffer

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")

_BLOCK = 512
"""Entries read at once from a file: a page of offsets."""

_SPILL = 64 * 1024
"""Bytes of entries kept in memory: a full active segment costs no more than an empty one."""


class SparseIndex:
    """Mutable: entries sorted by their first number. The first `_stored` are in the file, others in memory."""

    __slots__ = ("_disk", "_entry", "_file", "_stored", "_tail", "path")

    def __init__(self, disk: Disk, path: str, entry: Struct) -> None:
        self._disk = disk
        self.path = path
        self._entry = entry
        self._file: File | None = None
        self._stored = 0
        self._tail = bytearray()

    @classmethod
    def load(cls, disk: Disk, path: str, entry: Struct, length: int | None = None) -> "SparseIndex | None":
        """The index in a file; None where there is none, or one that ends inside an entry.

        With a `length` only the first `length` bytes count, and it is None where the file is shorter.
        """
        index = cls(disk, path, entry)
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return None
        if length is not None:
            if file.size < length:
                return None
            if file.size > length:
                file.truncate(length)
        index._file = file
        index._stored, torn = divmod(file.size, entry.size)
        return None if torn else index

    def __len__(self) -> int:
        return self._stored + len(self._tail) // self._entry.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        size = self._entry.size
        if number >= self._stored:
            first, second = self._entry.unpack_from(self._tail, (number - self._stored) * size)
        else:
            first, second = self._entry.unpack(self._opened().pread(size, number * size))
        return first, second

    @property
    def last(self) -> tuple[int, int] | None:
        count = len(self)
        return self[count - 1] if count else None

    def append(self, first: int, second: int) -> None:
        """Add an entry that sorts after all others. In memory, but for one write in some thousands."""
        self._tail += self._entry.pack(first, second)
        if len(self._tail) >= _SPILL:
            # A full disk must not fail the append that we are part of: the entries stay where they are.
            with suppress(OSError):
                self.write()

    def find(self, first: int) -> tuple[int, int] | None:
        """The last entry whose first number is not above this one."""
        tail = self._tail
        if tail and self._entry.unpack_from(tail, 0)[0] <= first:
            return self._find_in(tail, first)
        if not self._stored:
            return None
        file, size, unpack = self._opened(), self._entry.size, self._entry.unpack
        low, high = 0, self._stored
        while high - low > _BLOCK:
            middle = (low + high) // 2
            if unpack(file.pread(size, middle * size))[0] <= first:
                low = middle
            else:
                high = middle
        return self._find_in(file.pread((high - low) * size, low * size), first)

    def _find_in(self, block: Buffer, first: int) -> tuple[int, int] | None:
        size, unpack = self._entry.size, self._entry.unpack_from
        number = bisect_right(range(len(block) // size), first, key=lambda i: unpack(block, i * size)[0])
        return None if number == 0 else unpack(block, (number - 1) * size)

    def cut(self, second: int) -> None:
        """Drop the entries whose second number is not below this one: their batches are gone."""
        keep = bisect_right(range(len(self)), second - 1, key=lambda i: self[i][1])
        if keep >= self._stored:
            del self._tail[(keep - self._stored) * self._entry.size :]
            return
        self._tail.clear()
        self._opened().truncate(keep * self._entry.size)
        self._stored = keep

    def after(self, second: int) -> tuple[int, int] | None:
        """The first entry whose second number is above this one."""
        number = bisect_right(range(len(self)), second, key=lambda i: self[i][1])
        return self[number] if number < len(self) else None

    def find_before(self, second: int) -> tuple[int, int] | None:
        """The last entry whose second number is below this one."""
        number = bisect_right(range(len(self)), second - 1, key=lambda i: self[i][1])
        return self[number - 1] if number else None

    @property
    def stored_bytes(self) -> int:
        """How long the file is."""
        return self._stored * self._entry.size

    @property
    def is_written(self) -> bool:
        """Whether the file has all entries."""
        return not self._tail

    def create(self) -> None:
        """Begin with an empty file, whatever one of this name held."""
        file = self._disk.open(self.path, create=True)
        if file.size:
            file.truncate(0)

    def clear(self) -> None:
        """Begin again without an entry."""
        self._tail.clear()
        self._stored = 0
        if self._disk.exists(self.path):
            self._opened().truncate(0)

    def write(self) -> File:
        """Put all entries into the file. Nothing changes when that fails."""
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path, create=True)
            if file.size > self._stored * self._entry.size:
                # Left behind by a segment of the same name.
                file.truncate(self._stored * self._entry.size)
        if self._tail:
            file.append(self._tail)
            self._stored += len(self._tail) // self._entry.size
            self._tail = bytearray()
        return file

    def release(self) -> None:
        """Let the file go until it is needed again."""
        self._file = None

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

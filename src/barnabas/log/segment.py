"""Owns one segment of a partition: a file of record batches, two sparse indexes over it, and what was aborted in it.

Logs append to the last one and read from all; the cleaner writes new ones beside them. `size` and the indexes
speak of whole batches only: a write that failed leaves no trace. Files are opened when they are needed, and
let go by dropping them, never by closing: an answer may still be sent from one.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

from barnabas.disk import Disk, File
from barnabas.errors import Code, Refused
from barnabas.log.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from barnabas.log.index_notes import IndexNote
from barnabas.log.transactions.aborted import ABORTED, AbortedIndex
from barnabas.types import NO_OFFSET, NO_TIMESTAMP, Buffer, Millis, Offset
from barnabas.wire.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, encode_batch

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
CLEANED, SWAP, DELETED = ".cleaned", ".swap", ".deleted"
LARGEST_RELATIVE_OFFSET = 2**31 - 1

_LOOK = 8192
"""Bytes read to look for a batch: entries of an index lie little more than 4 KiB apart."""

_SMALLEST = HEADER_SIZE - LOG_OVERHEAD
_STEP = Struct(">qi11xi")
"""Base offset, length and last offset delta: all that hopping from batch to batch needs."""


def name_of(offset: int, ending: str) -> str:
    """The name of a file that begins at this offset."""
    return f"{offset:020d}{ending}"


class Segment:
    """Mutable: the batches from offset `base` up to the next segment's."""

    __slots__ = (
        "_directory",
        "_file",
        "_suffix",
        "_timed",
        "_unindexed",
        "aborted",
        "base",
        "created",
        "disk",
        "end",
        "first_timestamp",
        "index_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "noted_size",
        "offsets",
        "size",
        "times",
        "unsettled",
    )

    def __init__(self, disk: Disk, directory: str, base: Offset, now: Millis, suffix: str = "") -> None:
        self.disk = disk
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self.base = base
        self.created = now
        self.noted_size = 0
        """How large it was when its indexes were last synced and noted."""
        self.offsets = SparseIndex(disk, self._path(INDEX), OFFSET_ENTRY)
        self.times = SparseIndex(disk, self._path(TIME_INDEX), TIME_ENTRY)
        self.aborted = AbortedIndex(disk, self._path(ABORTED))
        self.unsettled: Offset | None = None
        """Where the first marker lies that recovery has found: from there on `aborted` says nothing yet."""
        self.forget()

    @classmethod
    def create(cls, disk: Disk, directory: str, base: Offset, now: Millis, suffix: str = "") -> "Segment":
        """A new segment, empty whatever a file of its name held."""
        segment = cls(disk, directory, base, now, suffix)
        segment._file = disk.open(segment.path, create=True)
        if segment._file.size:
            segment._file.truncate(0)
        segment.offsets.create()
        segment.times.create()
        segment.aborted.create()
        return segment

    def successor(self, base: Offset, now: Millis) -> "Segment":
        """A new segment in the same folder."""
        return Segment.create(self.disk, self._directory, base, now)

    def forget(self) -> None:
        """Take the segment for empty, as before its batches are noted one by one."""
        self.size = 0
        self.end = self.base
        """The offset after the last batch."""
        self.index_bytes = 0
        self.max_timestamp: Millis = NO_TIMESTAMP
        self.max_timestamp_offset: Offset = NO_OFFSET
        """The last offset of the batch that has the largest timestamp."""
        self.first_timestamp: Millis = NO_TIMESTAMP
        """The largest timestamp of the first batch: how old the segment is by its records' own account."""
        self._timed: int = NO_TIMESTAMP
        self._unindexed = 0

    @property
    def path(self) -> str:
        return self._path(LOG)

    @property
    def partition(self) -> str:
        """The partition that it belongs to, for messages."""
        return os.path.basename(self._directory)

    def _path(self, ending: str) -> str:
        return f"{self._directory}/{name_of(self.base, ending)}{self._suffix}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.disk.open(self.path)
        return self._file

    def append(self, batch: Buffer, last: Offset, max_timestamp: Millis, interval: int) -> None:
        """Add one batch. An OSError leaves everything as it was."""
        (self._file or self.file).append(batch)
        self.note(len(batch), last, max_timestamp, interval)

    def append_all(self, batches: Buffer, headers: list[BatchHeader], interval: int) -> None:
        """Add several batches by one write. An OSError leaves everything as it was."""
        self.file.append(batches)
        for header in headers:
            self.note(header.size, header.last_offset, Millis(header.max_timestamp), interval)

    def note(self, size: int, last: Offset, max_timestamp: Millis, interval: int) -> None:
        """Account for a batch that is in the file behind those noted before."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last
        if self.size == 0:
            self.first_timestamp = max_timestamp
        if self._unindexed > interval:
            self.offsets.append(last - self.base, self.size)
            self._note_time()
            self.index_bytes = max(
                len(self.offsets) * OFFSET_ENTRY.size, (len(self.times) + 1) * TIME_ENTRY.size
            )
            self._unindexed = 0
        self.size += size
        self.end = Offset(last + 1)
        self._unindexed += size

    def _note_time(self) -> None:
        if self.max_timestamp > self._timed:
            self._timed = self.max_timestamp
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base)

    def seal(self) -> None:
        """Write the indexes; the last entry of time is the largest timestamp of all."""
        self._note_time()
        self.offsets.write()
        self.times.write()
        self.aborted.write()

    def write_indexes(self) -> None:
        """Bring the index files of the active segment up to date; they are not synced. 2 us where nothing is new."""
        for index in (self.offsets, self.times, self.aborted):
            if not index.is_written:
                index.write()
                index.release()

    @property
    def is_sealed(self) -> bool:
        """Whether the index files have all that `seal` would write."""
        is_written = self.offsets.is_written and self.times.is_written and self.aborted.is_written
        return is_written and self.max_timestamp <= self._timed

    def index_note(self) -> IndexNote:
        """What lasts once its files, with their indexes, are synced as they are now."""
        indexes = (self.offsets.stored_bytes, self.times.stored_bytes, self.aborted.stored_bytes)
        return IndexNote(self.base, self.end, self.size, *indexes)

    def pass_over(self, position: int, first: Offset) -> None:
        """Account for damage up to a batch at `position` whose first offset this is: the index leads past it."""
        self.offsets.append(first - self.base, position)
        self.size = position
        self._unindexed = 0

    def fill_to(self, end: Offset, interval: int) -> None:
        """Let the segment reach the next one by a batch without records, where the cleaner took the last.

        So every segment ends where the next begins, and a hole between two can only be what a crash has lost.
        """
        if self.end < end:
            batch = encode_batch([], base_offset=self.end, last_offset_delta=end - self.end - 1)
            self.append(batch, Offset(end - 1), NO_TIMESTAMP, interval)

    def files(self) -> list[File]:
        """All that must be synced for a sealed segment to last."""
        aborted = self.aborted.write()
        return [self.file, self.offsets.write(), self.times.write(), *([aborted] if aborted else [])]

    def release(self) -> None:
        """Let the files go until they are needed again."""
        self._file = None
        self.offsets.release()
        self.times.release()
        self.aborted.release()

    def locate(self, offset: Offset) -> tuple[int, int] | None:
        """Where the first batch that reaches `offset` lies, and its size; None where none does.

        One look-up in the index and as a rule one short read, however large the segment is.
        """
        entry = self.offsets.find(offset - self.base)
        position = entry[1] if entry else 0
        file, end, step = self.file, self.size, _STEP.unpack_from
        while position < end:
            block = file.pread(_LOOK, position)
            at, last = 0, len(block) - _STEP.size
            while at <= last:
                base, length, delta = step(block, at)
                if length < _SMALLEST:
                    raise self._broken(position + at)
                if base + delta >= offset:
                    if position + at >= end:
                        return None
                    # What is damaged must not be taken for a batch that no file could hold.
                    if (
                        position + at + length + LOG_OVERHEAD > end
                        or base + delta - self.base > LARGEST_RELATIVE_OFFSET
                    ):
                        raise self._broken(position + at)
                    return position + at, length + LOG_OVERHEAD
                at += length + LOG_OVERHEAD
            if at == 0:
                raise self._broken(position)
            position += at
        return None

    def is_in(self, file: File) -> bool:
        """Whether its batches are in this file."""
        return self._file is file

    def offset_behind(self, position: int) -> Offset:
        """An offset that no batch before this place reaches: that of the next entry of the index, or the end."""
        entry = self.offsets.after(position - 1)
        return self.end if entry is None else Offset(self.base + entry[0] + 1)

    def headers(self, position: int = 0, block_size: int = _LOOK) -> Iterator[tuple[int, BatchHeader]]:
        """Places and headers from a batch's place on; the batches' records are not looked at.

        Where there is no header the index leads past it; where it does not, this raises Refused.
        """
        file, end, expected = self.file, self.size, int(self.base)
        limit = self.base + LARGEST_RELATIVE_OFFSET
        unpack, make = HEADER.unpack_from, BatchHeader._make
        while position < end:
            block = file.pread(block_size, position)
            at, last = 0, len(block) - HEADER_SIZE
            while at <= last and position + at < end:
                fields = unpack(block, at)
                first, length, _, magic, _, _, delta, *_ = fields
                following = at + length + LOG_OVERHEAD
                if (
                    length < _SMALLEST
                    or magic != MAGIC
                    or first < expected
                    or not 0 <= delta <= limit - first
                    or position + following > end
                ):
                    break
                yield position + at, make(fields)
                expected = first + delta + 1
                at = following
            else:
                if at:
                    position += at
                    continue
            # What does not follow may be sound, and the header before it have lied: then the index has this very place.
            further = self.offsets.after(position + at - (expected != self.base))
            if further is None:
                raise self._broken(position + at)
            position, expected = further[1], self.base

    def headers_from(self, offset: Offset, block_size: int = _LOOK) -> Iterator[tuple[int, BatchHeader]]:
        """Those of the batches that reach `offset`, which may itself be damaged."""
        entry = self.offsets.find(offset - self.base)
        for position, header in self.headers(entry[1] if entry else 0, block_size):
            if header.last_offset >= offset:
                yield position, header

    def read_batch(self, position: int, size: int) -> bytes:
        """One whole batch."""
        return self.file.pread(size, position)

    def reaching(self, timestamp: Millis, offset: Offset) -> Iterator[tuple[int, BatchHeader]]:
        """The batches, from the one with `offset` on, whose largest timestamp is not below this one."""
        entry = self.times.find(timestamp)
        begin = max(offset, self.base + entry[1]) if entry else offset
        for position, header in self.headers_from(Offset(begin)):
            if header.max_timestamp >= timestamp:
                yield position, header

    def cut(self, position: int) -> None:
        """Drop what lies at and behind a batch's place for good: it must not come back later."""
        file = self.file
        file.truncate(position)
        file.sync()
        self.size = position
        self.noted_size = min(self.noted_size, position)
        self.offsets.cut(position)
        self.restore_tail()
        self.times.cut(self.end - self.base)
        self.restore_tail()
        self.aborted.cut(self.end)

    def restore_tail(self) -> None:
        """Find out from the indexes and the batches behind their last entry what `note` had known."""
        indexed = self.offsets.last
        timed = self.times.last
        self.end = self.base
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, NO_OFFSET
        self._timed = NO_TIMESTAMP
        if timed:
            self._timed = timed[0]
            self.max_timestamp, self.max_timestamp_offset = Millis(timed[0]), Offset(self.base + timed[1])
        position = reached = indexed[1] if indexed else 0
        for at, header in self.headers(position):
            self.end = header.next_offset
            reached = at + header.size
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = Millis(header.max_timestamp)
                self.max_timestamp_offset = header.last_offset
        if reached != self.size:
            raise self._broken(reached)
        self._unindexed = self.size - position
        self.index_bytes = max(len(self.offsets) * OFFSET_ENTRY.size, (len(self.times) + 1) * TIME_ENTRY.size)
        self.read_first_timestamp()

    def read_first_timestamp(self) -> None:
        """Learn from the first batch how old the segment is."""
        self.first_timestamp = NO_TIMESTAMP
        for _, header in self.headers(block_size=HEADER_SIZE):
            self.first_timestamp = Millis(header.max_timestamp)
            break

    def has_batch_behind(self, interval: int) -> bool:
        """Whether a batch begins so far from the first that the index must have an entry."""
        return any(position > interval for position, _ in self.headers())

    def ends_before(self, timed: tuple[int, int] | None) -> bool:
        """Whether no batch behind the index's last entry is newer than the last entry of time says."""
        newest = timed[0] if timed else NO_TIMESTAMP
        entry = self.offsets.last
        return all(header.max_timestamp <= newest for _, header in self.headers(entry[1] if entry else 0))

    def rename(self, suffix: str) -> None:
        """Give all files another suffix: the log's own last, because it alone makes a segment."""
        if suffix == self._suffix:
            return
        for ending in (INDEX, TIME_INDEX, ABORTED, LOG):
            source, target = self._path(ending), f"{self._directory}/{name_of(self.base, ending)}{suffix}"
            if self.disk.exists(source):
                self.disk.rename(source, target)
            elif ending == ABORTED and self.disk.exists(target):
                # Left behind by the segment that this one replaces.
                self.disk.remove(target)
        self._suffix = suffix
        self.offsets.path, self.times.path = self._path(INDEX), self._path(TIME_INDEX)
        self.aborted.path = self._path(ABORTED)

    def move_to(self, directory: str) -> None:
        """Go on in another folder, which has the same files."""
        self._directory, self._suffix = directory, ""
        self.offsets.path, self.times.path = self._path(INDEX), self._path(TIME_INDEX)
        self.aborted.path = self._path(ABORTED)
        self.release()

    def remove(self) -> None:
        """Drop the files. An answer that is being sent from them is still sent in full."""
        source = self.path
        self.disk.rename(source, source + DELETED)
        self._suffix += DELETED
        for path in (self.path, self.offsets.path, self.times.path, self.aborted.path):
            # What cannot be removed now is removed when the log is opened again.
            with suppress(OSError):
                self.disk.remove(path)
        self.release()

    def _broken(self, position: int) -> Refused:
        return Refused(
            Code.KAFKA_STORAGE_ERROR,
            f"{self.partition}: segment {self.base} holds no record batch at byte {position}",
        )

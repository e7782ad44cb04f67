"""Copies a log's files into another folder, while the log goes on being written, rolled, trimmed, cleaned and cut.

`moves` makes one for a replica that goes to another data directory. A slice is planned on the event loop (`begin`), run
in a worker thread and noted on the loop (`finish`), one at a time. Bytes are copied as they are, damage and all: no
batch is looked into. `begin_settling` is the slice after which all that there was of the log lasts in the copy, with
producers, leader epochs and notes on indexes; then `catch_up` takes the rest, on the loop.

Always holds: what is noted of a segment is a prefix of its files. A cut drops the copy of the segment it went through;
segments that are the log's no more leave the copy, too.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.disk import Disk, File, read_whole, write_atomically
from barnabas.log.epochs import EpochStart, LeaderEpochs
from barnabas.log.flush import EPOCHS
from barnabas.log.index_notes import NAME as NOTES
from barnabas.log.index_notes import IndexNote, IndexNotes
from barnabas.log.log import Log
from barnabas.log.segment import INDEX, LOG, TIME_INDEX, Segment, name_of
from barnabas.log.transactions.aborted import ABORTED
from barnabas.types import Offset

_CHUNK = 256 << 10
EVERYTHING = 1 << 62


class SourceFailed(Exception):
    """The log itself cannot be read, for the OSError that is the cause. Errors of the copy are plain OSErrors."""


class CopiedSegment:
    """Mutable: how much of each file of a segment is in the copy, and how much of that lasts."""

    __slots__ = ("base", "is_complete", "lasting", "lengths")

    def __init__(self, base: Offset) -> None:
        self.base = base
        self.lengths: dict[str, int] = {}
        """By the file's ending; one that is missing was not made yet."""
        self.lasting: dict[str, int] = {}
        self.is_complete = False
        """Whether it is sealed, and all of it is there: nothing more comes."""

    def names(self) -> list[str]:
        """All that it may have: without aborted transactions there is no file of them."""
        return [name_of(self.base, ending) for ending in (LOG, INDEX, TIME_INDEX, ABORTED)]


class Piece(NamedTuple):
    """Bytes of one file of a segment that are to be added to its copy."""

    segment: Segment
    copied: CopiedSegment
    ending: str
    source: File | None
    """None where there is nothing to read: the file is made, empty."""
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class CopySlice:
    """Work for a thread: names that go, then bytes that come."""

    disk: Disk
    folder: str
    stale: list[str]
    pieces: list[Piece]

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.pieces)

    def run(self) -> None:
        """In any thread, once; raises OSError of the copy's folder, and SourceFailed."""
        for name in self.stale:
            with suppress(FileNotFoundError):
                self.disk.remove(f"{self.folder}/{name}")
        for piece in self.pieces:
            self._copy(piece)

    def _copy(self, piece: Piece) -> None:
        path = f"{self.folder}/{name_of(piece.copied.base, piece.ending)}"
        target = self.disk.open(path, create=True)
        try:
            if target.size < piece.position:
                raise OSError(errno.EIO, "the copy is shorter than what was written to it", path)
            if target.size > piece.position:
                target.truncate(piece.position)
            at, end = piece.position, piece.position + piece.size
            # A source that ends too early was cut meanwhile: then its copy is dropped.
            while at < end and (data := _read(piece.source, min(_CHUNK, end - at), at)):
                target.append(data)
                at += len(data)
        finally:
            target.close()
            if piece.source is not None:
                piece.source.close()


def _read(source: File | None, size: int, position: int) -> bytes:
    if source is None:
        return b""
    try:
        return source.pread(size, position)
    except OSError as error:
        raise SourceFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class Settling:
    """Work for a thread: after it all that the log had when it was begun lasts in the copy."""

    slice: CopySlice | None
    disk: Disk
    source: str
    folder: str
    lengths: list[tuple[Segment, CopiedSegment, dict[str, int]]]
    """Of the segments with files that are to be synced."""
    snapshots: list[str]
    newest: list[str]
    """Of the snapshots, those to be synced."""
    epochs: list[EpochStart]
    notes: list[IndexNote]
    bases: list[Offset]
    end: Offset
    cuts: int

    def run(self) -> None:
        """In any thread, once; raises OSError of the copy's folder, and SourceFailed."""
        if self.slice is not None:
            self.slice.run()
        for name in self.snapshots:
            self._copy_snapshot(name)
        for name in self.newest:
            with suppress(FileNotFoundError):
                self._sync(name)
        for _, copied, lengths in self.lengths:
            for ending in lengths:
                self._sync(name_of(copied.base, ending))
        write_atomically(self.disk, f"{self.folder}/{EPOCHS}", LeaderEpochs(self.epochs).to_bytes())
        with suppress(FileNotFoundError):
            self.disk.remove(f"{self.folder}/{NOTES}")
        if self.notes:
            IndexNotes(self.disk, self.folder).add(self.notes, self.bases)
            self._sync(NOTES)
        self.disk.sync_dir(self.folder)

    def _sync(self, name: str) -> None:
        file = self.disk.open(f"{self.folder}/{name}")
        try:
            file.sync()
        finally:
            file.close()

    def _copy_snapshot(self, name: str) -> None:
        try:
            data = read_whole(self.disk, f"{self.source}/{name}")
        except FileNotFoundError:
            return  # it was replaced meanwhile; without it producers are read from the batches
        except OSError as error:
            raise SourceFailed(str(error)) from error
        # As the log does: only the newest are synced, and one that a crash has torn is found out by its checksum.
        file = self.disk.open(f"{self.folder}/{name}", create=True)
        try:
            file.truncate(0)
            file.append(data)
        finally:
            file.close()


class Copy:
    """Mutable: what of a log is in its copy."""

    def __init__(self, disk: Disk, log: Log, folder: str, stale: Sequence[str] = ()) -> None:
        """`stale` are files in the folder that an earlier copying has left."""
        self._disk = disk
        self._log = log
        self.folder = folder
        self._copied: dict[Segment, CopiedSegment] = {}
        self._snapshots: set[str] = set()
        self._stale = list(stale)
        self._cuts = 0
        self._settled: Settling | None = None
        log.on_cut = self._cut

    def close(self) -> None:
        """Hear no more of the log."""
        self._log.on_cut = None

    @property
    def remaining(self) -> int:
        """Bytes of batches that the copy does not have yet."""
        return sum(segment.size - self._length(segment) for segment in self._log.segments)

    @property
    def size(self) -> int:
        """Bytes of batches that the copy has."""
        return sum(copied.lengths.get(LOG, 0) for copied in self._copied.values())

    @property
    def lag(self) -> int:
        """About how many records the copy does not have yet."""
        log = self._log
        reached = log.start
        for segment in log.segments:
            length = self._length(segment)
            if length < segment.size:
                entry = segment.offsets.find_before(length)
                reached = max(reached, Offset(segment.base + entry[0] + 1) if entry else segment.base)
                break
            reached = max(reached, segment.end)
        return log.end - reached

    def _length(self, segment: Segment) -> int:
        copied = self._copied.get(segment)
        return copied.lengths.get(LOG, 0) if copied else 0

    def begin(self, limit: int) -> CopySlice | None:
        """The next slice, of about `limit` bytes; None where the copy has all that the log has now."""
        present = set(self._log.segments)
        for segment in [segment for segment in self._copied if segment not in present]:
            self._drop(segment)
        pieces: list[Piece] = []
        try:
            for segment in self._log.segments:
                copied = self._copied.setdefault(segment, CopiedSegment(segment.base))
                if copied.is_complete:
                    continue
                missing = list(self._missing(segment, copied, limit))
                copied.is_complete = not missing and segment is not self._log.segments[-1]
                pieces += missing
                limit -= sum(piece.size for piece in missing)
                if limit <= 0:
                    break
        except OSError as error:
            raise SourceFailed(str(error)) from error
        stale, self._stale = self._stale, []
        return CopySlice(self._disk, self.folder, stale, pieces) if pieces or stale else None

    def _missing(self, segment: Segment, copied: CopiedSegment, limit: int) -> Iterator[Piece]:
        """What the copy lacks of a segment: its indexes when it has all batches, so that they speak of no others."""
        done = copied.lengths.get(LOG, 0)
        size = min(segment.size - done, limit)
        if size or LOG not in copied.lengths:
            yield self._piece(segment, copied, LOG, segment.path, done, size)
        if done + size < segment.size:
            return
        segment.write_indexes()
        for ending, index in ((INDEX, segment.offsets), (TIME_INDEX, segment.times)):
            done = copied.lengths.get(ending, 0)
            size = index.stored_bytes - done
            if size or ending not in copied.lengths:
                yield self._piece(segment, copied, ending, index.path, done, size)
        done, aborted = copied.lengths.get(ABORTED, 0), segment.aborted
        if aborted.stored_bytes > done:
            yield self._piece(segment, copied, ABORTED, aborted.path, done, aborted.stored_bytes - done)

    def _piece(
        self, segment: Segment, copied: CopiedSegment, ending: str, path: str, done: int, size: int
    ) -> Piece:
        # A file of its own: the log's is for one thread.
        return Piece(segment, copied, ending, self._disk.open(path) if size else None, done, size)

    def finish(self, done: CopySlice) -> None:
        """Note what a slice has brought, but for segments that were cut or left the log meanwhile."""
        for piece in done.pieces:
            if self._copied.get(piece.segment) is piece.copied:
                piece.copied.lengths[piece.ending] = piece.position + piece.size

    def begin_settling(self) -> Settling:
        """What brings all of the log to the copy, and the copy to the disk.

        The first takes as long as the disk needs for all that was copied. Before the last no flush of the log may be
        under way, nor begin until the copy has caught up: what is flushed there would not be here.
        """
        log = self._log
        snapshots = set(log.snapshot_names())
        self._stale += self._snapshots - snapshots
        self._snapshots &= snapshots
        rest = self.begin(EVERYTHING)
        lengths = [(segment, self._copied[segment], _lengths(segment)) for segment in log.segments]
        return Settling(
            slice=rest,
            disk=self._disk,
            source=log.directory,
            folder=self.folder,
            lengths=[row for row in lengths if row[1].lasting != row[2]],
            snapshots=sorted(snapshots - self._snapshots),
            newest=sorted(snapshots)[-2:],
            epochs=list(log.epochs.entries),
            notes=[segment.index_note() for segment in log.segments if segment.size],
            bases=[segment.base for segment in log.segments],
            end=log.end,
            cuts=self._cuts,
        )

    def finish_settling(self, settled: Settling) -> None:
        if settled.slice is not None:
            self.finish(settled.slice)
        for segment, copied, lengths in settled.lengths:
            if self._copied.get(segment) is copied:
                copied.lasting = lengths
        if settled.cuts == self._cuts:
            self._snapshots.update(settled.snapshots)
        else:
            self._stale += settled.snapshots
        self._settled = settled

    def catch_up(self, limit: int) -> bool:
        """Copy what has come since the settling, here and now; whether the copy is the log then.

        False asks for another settling: more than `limit` bytes are missing, or the log was cut, or flushed further.
        """
        log, settled = self._log, self._settled
        if (
            settled is None
            or settled.cuts != self._cuts
            or settled.epochs != log.epochs.entries
            or settled.end < log.recovery_point
            or self.remaining > limit
        ):
            return False
        rest = self.begin(EVERYTHING)
        if rest is not None:
            rest.run()
            self.finish(rest)
        return True

    def _drop(self, segment: Segment) -> None:
        self._stale += self._copied.pop(segment).names()

    def _cut(self) -> None:
        """The log has been cut: its last segment was cut through, or is a new one, and snapshots may be void."""
        self._cuts += 1
        active = self._log.segments[-1]
        if active in self._copied:
            self._drop(active)
        self._stale += self._snapshots
        self._snapshots.clear()


def _lengths(segment: Segment) -> dict[str, int]:
    lengths = {LOG: segment.size, INDEX: segment.offsets.stored_bytes, TIME_INDEX: segment.times.stored_bytes}
    if segment.aborted.stored_bytes:
        lengths[ABORTED] = segment.aborted.stored_bytes
    return lengths

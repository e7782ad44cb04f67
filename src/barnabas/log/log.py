"""Owns one partition's log: where it starts and ends, what of it lasts, what may be written to it. Replicas call it.

Everything runs on one thread, but for what `begin_flush` hands out. A refused append leaves no trace; offsets
never change; `start <= end`, and every segment begins where the one before it ends. Leader epochs are written
when the log is flushed or closed: what was not flushed is read again after a crash, and batches carry epochs.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from barnabas.config import TopicConfig
from barnabas.disk import Disk, FileSlice
from barnabas.errors import Code, Refused
from barnabas.log.chain import SegmentChain
from barnabas.log.disk_trouble import DiskTrouble
from barnabas.log.epochs import EpochStart, LeaderEpochs
from barnabas.log.flush import Flush, files_of
from barnabas.log.index_notes import IndexNotes
from barnabas.log.producers import EndedTransaction, ProducerStates
from barnabas.log.recovery import load_epochs, recover_segments, tell_gone
from barnabas.log.replicated import replicated
from barnabas.log.retention import Removed, reason_to_remove, report
from barnabas.log.rolling import is_stale, must_roll
from barnabas.log.salvage import Salvaged, salvage
from barnabas.log.segment import Segment
from barnabas.log.snapshots import Snapshots
from barnabas.log.transactions.aborted import AbortedTransaction
from barnabas.log.transactions.markers import read_marker
from barnabas.log.transactions.settling import settle
from barnabas.log.transactions.verifications import TRUSTED, Verification
from barnabas.log.validate import validate
from barnabas.types import NO_OFFSET, Buffer, LeaderEpoch, Millis, Offset

_PLACED = Struct(">qii")
"""Base offset, length, leader epoch: what an append writes into a batch."""

BEGINNING = Offset(0)
ANY_EPOCH = LeaderEpoch(2**31 - 1)
"""Above every epoch."""
_NOTE_EVERY = 4 << 20
"""Bytes of the active segment after which a flush syncs its indexes too: one flush in many costs two fsyncs more."""
_NOTE_EVERY_PRODUCER = 4 << 10


class Appended(NamedTuple):
    """Where a batch is now, or where it was already when it is a duplicate."""

    first: Offset
    last: Offset
    append_time: Millis
    duplicate: bool


class Log:
    """Mutable: one partition. Make one with `open`."""

    __slots__ = (
        "_chain",
        "_changes",
        "_disk",
        "_history",
        "_lasting_changes",
        "_lasting_epochs",
        "_newest",
        "_notes",
        "_snapshots",
        "_trouble",
        "config",
        "directory",
        "end",
        "epochs",
        "has_aborted",
        "on_cut",
        "producers",
        "recovery_point",
        "start",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        notes: IndexNotes,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.config = config
        self._chain = SegmentChain(segments)
        self.start = segments[0].base
        self.end = segments[-1].end
        self.recovery_point = self.start
        self.on_cut: Callable[[], object] | None = None
        """Called when the log has been cut, by a copy of it that is being made."""
        self.epochs = epochs
        self.has_aborted = False
        """Whether transactions have been aborted here; else no reader need be told of any."""
        self._lasting_epochs: list[EpochStart] | None = None
        self.producers = ProducerStates()
        self._snapshots = Snapshots(disk, directory)
        self._notes = notes
        self._newest = NO_OFFSET, 0
        """Where the last batch that was appended begins, and its size."""
        self._changes = 1
        self._lasting_changes = 0
        self._history = 0
        self._trouble = DiskTrouble(os.path.basename(directory))

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: TopicConfig,
        *,
        now: Millis,
        recovery_point: Offset = BEGINNING,
        start_offset: Offset = BEGINNING,
        clean: bool = False,
    ) -> "Log":
        """Open a partition's folder, or make it; raises OSError.

        Unless it was closed (`clean`), what lies above the recovery point is checked and a torn end is cut.
        The log never ends below the recovery point, whatever its files have lost.
        """
        disk.make_dir(directory)
        epochs = load_epochs(disk, directory)
        lasting_epochs = list(epochs.entries)
        notes = IndexNotes(disk, directory)
        interval = config.index_interval_bytes
        segments = recover_segments(
            disk, directory, epochs, now, interval, recovery_point, notes, clean=clean
        )
        is_new = not segments
        if is_new:
            if start_offset < recovery_point:
                tell_gone(os.path.basename(directory), start_offset, recovery_point)
            segments = [Segment.create(disk, directory, max(start_offset, recovery_point), now)]
        log = cls(disk, directory, config, segments, epochs, notes)
        log._lasting_epochs = lasting_epochs
        log._lasting_changes = int(clean and not is_new)
        log.recovery_point = log.end if clean else recovery_point
        if start_offset > log.end:
            log.start_over_at(start_offset)
            return log
        log.start = max(start_offset, log.start)
        epochs.truncate_from_end(log.end)
        settle(segments, log._snapshots, notes, log.start, log.recovery_point, now)
        log.has_aborted = any(len(segment.aborted) for segment in segments)
        log._snapshots.restore(log.producers, segments, log.start, log.end, now)
        log._snapshots.keep_only(segment.base for segment in segments)
        return log

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last is the active one."""
        return self._chain.segments

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self._chain.size

    @property
    def unflushed(self) -> int:
        """How many records a power cut could take."""
        return self.end - self.recovery_point

    def append(
        self,
        batches: memoryview,
        *,
        epoch: LeaderEpoch,
        now: Millis,
        internal: bool = False,
        verified: Verification | None = TRUSTED,
    ) -> Appended:
        """Store a producer's batch as the partition's leader; raises Refused, and nothing has changed then.

        `batches` is written to: offset and epoch are set in place. `internal` is for what the broker writes, in a
        producer's name too. Transactional ones are let in as `verified` says: not at all where it is None, because a
        transaction that no coordinator knows of would never end.
        Besides the write itself: 3.1 us for a batch of one small record, 5.0 us from an idempotent producer.
        """
        config = self.config
        batch, header, append_time = validate(batches, config=config, now=now, internal=internal)
        producer_id = header.producer_id
        if producer_id >= 0:
            if internal:
                self.producers.check_own(header, verified)
            else:
                stored = self.producers.check(header, verified)
                if stored is not None:
                    stored_at = stored.timestamp if append_time >= 0 else append_time
                    return Appended(stored.first, stored.last, stored_at, True)
        first = self.end
        # Numbers of a type of their own made by its name cost 60 ns each, here and in `_write`.
        last: Offset = first + header.last_offset_delta  # type: ignore[assignment]
        _PLACED.pack_into(batch, 0, first, header.batch_length, epoch)
        self._write(batch, last, header.max_timestamp, epoch, now)  # type: ignore[arg-type]
        if producer_id >= 0:
            self.producers.note(header, first, now)
        return tuple.__new__(Appended, (first, last, append_time, False))

    def append_marker(
        self, batch: memoryview, *, epoch: LeaderEpoch, now: Millis, transaction_version: int = 0
    ) -> Offset:
        """Store the end of a transaction as the partition's leader; its offset. Raises Refused as `append` does."""
        batch, header, _ = validate(batch, config=self.config, now=now, internal=True)
        marker = read_marker(batch)
        assert marker is not None
        self.producers.check_marker(header, marker, transaction_version)
        first = self.end
        _PLACED.pack_into(batch, 0, first, header.batch_length, epoch)
        self._write(batch, first, Millis(header.max_timestamp), epoch, now)
        self._note_ended(self.producers.note_marker(header, first, marker, now))
        return first

    def _note_ended(self, ended: EndedTransaction | None) -> None:
        """Remember a transaction whose marker is in the active segment."""
        if ended is not None and ended.aborted:
            self._chain.active.aborted.append(ended.entry)
            self.has_aborted = True

    def append_own(self, batch: bytes, count: int, *, epoch: LeaderEpoch, now: Millis) -> None:
        """Store a batch that the leader itself has made `now`, with the offset and the epoch that it is to have.

        No producer's, no control batch: nothing in it has to be looked at.
        """
        config = self.config
        is_plain = config.message_timestamp_type == "CreateTime" and config.compression_type == "producer"
        if not is_plain or len(batch) > config.max_message_bytes or len(batch) > config.segment_bytes:
            self.append(memoryview(bytearray(batch)), epoch=epoch, now=now, internal=True)
            return
        self._write(batch, Offset(self.end + count - 1), now, epoch, now)

    def _write(
        self, batch: Buffer, last: Offset, max_timestamp: Millis, epoch: LeaderEpoch, now: Millis
    ) -> None:
        """Put a batch that is as it is to be at the end of the log."""
        chain, config, size = self._chain, self.config, len(batch)
        try:
            if must_roll(chain.active, config, size, last, max_timestamp, now):
                self._roll(now)
            chain.active.append(batch, last, max_timestamp, config.index_interval_bytes)
        except OSError as error:
            raise self._trouble.refused("append to", error) from error
        chain.size += size
        if epoch != self.epochs.latest:
            self.epochs.assign(epoch, self.end)
        self._newest = self.end, size
        self.end = self.producers.end = chain.active.end

    def append_replicated(self, batches: memoryview, *, now: Millis, epoch: LeaderEpoch = ANY_EPOCH) -> None:
        """Store what the leader of an epoch has stored, as it is; a batch cut off at the end is left to the next fetch.

        Raises Refused for batches that are broken, out of place, or of epochs that the leader cannot have.
        """
        # An epoch that this replica led without a record is none of the log's history.
        self.epochs.truncate_from_end(self.end)
        found = replicated(batches, self.end, self.epochs.latest, epoch)
        if not found:
            return
        at, last = found[-1]
        whole = batches[: at + last.size]
        newest = Millis(max(header.max_timestamp for _, header in found))
        chain, config = self._chain, self.config
        try:
            if must_roll(
                chain.active, config, size=len(whole), last=last.last_offset, max_timestamp=newest, now=now
            ):
                self._roll(now)
            chain.active.append_all(whole, [header for _, header in found], config.index_interval_bytes)
        except OSError as error:
            raise self._trouble.refused("append to", error) from error
        chain.size += len(whole)
        self._newest = NO_OFFSET, 0
        self.end = self.producers.end = last.next_offset
        for at, header in found:
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            self._note_ended(self.producers.replay(header, batches[at : at + header.size], now))

    def roll_if_due(self, now: Millis) -> bool:
        """Begin a new segment when segment.ms has passed since the active one was begun."""
        if not is_stale(self._chain.active, self.config, now):
            return False
        with self._trouble.working("roll"):
            self._roll(now)
        return True

    def _roll(self, now: Millis) -> None:
        active = self._chain.active
        active.seal()
        self._snapshots.take(self.producers, self.end)
        self._chain.add(active.successor(self.end, now))
        self._changes += 1

    def read(self, offset: Offset, max_bytes: int, below: Offset) -> FileSlice | None:
        """Batches from the one with `offset` on, to be sent as they are; None where nothing is below `below`.

        The first is whole whatever its size, the last may be cut off. Raises Refused outside [start, end].
        """
        end = self.end
        if offset < self.start or offset > end:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{os.path.basename(self.directory)} has offsets {self.start} to {end}, not {offset}",
            )
        if offset >= below or offset == end:
            return None
        try:
            return self._chain.read(offset, max_bytes, below if below < end else end, end)
        except OSError as error:
            raise self._trouble.refused("read", error) from error

    def aborted_in(self, offset: Offset, records: FileSlice) -> list[AbortedTransaction]:
        """What a reader of committed records is told of with these, from `offset` on; perhaps a little more."""
        if not self.has_aborted:
            return []
        with self._trouble.working("read"):
            return self._chain.aborted_in(offset, records)

    def salvage(self, below: Offset) -> Iterator[Salvaged]:
        """All batches below `below` that can be read, whatever is damaged between them. Raises OSError."""
        return salvage(self._chain, self.start, below)

    def read_newest(self, offset: Offset, most: int) -> bytes | None:
        """The last batch, if it begins at `offset`, has no more bytes, and the log is as its append left it.

        What a reader at the end waits for, without looking for it: 2 us of cold caches instead of 7.
        """
        first, size = self._newest
        segment = self._chain.active
        position = segment.size - size
        if offset != first or not self.start <= offset < self.end or position < 0 or size > most:
            return None
        return segment.file.pread(size, position)

    def find_timestamp(self, timestamp: Millis, below: Offset) -> tuple[Millis, Offset] | None:
        """Timestamp and offset of the first record below `below` that is not older than this."""
        with self._trouble.working("read"):
            return self._chain.find_timestamp(timestamp, self.start, below)

    def max_timestamp(self, below: Offset) -> tuple[Millis, Offset] | None:
        """The largest timestamp below an offset, and the first record that has it; None where there is none."""
        with self._trouble.working("read"):
            return self._chain.max_timestamp(self.start, below)

    def begin_flush(self) -> Flush | None:
        """What must go to disk for everything up to `end` to last; None when it does already.

        Once an fsync has failed there is no other: it could succeed, without what that one has lost.
        """
        self._trouble.check_syncs()
        noted = self._note_active()
        epochs = list(self.epochs.entries)
        renamed = self._changes != self._lasting_changes
        if self.recovery_point >= self.end and not renamed and epochs == self._lasting_epochs:
            return None
        with self._trouble.working("flush"):
            # Also the segment that ends at the recovery point: it may have been sealed after it was flushed.
            flushed = self._chain.from_offset(Offset(self.recovery_point - 1))
            files, notes = files_of(flushed, self._chain.active, noted=noted)
            if renamed:
                files += self._snapshots.newest()
        return Flush(
            disk=self._disk,
            directory=self.directory,
            files=files,
            epochs=epochs if epochs != self._lasting_epochs else None,
            end=self.end,
            history=self._history,
            changes=self._changes,
            renamed=renamed,
            notes=notes,
        )

    def _note_active(self) -> bool:
        """Before a flush: whether the indexes of the active segment, written now, are to be synced and noted this time.

        Then a snapshot is taken too, so that the producers of what is noted need not be read from the batches.
        """
        active = self._chain.active
        # A snapshot costs some 4 us a producer.
        every = max(_NOTE_EVERY, len(self.producers) * _NOTE_EVERY_PRODUCER)
        if active.size - active.noted_size < every:
            return False
        # A full disk must not fail a flush that needs no room.
        with suppress(OSError):
            active.write_indexes()
            if self.producers.by_id:
                self._snapshots.take_midway(self.producers, self.end, active.base)
                self._changes += 1
            active.noted_size = active.size
            return True
        return False

    def finish_flush(self, flush: Flush) -> None:
        """Move the recovery point after `flush.run()` came back, unless the log was truncated meanwhile."""
        if flush.history != self._history:
            # It may have written down epochs that are no more.
            self._lasting_epochs = None
            return
        self.recovery_point = max(self.recovery_point, flush.end)
        self._lasting_changes = flush.changes
        if flush.epochs is not None:
            self._lasting_epochs = flush.epochs
        self._trouble.is_over()
        # Of no more use to a log whose disk is full than to one that lost it: it is read through instead.
        with suppress(OSError):
            self._notes.add(flush.notes, (segment.base for segment in self._chain.segments))

    def write_indexes(self) -> None:
        """Bring the index files of the active segment up to date: tools look at them, recovery need not."""
        with self._trouble.working("write the indexes of"):
            self._chain.active.write_indexes()

    def fail_flush(self, error: OSError) -> Refused:
        """What to answer to the waiting requests when `flush.run()` has failed."""
        return self._trouble.refused("flush", error)

    def flush(self) -> None:
        """Bring everything up to `end` to the disk, in this thread."""
        with self._trouble.working("flush"):
            flush = self.begin_flush()
            if flush is not None:
                flush.run()
                self.finish_flush(flush)

    def lower_recovery_point(self, offset: Offset) -> None:
        """Count as flushed what lies before the segment of `offset` and no more: the log is about to be cut there."""
        if self.recovery_point > offset:
            bases = [segment.base for segment in self._chain.segments if segment.base <= offset]
            self.recovery_point = max(bases[-1], self.start) if bases else self.start
            self.recovery_point = min(self.recovery_point, offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the batches that reach `offset` or more: `end` is then the end of the last one that is left.

        Before the call, write down a recovery point that is not above the beginning of the batch with `offset`: a log
        that is opened again never ends below the one that was written down.
        """
        if offset >= self.end:
            return
        if offset <= self.start:
            self.start_over_at(offset)
            return
        with self._trouble.working("truncate"):
            self._notes.drop_above(offset)
            try:
                self._chain.cut(offset)
                self._disk.sync_dir(self.directory)
            finally:
                self._ends_at(self._chain.active.end)
        if self.end < self.start:
            self.start_over_at(self.start)
            return
        last_append = self.producers.last_append
        self._snapshots.restore(self.producers, self._chain.segments, self.start, self.end, last_append)

    def start_over_at(self, offset: Offset) -> None:
        """Drop everything; the next record gets this offset."""
        with self._trouble.working("empty"):
            self._notes.drop_above(NO_OFFSET)
            try:
                self._chain.start_over(offset)
                self._snapshots.drop_above(Offset(-1))
                self._disk.sync_dir(self.directory)
            finally:
                self._ends_at(self._chain.active.end)
                self.start = min(self.start, self.end)
        self.start = offset
        self.epochs.clear()
        self.producers.clear(offset)

    def _ends_at(self, end: Offset) -> None:
        """Let the log end earlier than it did: a flush that is under way says nothing about what follows."""
        self.end = end
        self.recovery_point = min(self.recovery_point, end)
        self.epochs.truncate_from_end(end)
        self._history += 1
        self._changes += 1
        if self.on_cut is not None:
            self.on_cut()

    def advance_start(self, offset: Offset) -> None:
        """Let the log start later (DeleteRecords); whole segments before it go with the next `retain`."""
        if offset > self.end:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{os.path.basename(self.directory)} ends at {self.end}: it cannot start at {offset}",
            )
        if offset > self.start:
            self.start = offset
            self.epochs.truncate_from_start(offset)

    def retain(self, now: Millis, below: Offset) -> list[Removed]:
        """Remove the oldest segments that retention.ms, retention.bytes or the log's start give up.

        Only what is whole below `below` (the high watermark) goes, the active segment with the rest.
        """
        gone: list[Removed] = []
        chain = self._chain
        with self._trouble.working("trim"):
            while reason := reason_to_remove(
                chain.segments, self.config, size=chain.size, start=self.start, now=now
            ):
                first = chain.segments[0]
                if first.end > below or not first.size:
                    break
                if first is chain.active:
                    self._roll(now)
                chain.drop_first()
                gone.append(Removed(first.base, first.end, first.size, reason))
                self.advance_start(first.end)
        if gone:
            self._snapshots.drop_below(chain.segments[0].base)
            self._changes += 1
            report(self.directory, gone)
        return gone

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put the cleaner's segments in the place of those they were made from.

        `old` are neighbours, none of them active; `new` are sealed and synced, and begin where `old` began.
        """
        with self._trouble.working("swap segments of"):
            for segment, until in zip(new, [*(after.base for after in new[1:]), old[-1].end], strict=True):
                if segment.end < until:
                    segment.fill_to(until, self.config.index_interval_bytes)
                    segment.seal()
                    for file in segment.files():
                        file.sync()
            self._chain.swap(old, new)
        self._changes += 1
        with suppress(OSError):
            bases = [segment.base for segment in self._chain.segments]
            self._notes.add([segment.index_note() for segment in new], bases)

    def close(self) -> None:
        """Write and sync all that is known: opened `clean` again, nothing needs to be checked."""
        with self._trouble.working("close"):
            if (self.end > self.start or self.producers.by_id) and not self._snapshots.has(self.end):
                self._snapshots.take(self.producers, self.end)
                self._changes += 1
            active = self._chain.active
            if not active.is_sealed:
                self._changes += 1
            flush = self.begin_flush()
            if flush is not None:
                if active.size:
                    active.seal()
                    flush.files.extend(active.files())
                    flush.notes.append(active.index_note())
                flush.run()
                self.finish_flush(flush)
        for segment in self._chain.segments:
            segment.release()

    def snapshot_names(self) -> list[str]:
        """The files in the folder that tell of producers."""
        return self._snapshots.names()

    def move_to(self, directory: str) -> None:
        """Go on in another folder, which has all files as they are here; raises OSError, and nothing has changed then.

        A flush that is under way says nothing about them, and the next one syncs all that was not flushed before.
        """
        snapshots, notes = Snapshots(self._disk, directory), IndexNotes(self._disk, directory)
        self.directory, self._snapshots, self._notes = directory, snapshots, notes
        self._chain.move_to(directory)
        self._lasting_epochs = None
        self._history += 1
        self._changes += 1

    def delete(self) -> None:
        """Remove the folder with everything in it."""
        with self._trouble.working("delete"):
            for name in self._disk.list(self.directory):
                self._disk.remove(f"{self.directory}/{name}")
            self._disk.remove_dir(self.directory)

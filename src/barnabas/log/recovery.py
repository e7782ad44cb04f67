"""Opens a partition's folder: finishes or undoes what a crash interrupted, and brings back its segments.

`Log.open` calls it. After a crash the segments that reach above the recovery point are read batch by batch:
the first that is not whole, fails its checksum or does not follow from the one before ends the log, and all
that is behind it goes. Of the segment that holds the recovery point only what follows the last note on its indexes
(`index_notes`) is read.

What lies below the recovery point was on the disk, and is never cut: a record that has been damaged there is left for
its readers to find, and a damaged header costs its batch. The search for the next whole batch leads past it, and the
index leads readers there. Where none follows, or the files end too early, the last segment that is left ends at the
recovery point and takes no more: a new one begins there, after a clean stop as after a crash. Readers that come to the
damage, a follower of the log among them, find it themselves, and go on by asking for an offset behind it.
Memory stays bounded however large a batch claims to be.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from fastcrc.crc32 import iscsi as crc32c

from barnabas.disk import Disk, File, read_whole
from barnabas.errors import Refused
from barnabas.log.checkpoint import CorruptCheckpoint
from barnabas.log.epochs import LeaderEpochs
from barnabas.log.flush import EPOCHS
from barnabas.log.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from barnabas.log.index_notes import IndexNote, IndexNotes
from barnabas.log.salvage import find_batch
from barnabas.log.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LARGEST_RELATIVE_OFFSET,
    LOG,
    SWAP,
    TIME_INDEX,
    Segment,
)
from barnabas.log.transactions.aborted import ABORTED, AbortedIndex
from barnabas.types import LeaderEpoch, Millis, Offset
from barnabas.wire.batch import ATTRIBUTES_AT, HEADER, HEADER_SIZE, MAGIC, BatchHeader

_CHUNK = 1024 * 1024
_EVERYTHING = 2**63 - 1
_logger = logging.getLogger("barnabas.log")


def load_epochs(disk: Disk, directory: str) -> LeaderEpochs:
    """The epochs as they were written last; recovery adds what the batches above the recovery point say."""
    try:
        return LeaderEpochs.parse(read_whole(disk, f"{directory}/{EPOCHS}"))
    except FileNotFoundError:
        return LeaderEpochs()
    except CorruptCheckpoint as error:
        _logger.warning(
            "%s: the leader epochs are read from the log again: %s", os.path.basename(directory), error
        )
        return LeaderEpochs()


def tidy(disk: Disk, directory: str) -> list[Offset]:
    """Finish or undo what a crash left half done; the base offsets of the segments that there are now."""
    names = disk.list(directory)
    aborted = any(name.endswith(LOG + CLEANED) for name in names)
    swaps = [_base(name) for name in names if name.endswith(LOG + SWAP)] if not aborted else []
    for name in names:
        # A .swap beside a .cleaned was never in use: not all new segments were ready, so the old ones stay.
        if name.endswith((DELETED, CLEANED, ".tmp")) or (name.endswith(SWAP) and aborted):
            disk.remove(f"{directory}/{name}")
    if swaps:
        _finish_swap(disk, directory, swaps, names)
    logs = {name.removesuffix(LOG) for name in disk.list(directory) if name.endswith(LOG)}
    for name in disk.list(directory):
        stem, ending = os.path.splitext(name)
        if ending == SWAP or (ending in (INDEX, TIME_INDEX, ABORTED) and stem not in logs):
            disk.remove(f"{directory}/{name}")
    return sorted(Offset(int(stem)) for stem in logs)


def _base(name: str) -> Offset:
    return Offset(int(name[:20]))


def _finish_swap(disk: Disk, directory: str, swaps: list[Offset], names: list[str]) -> None:
    """Put the cleaner's segments in the place of those they were made from."""
    fresh = [Segment(disk, directory, base, Millis(0), SWAP) for base in sorted(swaps)]
    end = fresh[-1].base
    for segment in fresh:
        for _, header in whole_batches(segment.file, end):
            end = max(end, header.next_offset)
    for name in names:
        if name.endswith(LOG) and (_base(name) in swaps or fresh[0].base <= _base(name) < end):
            Segment(disk, directory, _base(name), Millis(0)).remove()
    for segment in fresh:
        segment.rename("")


def whole_batches(
    file: File, base: int, *, lasting: int = 0, begin: tuple[int, int, int] | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches of a file up to the first that cannot be believed: below the offset `lasting`, by its header alone.

    Below `lasting` what cannot be believed is passed over. `begin` says where to begin: at a place, with an offset and
    the epoch before it. 1 MiB at a time is held in memory.
    """
    position, expected, epoch = begin or (0, base, -1)
    end = file.size

    def is_sound(header: BatchHeader, place: int) -> bool:
        return (
            header.size >= HEADER_SIZE
            and place + header.size <= end
            and header.magic == MAGIC
            and header.base_offset >= expected
            and header.last_offset_delta >= 0
            and header.last_offset - base <= LARGEST_RELATIVE_OFFSET
            and not 0 <= header.leader_epoch < epoch
        )

    while position + HEADER_SIZE <= end:
        chunk = memoryview(file.pread(_CHUNK, position))
        at = 0
        while at + HEADER_SIZE <= len(chunk):
            header = BatchHeader._make(HEADER.unpack_from(chunk, at))
            size = header.size
            if not is_sound(header, position + at):
                if expected >= lasting:
                    return
                at = _past_damage(file, position + at, lasting, is_sound) - position
                break
            if at + size <= len(chunk):
                crc = crc32c(chunk[at + ATTRIBUTES_AT : at + size])
            elif at:
                break
            else:
                crc = _crc_in_parts(file, position, size)
            if crc != header.crc:
                if header.base_offset >= lasting:
                    return
                # Damage in a record leaves the way to the next batch as it was; damage in the header does not.
                if not _leads_on(file, position + at + size, header.next_offset):
                    at = _past_damage(file, position + at, lasting, is_sound) - position
                    break
            yield position + at, header
            expected, epoch = header.next_offset, max(epoch, header.leader_epoch)
            at += size
        position += at


def _past_damage(
    file: File, position: int, lasting: int, is_sound: Callable[[BatchHeader, int], bool]
) -> int:
    """Where the next batch begins that follows, or the end of the file.

    One that begins above `lasting` does not count: what lies before it may have been lost, not damaged.
    """
    while (position := find_batch(file, position + 1)) < file.size:
        header = BatchHeader._make(HEADER.unpack(file.pread(HEADER_SIZE, position)))
        if header.base_offset <= lasting and is_sound(header, position):
            break
    return position


def _leads_on(file: File, position: int, expected: int) -> bool:
    """Whether the next batch, or the end of the file, is where a header says that it is."""
    data = file.pread(HEADER_SIZE, position)
    if len(data) < HEADER_SIZE:
        return position == file.size
    header = BatchHeader._make(HEADER.unpack(data))
    return header.magic == MAGIC and header.base_offset >= expected


def _crc_in_parts(file: File, position: int, size: int) -> int:
    at, crc = position + ATTRIBUTES_AT, None
    while at < position + size:
        part = file.pread(min(_CHUNK, position + size - at), at)
        if not part:
            return -1
        crc = crc32c(part, crc)
        at += len(part)
    return crc or 0


def reindex(segment: Segment, interval: int, until: Offset) -> None:
    """Make the indexes of a sealed segment again, which ends at `until` and lasts: all of its bytes stay."""
    _logger.info("%s: the indexes of segment %d are made again", segment.partition, segment.base)
    _begin_again(segment)
    for _ in _note_all(segment, interval, until):
        pass
    if segment.unsettled is None:
        segment.aborted.replace([])
    if segment.size < segment.file.size:
        _tell_damage(segment, until)
    segment.size, segment.end = segment.file.size, until
    segment.seal()
    for file in segment.files():
        file.sync()  # no flush will do so later


def _tell_damage(segment: Segment, until: int) -> None:
    _logger.error(
        "%s: segment %d is damaged at byte %d: its records from offset %d to %d cannot be read",
        segment.partition,
        segment.base,
        segment.size,
        segment.end,
        until - 1,
    )


def _begin_again(segment: Segment) -> None:
    segment.forget()
    segment.offsets.clear()
    segment.times.clear()


def _note_all(segment: Segment, interval: int, lasting: int, epoch: int = -1) -> Iterator[BatchHeader]:
    """Note the batches that can be believed, behind those that are noted already."""
    begin = segment.size, segment.end, epoch
    for position, header in whole_batches(segment.file, segment.base, lasting=lasting, begin=begin):
        if position > segment.size:
            _tell_damage(segment, header.base_offset)
            segment.pass_over(position, Offset(header.base_offset))
        segment.note(header.size, header.last_offset, Millis(header.max_timestamp), interval)
        if header.is_control and header.producer_id >= 0 and segment.unsettled is None:
            segment.unsettled = Offset(header.base_offset)
        yield header


def resume(segment: Segment, note: IndexNote) -> bool:
    """Take a segment for what it was when it was noted, and its indexes for what they were; whether that fits."""
    if segment.file.size < note.size:
        return False
    offsets = SparseIndex.load(segment.disk, segment.offsets.path, OFFSET_ENTRY, note.index_bytes)
    times = SparseIndex.load(segment.disk, segment.times.path, TIME_ENTRY, note.time_index_bytes)
    aborted = AbortedIndex.load(segment.disk, segment.aborted.path, note.aborted_bytes)
    if offsets is None or times is None or aborted is None:
        return False
    segment.offsets, segment.times, segment.aborted = offsets, times, aborted
    segment.size = segment.noted_size = note.size
    try:
        segment.restore_tail()
    except Refused:
        return False
    return segment.end == note.end


def rebuild(segment: Segment, interval: int, epochs: LeaderEpochs, lasting: int, floor: Offset) -> None:
    """Read what is not noted of a segment that is in doubt: make its indexes again, cut what is torn.

    What cannot be read from some place below `floor` to the end stays: it was flushed.
    """
    for header in _note_all(segment, interval, lasting, epochs.latest if segment.size else -1):
        if header.leader_epoch > epochs.latest:
            epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
    torn = segment.file.size - segment.size
    if torn and segment.end >= floor:
        _logger.warning(
            "%s: cut %d torn or corrupt bytes at byte %d of segment %d; the log goes on at offset %d",
            segment.partition,
            torn,
            segment.size,
            segment.base,
            segment.end,
        )
        segment.file.truncate(segment.size)
        segment.file.sync()


def _close_at(segment: Segment, floor: Offset) -> None:
    """Let a segment that has lost its end reach the recovery point: nothing may be put behind what it has left."""
    if segment.size < segment.file.size:
        _tell_damage(segment, floor)
    else:
        tell_gone(segment.partition, segment.end, floor)
    segment.size, segment.end = segment.file.size, floor
    segment.seal()


def tell_gone(partition: str, first: Offset, until: Offset) -> None:
    """Say that flushed records are not there any more."""
    _logger.error(
        "records from offset %d to %d of %s are gone: the file is shorter than what was flushed",
        first,
        until - 1,
        partition,
    )


def load_indexes(segment: Segment, until: Offset | None, note: IndexNote | None) -> bool:
    """Take the indexes of a segment from their files; False where they cannot be right.

    They are as long as they were noted to be. What else could be wrong with files that were synced is that they are not
    ours: so only ends are looked at.
    """
    offsets = SparseIndex.load(segment.disk, segment.offsets.path, OFFSET_ENTRY)
    times = SparseIndex.load(segment.disk, segment.times.path, TIME_ENTRY)
    aborted = AbortedIndex.load(segment.disk, segment.aborted.path)
    if offsets is None or times is None or aborted is None:
        return False
    if note is not None and note.size == segment.size:
        segment.noted_size = note.size
        lengths = (offsets.stored_bytes, times.stored_bytes, aborted.stored_bytes)
        if lengths != (note.index_bytes, note.time_index_bytes, note.aborted_bytes):
            return False
    limit = until - segment.base if until is not None else 2**31
    last, timed = offsets.last, times.last
    if last and not (0 <= offsets[0][0] <= last[0] < limit and 0 <= last[1] < segment.size):
        return False
    if timed and not (0 <= timed[1] < limit and times[0][0] <= timed[0]):
        return False
    ended = aborted.last
    if ended and not 0 <= ended.last - segment.base < limit:
        return False
    segment.offsets, segment.times, segment.aborted = offsets, times, aborted
    return True


def recover_segments(
    disk: Disk,
    directory: str,
    epochs: LeaderEpochs,
    now: Millis,
    interval: int,
    recovery_point: Offset,
    notes: IndexNotes,
    *,
    clean: bool,
) -> list[Segment]:
    """The segments of a folder, oldest first; none where it is new. They never end below the recovery point.

    After a clean stop nothing is read but the end of the last segment.
    """
    segments: list[Segment] = []
    bases = tidy(disk, directory)
    if not bases:
        return segments
    # A flush syncs the indexes of sealed segments only: one that was sealed just at the recovery point is in doubt.
    doubtful = None if clean else max((b for b in bases if b < recovery_point), default=bases[0])
    closed = False
    for number, base in enumerate(bases):
        # A segment begins where the one before it ends: anything else was lost in between.
        if segments and base != segments[-1].end:
            _drop(disk, directory, bases[number:], segments[-1].end)
            break
        until = bases[number + 1] if number + 1 < len(bases) else None
        segment = Segment(disk, directory, base, now)
        segment.size = segment.file.size
        segments.append(segment)
        lasts = doubtful is None or base < doubtful
        closed = False
        note = notes.newest(base)
        if lasts and load_indexes(segment, until, note) and _believe(segment, until, interval):
            pass
        elif lasts and until is not None:
            reindex(segment, interval, until)
            # Without its note it is only read through again next time.
            if segment.unsettled is None:
                with suppress(OSError):
                    notes.add([segment.index_note()], bases)
        else:
            point = _EVERYTHING if clean else recovery_point
            note = notes.newest_below(base, Offset(point)) if base == doubtful else None
            if note is None or not resume(segment, note):
                _begin_again(segment)
                segment.aborted.replace([])
            if base == doubtful:
                # The batches that are read again know better than a file that was not synced with them.
                epochs.truncate_from_end(segment.end)
            rebuild(segment, interval, epochs, point, recovery_point)
            if until is not None:
                segment.seal()
        if segment.end < (recovery_point if until is None else min(until, recovery_point)):
            _close_at(segment, recovery_point)
            closed = True
        if until is not None:
            segment.release()
    if closed:
        segments.append(Segment.create(disk, directory, segments[-1].end, now))
        disk.sync_dir(directory)  # after a clean stop no flush would do so
    return segments


def _believe(segment: Segment, until: Offset | None, interval: int) -> bool:
    """Take a segment's word for what it holds, as far as that makes sense; False where it does not.

    Of a sealed one only the first header and the last entry of time are read, of the last one its end, too.
    """
    try:
        if until is None:
            segment.restore_tail()
            timed = segment.times.last
            return timed is None or segment.base + timed[1] < segment.end
        segment.read_first_timestamp()
        if not segment.offsets.last and segment.has_batch_behind(interval):
            return False
        if not segment.noted_size and not segment.ends_before(segment.times.last):
            return False
    except Refused:
        return False
    segment.end = until
    timed = segment.times.last
    if not timed and segment.first_timestamp >= 0:
        return False
    if timed:
        segment.max_timestamp, segment.max_timestamp_offset = (
            Millis(timed[0]),
            Offset(segment.base + timed[1]),
        )
    return True


def _drop(disk: Disk, directory: str, bases: list[Offset], end: Offset) -> None:
    """Remove the segments behind the end of the log, the newest first: what is left has no hole."""
    _logger.warning(
        "%s: the log ends at offset %d; segments removed behind it: %d, from offset %d on",
        os.path.basename(directory),
        end,
        len(bases),
        bases[0],
    )
    for base in reversed(bases):
        segment = Segment(disk, directory, base, Millis(0))
        with suppress(FileNotFoundError):
            segment.remove()

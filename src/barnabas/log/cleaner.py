"""Compacts one log beside the event loop: `begin` on the loop, `run` in a worker thread, `finish` on the loop.

    cleaner = Cleaner(directories.cleaned, dedupe_bytes)
    cleaning = cleaner.begin(tp, log, now, below=high_watermark)
    while cleaning is not None and not cleaning.is_done:
        await asyncio.to_thread(cleaning.run)
        cleaning.finish()

Each round makes one or two new segments out of one or more old ones and swaps them in; memory is bounded by the
map of keys and a few batches, disk by two segments. The active segment, and what the high watermark has not
passed, are never touched. If the log has changed under a round (truncated, trimmed, deleted), what it made is
dropped.
"""

import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.config import TopicConfig
from barnabas.disk import Disk, File
from barnabas.errors import Code, Refused
from barnabas.log.compaction import Compactor, KeyMap, Outcomes, Survivor, emptied
from barnabas.log.log import Log
from barnabas.log.segment import CLEANED, LARGEST_RELATIVE_OFFSET, Segment
from barnabas.log.transactions.aborted import AbortedTransaction
from barnabas.setting import LONG_MAX
from barnabas.types import Millis, Offset, TopicPartition
from barnabas.wire.batch import CONTROL, HEADER, HEADER_SIZE, TRANSACTIONAL, BatchHeader, crc_of

DEDUPE_BYTES = 128 * 1024 * 1024
"""log.cleaner.dedupe.buffer.size, unless the broker says otherwise."""

_CHUNK = 1024 * 1024
_SLICE = 8 * 1024
_NAP_S = 0.0001
"""After `_SLICE` bytes the worker stops for this long, so that the event loop need not wait for the interpreter's
lock: it is late by 0.2 ms (p99 1.6 ms) instead of 5 ms (13 ms). Cleaning takes twice as long, 7 us a record."""

_logger = logging.getLogger("barnabas.log")


class Overtaken(Exception):
    """A segment has been cut while it was read."""


class SegmentToClean(NamedTuple):
    """A segment as it was when the cleaning began."""

    segment: Segment
    path: str
    base: Offset
    end: Offset
    size: int
    index_bytes: int


def _source_of(segment: Segment) -> SegmentToClean:
    return SegmentToClean(segment, segment.path, segment.base, segment.end, segment.size, segment.index_bytes)


class Cleaner:
    """Knows up to where each log has been cleaned, and which are dirty enough for more."""

    def __init__(
        self, cleaned: MutableMapping[TopicPartition, Offset], dedupe_bytes: int = DEDUPE_BYTES
    ) -> None:
        """`cleaned` is read and written: the data directories keep it in the cleaner's checkpoint."""
        self._cleaned = cleaned
        self.dedupe_bytes = dedupe_bytes

    def begin(self, tp: TopicPartition, log: Log, now: Millis, below: Offset) -> "Cleaning | None":
        """A cleaning of the log, if it is dirty enough; its `ratio` lets the caller choose among logs.

        `below` is the last stable offset, or the high watermark: nothing from there on is cleaned.
        """
        config = log.config
        if "compact" not in config.cleanup_policy:
            return None
        cleaned_to = self._cleaned.get(tp, log.start)
        # Beyond the log's ends it speaks of another history.
        first_dirty = cleaned_to if log.start <= cleaned_to <= log.end else log.start
        sources: list[SegmentToClean] = []
        clean_bytes = dirty_bytes = 0
        is_late = False
        for segment in log.segments[:-1]:
            is_dirty = segment.end > first_dirty
            is_fresh = segment.max_timestamp > now - config.min_compaction_lag_ms
            if segment.end > below or (is_dirty and is_fresh and config.min_compaction_lag_ms):
                break
            if is_dirty:
                dirty_bytes += segment.size
                if config.max_compaction_lag_ms != LONG_MAX and segment.size:
                    is_late = is_late or 0 < segment.first_timestamp < now - config.max_compaction_lag_ms
            else:
                clean_bytes += segment.size
            sources.append(_source_of(segment))
        if not dirty_bytes:
            return None
        ratio = dirty_bytes / (dirty_bytes + clean_bytes)
        if ratio <= config.min_cleanable_dirty_ratio and not is_late:
            return None
        return Cleaning(self, tp, log, sources, first_dirty, ratio=ratio, now=now)

    def note(self, tp: TopicPartition, offset: Offset) -> None:
        """Remember that everything below `offset` has been cleaned."""
        self._cleaned[tp] = offset


class Cleaning:
    """Mutable: one pass over a log, in rounds."""

    def __init__(
        self,
        cleaner: Cleaner,
        tp: TopicPartition,
        log: Log,
        sources: Sequence[SegmentToClean],
        first_dirty: Offset,
        *,
        ratio: float,
        now: Millis,
    ) -> None:
        self.ratio = ratio
        self.is_done = False
        self.bytes_before = self.bytes_after = 0
        self._cleaner = cleaner
        self._tp = tp
        self._log = log
        self._disk: Disk = sources[0].segment.disk
        self._config = log.config
        self._sources = sources
        self._first_dirty = first_dirty
        self._now = now
        self._last_batches = [
            (producer_id, state.batches[-1].last if state.batches else Offset(-1), state.epoch)
            for producer_id, state in log.producers.by_id.items()
        ]
        # Read here: the indexes are not for another thread.
        self._aborted = {each.last: each for source in sources for each in source.segment.aborted}
        self._waiting: list[SegmentToClean] = []
        self._group: list[SegmentToClean] = []
        self._fresh: list[Segment] = []
        self._compactor: Compactor | None = None
        self._mapped_to = first_dirty
        self._is_running = False
        self._worked = 0

    def run(self) -> None:
        """One round, in any thread; raises Refused, and then the whole cleaning is over."""
        self._is_running = True
        try:
            if self._compactor is None:
                self._compactor = self._prepare()
            while self._waiting and not self._fresh:
                self._group, self._fresh = self._clean(self._compactor)
        except (FileNotFoundError, Overtaken):
            # Retention, truncation, the deletion of the partition or the end of the broker was quicker.
            self._waiting.clear()
            self._mapped_to = Offset(-1)
        except OSError as error:
            self.is_done = True
            raise Refused(
                Code.KAFKA_STORAGE_ERROR, f"{self._tp} is not compacted: {error.strerror or error}"
            ) from error
        except BaseException:
            self.is_done = True
            raise
        finally:
            self._is_running = False
            if self.is_done:
                self._discard()

    def finish(self) -> None:
        """Swap in what the round has made; raises Refused where the disk fails."""
        if self._fresh:
            if self.is_done or not self._is_as_it_was():
                self.abandon()
                return
            fresh, self._fresh = self._fresh, []
            self.bytes_before += sum(source.size for source in self._group)
            self.bytes_after += sum(segment.size for segment in fresh)
            self._log.replace_segments([source.segment for source in self._group], fresh)
        if not self._waiting and not self.is_done:
            self.is_done = True
            if self._mapped_to >= 0:
                self._cleaner.note(self._tp, self._mapped_to)
                self._tell()

    def abandon(self) -> None:
        """Give up, and drop what was made. A round that is under way in its thread stops at the next batch."""
        self.is_done = True
        if not self._is_running:
            self._discard()

    def _discard(self) -> None:
        fresh, self._fresh = self._fresh, []
        _remove(fresh)

    def _tell(self) -> None:
        if self.bytes_before:
            _logger.info(
                "%s: compacted up to offset %d; %d bytes became %d",
                self._tp,
                self._mapped_to,
                self.bytes_before,
                self.bytes_after,
            )

    def _is_as_it_was(self) -> bool:
        """Whether the segments from the group's on are still the log's, whole, and in a folder of that name.

        A cut behind the group counts, too: what was newer and made a record go may not be there any more.
        """
        group = self._group
        rest = self._sources[self._sources.index(group[0]) :]
        segments = list(self._log.segments)
        if group[0].segment not in segments:
            return False
        first = segments.index(group[0].segment)
        here = segments[first : first + len(rest)]
        return (
            [_source_of(segment) for segment in here] == list(rest)
            and here[-1] is not segments[-1]
            and all(self._disk.exists(source.path) for source in group)
        )

    def _prepare(self) -> Compactor:
        """Read the dirty part: which offset of each key is the newest, as far as the map has room."""
        keys, outcomes = KeyMap(self._cleaner.dedupe_bytes), Outcomes()
        dirty = [source for source in self._sources if source.end > self._first_dirty]
        limit = self._sources[-1].end
        is_transactional = False
        for batch, header in self._batches(dirty):
            if header.attributes & TRANSACTIONAL and not is_transactional:
                is_transactional = True
                for other, its_header in self._batches(dirty):
                    outcomes.note(other, its_header)
                # What an undecided transaction wrote must not replace anything yet.
                undecided = outcomes.first_undecided
                limit = limit if undecided is None else undecided
            if header.base_offset >= limit or keys.is_full:
                break
            if header.last_offset >= self._first_dirty:
                if not header.is_control and header.count and not outcomes.is_aborted(header):
                    keys.note(batch, header, self._first_dirty)
                self._mapped_to = header.next_offset
        else:
            self._mapped_to = limit
        self._waiting = [source for source in self._sources if source.base < self._mapped_to]
        return Compactor(
            keys,
            outcomes,
            mapped_to=self._mapped_to,
            now=self._now,
            delete_retention_ms=self._config.delete_retention_ms,
            last_batches=self._last_batches,
        )

    def _clean(self, compactor: Compactor) -> tuple[list[SegmentToClean], list[Segment]]:
        """Write what is left of the next segments anew: which they were, and what they have become.

        Nothing has become of them where it would be the same again.
        """
        group: list[SegmentToClean] = []
        rewrite = Rewrite(self._disk, self._log.directory, self._waiting[0], self._config, self._aborted)
        try:
            is_changed = False
            gone: tuple[memoryview, BatchHeader] | None = None
            while self._waiting and (not group or rewrite.has_room_for(self._waiting[0])):
                group.append(self._waiting.pop(0))
                for batch, header in self._batches(group[-1:]):
                    left = compactor.survivor(batch, header)
                    gone = None if left else (batch, header)
                    is_changed = is_changed or left is None or left.changed
                    if left:
                        rewrite.add(left)
            if gone is not None:
                # So that the segment reaches the next one: a hole between two would look like a loss.
                rewrite.add(emptied(*gone))
            fresh = rewrite.sealed() if is_changed or len(group) > 1 else []
            if not fresh:
                _remove(rewrite.segments)
        except BaseException:
            _remove(rewrite.segments)
            raise
        return group, fresh

    def _batches(self, sources: Sequence[SegmentToClean]) -> Iterator[tuple[memoryview, BatchHeader]]:
        for source in sources:
            for batch, header in _read(self._disk.open(source.path), source):
                if self.is_done:
                    raise Overtaken
                yield batch, header
                self._worked += len(batch)
                if self._worked >= _SLICE:
                    self._worked = 0
                    time.sleep(_NAP_S)


class Rewrite:
    """Mutable: the new segments of a round. Small ones are put together, none grows beyond segment.bytes."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        first: SegmentToClean,
        config: TopicConfig,
        aborted: Mapping[Offset, AbortedTransaction],
    ) -> None:
        """`aborted` are the aborted transactions of all segments that are cleaned, by their markers."""
        self._disk = disk
        self._directory = directory
        self._config = config
        self._aborted = aborted
        self._created = first.segment.created
        self._data = bytearray()
        self._headers: list[BatchHeader] = []
        self.segments: list[Segment] = []
        self._next(first.base)

    def has_room_for(self, source: SegmentToClean) -> bool:
        """Whether another segment should go in here, too: it fits, or there is much room for what is left of it."""
        config, size = self._config, self._size
        return size + source.size <= config.segment_bytes or 2 * size <= config.segment_bytes

    @property
    def _size(self) -> int:
        return self.segments[-1].size + len(self._data)

    def add(self, batch: Survivor) -> None:
        header, fresh = batch.header, self.segments[-1]
        if self._size and (
            self._size + len(batch.data) > self._config.segment_bytes
            or fresh.index_bytes >= self._config.segment_index_bytes
            or header.last_offset - fresh.base > LARGEST_RELATIVE_OFFSET
        ):
            self._write()
            self._next(fresh.end)
        if header.attributes & CONTROL and header.count:
            self._keep_aborted(Offset(header.base_offset))
        self._data += batch.data
        self._headers.append(header)
        if len(self._data) >= _CHUNK:
            self._write()

    def _keep_aborted(self, marker: Offset) -> None:
        """Tell readers of an aborted transaction for as long as its marker is there, and no longer.

        Without the marker they would skip the producer's next transactions, too.
        """
        aborted = self._aborted.get(marker)
        if aborted is not None:
            self.segments[-1].aborted.append(aborted)

    def sealed(self) -> list[Segment]:
        """The segments, whole and synced."""
        self._write()
        for segment in self.segments:
            segment.seal()
            for file in segment.files():
                file.sync()
        return self.segments

    def _next(self, base: Offset) -> None:
        self.segments.append(Segment.create(self._disk, self._directory, base, self._created, CLEANED))

    def _write(self) -> None:
        if self._data:
            self.segments[-1].append_all(self._data, self._headers, self._config.index_interval_bytes)
            self._data, self._headers = bytearray(), []


def _read(file: File, source: SegmentToClean) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches of a segment, each whole and with a right checksum: what is broken is not to be written anew."""
    position, want = 0, _CHUNK
    while position < source.size:
        wanted = min(want, source.size - position)
        chunk = memoryview(file.pread(wanted, position))
        if len(chunk) < wanted:
            raise Overtaken
        at = 0
        while at + HEADER_SIZE <= len(chunk):
            header = BatchHeader._make(HEADER.unpack_from(chunk, at))
            size = header.size
            if size < HEADER_SIZE or position + at + size > source.size:
                raise _broken(source, position + at)
            if at + size > len(chunk):
                break
            if crc_of(chunk, at, size) != header.crc:
                raise _broken(source, position + at)
            yield chunk[at : at + size], header
            at += size
        if at:
            position += at
            want = _CHUNK
        elif len(chunk) >= HEADER_SIZE and len(chunk) < source.size - position:
            want = BatchHeader._make(HEADER.unpack_from(chunk)).size
        else:
            raise _broken(source, position)


def _broken(source: SegmentToClean, position: int) -> Refused:
    return Refused(
        Code.CORRUPT_MESSAGE, f"{source.path} is not compacted: there is no sound batch at byte {position}"
    )


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        with suppress(OSError):
            segment.remove()

"""Compacts one log beside the event loop: `begin` on the loop, `run` in a worker thread, `finish` on the loop.

    cleaner = Cleaner(directories.cleaned, dedupe_bytes)
    cleaning = cleaner.begin(tp, log, now, below=high_watermark)
    while cleaning is not None and not cleaning.is_done:
        await asyncio.to_thread(cleaning.run)
        cleaning.finish()

Each round makes one new segment out of one or more old ones and swaps it in; memory is bounded by the map of keys
and a few batches, disk by one segment. The active segment, and what the high watermark has not passed, are never
touched. If the log has changed under a round (truncated, trimmed, deleted), what it made is dropped.
"""

import logging
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.disk import Disk, File
from barnabas.errors import Code, Refused
from barnabas.log.compaction import Compactor, KeyMap, Outcomes
from barnabas.log.log import Log
from barnabas.log.segment import CLEANED, LARGEST_RELATIVE_OFFSET, Segment
from barnabas.setting import LONG_MAX
from barnabas.types import Millis, Offset, TopicPartition
from barnabas.wire.batch import HEADER, HEADER_SIZE, TRANSACTIONAL, BatchHeader, crc_of

DEDUPE_BYTES = 128 * 1024 * 1024
"""log.cleaner.dedupe.buffer.size, unless the broker says otherwise."""

_CHUNK = 1024 * 1024
_TURN = 8 * 1024
_NAP_S = 0.0001
"""After so many bytes the worker stops for a moment, so that the event loop need not wait for the interpreter's
lock: it is late by 0.2 ms (p99 1.6 ms) instead of 5 ms (13 ms). Cleaning takes twice as long, 7 us a record."""

_logger = logging.getLogger("barnabas.log")


class Overtaken(Exception):
    """A segment has been cut while it was read."""


class Source(NamedTuple):
    """A segment as it was when the cleaning began."""

    segment: Segment
    path: str
    base: Offset
    end: Offset
    size: int
    index_bytes: int


def _source_of(segment: Segment) -> Source:
    return Source(segment, segment.path, segment.base, segment.end, segment.size, segment.index_bytes)


class Cleaner:
    """Knows up to where each log has been cleaned, and which are dirty enough for more."""

    def __init__(
        self, cleaned: MutableMapping[TopicPartition, Offset], dedupe_bytes: int = DEDUPE_BYTES
    ) -> None:
        """`cleaned` is read and written: the data directories keep it in the cleaner's checkpoint."""
        self._cleaned = cleaned
        self.dedupe_bytes = dedupe_bytes

    def begin(self, tp: TopicPartition, log: Log, now: Millis, below: Offset) -> "Cleaning | None":
        """A cleaning of the log, if it is dirty enough; its `ratio` is for those who have to choose.

        `below` is the last stable offset, or the high watermark: nothing from there on is cleaned.
        """
        config = log.config
        if "compact" not in config.cleanup_policy:
            return None
        cleaned_to = self._cleaned.get(tp, log.start)
        # Beyond the log's ends it speaks of another history.
        first_dirty = cleaned_to if log.start <= cleaned_to <= log.end else log.start
        sources: list[Source] = []
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
    """Mutable: one pass over a log, a round for each segment that comes out of it."""

    def __init__(
        self,
        cleaner: Cleaner,
        tp: TopicPartition,
        log: Log,
        sources: Sequence[Source],
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
        self._groups: list[list[Source]] = []
        self._compactor: Compactor | None = None
        self._mapped_to = first_dirty
        self._fresh: Segment | None = None
        self._worked = 0

    def run(self) -> None:
        """One round, in any thread; raises Refused, and then the whole cleaning is over."""
        try:
            if self._compactor is None:
                self._compactor = self._prepare()
            while self._groups and self._fresh is None:
                self._fresh = self._clean(self._groups[0], self._compactor)
                if self._fresh is None:
                    self._groups.pop(0)
        except (FileNotFoundError, Overtaken):
            # Retention, truncation or the deletion of the partition was quicker.
            self._groups.clear()
            self._mapped_to = Offset(-1)
        except OSError as error:
            self.is_done = True
            raise Refused(
                Code.KAFKA_STORAGE_ERROR, f"{self._tp} is not compacted: {error.strerror or error}"
            ) from error
        except BaseException:
            self.is_done = True
            raise

    def finish(self) -> None:
        """Swap in what the round has made; raises Refused where the disk fails."""
        if self._fresh is not None:
            group, fresh = self._groups.pop(0), self._fresh
            self._fresh = None
            if not self._is_as_it_was(group):
                _discard(fresh)
                self.is_done = True
                return
            self.bytes_before += sum(source.size for source in group)
            self.bytes_after += fresh.size
            self._log.replace_segments([source.segment for source in group], [fresh])
        if not self._groups:
            self.is_done = True
            if self._mapped_to >= 0:
                self._cleaner.note(self._tp, self._mapped_to)
                self._tell()

    def abandon(self) -> None:
        """Drop what a round has made and nobody will finish."""
        self.is_done = True
        if self._fresh is not None:
            _discard(self._fresh)
            self._fresh = None

    def _tell(self) -> None:
        if self.bytes_before:
            _logger.info(
                "%s: compacted up to offset %d; %d bytes became %d",
                self._tp,
                self._mapped_to,
                self.bytes_before,
                self.bytes_after,
            )

    def _is_as_it_was(self, group: list[Source]) -> bool:
        """Whether the segments from the group's on are still the log's, whole, and in a folder of that name.

        A cut behind the group counts, too: what was newer and made a record go may not be there any more.
        """
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
        self._groups = self._grouped()
        return Compactor(
            keys,
            outcomes,
            mapped_to=self._mapped_to,
            now=self._now,
            delete_retention_ms=self._config.delete_retention_ms,
            last_batches=self._last_batches,
        )

    def _grouped(self) -> list[list[Source]]:
        """Neighbours that fit into one segment together, so that segments do not become ever smaller."""
        groups: list[list[Source]] = []
        size = index_bytes = 0
        for source in self._sources:
            if source.base >= self._mapped_to:
                break
            fits = (
                groups
                and size + source.size <= self._config.segment_bytes
                and index_bytes + source.index_bytes <= self._config.segment_index_bytes
                and source.end - groups[-1][0].base <= LARGEST_RELATIVE_OFFSET
            )
            if not fits:
                groups.append([])
                size = index_bytes = 0
            groups[-1].append(source)
            size += source.size
            index_bytes += source.index_bytes
        return groups

    def _clean(self, group: list[Source], compactor: Compactor) -> Segment | None:
        """Write what is left of a group into a new segment; None where it would be the one that is there."""
        first = group[0]
        fresh = Segment.create(self._disk, self._log.directory, first.base, first.segment.created, CLEANED)
        try:
            changed = len(group) > 1
            data, headers = bytearray(), []
            for batch, header, is_last in _with_last(self._batches(group)):
                left = compactor.survivor(batch, header, is_last=is_last)
                changed = changed or left is None or left.changed
                if left is not None:
                    data += left.data
                    headers.append(left.header)
                if len(data) >= _CHUNK:
                    fresh.append_all(data, headers, self._config.index_interval_bytes)
                    data, headers = bytearray(), []
            if data:
                fresh.append_all(data, headers, self._config.index_interval_bytes)
            if not changed:
                _discard(fresh)
                return None
            fresh.seal()
            for file in fresh.files():
                file.sync()
        except BaseException:
            _discard(fresh)
            raise
        return fresh

    def _batches(self, sources: Sequence[Source]) -> Iterator[tuple[memoryview, BatchHeader]]:
        for source in sources:
            for batch, header in _read(self._disk.open(source.path), source):
                yield batch, header
                self._worked += len(batch)
                if self._worked >= _TURN:
                    self._worked = 0
                    time.sleep(_NAP_S)


def _with_last(
    batches: Iterator[tuple[memoryview, BatchHeader]],
) -> Iterator[tuple[memoryview, BatchHeader, bool]]:
    """The batches of a group, each with the word whether it is the last."""
    current = next(batches, None)
    while current is not None:
        following = next(batches, None)
        yield *current, following is None
        current = following


def _read(file: File, source: Source) -> Iterator[tuple[memoryview, BatchHeader]]:
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


def _broken(source: Source, position: int) -> Refused:
    return Refused(
        Code.CORRUPT_MESSAGE, f"{source.path} is not compacted: there is no sound batch at byte {position}"
    )


def _discard(segment: Segment) -> None:
    with suppress(OSError):
        segment.remove()

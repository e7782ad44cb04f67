"""Owns the producer snapshots beside a partition's segments: their names, which one counts, which go.

The log takes one whenever it rolls and when it is closed, and reads them back when it is opened or truncated.
A snapshot that is missing or broken costs time, never truth: an older one and the batches behind it, or all
batches, say the same. So none of them is synced before the log itself is.

Beside each, `<offset>.producers` has what Kafka's format has no room for (`recent_batches`). It is written before the
snapshot and removed before it; without it, or where it does not fit, Kafka's snapshot alone counts.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from barnabas.disk import Disk, File, read_whole
from barnabas.errors import Refused
from barnabas.log import recent_batches
from barnabas.log.producers import CorruptSnapshot, EndedTransaction, ProducerStates
from barnabas.log.segment import Segment, name_of
from barnabas.types import Millis, Offset

_ENDING = ".snapshot"
_RECENT = ".producers"
_SCAN = 256 * 1024
_logger = logging.getLogger("barnabas.log")


class Snapshots:
    """Mutable: the offsets that snapshots were taken at, oldest first."""

    __slots__ = ("_directory", "_disk", "_recent", "offsets")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        names = disk.list(directory)
        self.offsets = sorted(_offsets_in(names, _ENDING))
        self._recent = set(_offsets_in(names, _RECENT))

    def _path(self, offset: Offset, ending: str = _ENDING) -> str:
        return f"{self._directory}/{name_of(offset, ending)}"

    def has(self, offset: Offset) -> bool:
        """Whether a snapshot at this offset is there with its recent batches."""
        return offset in self.offsets and offset in self._recent

    def names(self) -> list[str]:
        """The files there are."""
        recent = [name_of(offset, _RECENT) for offset in self._recent]
        return recent + [name_of(offset, _ENDING) for offset in self.offsets]

    def take(self, producers: ProducerStates, offset: Offset) -> None:
        """Write what is known of the producers of everything below `offset`."""
        snapshot = producers.to_bytes()
        self._recent.add(offset)
        self._write(self._path(offset, _RECENT), recent_batches.encode(producers, snapshot))
        self._write(self._path(offset), snapshot)
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()

    def take_midway(self, producers: ProducerStates, offset: Offset, base: Offset) -> None:
        """The same at a place inside the segment that begins at `base`, instead of the one taken there before."""
        for earlier in [each for each in self.offsets if each > base and each != offset]:
            self._remove(earlier)
        self.take(producers, offset)

    def _write(self, path: str, data: bytes) -> None:
        file = self._disk.open(path, create=True)
        file.truncate(0)
        file.append(data)

    def newest(self) -> list[File]:
        """The last one's files, to be synced with the log."""
        if not self.offsets:
            return []
        offset = self.offsets[-1]
        endings = (_RECENT, _ENDING) if offset in self._recent else (_ENDING,)
        return [self._disk.open(self._path(offset, ending)) for ending in endings]

    def drop_below(self, offset: Offset) -> None:
        """Remove the ones before the first segment: nothing is left to replay from there."""
        while self.offsets and self.offsets[0] < offset:
            self._remove(self.offsets[0])

    def drop_above(self, offset: Offset) -> None:
        """Remove the ones that speak of batches which are no more, for good: others will have their offsets."""
        if not self.offsets or self.offsets[-1] <= offset:
            return
        while self.offsets and self.offsets[-1] > offset:
            self._remove(self.offsets[-1])
        self._disk.sync_dir(self._directory)

    def keep_only(self, bases: Iterable[Offset]) -> None:
        """Remove the ones that no segment begins at, but for the newest, and recent batches without a snapshot."""
        kept = {*bases, *self.offsets[-1:]}
        for offset in [offset for offset in self.offsets if offset not in kept]:
            self._remove(offset)
        for offset in self._recent.difference(self.offsets):
            self._remove_recent(offset)

    def _remove(self, offset: Offset) -> None:
        self._remove_recent(offset)
        with suppress(FileNotFoundError):
            self._disk.remove(self._path(offset))
        self.offsets.remove(offset)

    def _remove_recent(self, offset: Offset) -> None:
        if offset in self._recent:
            with suppress(FileNotFoundError):
                self._disk.remove(self._path(offset, _RECENT))
            self._recent.remove(offset)

    def restore(
        self, producers: ProducerStates, segments: Sequence[Segment], start: Offset, end: Offset, now: Millis
    ) -> None:
        """Bring the producers' state to `end`: from the newest snapshot not above it, and what follows.

        `now` counts as the time of those appends whose own time is not known.
        """
        self.drop_above(end)
        self.load(producers, start, end, now)
        for segment in segments:
            if segment.end > producers.end:
                for _ in replayed(producers, segment, now):
                    pass
        producers.end = end
        # What is older than the high watermark is not known here: the broker says so as soon as it does.

    def load(self, producers: ProducerStates, start: Offset, limit: Offset, now: Millis) -> None:
        """Bring the producers' state to where the newest snapshot not above `limit` was taken, else to the start."""
        producers.clear(start)
        for taken in reversed([offset for offset in self.offsets if offset <= limit]):
            try:
                snapshot = read_whole(self._disk, self._path(taken))
                producers.load(snapshot, taken, now)
                self._restore_recent(producers, taken, snapshot)
                break
            except (CorruptSnapshot, FileNotFoundError) as error:
                _logger.warning("%s: %s", os.path.basename(self._directory), error)
                self._remove(taken)

    def _restore_recent(self, producers: ProducerStates, taken: Offset, snapshot: bytes) -> None:
        if taken not in self._recent:
            return
        try:
            recent_batches.restore(producers, read_whole(self._disk, self._path(taken, _RECENT)), snapshot)
        except (CorruptSnapshot, OSError) as error:
            _logger.warning(
                "%s: of producers before offset %d only the last batch is known: %s",
                os.path.basename(self._directory),
                taken,
                error,
            )
            with suppress(OSError):
                self._remove_recent(taken)


def _offsets_in(names: Iterable[str], ending: str) -> Iterable[Offset]:
    stems = (name.removesuffix(ending) for name in names if name.endswith(ending))
    return (Offset(int(stem)) for stem in stems if stem.isdecimal())


def replayed(producers: ProducerStates, segment: Segment, now: Millis) -> Iterator[EndedTransaction]:
    """Apply the batches of a segment that the producers' state does not have yet; the transactions that end in it."""
    try:
        for position, header in segment.headers_from(producers.end, _SCAN):
            if header.producer_id >= 0:
                batch = segment.read_batch(position, header.size) if header.is_control else b""
                ended = producers.replay(header, batch, now)
                if ended is not None:
                    yield ended
    except Refused as damage:
        _logger.warning("%s; what producers wrote behind that is not known", damage.message)

"""Owns the producer snapshots beside a partition's segments: their names, which one counts, which go.

The log takes one whenever it rolls and when it is closed, and reads them back when it is opened or truncated.
A snapshot that is missing or broken costs time, never truth: an older one and the batches behind it, or all
batches, say the same. So none of them is synced before the log itself is.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from barnabas.disk import Disk, File, read_whole
from barnabas.log.producers import CorruptSnapshot, ProducerStates
from barnabas.log.segment import Segment, name_of
from barnabas.types import Offset

_ENDING = ".snapshot"
_SCAN = 256 * 1024
_logger = logging.getLogger("barnabas.log")


class Snapshots:
    """Mutable: the offsets that snapshots were taken at, oldest first."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        taken = (name.removesuffix(_ENDING) for name in disk.list(directory) if name.endswith(_ENDING))
        self.offsets = sorted(Offset(int(stem)) for stem in taken if stem.isdecimal())

    def _path(self, offset: Offset) -> str:
        return f"{self._directory}/{name_of(offset, _ENDING)}"

    def take(self, producers: ProducerStates, offset: Offset) -> None:
        """Write what is known of the producers of everything below `offset`."""
        file = self._disk.open(self._path(offset), create=True)
        file.truncate(0)
        file.append(producers.to_bytes())
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()

    def newest(self) -> File | None:
        """The last one's file, to be synced with the log."""
        return self._disk.open(self._path(self.offsets[-1])) if self.offsets else None

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
        """Remove the ones that no segment begins at, but for the newest."""
        kept = {*bases, *self.offsets[-1:]}
        for offset in [offset for offset in self.offsets if offset not in kept]:
            self._remove(offset)

    def _remove(self, offset: Offset) -> None:
        with suppress(FileNotFoundError):
            self._disk.remove(self._path(offset))
        self.offsets.remove(offset)

    def restore(
        self, producers: ProducerStates, segments: Sequence[Segment], start: Offset, end: Offset
    ) -> None:
        """Bring the producers' state to `end`: from the newest snapshot not above it, and what follows."""
        self.drop_above(end)
        producers.clear(start)
        while self.offsets:
            taken = self.offsets[-1]
            try:
                producers.load(read_whole(self._disk, self._path(taken)), taken)
                break
            except (CorruptSnapshot, FileNotFoundError) as error:
                _logger.warning("%s: %s", os.path.basename(self._directory), error)
                self._remove(taken)
        for segment in segments:
            if segment.end > producers.end:
                _replay(producers, segment)
        producers.end = end
        # What is older than the high watermark is not known here: the broker says so as soon as it does.


def _replay(producers: ProducerStates, segment: Segment) -> None:
    place = segment.locate(producers.end)
    if place is None:
        return
    for position, header in segment.headers(place[0], _SCAN):
        if header.producer_id >= 0:
            producers.replay(header, segment.read_batch(position, header.size) if header.is_control else b"")

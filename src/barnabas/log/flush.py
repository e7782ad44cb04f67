"""Owns one trip of a partition's unsynced files to the disk. `Log.begin_flush` makes it, a worker runs it.

It holds all it needs, so the log may go on being written, rolled and trimmed meanwhile. Only when `run` has
come back without an error does everything below `end` last.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.disk import Disk, File, write_atomically
from barnabas.log.epochs import EpochStart, LeaderEpochs
from barnabas.log.index_notes import IndexNote
from barnabas.log.segment import Segment
from barnabas.types import Offset

EPOCHS = "leader-epoch-checkpoint"


def files_of(
    segments: Iterable[Segment], active: Segment, *, noted: bool
) -> tuple[list[File], list[IndexNote]]:
    """What has to be synced of these segments, and what can be noted of their indexes then.

    The indexes of the active one are made again after a crash, unless they are `noted` this time.
    """
    files: list[File] = []
    notes: list[IndexNote] = []
    for segment in segments:
        if segment is active and not noted:
            files.append(segment.file)
        else:
            files += segment.files()
            notes.append(segment.index_note())
    return files, notes


@dataclass(frozen=True, slots=True)
class Flush:
    """What to sync: files, then the leader epochs their batches were written under, then names."""

    disk: Disk
    directory: str
    files: list[File]
    epochs: list[EpochStart] | None
    """None where they last already."""
    end: Offset
    history: int
    """Which history of the log this was begun in: a truncation begins another, and makes this void."""
    changes: int
    """How often names had changed when this was begun."""
    renamed: bool
    """Whether some of these changes do not last yet."""
    notes: list[IndexNote]
    """What will last of segments whose indexes are among the files."""

    def run(self) -> None:
        """Blocks until all is on the disk; raises OSError. May run in any thread, once."""
        for file in self.files:
            file.sync()
        if self.epochs is not None:
            write_atomically(self.disk, f"{self.directory}/{EPOCHS}", LeaderEpochs(self.epochs).to_bytes())
        if self.renamed:
            self.disk.sync_dir(self.directory)

"""Owns one trip of a partition's unsynced files to the disk. `Log.begin_flush` makes it, a worker runs it.

It holds all it needs, so the log may go on being written, rolled and trimmed meanwhile. Only when `run` has
come back without an error does everything below `end` last.
"""

from barnabas.disk import Disk, File, write_atomically
from barnabas.types import Offset


class Flush:
    """Files to be synced, then names, then the leader epochs that the batches were written under."""

    __slots__ = ("_directory", "_disk", "_epochs", "end", "files", "history")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        files: list[File],
        epochs: tuple[str, bytes] | None,
        end: Offset,
        history: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.files = files
        self._epochs = epochs
        self.end = end
        self.history = history
        """Which history of the log this was begun in: a truncation begins another, and makes this void."""

    def run(self) -> None:
        """Blocks until all is on the disk; raises OSError. May run in any thread, once."""
        for file in self.files:
            file.sync()
        if self._epochs is not None:
            write_atomically(self._disk, *self._epochs)
        self._disk.sync_dir(self._directory)

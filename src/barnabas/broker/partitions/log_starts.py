"""Writes down where logs start, off the event loop, one file at a time.

Called by DeleteRecords before it answers: what was deleted stays deleted after kill -9 and after a power cut. Requests
that arrive while a file is being written share the next writing of it.
"""

import asyncio
import logging

from barnabas.broker.partitions.partition import Partition
from barnabas.errors import Code, Refused
from barnabas.log.directories import Directories
from barnabas.log.directory import DataDirectory

log = logging.getLogger("barnabas.log_starts")


class LogStarts:
    """Mutable: the writings under way, by data directory."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self._running: dict[DataDirectory, asyncio.Task[None]] = {}

    async def write(self, partition: Partition) -> None:
        """Come back when the partition's start lasts; raises KAFKA_STORAGE_ERROR where it cannot be written.

        A partition that has gone meanwhile has nothing left to be written.
        """
        while directory := self._directories.owes_start(partition.tp):
            running = self._running.get(directory)
            if running is None:
                running = self._running[directory] = asyncio.create_task(self._write(directory, partition))
                running.add_done_callback(_heard)
            await asyncio.shield(running)

    async def _write(self, directory: DataDirectory, partition: Partition) -> None:
        try:
            write = self._directories.begin_starts(directory)
            await asyncio.get_running_loop().run_in_executor(None, write)
        except OSError as error:
            log.error("cannot write down where logs in %s start: %s", directory.path, error)
            self._directories.failed(partition.tp, error)
            raise Refused(Code.KAFKA_STORAGE_ERROR) from error
        finally:
            # Here and not in a callback: to wait for a task that is done takes no turn of the loop.
            del self._running[directory]


def _heard(task: asyncio.Task[None]) -> None:
    """All that waited may be gone: then a failure is of no interest any more."""
    if not task.cancelled():
        task.exception()

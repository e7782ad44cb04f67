"""Writes recovery points down before logs are cut, off the event loop, one file at a time.

Called by fetchers. A log that is opened again never ends below the recovery point that was written down, so it is
lowered first, and the cut follows when that lasts. Cuts that arrive while a file is written share the next writing.
"""

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.partitions.follower import Follower
from barnabas.errors import Code, Refused
from barnabas.log.directory import DataDirectory
from barnabas.replication.following import Effect, StartOver, Truncate
from barnabas.types import Offset

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker


class Cuts:
    """Mutable: the writings under way, by data directory."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._running: dict[DataDirectory, asyncio.Task[None]] = {}

    async def begin(self, follower: Follower, cuts: list[Effect]) -> None:
        """Come back when the recovery point that lasts is below all cuts; raises KAFKA_STORAGE_ERROR."""
        directories, log = self._broker.directories, follower.log
        lowest = min((_place(cut) for cut in cuts), default=log.end)
        log.lower_recovery_point(lowest)
        while directory := directories.owes_recovery_point(follower.tp):
            running = self._running.get(directory)
            if running is None:
                running = self._running[directory] = asyncio.create_task(self._write(directory, follower))
                running.add_done_callback(_heard)
            await asyncio.shield(running)
            # A flush that was under way may have raised it again.
            log.lower_recovery_point(lowest)

    async def _write(self, directory: DataDirectory, follower: Follower) -> None:
        try:
            write = self._broker.directories.begin_recovery_points(directory)
            await asyncio.get_running_loop().run_in_executor(None, write)
        except OSError as error:
            self._broker.directories.failed(follower.tp, error)
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{follower.tp} cannot be cut: {error}") from error
        finally:
            # Here and not in a callback: to wait for a task that is done takes no turn of the loop.
            del self._running[directory]


def _place(cut: Effect) -> Offset:
    match cut:
        case Truncate(to):
            return to
        case StartOver(at):
            return at
    raise TypeError(cut)


def _heard(task: asyncio.Task[None]) -> None:
    """Marks a failure as seen: all that waited may be gone."""
    if not task.cancelled():
        task.exception()

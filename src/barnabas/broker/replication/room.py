"""Owns what this broker does about data directories without room: it lets other brokers lead and count instead.

The broker says when a write found no room. The directory is tried then, and where it is full the controller is told
which partitions are in it, and moves them (`cluster.reactions.give_way`). It is told again and again: the next
controller does not know, and a replica that could take over may be in sync only later. Before each time the directories
are tried again; with room the partitions catch up, and count.

Nothing is taken offline: what has no other replica in sync is still led here, read, and written to once there is room.
"""

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.errors import BarnabasError, Code, Refused, counted
from barnabas.log.directory import DataDirectory
from barnabas.types import TopicPartition
from barnabas.wire.messages.controlling import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    TopicWithoutRoom,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

TOLD_MS = 5_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0
"""Between two times that the directories are tried and the controller is told: each time twice as long."""

log = logging.getLogger("barnabas.replication")


class Room:
    """Mutable: the directories that are full, and the task that tells of them."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._suspected: set[DataDirectory] = set()
        """Where a write found no room, and nothing was tried since: it may have been a large one."""
        self._full: set[DataDirectory] = set()
        self._owes = False
        """Whether the controller has to be told once more."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def missed(self, tp: TopicPartition) -> None:
        """A write to this partition found no room."""
        directory = self._broker.directories.home(tp)
        if self._broker.is_alone or self._is_closed or directory is None or directory in self._full:
            return
        self._suspected.add(directory)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while self._suspected or self._full or self._owes:
                if await self._try():
                    pause_s = _FIRST_PAUSE_S
                    self._owes = True
                if self._owes or self._full:
                    self._owes = not await self._told()
                # Also where all is well again: a directory is not tried with every write that is refused.
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            self._task = None

    async def _try(self) -> bool:
        """Look which directories are full, and which ones have room again or are out of use; whether that is new."""
        loop = asyncio.get_running_loop()
        before = set(self._full)
        suspected, self._suspected = self._suspected, set()
        for directory in sorted(suspected | before, key=lambda each: each.path):
            if directory.error is None and not await loop.run_in_executor(None, directory.has_room):
                self._full.add(directory)
                if directory not in before:
                    log.error("%s is full: other brokers lead what is in it, where they can", directory.path)
            elif directory in before:
                self._full.discard(directory)
                log.info("%s has room again", directory.path)
        return self._full != before

    async def _told(self) -> bool:
        """Tell the controller what there is no room for, all of it; whether it has heard."""
        broker = self._broker
        without = self._without_room()
        request = AlterPartitionRequest(broker.id, broker.epoch, tells_of_room=True, without_room=without)
        try:
            if broker.metadata.is_controller:
                await broker.controlling.alter_partition(request)
            else:
                answer: AlterPartitionResponse = await broker.to_controller.ask(request, TOLD_MS)
                if answer.error_code:
                    raise Refused(Code.of(answer.error_code))
        except BarnabasError as error:
            count = sum(len(topic.partitions) for topic in without)
            what = counted(count, "partition") if count else "nothing"
            log.info("the controller does not know yet that there is no room for %s: %s", what, error)
            return False
        return True

    def _without_room(self) -> list[TopicWithoutRoom]:
        topics: dict[UUID, TopicWithoutRoom] = {}
        for partition in self._broker.replicas:
            if self._broker.directories.home(partition.tp) in self._full:
                topic = topics.setdefault(partition.topic_id, TopicWithoutRoom(partition.topic_id))
                topic.partitions.append(partition.tp.partition)
        return list(topics.values())

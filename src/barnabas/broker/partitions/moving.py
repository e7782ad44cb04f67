"""Moves replicas from one data directory of this broker to another, off the event loop, while they are led or followed.

AlterReplicaLogDirs asks here; the broker starts and stops it. `log.moves` knows how. One task copies a slice at a time,
all moves in turn and no faster than replica.alter.log.dirs.io.max.bytes.per.second; then it keeps flushes of the log
away, brings the rest to the disk, and lets the copy take the log's place. The partition itself notices nothing: it has
the same log before and after, in another folder.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.errors import Code, Refused
from barnabas.log.copying import SourceFailed
from barnabas.log.moves import Move
from barnabas.types import Millis, TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

SLICE_BYTES = 4 << 20
LEAST_SLICE_BYTES = 4 << 10
LONGEST_REST_S = 0.25
MOST_LAST_BYTES = 1 << 30
SLICES = 16
"""How many slices a move has before the next one has its turn."""

log = logging.getLogger("barnabas.moving")


class Pace:
    """Mutable: bytes that were copied ahead of their time. Time is an argument."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._at = Millis(0)

    def spend(self, size: int) -> None:
        self._ahead += size

    def wait_ms(self, rate: float, now: Millis) -> float:
        """How long to copy nothing, at `rate` bytes a second since the last look; what was not used is not saved up."""
        self._ahead = max(0.0, self._ahead - (now - self._at) * rate / 1000)
        self._at = now
        return self._ahead * 1000 / rate


class Moving:
    """Mutable: the moves that wait for their turn, and the task that carries them out."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._moves = broker.directories.moves
        self._moves.on_discarded = self._wake
        self._queue: deque[Move] = deque()
        self._pace = Pace()
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Go on with the moves that the last life of the broker has not finished."""
        for move in self._moves.resume():
            log.info("%s is on its way to %s again", move.tp, move.target.path)
            self._queue.append(move)
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Come back when nothing is copied any more; folders that are not full wait for the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ask(self, wishes: list[tuple[TopicPartition, str]]) -> list[Code]:
        """Let replicas be in these directories of this broker; what became of each wish. A move that begins is on the
        disk when this comes back: it goes on after a restart. So is the end of one that was cancelled."""
        answers = await asyncio.gather(*(self._ask(tp, path) for tp, path in wishes))
        await self._clear_up()
        return answers

    async def _ask(self, tp: TopicPartition, path: str) -> Code:
        try:
            move = self._moves.ask(tp, path)
        except Refused as refused:
            is_known = self._broker.metadata.image.partition(tp) is not None
            if refused.code is Code.REPLICA_NOT_AVAILABLE and not is_known:
                return Code.UNKNOWN_TOPIC_OR_PARTITION
            return refused.code
        if move is None:
            return Code.NONE
        topic_id = self._broker.directories.topic_id(tp)
        assert topic_id is not None
        try:
            await self._in_thread(lambda: self._moves.make(move, topic_id))
        except OSError as error:
            self._moves.made(move)
            self._moves.fail(move, error)
            return Code.KAFKA_STORAGE_ERROR
        self._moves.made(move)
        if not move.is_over:
            log.info("%s is on its way from %s to %s", tp, move.source.path, move.target.path)
            self._queue.append(move)
            self._wake()
        return Code.NONE

    def _wake(self) -> None:
        self._more.set()

    async def _work(self) -> None:
        while True:
            if not self._queue:
                await self._more.wait()
            self._more.clear()
            await self._clear_up()
            if self._queue:
                move = self._queue.popleft()
                if await self._turn(move):
                    self._queue.append(move)

    async def _clear_up(self) -> None:
        work = self._moves.begin_clearing_up()
        if work is not None:
            await self._in_thread(work)

    async def _turn(self, move: Move) -> bool:
        """Carry a move on; whether there is more of it."""
        try:
            for _ in range(SLICES):
                if move.is_over:
                    return False
                limit = self._slice_bytes()
                if move.copy.remaining <= limit:
                    await self._settle(move)
                    return not move.is_over
                await self._copy(move, limit)
        except (OSError, SourceFailed) as error:
            # Where it was over already, its folder was taken away from under the copying.
            self._moves.fail(move, error)
        except Exception as error:
            log.exception("the move of %s has failed", move.tp)
            self._moves.fail(move, SourceFailed(str(error)))
        return not move.is_over

    async def _copy(self, move: Move, limit: int) -> None:
        piece = move.copy.begin(limit)
        if piece is not None:
            await self._in_thread(piece.run)
            move.copy.finish(piece)
            await self._rest(piece.size)

    async def _settle(self, move: Move) -> None:
        """Bring the copy to the disk: after this the log is kept from being flushed for a moment only."""
        settling = move.copy.begin_settling()
        await self._in_thread(settling.run)
        move.copy.finish_settling(settling)
        await self._rest(settling.slice.size if settling.slice is not None else 0)
        if move.copy.remaining <= move.last_bytes:
            async with self._broker.flusher.held(move.log):
                await self._swap(move)
        # A log that is written as fast as the disk syncs its copy would never move otherwise.
        move.last_bytes = min(2 * move.last_bytes, MOST_LAST_BYTES)

    async def _swap(self, move: Move) -> None:
        """Let the copy take the log's place, if nothing comes between."""
        if move.is_over:
            return
        move.is_arriving = True
        settling = move.copy.begin_settling()
        marks = self._broker.replicas.high_watermarks()
        checkpoints = self._broker.directories.begin_checkpoints(move.target, marks)
        await self._in_thread(lambda: [work() for work in (settling.run, *checkpoints)])
        move.copy.finish_settling(settling)
        self._moves.swap(move)

    async def _rest(self, size: int) -> None:
        """Let the time pass that these bytes are worth; another rate counts at once."""
        self._pace.spend(size)
        clock = self._broker.steady_clock
        while (wait_ms := self._pace.wait_ms(self._rate, clock.now())) >= 1:  # noqa: ASYNC110
            await asyncio.sleep(min(wait_ms / 1000, LONGEST_REST_S))

    @property
    def _rate(self) -> float:
        return self._broker.config.replica_alter_log_dirs_io_max_bytes_per_second

    def _slice_bytes(self) -> int:
        """A quarter of a second's worth at the most: so a move that is cancelled ends soon."""
        return int(max(LEAST_SLICE_BYTES, min(SLICE_BYTES, self._rate / 4)))

    async def _in_thread(self, work: Callable[[], object]) -> None:
        """Come back when the work is done; also when this task is cancelled, for the thread cannot be."""
        running = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, work))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            with suppress(Exception):
                await running
            raise

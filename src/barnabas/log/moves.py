"""Owns which replicas move from one data directory of this broker to another, and how a copy takes the log's place.

Part of `directories`; `broker.partitions.moving` drives it. A copy grows in a folder `topic-N.<id>-future`, which is
never served. When it has all of the log it is given the partition's name, the log goes on in it, and the old folder
goes. The folder is the wish, too: after a restart it is emptied and filled anew.

Always holds: the partition is whole in one of the two directories, whatever fails. Two folders can have its name, for a
moment or because the old directory has failed: each says how often the replica has moved (`replica-moves`), and the
larger number counts. All that was flushed of the log lasts in the copy, and the checkpoints of its directory say so,
before the copy has the partition's name.
"""

import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.disk import Disk
from barnabas.errors import Code, Refused, reason_of
from barnabas.log.checkpoint import RECOVERY_POINTS, START_OFFSETS
from barnabas.log.copying import Copy, SourceFailed
from barnabas.log.directory import MOVES, PARTITION_METADATA, DataDirectory
from barnabas.log.log import Log
from barnabas.log.strays import DELETED, LONGEST_NAME, STRAY, put_aside
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.log.directories import Directories

FUTURE = "-future"
LAST_BYTES = 16 << 20
"""How much of a log may be copied on the event loop at the very end, in the first attempt: 10 ms."""
MOST_WISHES = 10_000
"""Partitions that are not here yet whose directory is remembered."""

_FUTURE = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\.[0-9a-f]{32}-future")

_logger = logging.getLogger("barnabas.log")


def future_of(name: str) -> TopicPartition | None:
    """The partition that a folder of this name is to become."""
    match = _FUTURE.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


class Move:
    """Mutable: one replica on its way to another directory."""

    def __init__(
        self,
        disk: Disk,
        tp: TopicPartition,
        log: Log,
        source: DataDirectory,
        target: DataDirectory,
        name: str,
        *,
        number: int,
        stale: Sequence[str] = (),
    ) -> None:
        self.tp = tp
        self.log = log
        self.source = source
        self.target = target
        self.name = name
        """Of the folder that is filled."""
        self.number = number
        """How often the replica has moved, with this time."""
        self.copy = Copy(disk, log, f"{target.path}/{name}", stale)
        self.last_bytes = LAST_BYTES
        """How much may be copied on the event loop, at the very end."""
        self.is_made = False
        """Whether the folder is there."""
        self.is_arriving = False
        """Whether the checkpoints of the new directory tell of the partition already."""
        self.is_over = False
        """Whether it is done, given up, or failed: nothing of it is to be copied any more."""


class Moves:
    """Mutable: the moves under way, and wishes for partitions that are not here yet."""

    def __init__(self, directories: "Directories", disk: Disk) -> None:
        self._directories = directories
        self._disk = disk
        self._wishes: dict[TopicPartition, DataDirectory] = {}
        self._found: list[tuple[TopicPartition, DataDirectory, str]] = []
        self._discarded: list[tuple[DataDirectory, str]] = []
        self.under_way: dict[TopicPartition, Move] = {}
        self.on_discarded: Callable[[], object] = lambda: None
        """Called when there are folders to `clear_up`."""

    # What is wanted

    def ask(self, tp: TopicPartition, path: str) -> Move | None:
        """Let a replica be in this directory; the move that begins, if one does. Raises Refused.

        A move to another directory ends with it. What is not here yet is made there, if it ever is.
        """
        directories = self._directories
        name = f"{tp}.{os.urandom(16).hex()}{FUTURE}"
        if len(name) > LONGEST_NAME:
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"the name of {tp} is too long to be moved")
        target = directories.named(path)
        if target is None:
            raise Refused(Code.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        if target.error is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{path} is offline")
        log, source, topic_id = directories.find(tp), directories.home(tp), directories.topic_id(tp)
        if log is None or source is None or topic_id is None:
            if directories.is_lost(tp):
                raise Refused(Code.KAFKA_STORAGE_ERROR, f"{tp} is in a data directory that is offline")
            self._remember(tp, target)
            raise Refused(Code.REPLICA_NOT_AVAILABLE)
        pending = self.under_way.get(tp)
        if pending is not None:
            if pending.target is target:
                return None
            _logger.info("%s: its move to %s is cancelled", tp, pending.target.path)
            self.end(pending)
        if source is target:
            return None
        try:
            number = source.moves(str(tp)) + 1
        except OSError as error:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{tp} cannot be read: {error}") from error
        move = Move(self._disk, tp, log, source, target, name, number=number)
        self.under_way[tp] = move
        return move

    def _remember(self, tp: TopicPartition, target: DataDirectory) -> None:
        self._wishes.pop(tp, None)
        self._wishes[tp] = target
        if len(self._wishes) > MOST_WISHES:
            del self._wishes[next(iter(self._wishes))]

    def wished(self, tp: TopicPartition) -> DataDirectory | None:
        """Where a partition that is not here yet is to be made, if that was said and can be."""
        target = self._wishes.get(tp)
        return target if target is not None and target.error is None else None

    def settle_wish(self, tp: TopicPartition) -> None:
        """The partition has been made."""
        self._wishes.pop(tp, None)

    # At the start

    def found(self, tp: TopicPartition, directory: DataDirectory, name: str) -> None:
        """A folder of a move that the last life of the broker has not finished."""
        self._found.append((tp, directory, name))

    def resume(self) -> list[Move]:
        """The moves that go on, from their beginning; folders of others go. Called when it is known what is here."""
        resumed = []
        found, self._found = self._found, []
        for tp, directory, name in found:
            if directory.error is not None or self._directories.may_be_offline(tp):
                continue
            with self._directories.working(directory):
                move = self._resumed(tp, directory, name)
                if move is None:
                    self._discard(directory, name)
                else:
                    resumed.append(move)
        return resumed

    def _resumed(self, tp: TopicPartition, directory: DataDirectory, name: str) -> Move | None:
        log, home = self._directories.find(tp), self._directories.home(tp)
        if log is None or home is None or home is directory or tp in self.under_way:
            return None
        number = directory.moves(name)
        # The replica may have moved elsewhere while this directory was offline.
        is_newer = number > home.moves(str(tp))
        if not is_newer or directory.topic_id(name) != self._directories.topic_id(tp):
            return None
        files = self._disk.list(f"{directory.path}/{name}")
        stale = [file for file in files if file not in (PARTITION_METADATA, MOVES)]
        move = Move(self._disk, tp, log, home, directory, name, number=number, stale=stale)
        move.is_made = True
        self.under_way[tp] = move
        return move

    # While it goes on

    def make(self, move: Move, topic_id: UUID) -> None:
        """Make the folder, in any thread; raises OSError."""
        move.target.make_future(move.name, topic_id, move.number)

    def made(self, move: Move) -> None:
        """The folder is there, or a part of it; that of a move which has ended meanwhile goes."""
        move.is_made = True
        if move.is_over and move.target.error is None:
            with self._directories.working(move.target):
                self._discard(move.target, move.name)

    def arriving(self, directory: DataDirectory) -> list[TopicPartition]:
        """Partitions that the checkpoints of a directory tell of, though they are not there yet."""
        return [tp for tp, move in self.under_way.items() if move.is_arriving and move.target is directory]

    def to(self, directory: DataDirectory) -> list[Move]:
        """The moves into a directory."""
        return [move for move in self.under_way.values() if move.target is directory]

    def end(self, move: Move) -> None:
        """Give a move up; its folder goes, and the partition stays where it is."""
        if move.is_over:
            return
        self._close(move)
        if move.is_made and move.target.error is None:
            with self._directories.working(move.target):
                self._discard(move.target, move.name)

    def _close(self, move: Move) -> None:
        move.is_over = True
        move.copy.close()
        del self.under_way[move.tp]

    def fail(self, move: Move, error: Exception) -> None:
        """Give a move up for what was raised: an OSError of the new directory, or SourceFailed."""
        if move.is_over:
            return
        _logger.error(
            "%s is not moved to %s, and stays in %s: %s",
            move.tp,
            move.target.path,
            move.source.path,
            reason_of(error) if isinstance(error, OSError) else error,
        )
        self.end(move)
        if isinstance(error, OSError):
            self._directories.failed_in(move.target, error)
        else:
            self._directories.failed(move.tp, error)

    def forget(self, tp: TopicPartition) -> None:
        """The partition goes."""
        if tp in self.under_way:
            self.end(self.under_way[tp])

    def without(self, directory: DataDirectory) -> None:
        """A directory has failed: what moves from or to it moves no more."""
        for move in list(self.under_way.values()):
            if directory in (move.source, move.target):
                _logger.error("%s is not moved to %s", move.tp, move.target.path)
                self.end(move)

    def _discard(self, directory: DataDirectory, name: str) -> None:
        """Take the wish away at once; the files go later."""
        gone = name.removesuffix(FUTURE) + DELETED
        # It may not even have been made.
        with suppress(FileNotFoundError):
            self._disk.rename(f"{directory.path}/{name}", f"{directory.path}/{gone}")
            self._discarded.append((directory, gone))
            self.on_discarded()

    def begin_clearing_up(self) -> Callable[[], None] | None:
        """What removes the folders that are of no use any more, in any thread; None where there are none."""
        discarded, self._discarded = self._discarded, []
        if not discarded:
            return None

        def clear_up() -> None:
            for directory, name in discarded:
                # What cannot be synced here fails again where it matters.
                with suppress(OSError):
                    self._disk.sync_dir(directory.path)
                directory.try_to_remove(name)

        return clear_up

    # The end

    def swap(self, move: Move) -> bool:
        """Let the copy be the partition, on the event loop and with no flush of the log under way; False for not yet.

        Raises OSError where the new directory fails, and SourceFailed; then the log goes on where it was.
        """
        tp, log, source, target = move.tp, move.log, move.source, move.target
        if move.is_over or not move.copy.catch_up(move.last_bytes):
            return False
        if (target.written(START_OFFSETS, tp) or 0) != log.start:
            return False
        if (target.written(RECOVERY_POINTS, tp) or 0) > log.recovery_point:
            return False
        if self._disk.exists(target.folder(tp)):
            put_aside(target, tp, STRAY)
        self._disk.rename(move.copy.folder, target.folder(tp))
        try:
            self._disk.sync_dir(target.path)
            log.move_to(target.folder(tp))
        except OSError:
            self._outdo(move)
            raise
        self._close(move)
        self._directories.rehome(tp, target)
        _logger.info("%s has moved from %s to %s", tp, source.path, target.path)
        with self._directories.working(source):
            gone = move.name.removesuffix(FUTURE) + DELETED
            self._disk.rename(source.folder(tp), f"{source.path}/{gone}")
            self._discarded.append((source, gone))
            self.on_discarded()
        return True

    def _outdo(self, move: Move) -> None:
        """The copy may have the partition's name when the power is back: it must not count for more than the log."""
        name = str(move.tp)
        noted: OSError | None = None
        try:
            move.source.note_moves(name, move.number + 1)
        except OSError as error:
            noted = error
        try:
            put_aside(move.target, move.tp, DELETED)
        except OSError:
            if noted is not None:
                self._directories.offline(move.source, noted)
                raise SourceFailed(str(noted)) from noted
        move.is_made = False

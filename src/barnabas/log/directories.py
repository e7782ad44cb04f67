"""Owns the data directories of a broker (log.dirs) and the logs of all partitions in them.

The broker opens it once, looks logs up and makes and deletes them here, and tells it of failures. A partition
is in one directory. One that fails goes offline with its partitions and stays so until the next start;
the others go on, and when none is left, that is an error. A full disk is no failure: it passes. An fsync that fails
is one, whatever it says: what it was to write may be gone.

Always holds: records are served only for the topic that their folder names (partition.metadata, which is on the disk
before the first of them). A folder that names another topic, or none, is set aside, never adopted and never deleted.
"""

import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple
from uuid import UUID

from barnabas.clock import Clock
from barnabas.config import TopicConfig
from barnabas.disk import Disk, passes
from barnabas.errors import BarnabasError, Code, Refused, counted, reason_of
from barnabas.log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS
from barnabas.log.directory import DataDirectory, Owner
from barnabas.log.log import Log
from barnabas.log.moves import Moves, future_of
from barnabas.log.strays import (
    DELETED,
    STRAY,
    FoundPartition,
    is_deleted,
    judge,
    partition_named,
    put_aside,
    tell_of_stray,
)
from barnabas.types import BrokerId, Offset, TopicPartition, short_id

_CHECKPOINTS = (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_logger = logging.getLogger("barnabas.log")


class FutureUsage(NamedTuple):
    """A replica on its way into a directory: its bytes, and the records that it does not have yet."""

    size: int
    lag: int


class DirectoryUsage(NamedTuple):
    """What DescribeLogDirs tells of a directory; bytes are -1 where they are not known."""

    path: str
    error: Code
    total: int
    usable: int
    partitions: dict[TopicPartition, int]
    futures: dict[TopicPartition, FutureUsage]


class Directories:
    """Mutable: the directories and the logs in those that are online."""

    def __init__(self, disk: Disk, clock: Clock, paths: Sequence[str]) -> None:
        self._disk = disk
        self._clock = clock
        self._all = [DataDirectory(disk, path) for path in paths]
        self._home: dict[TopicPartition, DataDirectory] = {}
        self._topic_ids: dict[TopicPartition, UUID | None] = {}
        """What the folders say; None where one says nothing."""
        self._twins: list[FoundPartition] = []
        """Second folders of partitions, in other directories: `set_aside_strays` decides which ones count."""
        self._lost: dict[TopicPartition, UUID | None] = {}
        """Partitions of directories that have failed, and the topics they are of."""
        self._made: dict[tuple[TopicPartition, UUID], DataDirectory] = {}
        """Folders that `begin_making` has made and `create` has not opened yet."""
        self.moves = Moves(self, disk)
        """Replicas on their way from one directory to another."""
        self._failures: list[DataDirectory] = []
        self._unseen = False
        self.on_offline: Callable[[], None] = lambda: None
        """Called when a directory has failed and its logs are gone from `logs`."""
        self.logs: dict[TopicPartition, Log] = {}
        self.cluster_id = ""
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        """As they were at the last checkpoint before this start."""
        self.cleaned: dict[TopicPartition, Offset] = {}
        """Up to where the cleaner has been; written with the next checkpoint."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: Sequence[str],
        *,
        node_id: BrokerId,
        clock: Clock,
        cluster_id: str | None = None,
        config_of: Callable[[str], TopicConfig] = lambda topic: TopicConfig(),
    ) -> "Directories":
        """Lock the directories and open all partitions in them: 1,000 in 0.2 s of CPU, 0.6 s in all.

        Without a `cluster_id` the one in the directories counts, or a new one is made. A directory that does
        not work is offline from the start. Whatever a person must decide (a directory of another broker, one in
        use, none that works) is a BarnabasError, and then nothing is held.
        """
        distinct = {os.path.realpath(path): path for path in paths}
        if not paths or len(distinct) != len(paths):
            raise BarnabasError("log.dirs must name at least one directory, and none of them twice.")
        directories = cls(disk, clock, paths)
        try:
            directories._claim(node_id, cluster_id)
            for directory in directories.online():
                directories._open_all(directory, config_of)
        except BaseException:
            directories._release()
            raise
        return directories

    def online(self) -> list[DataDirectory]:
        return [directory for directory in self._all if directory.error is None]

    @property
    def offline_count(self) -> int:
        return len(self._all) - len(self.online())

    def begin_life(self) -> bool:
        """Note in which run of the machine this life of the broker begins; whether all of the last one survived.

        After a kill it did, for the system goes on writing what a process has written; after a power cut an end of it
        may be gone.
        """
        survived = all(directory.survived for directory in self.online())
        for directory in self.online():
            with self.working(directory):
                directory.note_boot()
        return survived

    def forgive(self) -> None:
        """The cluster has heard of what a power cut may have taken: the next life need not tell it again."""
        for directory in self.online():
            with self.working(directory):
                directory.forgive()

    def find(self, tp: TopicPartition) -> Log | None:
        """A partition's log; None where there is none, or its directory is offline."""
        return self.logs.get(tp)

    def home(self, tp: TopicPartition) -> DataDirectory | None:
        """The directory that a partition's log is in, if that is online."""
        return self._home.get(tp)

    def named(self, path: str) -> DataDirectory | None:
        """The directory of this path, online or not."""
        wanted = os.path.abspath(path)
        return next((each for each in self._all if os.path.abspath(each.path) == wanted), None)

    def is_lost(self, tp: TopicPartition) -> bool:
        """Whether a partition was in a directory that has failed."""
        return tp in self._lost

    def may_be_offline(self, tp: TopicPartition) -> bool:
        """Whether a partition that is not here may be in a directory that is offline."""
        return tp not in self.logs and (self._unseen or tp in self._lost)

    def rehome(self, tp: TopicPartition, directory: DataDirectory) -> None:
        """A partition's log is in another directory now."""
        self._home[tp] = directory

    def topic_id(self, tp: TopicPartition) -> UUID | None:
        """The topic that a partition's folder says it is of."""
        return self._topic_ids.get(tp)

    def create(self, tp: TopicPartition, config: TopicConfig, topic_id: UUID, *, new: bool = False) -> Log:
        """Make a partition's log in the directory with the fewest partitions.

        `new` says that it cannot have been here before. Without that word nothing is made while a directory
        is offline that was never looked into: the records may be there, and an empty log must not stand in
        for them. What an offline directory had of another topic of that name is nothing to wait for: it is set
        aside when the directory is back.
        """
        is_lost = tp in self._lost and self._lost[tp] in (None, topic_id)
        if is_lost or (self._unseen and not new):
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{tp} may be in a data directory that is offline")
        made = self._made.pop((tp, topic_id), None)
        is_made = made is not None and made.error is None
        directory = made if made is not None and is_made else self.moves.wished(tp) or self._emptiest()
        try:
            if directory is not made:
                directory.forget(tp)
                if self._disk.exists(directory.folder(tp)):
                    put_aside(
                        directory, tp, STRAY
                    )  # of another topic of this name, which could not be removed
                directory.make_partition(tp, topic_id)
            folder = directory.folder(tp)
            log = Log.open(self._disk, folder, config, now=self._clock.now())
        except OSError as error:
            if not passes(error):
                self.offline(directory, error)
                return self.create(tp, config, topic_id, new=new)
            with suppress(OSError):
                directory.remove_folder(str(tp))
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{tp} cannot be made: {error}") from error
        self._lost.pop(tp, None)
        self.moves.settle_wish(tp)
        self._home[tp] = directory
        self._topic_ids[tp] = topic_id
        self.logs[tp] = log
        return log

    def begin_making(self, wanted: Sequence[tuple[TopicPartition, UUID]]) -> list[Callable[[], None]]:
        """What makes the folders of new partitions, in any threads and side by side; `create` finds them then.

        Three trips to the disk each take 7 ms one after the other and 1.5 ms in sixteen threads. What cannot be made
        this way, because something of that name was here before, `create` makes as it always does.
        """
        planned = Counter(directory.path for directory in self._home.values())
        makings: list[Callable[[], None]] = []
        for tp, topic_id in wanted:
            online = [] if tp in self.logs or tp in self._lost or self._unseen else self.online()
            directory = self.moves.wished(tp) if online else None
            directory = directory or min(online, key=lambda each: planned[each.path], default=None)
            if directory is not None and directory.is_free_of(tp):
                planned[directory.path] += 1
                makings.append(partial(self._make, directory, tp, topic_id))
        return makings

    def _make(self, directory: DataDirectory, tp: TopicPartition, topic_id: UUID) -> None:
        with suppress(OSError):  # `create` tries again, and knows what to do about it
            directory.make_partition(tp, topic_id)
            self._made[tp, topic_id] = directory

    def delete(self, tp: TopicPartition) -> None:
        """Drop a partition and its records. A crash on the way leaves it whole, or gone by the next start."""
        self._put_aside(tp, DELETED)

    def set_aside_strays(self, wanted: Mapping[TopicPartition, UUID]) -> list[TopicPartition]:
        """Take the partitions out of use that the cluster does not know, or knows as another topic's.

        Their folders are kept under another name: if it is the cluster that has forgotten, not all is lost. So is a
        folder with records that does not say which topic it is of: they may be another's of the same name. Raises
        BarnabasError where two directories have records of the same partition.
        """
        for twin in self._twins:
            self._choose(twin, wanted.get(twin.tp))
        self._twins = []
        strays = []
        for tp in list(self.logs):
            found, topic_id = self._topic_ids[tp], wanted.get(tp)
            if topic_id is not None and found is None and self.logs[tp].end == 0:
                # It was being made when the power went, and is made again.
                self._put_aside(tp, DELETED)
            elif topic_id is None or found != topic_id:
                tell_of_stray(tp, self._put_aside(tp, STRAY), found, topic_id)
                strays.append(tp)
        return strays

    def _choose(self, twin: FoundPartition, wanted: UUID | None) -> None:
        """Let one of two folders of a partition count; the other is set aside."""
        tp = twin.tp
        if tp not in self.logs:
            return  # its directory has failed meanwhile, and it may be the one that counts
        home = self._home[tp]
        first = FoundPartition(tp, home, self.logs[tp], self._topic_ids[tp], None, None)
        second_counts, is_superseded = judge(first, twin, wanted)
        suffix = DELETED if is_superseded else STRAY
        if second_counts:
            self._put_aside(tp, suffix)
            self._use(twin)
            kept, other = twin.directory, home
        else:
            with self.working(twin.directory):
                target = put_aside(twin.directory, tp, suffix)
                if is_superseded:
                    twin.directory.try_to_remove(target)
            kept, other = home, twin.directory
        what = "goes: it was moved" if is_superseded else "is set aside"
        _logger.warning("%s is in %s; that in %s %s", tp, kept.path, other.path, what)

    def _use(self, found: FoundPartition) -> None:
        tp = found.tp
        self._home[tp] = found.directory
        self._topic_ids[tp] = found.topic_id
        self.logs[tp] = found.log
        if found.high_watermark is not None:
            self.high_watermarks[tp] = found.high_watermark
        if found.cleaned is not None:
            self.cleaned[tp] = found.cleaned

    def failed(self, tp: TopicPartition, error: BaseException) -> bool:
        """Tell of a storage error on a partition; whether its directory is offline now.

        Give it what was raised, a Refused or an OSError. A full disk takes nothing offline.
        """
        cause = error if isinstance(error, OSError) else error.__cause__
        home = self._home.get(tp)
        if home is None:
            return True
        if not isinstance(cause, OSError) or passes(cause):
            return False
        self.offline(home, cause)
        return True

    def failed_in(self, directory: DataDirectory, error: OSError) -> None:
        """Tell of a storage error in a directory: one that does not pass takes it offline."""
        if not passes(error):
            self.offline(directory, error)

    def none_left(self) -> BarnabasError:
        """What to say when no directory works."""
        last = self._failures[-1]
        assert last.error is not None
        return BarnabasError(
            f"No data directory works any more; the last was {last.path}: {reason_of(last.error)}."
        )

    def offline(self, directory: DataDirectory | str, error: OSError) -> None:
        """Take a directory out of use with its partitions, and tell `on_offline`.

        It stays locked: something of ours may still be writing to it.
        """
        if isinstance(directory, str):
            directory = next(each for each in self._all if each.path == directory)
        if directory.error is None:
            directory.error = error
            gone = [tp for tp, home in self._home.items() if home is directory]
            for tp in gone:
                del self._home[tp]
                self.logs.pop(tp, None)
                self._lost[tp] = self._topic_ids.pop(tp, None)
            self.moves.without(directory)
            self._twins = [twin for twin in self._twins if twin.directory is not directory]
            self._failures.append(directory)
            _logger.error(
                "The data directory %s is offline with %s: %s. Repair it, then start again.",
                directory.path,
                counted(len(gone), "partition"),
                reason_of(error),
            )
            self.on_offline()

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Write down where all logs stand, where that has changed: recovery gets shorter, starts are kept."""
        marks = self.high_watermarks if high_watermarks is None else high_watermarks
        for directory in self.online():
            with self.working(directory):
                self._write_checkpoints(directory, marks)

    def owes_start(self, tp: TopicPartition) -> DataDirectory | None:
        """The directory whose checkpoint is yet to say that the partition starts where it does; None if it does."""
        home, log = self._home.get(tp), self.logs.get(tp)
        if home is None or log is None or (home.written(START_OFFSETS, tp) or 0) >= log.start:
            return None
        return home

    def begin_starts(self, directory: DataDirectory) -> Callable[[], None]:
        """What writes down where the logs of a directory start as of now; it may run in any thread."""
        starts = {tp: self.logs[tp].start for tp in self._in(directory) if self.logs[tp].start}
        return directory.begin_checkpoint(START_OFFSETS, starts)

    def owes_recovery_point(self, tp: TopicPartition) -> DataDirectory | None:
        """The directory whose checkpoint has a recovery point above the partition's own; None where it has not."""
        home, log = self._home.get(tp), self.logs.get(tp)
        if home is None or log is None or (home.written(RECOVERY_POINTS, tp) or 0) <= log.recovery_point:
            return None
        return home

    def begin_recovery_points(self, directory: DataDirectory) -> Callable[[], None]:
        """What writes down the recovery points of a directory as of now; it may run in any thread."""
        points = {tp: self.logs[tp].recovery_point for tp in self._in(directory)}
        return directory.begin_checkpoint(RECOVERY_POINTS, points)

    def begin_high_watermarks(self, marks: Mapping[TopicPartition, Offset]) -> list[Callable[[], None]]:
        """What writes down high watermarks as of now, one for each directory; it may run in any thread."""
        return [
            directory.begin_checkpoint(
                HIGH_WATERMARKS, {tp: marks[tp] for tp in self._in(directory) if tp in marks}
            )
            for directory in self.online()
        ]

    def usage(self) -> list[DirectoryUsage]:
        """What the directories hold, and how much room they have."""
        return [self._usage_of(directory) for directory in self._all]

    def close(self, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Close all logs and mark a clean stop, where everything could be written."""
        if self._twins:
            # A person has to decide first: until then nothing is written, checkpoints least of all.
            self._release()
            return
        marks = self.high_watermarks if high_watermarks is None else high_watermarks
        for directory in self.online():
            try:
                for tp, home in self._home.items():
                    if home is directory:
                        self.logs[tp].close()
                self._write_checkpoints(directory, marks)
                directory.finish()
            except (OSError, Refused) as error:
                _logger.warning("%s was not closed cleanly and will be recovered: %s", directory.path, error)
        self.logs.clear()
        self._home.clear()
        self._release()

    def _emptiest(self) -> DataDirectory:
        online = self.online()
        if not online:
            raise Refused(Code.KAFKA_STORAGE_ERROR, "no data directory works any more")
        if len(online) == 1:
            # The rule, and nothing to count: a topic of 4,000 partitions took 0.5 s to count what was made before.
            return online[0]
        counts = {directory.path: 0 for directory in online}
        for home in self._home.values():
            counts[home.path] += 1
        return min(online, key=lambda directory: counts[directory.path])

    def _claim(self, node_id: BrokerId, cluster_id: str | None) -> None:
        for directory in self._all:
            with self._opening(directory):
                directory.claim()
        known = (directory.owner.cluster_id for directory in self.online() if directory.owner)
        self.cluster_id = cluster_id or next(known, None) or short_id(UUID(bytes=os.urandom(16)))
        for directory in self.online():
            self._check_owner(directory, node_id)
        for directory in self.online():
            with self._opening(directory):
                directory.belong_to(Owner(node_id, self.cluster_id, short_id(UUID(bytes=os.urandom(16)))))
                directory.begin()

    def _check_owner(self, directory: DataDirectory, node_id: BrokerId) -> None:
        owner = directory.owner
        if owner is None:
            return
        if owner.node_id != node_id:
            raise BarnabasError(
                f"The data directory {directory.path} belongs to broker {owner.node_id}, "
                f"and this is {node_id}: start it with broker.id={owner.node_id}, "
                "or give it other directories (log.dirs)."
            )
        if owner.cluster_id != self.cluster_id:
            raise BarnabasError(
                f"The data directory {directory.path} belongs to cluster {owner.cluster_id}, and this is "
                f"{self.cluster_id}: give the broker directories of its own cluster (log.dirs)."
            )

    def _open_all(self, directory: DataDirectory, config_of: Callable[[str], TopicConfig]) -> None:
        now = self._clock.now()
        with self._opening(directory):
            points, starts, marks, cleaned = (directory.read_checkpoint(name) for name in _CHECKPOINTS)
            for name in self._disk.list(directory.path):
                if is_deleted(name):
                    directory.try_to_remove(name)
                future = future_of(name)
                if future is not None:
                    self.moves.found(future, directory, name)
                tp = partition_named(name)
                if tp is None or not directory.has_folder(name):
                    continue
                is_twin = tp in self._home
                if not is_twin:
                    self._home[tp] = directory
                log = Log.open(
                    self._disk,
                    f"{directory.path}/{name}",
                    config_of(tp.topic),
                    now=now,
                    recovery_point=points.get(tp, Offset(0)),
                    start_offset=starts.get(tp, Offset(0)),
                    clean=directory.was_clean,
                )
                found = FoundPartition(
                    tp, directory, log, directory.topic_id(name), marks.get(tp), cleaned.get(tp)
                )
                if is_twin:
                    self._twins.append(found)
                else:
                    self._use(found)

    @contextmanager
    def _opening(self, directory: DataDirectory) -> Iterator[None]:
        """Take a directory offline that does not even open: we shall not know which partitions are in it."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise BarnabasError(
                    f"Too many files are open to open all partitions in {directory.path}: raise the limit (ulimit -n)."
                ) from error
            self._unseen = True
            self.offline(directory, error)
            if not self.online():
                raise self.none_left() from error

    @contextmanager
    def working(self, directory: DataDirectory) -> Iterator[None]:
        """Take a directory offline that fails; what passes, like a full disk, is tried again later."""
        try:
            yield
        except OSError as error:
            if not passes(error):
                self.offline(directory, error)
            else:
                _logger.warning("%s: %s; it is tried again later", directory.path, error)

    def _write_checkpoints(self, directory: DataDirectory, marks: Mapping[TopicPartition, Offset]) -> None:
        for name, offsets in self._standing(directory, marks).items():
            directory.write_checkpoint(name, offsets)

    def begin_checkpoints(
        self, directory: DataDirectory, marks: Mapping[TopicPartition, Offset]
    ) -> list[Callable[[], None]]:
        """What writes down where the logs of a directory stand as of now; it may run in any thread."""
        standing = self._standing(directory, marks)
        return [directory.begin_checkpoint(name, offsets) for name, offsets in standing.items()]

    def _standing(
        self, directory: DataDirectory, marks: Mapping[TopicPartition, Offset]
    ) -> dict[str, dict[TopicPartition, Offset]]:
        """What each checkpoint of a directory has to say."""
        here = {tp: self.logs[tp] for tp in self._in(directory)}
        return {
            RECOVERY_POINTS: {tp: log.recovery_point for tp, log in here.items()},
            START_OFFSETS: {tp: log.start for tp, log in here.items() if log.start},
            HIGH_WATERMARKS: {tp: marks[tp] for tp in here if tp in marks},
            CLEANER_OFFSETS: {tp: self.cleaned[tp] for tp in here if tp in self.cleaned},
        }

    def _in(self, directory: DataDirectory) -> Iterable[TopicPartition]:
        """The partitions that a directory's checkpoints are of: those in it, and those about to come."""
        yield from (tp for tp, home in self._home.items() if home is directory)
        yield from self.moves.arriving(directory)

    def _put_aside(self, tp: TopicPartition, suffix: str) -> str:
        """Take a partition out of use; the name that its folder has now, or had to keep."""
        target = str(tp)
        directory = self._home.pop(tp, None)
        if directory is None:
            return target
        self.moves.forget(tp)
        del self.logs[tp]
        self._topic_ids.pop(tp, None)
        self.cleaned.pop(tp, None)
        self.high_watermarks.pop(tp, None)
        with self.working(directory):
            target = put_aside(directory, tp, suffix)
            if suffix == DELETED:
                directory.try_to_remove(target)
        return target

    def _usage_of(self, directory: DataDirectory) -> DirectoryUsage:
        if directory.error is not None:
            return DirectoryUsage(directory.path, Code.KAFKA_STORAGE_ERROR, -1, -1, {}, {})
        total = usable = -1
        try:
            room = os.statvfs(directory.path)
            total, usable = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
        except OSError as error:
            _logger.warning("%s: its room is unknown: %s", directory.path, error)
        sizes = {tp: self.logs[tp].size for tp, home in self._home.items() if home is directory}
        futures = {move.tp: FutureUsage(move.copy.size, move.copy.lag) for move in self.moves.to(directory)}
        return DirectoryUsage(directory.path, Code.NONE, total, usable, sizes, futures)

    def _release(self) -> None:
        for directory in self._all:
            directory.release()

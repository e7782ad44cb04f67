"""Owns one data directory: its lock, its owner, and the checkpoint files over all partitions in it.

`directories` holds one of these for each folder in log.dirs. Two brokers never share a folder: the lock is
held as long as the object lives. Kafka's names and formats throughout (meta.properties, partition.metadata).
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import NamedTuple
from uuid import UUID

from barnabas.disk import Disk, File, passes, read_whole, write_atomically
from barnabas.errors import BarnabasError
from barnabas.log.checkpoint import CorruptCheckpoint, read_offsets, write_offsets
from barnabas.types import BrokerId, Offset, TopicPartition, parse_id, short_id

LOCK = ".lock"
TRIAL = ".barnabas_room"
"""Written and removed again to see whether there is room."""
META = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT = ".barnabas_boot"
"""In which run of the machine the folder was last used."""
DOUBT = ".barnabas_doubt"
"""There since a power cut, until the cluster knows of it."""
PARTITION_METADATA = "partition.metadata"
MOVES = "replica-moves"
"""Our own file in a partition's folder: how often the replica has come from another data directory."""

LEAST_ROOM = 16 << 20
"""Bytes that have to be free in a folder that was full: with less it would be full again at once."""
_TRIAL_BYTES = 1 << 20

_logger = logging.getLogger("barnabas.log")


class Owner(NamedTuple):
    """The broker and cluster that a directory belongs to, as meta.properties says."""

    node_id: BrokerId
    cluster_id: str
    directory_id: str

    def to_bytes(self) -> bytes:
        lines = ["version=1", f"node.id={self.node_id}", f"cluster.id={self.cluster_id}"]
        return "\n".join([*lines, f"directory.id={self.directory_id}", ""]).encode()

    @classmethod
    def parse(cls, data: bytes) -> "Owner":
        """Read meta.properties; raises ValueError where it says too little. Version 0 says broker.id."""
        facts = dict(
            line.strip().split("=", 1)
            for line in data.decode().splitlines()
            if "=" in line and not line.lstrip().startswith("#")
        )
        node_id = facts.get("node.id", facts.get("broker.id"))
        cluster_id = facts.get("cluster.id")
        if node_id is None or not cluster_id:
            raise ValueError("it has no node.id or no cluster.id")
        return cls(BrokerId(int(node_id)), cluster_id, facts.get("directory.id", ""))


def owner_in(disk: Disk, path: str) -> Owner | None:
    """The owner of a folder that is not ours yet; None where it says nothing, or nothing that can be read."""
    try:
        return Owner.parse(read_whole(disk, f"{path}/{META}"))
    except (OSError, ValueError):
        return None


class DataDirectory:
    """Mutable: one folder of partitions. `error` says why it is offline; None while it is in use."""

    __slots__ = (
        "_begun",
        "_disk",
        "_done",
        "_is_new",
        "_lock",
        "_writing",
        "_written",
        "error",
        "owner",
        "path",
        "was_clean",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.error: OSError | None = None
        self.owner: Owner | None = None
        self.was_clean = False
        """Whether the broker before us stopped cleanly: then nothing needs to be recovered."""
        self._is_new = False
        self._disk = disk
        self._lock: File | None = None
        self._writing = Lock()
        self._written: dict[str, dict[TopicPartition, Offset]] = {}
        self._begun = 0
        self._done: dict[str, int] = {}
        """Of each checkpoint file, the number of the newest writing that was done."""

    def claim(self) -> None:
        """Make and lock the folder, and read its owner. An OSError is the caller's, which takes it offline."""
        self._make()
        try:
            self._lock = self._disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise BarnabasError(
                f"The data directory {self.path} is in use by another broker: "
                "stop that one, or give this one a directory of its own (log.dirs)."
            ) from None
        path = f"{self.path}/{META}"
        self._is_new = not self._disk.exists(path)
        if not self._is_new:
            try:
                self.owner = Owner.parse(read_whole(self._disk, path))
            except ValueError as error:
                raise BarnabasError(
                    f"{path} cannot be read: {error}. Bring it back, or remove it if all is this broker's."
                ) from None
        self.was_clean = self._disk.exists(f"{self.path}/{CLEAN_SHUTDOWN}")

    def has_room(self) -> bool:
        """Whether records can be stored: by what the system says, and by a write, because it leaves quotas out."""
        with suppress(OSError):  # a disk of its own, as in a simulation, is not known to the system
            room = os.statvfs(self.path)
            if room.f_bavail * room.f_frsize < LEAST_ROOM:
                return False
        path = f"{self.path}/{TRIAL}"
        try:
            file = self._disk.open(path, create=True)
            try:
                file.append(bytes(_TRIAL_BYTES))
            finally:
                file.close()
                self._disk.remove(path)
        except OSError as error:
            return not passes(error)  # what else is wrong with it is found where it is used
        return True

    def _make(self) -> None:
        parents = []
        path = self.path
        while not self._disk.exists(path):
            path = os.path.dirname(path.rstrip("/")) or "."
            parents.append(path)
        self._disk.make_dir(self.path)
        for parent in parents:
            # A parent that may not be read cannot be synced here; the system will do so, sooner or later.
            with suppress(PermissionError):
                self._disk.sync_dir(parent)

    def belong_to(self, owner: Owner) -> None:
        """Write the owner of the folder down, unless it is there already."""
        if self.owner is None or not self.owner.directory_id:
            self.owner = owner
            write_atomically(self._disk, f"{self.path}/{META}", owner.to_bytes())

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def begin(self) -> None:
        """From here on the folder changes: should we die now, that was no clean stop."""
        with suppress(FileNotFoundError):
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._disk.sync_dir(self.path)

    @property
    def survived(self) -> bool:
        """Whether all that was ever written here is still there: no power was cut since an unclean stop, or the
        cluster has heard of it."""
        if self._disk.exists(f"{self.path}/{DOUBT}"):
            return False
        if self.was_clean or self._is_new:
            return True
        if not self._disk.exists(f"{self.path}/{BOOT}"):
            return False
        noted = read_whole(self._disk, f"{self.path}/{BOOT}").decode(errors="replace")
        return bool(noted) and noted == self._disk.boot_id()

    def note_boot(self) -> None:
        """Write down in which run of the machine the folder is used; what it has lost stays known until `forgive`."""
        if not self.survived:
            write_atomically(self._disk, f"{self.path}/{DOUBT}", b"")
        write_atomically(self._disk, f"{self.path}/{BOOT}", self._disk.boot_id().encode())

    def forgive(self) -> None:
        """The cluster has heard of what may be lost: from here on the folder is counted on for what it has now."""
        with suppress(FileNotFoundError):
            self._disk.remove(f"{self.path}/{DOUBT}")
            self._disk.sync_dir(self.path)

    def finish(self) -> None:
        """Mark a clean stop: all logs are closed and synced."""
        write_atomically(self._disk, f"{self.path}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":-1}')

    def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """The offsets of a checkpoint file; one that cannot be believed counts as missing."""
        try:
            offsets = read_offsets(self._disk, f"{self.path}/{name}")
        except CorruptCheckpoint as error:
            _logger.warning("%s/%s is not used: %s", self.path, name, error)
            offsets = {}
        self._written[name] = offsets
        return dict(offsets)

    def written(self, name: str, tp: TopicPartition) -> Offset | None:
        """What a checkpoint file says of a partition."""
        return self._written.get(name, {}).get(tp)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace a checkpoint file, unless it says the same already."""
        self.begin_checkpoint(name, offsets)()

    def begin_checkpoint(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """The same in two steps: what is returned may run in any thread.

        The order of the beginnings counts: what was begun before something that is written already changes nothing.
        """
        self._begun += 1
        return partial(self._write, name, dict(offsets), self._begun)

    def _write(self, name: str, offsets: dict[TopicPartition, Offset], number: int) -> None:
        with self._writing:
            if number < self._done.get(name, 0):
                return
            if self._written.get(name) != offsets:
                write_offsets(self._disk, f"{self.path}/{name}", offsets)
                self._written[name] = offsets
            self._done[name] = number

    def forget(self, tp: TopicPartition) -> None:
        """Take a partition out of all checkpoints: they are not another's of the same name."""
        for name, offsets in list(self._written.items()):
            self.write_checkpoint(name, {other: at for other, at in offsets.items() if other != tp})

    def folder(self, tp: TopicPartition) -> str:
        return f"{self.path}/{tp}"

    def is_free_of(self, tp: TopicPartition) -> bool:
        """Whether nothing here is, or says that it was, of a partition of this name."""
        known = any(tp in offsets for offsets in self._written.values())
        return not known and not self._disk.exists(self.folder(tp))

    def make_partition(self, tp: TopicPartition, topic_id: UUID) -> str:
        """Make a partition's folder, which says which topic it is of, for good: before there is a record in it."""
        return self._make_folder(str(tp), {PARTITION_METADATA: _metadata(topic_id)})

    def make_future(self, name: str, topic_id: UUID, moves: int) -> str:
        """Make the folder of a replica that is to come here, for good; its number of moves is the one it will have."""
        return self._make_folder(name, {PARTITION_METADATA: _metadata(topic_id), MOVES: b"%d" % moves})

    def _make_folder(self, name: str, files: Mapping[str, bytes]) -> str:
        folder = f"{self.path}/{name}"
        self._disk.make_dir(folder)
        for file_name, data in files.items():
            file = self._disk.open(f"{folder}/{file_name}", create=True)
            try:
                file.truncate(0)
                file.append(data)
                file.sync()
            finally:
                file.close()
        self._disk.sync_dir(folder)
        self._disk.sync_dir(self.path)
        return folder

    def topic_id(self, name: str) -> UUID | None:
        """The topic a folder is of; None where it does not say: it was not made to its end, or is not ours."""
        try:
            data = read_whole(self._disk, f"{self.path}/{name}/{PARTITION_METADATA}").decode()
            facts = dict(line.split(": ", 1) for line in data.splitlines())
            return parse_id(facts["topic_id"].strip())
        except (FileNotFoundError, KeyError, ValueError):
            return None

    def moves(self, name: str) -> int:
        """How often the replica in a folder has come from another directory; 0 where it does not say."""
        try:
            return int(read_whole(self._disk, f"{self.path}/{name}/{MOVES}"))
        except (FileNotFoundError, ValueError):
            return 0

    def note_moves(self, name: str, moves: int) -> None:
        """Write that number down."""
        write_atomically(self._disk, f"{self.path}/{name}/{MOVES}", b"%d" % moves)

    def has_folder(self, name: str) -> bool:
        """Whether a name in this directory is a folder's."""
        try:
            self._disk.list(f"{self.path}/{name}")
        except NotADirectoryError:
            _logger.warning("%s/%s is no folder, and left alone", self.path, name)
            return False
        return True

    def remove_folder(self, name: str) -> None:
        """Remove a folder of this directory and the files in it."""
        folder = f"{self.path}/{name}"
        for file in self._disk.list(folder):
            self._disk.remove(f"{folder}/{file}")
        self._disk.remove_dir(folder)

    def try_to_remove(self, name: str) -> None:
        """The same, where it may as well be done later: what is in there may not be ours to remove."""
        try:
            self.remove_folder(name)
        except OSError as error:
            _logger.warning(
                "%s/%s cannot be removed, and is left for the next start: %s", self.path, name, error
            )

    def rename_folder(self, name: str, target: str) -> None:
        """Give a folder another name, for good."""
        self._disk.rename(f"{self.path}/{name}", f"{self.path}/{target}")
        self._disk.sync_dir(self.path)


def _metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {short_id(topic_id)}".encode()

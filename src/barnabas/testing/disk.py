"""A disk in memory that forgets: what was not synced can be lost, in part or whole, when the power goes.

Stands in for `barnabas.disk.RealDisk` in tests. It counts operations, can stop at any of them (`PowerCut`), can be
full, can fail. A sync that fails loses what it was to write, as Linux may: processes still see it, and no later sync
brings it to the platter.

`crash()` gives the disk that one finds after the power is back. As on a journalling file system, names come back as
they were after some of the operations on their folder, in their order; contents of a file come back as of the last
sync, with what was written since there in part: none of it, a prefix, or single sectors.
"""

import errno
import io
import os
from enum import Enum
from random import Random
from typing import NamedTuple

from barnabas.disk import SyncFailed
from barnabas.types import Buffer

SECTOR = 512


class PowerCut(Exception):
    """The machine is off. No OSError: nothing that handles failing disks may handle this."""


class Survival(Enum):
    """What a power cut leaves of what was not synced."""

    NOTHING = "nothing"
    PREFIX = "prefix"
    SECTORS = "sectors"
    EVERYTHING = "everything"


class _Write(NamedTuple):
    position: int
    data: bytes


class _Cut(NamedTuple):
    size: int


class _Content:
    """Mutable: a file's bytes as processes see them, as they are on the platter, and what happened in between."""

    __slots__ = ("data", "lasting", "pending")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.lasting = data
        self.pending: list[_Write | _Cut] = []

    def sync(self) -> None:
        # Not a copy of `data`: what a failed sync has lost stays lost.
        lasting = bytearray(self.lasting)
        for change in self.pending:
            _apply(lasting, change)
        self.lasting = bytes(lasting)
        self.pending.clear()

    def fail_to_sync(self) -> None:
        self.pending.clear()

    def after_crash(self, survival: Survival, random: Random) -> bytes:
        if survival is Survival.NOTHING or not self.pending:
            return self.lasting
        data = bytearray(self.lasting)
        everything = survival is Survival.EVERYTHING
        survivors = len(self.pending) if everything else random.randint(0, len(self.pending))
        for change in self.pending[:survivors]:
            _apply(data, change)
        if survivors < len(self.pending):
            change = self.pending[survivors]
            if isinstance(change, _Write):
                kept = random.randint(0, len(change.data))
                _apply(data, _Write(change.position, change.data[:kept]))
        if survival is Survival.SECTORS:
            _lose_sectors(data, self.lasting, random)
        return bytes(data)


def _apply(data: bytearray, change: _Write | _Cut) -> None:
    if isinstance(change, _Cut):
        del data[change.size :]
        data.extend(bytes(change.size - len(data)))
        return
    data.extend(bytes(max(0, change.position - len(data))))
    data[change.position : change.position + len(change.data)] = change.data


def _lose_sectors(data: bytearray, lasting: bytes, random: Random) -> None:
    """The length has come to last, but some sectors still hold what was there before, or zeros."""
    first = next((i for i, (a, b) in enumerate(zip(data, lasting, strict=False)) if a != b), len(lasting))
    for begin in range(first // SECTOR * SECTOR, len(data), SECTOR):
        if random.random() < 0.3:
            end = min(begin + SECTOR, len(data))
            data[begin:end] = lasting[begin:end].ljust(end - begin, b"\0")


class _Folder:
    """Mutable: names as processes see them, as they last, and the changes in between, each (name, what it is now)."""

    __slots__ = ("entries", "lasting", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Content | _Folder] = {}
        self.lasting: dict[str, _Content | _Folder] = {}
        self.pending: list[list[tuple[str, _Content | _Folder | None]]] = []

    def change(self, *names: tuple[str, "_Content | _Folder | None"]) -> None:
        """One atomic change of names; None takes a name away."""
        self.pending.append(list(names))
        _rename(self.entries, names)

    def sync(self) -> None:
        for changes in self.pending:
            _rename(self.lasting, changes)
        self.pending.clear()

    def fail_to_sync(self) -> None:
        self.pending.clear()

    def after_crash(self, survival: Survival, random: Random) -> "_Folder":
        names = dict(self.lasting)
        survivors = {Survival.NOTHING: 0, Survival.EVERYTHING: len(self.pending)}.get(survival)
        for changes in self.pending[
            : random.randint(0, len(self.pending)) if survivors is None else survivors
        ]:
            _rename(names, changes)
        folder = _Folder()
        for name, node in names.items():
            after = node.after_crash(survival, random)
            folder.entries[name] = after if isinstance(after, _Folder) else _Content(after)
        folder.lasting = dict(folder.entries)
        return folder


def _rename(
    names: "dict[str, _Content | _Folder]",
    changes: "tuple[tuple[str, _Content | _Folder | None], ...] | list[tuple[str, _Content | _Folder | None]]",
) -> None:
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class SimulatedFile:
    """One open file of a SimulatedDisk."""

    __slots__ = ("_content", "_disk", "_open", "path")

    def __init__(self, disk: "SimulatedDisk", path: str, content: _Content) -> None:
        self._disk = disk
        self._content = content
        self._open = True
        self.path = path

    @property
    def size(self) -> int:
        return len(self._content.data)

    def append(self, data: Buffer) -> None:
        content = self._use()
        change = _Write(len(content.data), bytes(data))
        try:
            self._disk.operate("append", self.path, len(change.data))
        except PowerCut:
            # The power went while this was being written: as good as written, but never synced.
            content.pending.append(change)
            raise
        content.pending.append(change)
        content.data += change.data

    def pread(self, size: int, position: int) -> bytes:
        self._disk.check()
        return bytes(self._use().data[position : position + size])

    def truncate(self, size: int) -> None:
        content = self._use()
        self._disk.operate("truncate", self.path)
        content.pending.append(_Cut(size))
        _apply(content.data, _Cut(size))

    def sync(self) -> None:
        content = self._use()
        self._disk.sync_of(content, "sync", self.path)

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def close(self) -> None:
        self._open = False
        self._disk.locked.discard(self.path)

    def _use(self) -> _Content:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._content


class SimulatedDisk:
    """A disk.Disk in memory. Set `stop_at`, `capacity` or `broken` to make it misbehave."""

    def __init__(self) -> None:
        self._root = _Folder()
        self.operations = 0
        """How many operations have changed something, or tried to."""
        self.history: list[tuple[str, str]] = []
        """What they were, and of which path."""
        self.stop_at: int | None = None
        """The number of the operation that the power goes off in."""
        self.fail_at: int | None = None
        """The number of the one operation that fails, with `error`."""
        self.error = errno.EIO
        self.broken: OSError | None = None
        """Raised by everything while it is set."""
        self.capacity: int | None = None
        """Bytes that all files together may have: an append that does not fit raises ENOSPC and writes nothing."""
        self.locked: set[str] = set()
        self._boots = 0

    def crash(self, survival: Survival = Survival.NOTHING, seed: int = 0) -> "SimulatedDisk":
        """The disk as it is found when the power is back."""
        disk = SimulatedDisk()
        disk._root = self._root.after_crash(survival, Random(seed))
        disk._boots = self._boots + 1
        return disk

    def reopened(self) -> "SimulatedDisk":
        """The disk as the next process finds it after this one was killed: all that was written is there.

        What the dead one may still try fails.
        """
        disk = SimulatedDisk()
        disk._root, disk._boots = self._root, self._boots
        self.broken = _error(errno.EIO, "the process is dead")
        return disk

    def used(self) -> int:
        """Bytes in all files."""
        return _used(self._root)

    def operate(self, what: str, path: str, size: int = 0) -> None:
        """Count an operation, or let it fail."""
        self.check()
        self.operations += 1
        self.history.append((what, path))
        if self.operations == self.stop_at:
            raise PowerCut
        if self.operations == self.fail_at:
            raise _error(self.error, path)
        if size and self.capacity is not None and self.used() + size > self.capacity:
            raise _error(errno.ENOSPC, path)

    def sync_of(self, node: _Content | _Folder, what: str, path: str) -> None:
        """Make what was done to a file or a folder last, or lose it."""
        try:
            self.operate(what, path)
        except OSError as error:
            node.fail_to_sync()
            raise SyncFailed(error.errno, error.strerror, path) from error
        node.sync()

    def check(self) -> None:
        if self.stop_at is not None and self.operations >= self.stop_at:
            raise PowerCut
        if self.broken is not None:
            raise self.broken

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.check()
        folder, name = self._parent(path)
        content = folder.entries.get(name)
        if content is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self.operate("create", path)
            content = _Content()
            folder.change((name, content))
        if isinstance(content, _Folder):
            raise _error(errno.EISDIR, path)
        return SimulatedFile(self, path, content)

    def exists(self, path: str) -> bool:
        self.check()
        return self._find(path) is not None

    def list(self, path: str) -> list[str]:
        self.check()
        return sorted(self._folder(path).entries)

    def make_dir(self, path: str) -> None:
        self.check()
        folder = self._root
        for part in _parts(path):
            node = folder.entries.get(part)
            if node is None:
                self.operate("make_dir", path)
                node = _Folder()
                folder.change((part, node))
            if not isinstance(node, _Folder):
                raise _error(errno.ENOTDIR, path)
            folder = node

    def remove(self, path: str) -> None:
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _Folder):
            raise _error(errno.EISDIR, path)
        self.operate("remove", path)
        folder.change((name, None))

    def remove_dir(self, path: str) -> None:
        if self._folder(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        folder, name = self._parent(path)
        self.operate("remove_dir", path)
        folder.change((name, None))

    def rename(self, source: str, target: str) -> None:
        folder, name = self._parent(source)
        other, new_name = self._parent(target)
        node = folder.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, source)
        self.operate("rename", source)
        if folder is other:
            folder.change((name, None), (new_name, node))
        else:
            other.change((new_name, node))
            folder.change((name, None))

    def sync_dir(self, path: str) -> None:
        self.sync_of(self._folder(path), "sync_dir", path)

    def lock(self, path: str) -> SimulatedFile:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        file = self.open(path, create=True)
        self.locked.add(path)
        return file

    def boot_id(self) -> str:
        return f"boot {self._boots}"

    def _find(self, path: str) -> _Content | _Folder | None:
        node: _Content | _Folder | None = self._root
        for part in _parts(path):
            if not isinstance(node, _Folder):
                return None
            node = node.entries.get(part)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, _Folder):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        *parents, name = _parts(path)
        return self._folder("/".join(parents)), name


def _used(folder: _Folder) -> int:
    nodes = folder.entries.values()
    return sum(_used(node) if isinstance(node, _Folder) else len(node.data) for node in nodes)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)

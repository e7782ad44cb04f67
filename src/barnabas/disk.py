"""The port to the disk: all that must last goes through it, so that a simulated disk can stand in.

`log` and `cluster.local` take a `Disk`; `barnabas.testing` has one that loses what was not synced.
A write is whole or raises; a rename is atomic; nothing lasts before `sync` (names: before `sync_dir`).
Failures are plain `OSError`s, those of `sync` and `sync_dir` themselves `SyncFailed`.
"""

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from barnabas.types import Buffer


class SyncFailed(OSError):
    """An fsync said no, with whatever number: what it was to write may be gone for good.

    The kernel may have given up the pages and called them clean: then the next fsync succeeds without them.
    """


_PASSING = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EINTR,
}
"""Errors that say nothing about a disk's health: no room, a limit on file sizes, too many open files."""


class File(Protocol):
    """One open file. Closed when its last holder lets go, so a slice being sent outlives a deletion."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    def append(self, data: Buffer) -> None: ...
    def pread(self, size: int, position: int) -> bytes: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """Names and files. Paths are plain strings; `make_dir` makes parents too."""

    def open(self, path: str, *, create: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]: ...
    def make_dir(self, path: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def lock(self, path: str) -> File: ...

    def boot_id(self) -> str:
        """Tells the runs of the machine apart: what was written and not synced survives as long as it is the same.
        Empty where that is not known."""


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes that need not be read to be sent: the server hands them to `sendfile`."""

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        data = self.file.pread(self.size, self.position)
        if len(data) != self.size:
            raise OSError("the file ended before its slice")
        return data


def passes(error: BaseException | None) -> bool:
    """Whether a failure may be over at the next try, like a full disk's. One of an fsync never is."""
    return isinstance(error, OSError) and error.errno in _PASSING and not isinstance(error, SyncFailed)


def has_no_room(error: BaseException | None) -> bool:
    """Whether a write failed because the disk is full, or a quota used up: no other file could grow either."""
    return passes(error) and isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_atomically(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file so that a crash leaves the old text or the new one, never a mixture."""
    temporary = path + ".tmp"
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path))


def read_whole(disk: Disk, path: str) -> bytes:
    """A small file's text."""
    file = disk.open(path)
    try:
        return file.pread(file.size, 0)
    finally:
        file.close()


_SMALL = 1024
"""What is written at once up to here is kept until the next such write."""


class RealFile:
    """A file of the operating system, written only at its end."""

    __slots__ = ("_fd", "_last", "_last_at", "path", "size")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.size = os.fstat(fd).st_size
        # A waiting fetch reads what was just written: 7 of its 120 us were a system call to get it back.
        self._last = b""
        self._last_at = -1

    def append(self, data: Buffer) -> None:
        """Write at the end, whole or not at all: what a full disk cut short is taken back."""
        length = len(data)
        # pwrite: the position is ours, so a short write needs no seek to be undone.
        try:
            written = os.pwrite(self._fd, data, self.size)
            while written < length:
                written += os.pwrite(self._fd, memoryview(data)[written:], self.size + written)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        if length <= _SMALL:
            self._last, self._last_at = bytes(data), self.size
        self.size += length

    def pread(self, size: int, position: int) -> bytes:
        if position == self._last_at and size == len(self._last):
            return self._last
        return os.pread(self._fd, size, position)

    def truncate(self, size: int) -> None:
        self._last_at = -1
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self.path) from error

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealDisk:
    """The operating system's own files."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealFile:
        """Hold a lock file; BlockingIOError where another process has it."""
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

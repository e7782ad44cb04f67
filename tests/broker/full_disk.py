"""A real disk that can be full: while it is, no file on it grows."""

import errno
import os

from barnabas.disk import RealDisk, RealFile
from barnabas.types import Buffer


class FillableDisk(RealDisk):
    """Mutable: `is_full` says whether there is room."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return FillableFile(file, self)


class FillableFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, file: RealFile, disk: FillableDisk) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        self._disk = disk

    def append(self, data: Buffer) -> None:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        super().append(data)

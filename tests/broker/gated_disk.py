"""A real disk whose fsyncs of topics' records wait for a test, or fail: for what may be told before they are done."""

import os
import threading
from queue import Queue

from barnabas.disk import RealDisk, RealFile, SyncFailed


class Gate:
    """Mutable: whether fsyncs of `.log` files go through. Each that is begun is put into `begun`, by its path."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.begun: Queue[str] = Queue()
        self.error = 0
        """The number of the error with which they all fail; 0 for none."""

    def disk(self) -> "GatedDisk":
        return GatedDisk(self)


class GatedDisk(RealDisk):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return GatedFile(file, self._gate) if path.endswith(".log") else file


class GatedFile(RealFile):
    __slots__ = ("_gate",)

    def __init__(self, file: RealFile, gate: Gate) -> None:
        super().__init__(file.path, os.dup(file.fileno()))
        self._gate = gate

    def sync(self) -> None:
        self._gate.begun.put(self.path)
        assert self._gate.free.wait(60)
        if self._gate.error:
            raise SyncFailed(self._gate.error, os.strerror(self._gate.error), self.path)
        super().sync()

"""Owns disks that get full: a small tmpfs of its own, or a limit on the size of files. Neither needs root.

Called by test_disk_full. A tmpfs is the real thing (ENOSPC); it lives in a user and mount namespace that a
holder process keeps, so that it outlives the broker. Where namespaces are forbidden, the limit (EFBIG) stands in.
"""

import resource
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from tests.process import BrokerProcess

_SIZE_MIB = 24
_BALLAST_MIB = 14
_RETRY = "log.flush.offset.checkpoint.interval.ms=200"
"""How soon the broker tries again what there was no room for."""


def namespaces_are_allowed() -> bool:
    tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False, timeout=60)
    return tried.returncode == 0


class SmallDisk(ABC):
    """A place for a broker's data with little room, until `make_room`."""

    broker: BrokerProcess

    @abstractmethod
    def data(self) -> Path:
        """The broker's data folder, as the test can read it."""

    @abstractmethod
    def fill_up(self) -> None:
        """Take the last byte there is."""

    @abstractmethod
    def make_room(self) -> None: ...

    def close(self) -> None:
        self.broker.close()


class SmallTmpfs(SmallDisk):
    """A tmpfs of 24 MiB, of which ballast takes 14 at first."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        mount = f"mount -t tmpfs -o size={_SIZE_MIB}m tmpfs {folder} && echo mounted && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "mounted\n"
        self._seen = Path(f"/proc/{self._holder.pid}/root{folder}")
        self._ballast = self._seen / "ballast"
        self._ballast.write_bytes(bytes(_BALLAST_MIB << 20))
        enter = ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials"]
        self.broker = BrokerProcess(folder / "data", [_RETRY], wrapper=enter)
        self.broker.start()

    def data(self) -> Path:
        return self._seen / "data"

    def fill_up(self) -> None:
        with suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        super().close()
        self._holder.communicate(timeout=60)  # the end of its input is the end of the holder


class SmallFiles(SmallDisk):
    """A disk on which no file may grow past 4 MiB."""

    def __init__(self, folder: Path) -> None:
        self.broker = BrokerProcess(folder, [_RETRY])
        self.broker.start()
        self._limit(4 << 20)

    def _limit(self, size: int) -> None:
        _, hard = resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE, (size, hard))

    def data(self) -> Path:
        return self.broker.data

    def fill_up(self) -> None:
        """Its files are as large as they may be."""

    def make_room(self) -> None:
        if self.broker.running:  # a broker that starts anew has no limit
            self._limit(resource.RLIM_INFINITY)


DISKS: list[type[SmallTmpfs] | type[SmallFiles]] = (
    [SmallTmpfs, SmallFiles] if namespaces_are_allowed() else [SmallFiles]
)

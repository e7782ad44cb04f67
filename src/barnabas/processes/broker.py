"""Owns one broker as a process: its settings file, its data and its port stay the same over all its lives.

Used by `processes.cluster`. In a folder of brokers, broker N has `broker-N.properties`, `broker-N.log`, `broker-N/`.
"""

import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from barnabas.processes.child import Child, barnabas
from barnabas.properties import properties_text, read_properties

START_S = 60.0


class BrokerProcess(Child):
    """Mutable: `barnabas broker --config FILE`, started and ended any number of times."""

    def __init__(
        self,
        number: int,
        home: Path,
        listener: str,
        settings: Mapping[str, str],
        *,
        orphaned: signal.Signals = signal.SIGKILL,
    ) -> None:
        super().__init__(f"Broker {number}", home / f"broker-{number}.log", orphaned=orphaned)
        self.number = number
        self.data = home / f"broker-{number}"
        self.address = listener
        """Where it listens, as HOST:PORT."""
        self.advertised = listener
        """Where others are told to find it: elsewhere where its links go through a proxy."""
        self.settings = dict(settings)
        self.options: list[str] = []
        """More for its command line."""
        self._file = properties_file(home, number)

    def begin(self) -> None:
        """Start it, and do not wait until it serves."""
        given = {
            "broker.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.address}",
            **({"advertised.listeners": f"PLAINTEXT://{self.advertised}"} if self._is_behind_another else {}),
            "log.dirs": str(self.data),
            **self.settings,
        }
        self._file.write_text(properties_text(given))
        self.start(barnabas("broker", "--config", str(self._file), *self.options))

    def serve(self, timeout: float = START_S) -> None:
        """Start it, and come back when it serves."""
        self.begin()
        self.wait_until_ready(time.monotonic() + timeout)

    @property
    def _is_behind_another(self) -> bool:
        return self.advertised != self.address


def properties_file(home: Path, number: int) -> Path:
    return home / f"broker-{number}.properties"


def setting_before(home: Path, number: int, name: str) -> str | None:
    """What this broker of the folder was told the last time; None for one that there was not."""
    try:
        return read_properties(properties_file(home, number).read_text()).get(name)
    except OSError:
        return None


def address_before(home: Path, number: int) -> str | None:
    """Where this broker of the folder listened the last time, as HOST:PORT."""
    listeners = setting_before(home, number, "listeners")
    return listeners.partition("://")[2] if listeners else None


class Ports:
    """Mutable: free ports of this machine that nothing else is given, also while no broker listens there.

    A socket that is bound and never listens keeps its port: no connection begins at it, and servers may still listen
    there, because they reuse addresses as this socket does.
    """

    def __init__(self) -> None:
        self._keepers: list[socket.socket] = []

    def take(self, host: str = "127.0.0.1", port: int = 0) -> int | None:
        """This port, or with 0 any; None where another program has it."""
        keeper = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            keeper.bind((host, port))
        except OSError:
            keeper.close()
            return None
        self._keepers.append(keeper)
        return int(keeper.getsockname()[1])

    def close(self) -> None:
        for keeper in self._keepers:
            keeper.close()
        self._keepers.clear()

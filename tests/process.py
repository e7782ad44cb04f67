"""Owns one real broker process, which tests stop, kill and start again on the same port and data.

Called by tests/chaos and tests/hostile through the fixture `start_broker`. The process is never left behind.
"""

import atexit
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.deadline import Deadline

COMMAND = Path(sys.executable).with_name("barnabas")
# Moments, and many seconds where others want the same cores.
START_S = 60.0
STOP_S = 60.0
_kept: list[socket.socket] = []


def free_port() -> int:
    """A port that is ours until this process ends, also while no broker listens there.

    A socket that is bound and never listens keeps it: nobody else is given it, no connection begins at it, and
    servers may still listen there, because they reuse addresses as this socket does.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    _kept.append(keeper)
    return int(keeper.getsockname()[1])


@atexit.register
def _give_ports_back() -> None:
    for keeper in _kept:
        keeper.close()


class BrokerProcess:
    """`barnabas up` with a fixed port and data folder, started and ended any number of times."""

    def __init__(
        self,
        data: Path,
        settings: Sequence[str] = (),
        *,
        options: Sequence[str] = (),
        wrapper: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.port = free_port()
        self._settings = settings
        self._options = options
        self._wrapper = list(wrapper)
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.output: list[str] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.running, "the broker is running already"
        settings = [part for setting in self._settings for part in ("--set", setting)]
        command = [*self._wrapper, str(COMMAND), "up", "--listen", self.bootstrap, "--data", str(self.data)]
        self._lines = queue.Queue()
        self._process = subprocess.Popen(
            [*command, *settings, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        self._wait_until_ready()

    def _read(self, process: "subprocess.Popen[str]", lines: "queue.Queue[str | None]") -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                self.output.append(line)
                lines.put(line)
        lines.put(None)

    def _wait_until_ready(self) -> None:
        deadline = Deadline(START_S, f"the broker to be ready; it said: {self.said()}")
        while True:
            try:
                line = self._lines.get(timeout=deadline.left())
            except queue.Empty:
                continue
            assert line is not None, f"the broker ended before it was ready; it said: {self.said()}"
            if "ready" in line:
                return

    def said(self, last: int = 30) -> str:
        return "".join(self.output[-last:])

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing is closed."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM, then the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """The exit code of a process that was told to end."""
        assert self._process is not None
        return self._process.wait(STOP_S)

    def close(self) -> None:
        if self.running:
            self.kill()

    def rss_mib(self) -> float:
        """Resident memory now."""
        return self._status_mib("VmRSS:")

    def peak_mib(self) -> float:
        """The most resident memory since the start, or since `forget_peak`."""
        return self._status_mib("VmHWM:")

    def forget_peak(self) -> float:
        """Counts the peak anew from here; gives the memory in use now."""
        with open(f"/proc/{self.pid}/clear_refs", "w") as command:
            command.write("5")
        return self.rss_mib()

    def busy_s(self) -> float:
        """CPU seconds that its event loop has used so far; a machine that is busy elsewhere adds nothing to them."""
        with open(f"/proc/{self.pid}/task/{self.pid}/stat") as stat:
            user, system = stat.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _status_mib(self, field: str) -> float:
        with open(f"/proc/{self.pid}/status") as status:
            for line in status:
                if line.startswith(field):
                    return int(line.split()[1]) / 1024
        raise AssertionError("the broker is gone")

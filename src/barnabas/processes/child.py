"""Owns one program as a process of this machine. Used by `barnabas up --brokers` and `barnabas.testing.Cluster`.

Always holds: the program ends when the process that started it ends, however that ends, also by kill -9 (on Linux).
What it logs goes to a file, so that a program never waits for a reader; only the line that says `ready` is read.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from barnabas.errors import BarnabasError

STOP_S = 30.0
READY = "ready"
_CHUNK = 4096

# prctl(PR_SET_PDEATHSIG) outlives exec. A parent that is gone before the call sends no signal: so look for it.
_TIED = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, int(sys.argv[1])); "
    "os.getppid() == int(sys.argv[2]) or os._exit(1); os.execv(sys.argv[3], sys.argv[3:])"
)


class Child:
    """Mutable: a program that can be started, watched, paused and ended any number of times."""

    def __init__(self, name: str, output: Path, *, orphaned: signal.Signals = signal.SIGKILL) -> None:
        self.name = name
        self.output = output
        """The file that has what the program says on stderr, of all its lives."""
        self._orphaned = orphaned
        """The signal that it gets when this process is gone."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._started().pid

    def start(self, command: Sequence[str]) -> None:
        """Start it; what it says goes to `output`, and its stdout to `wait_until_ready`."""
        if self.running:
            raise BarnabasError(f"{self.name} runs already.")
        self._let_go()
        with self.output.open("ab") as output:
            self._process = spawn(command, subprocess.PIPE, output.fileno(), self._orphaned)

    def wait_until_ready(self, deadline: float) -> None:
        """Come back when it has printed `ready`; raise with its last words where it ended or `deadline` is over."""
        stream = self._started().stdout
        assert stream is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while READY.encode() not in said:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise BarnabasError(f"{self.name} is not ready in time: see {self.output}.")
                chunk = os.read(stream.fileno(), _CHUNK)
                if not chunk:
                    raise BarnabasError(f"{self.name} did not start: {self.last_words()}")
                said += chunk

    def last_words(self) -> str:
        """The last line of its output, without the name that commands begin it with."""
        with suppress(OSError), self.output.open("rb") as file:
            file.seek(max(0, self.output.stat().st_size - _CHUNK))
            lines = file.read().decode(errors="replace").split("\n")
            for line in reversed(lines):
                if line.strip():
                    return line.strip().removeprefix("barnabas: ")
        return "it said nothing."

    def stop(self, timeout: float = STOP_S) -> int:
        """SIGTERM, then its exit code; one that does not end in time is killed."""
        process = self._started()
        self.signal(signal.SIGTERM)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """kill -9: nothing is flushed, nothing is said."""
        self.signal(signal.SIGKILL)
        return self._started().wait(STOP_S)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and says nothing more."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            self._started().send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._started().wait()

    def wait_and_tell(self) -> str:
        """How it has ended, once it has."""
        return told_exit(self.wait())

    def close(self) -> None:
        """End it at once if it runs, and let go of its pipe."""
        if self.running:
            self.kill()
        self._let_go()

    def _let_go(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise BarnabasError(f"{self.name} was not started.")
        return self._process


def barnabas(*arguments: str) -> list[str]:
    """The command `barnabas`, as this Python has it."""
    return [sys.executable, "-P", "-m", "barnabas", *arguments]


def told_exit(code: int) -> str:
    """How a process has ended, in a word or two."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def spawn(
    command: Sequence[str], stdout: int, stderr: int, orphaned: signal.Signals = signal.SIGKILL
) -> "subprocess.Popen[bytes]":
    """Start a program that gets a signal when this process is gone."""

    # A session of its own: Ctrl-C in a terminal is for the parent, which stops its children in order.
    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            _tied(command, orphaned),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    return _spawner().submit(start).result()


@cache
def _spawner() -> ThreadPoolExecutor:
    # The kernel takes the thread that started a child for its parent: one thread that lasts starts all of them.
    return ThreadPoolExecutor(1, "barnabas-spawner")


def _tied(command: Sequence[str], orphaned: signal.Signals) -> list[str]:
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TIED, str(int(orphaned)), str(os.getpid()), *command]

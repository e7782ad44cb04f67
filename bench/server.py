"""Owns one broker process that the bench started: where it listens, what it costs, how it ends.

Made by kafka.start and barnabas_server.start. A Server ends only the process it was given.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import wire
from bench.processes import Cost, cost

START_LIMIT_S = 90.0
STOP_LIMIT_S = 30.0
PROBE_EVERY_S = 0.002


class BrokerFailedError(Exception):
    """A broker did not start, or went away; the message holds what it said last."""


@dataclass(slots=True)
class Server:
    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    first_answer_s: float
    serving_s: float

    host = "127.0.0.1"
    replicas = 1
    """Of the topics that are made for a measurement."""

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        """The folder that holds a folder for each partition."""
        return self.log.parent / "data"

    def cost(self) -> Cost:
        if self.process.poll() is not None:
            raise BrokerFailedError(f"{self.name} ended by itself: {last_words(self.log)}")
        return cost(self.process.pid)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(STOP_LIMIT_S)


def launch(name: str, command: Sequence[str], port: int, log: Path) -> Server:
    """Starts a broker and waits until it answers ApiVersions, then until Metadata names a broker."""
    begun = time.monotonic()
    return until_serving(name, begin(command, log), begun, port, log)


def begin(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a program whose words go to a file."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def until_serving(name: str, process: subprocess.Popen[bytes], begun: float, port: int, log: Path) -> Server:
    """The broker that a process has become; one that has not is ended."""
    try:
        first = _until(process, name, log, begun, port, wire.api_versions_request(), wire.is_answer)
        serving = _until(process, name, log, begun, port, wire.metadata_request(), wire.names_a_broker)
    except BaseException:
        end(process)
        raise
    return Server(name, port, process, log, first, serving)


def end(process: subprocess.Popen[bytes]) -> None:
    """kill -9, if it still runs."""
    process.kill()
    process.wait(STOP_LIMIT_S)


def free_port() -> int:
    """A port that is ours until this process ends: a socket that is bound and never listens keeps it from all
    but those who reuse addresses, as brokers do. A broker may take a minute to come to its port."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    port: int = keeper.getsockname()[1]
    keeper.detach()
    return port


def last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or "it said nothing"


def _until(
    process: subprocess.Popen[bytes],
    name: str,
    log: Path,
    begun: float,
    port: int,
    request: bytes,
    good: wire.Check,
) -> float:
    while time.monotonic() - begun < START_LIMIT_S:
        if process.poll() is not None:
            raise BrokerFailedError(f"{name} did not start: {last_words(log)}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
                if good(wire.ask(sock, request)):
                    return time.monotonic() - begun
        except OSError:
            pass
        time.sleep(PROBE_EVERY_S)
    raise BrokerFailedError(f"{name} did not answer within {START_LIMIT_S:.0f} s: {last_words(log)}")

"""Runs the load generator for frames encoded beforehand: the C program when gcc is there, else a Python
loop.

Called by the workloads one_record, one_mib and growth. The broker's CPU is read exactly around the measured
time. The C program costs 2-4 us a request on one core, so it is not the limit; the Python loop costs about
12 us and may be, which is why every result carries the generator's own CPU seconds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench import wire
from bench.processes import Spent, Usage, machine_busy_s
from bench.server import Server

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / ".cache" / "bench"
COMPILE_LIMIT_S = 60
ACCEPTED_LIMIT_S = 20.0
NO_LIMIT = 20_000_000


class GeneratorFailedError(RuntimeError):
    """The generator met an error; the message says which."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: on each connection one of the frames again and again, so many in flight, so long."""

    frames: Sequence[bytes]
    error_offset: int
    connections: int = 1
    in_flight: int = 1
    warm_up_s: float = 0.5
    seconds: float = 3.0
    max_requests: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class Answered:
    requests: int
    sent_bytes: int
    seconds: float
    generator_cpu_s: float
    p50_ns: int
    p99_ns: int
    usage: Usage

    @property
    def broker(self) -> Spent:
        return self.usage.broker


def run(server: Server, load: Load) -> Answered:
    until_accepted(server, load.frames, load.error_offset)
    with tempfile.NamedTemporaryFile(prefix="bench-frames-") as frames:
        frames.write(b"".join(load.frames))
        frames.flush()
        arguments = (
            str(server.port),
            str(load.connections),
            str(load.in_flight),
            str(load.warm_up_s),
            str(load.seconds),
            str(load.max_requests),
            str(load.error_offset),
            frames.name,
        )
        said, spent, busy_s = watched(server, (*program(), *arguments), load.warm_up_s + load.seconds)
    if said["errors"] or not said["requests"]:
        raise GeneratorFailedError(f"{server.name} refused {said['errors']} of {said['requests']} requests")
    return Answered(
        requests=said["requests"],
        sent_bytes=said["bytes"],
        seconds=said["seconds"],
        generator_cpu_s=said["cpu_s"],
        p50_ns=said["p50_ns"],
        p99_ns=said["p99_ns"],
        usage=Usage(said["seconds"], said["cpu_s"], said["cpu_s"], spent, busy_s),
    )


def program() -> tuple[str, ...]:
    """The command of the generator."""
    compiled = built("loadgen")
    return (sys.executable, str(HERE / "loadgen_plain.py")) if compiled is None else (compiled,)


@cache
def built(name: str) -> str | None:
    """The program made of bench/NAME.c, compiled once for each state of its source; None without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    source = HERE / f"{name}.c"
    state = hashlib.sha256((HERE / "generator.h").read_bytes() + source.read_bytes()).hexdigest()[:12]
    built = BUILT / f"{name}-{state}"
    if not built.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        command = (compiler, "-O2", "-o", str(built), str(source))
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
        if done.returncode:
            raise GeneratorFailedError(f"{compiler} could not compile {source.name}: {done.stderr[:300]}")
    return str(built)


def described() -> str:
    return "C (epoll)" if len(program()) == 1 else "Python (no C compiler found; it may be the limit)"


def until_accepted(server: Server, frames: Sequence[bytes], error_offset: int) -> None:
    """Sends each frame once, again while it is refused: a topic just created has no leader for some milliseconds."""
    deadline = time.monotonic() + ACCEPTED_LIMIT_S
    at = error_offset - wire.LENGTH_BYTES
    with socket.create_connection((server.host, server.port), timeout=ACCEPTED_LIMIT_S) as sock:
        for frame in frames:
            while (code := wire.ask(sock, frame)[at : at + 2]) != b"\x00\x00":
                if time.monotonic() > deadline:
                    number = int.from_bytes(code, "big", signed=True)
                    raise GeneratorFailedError(f"{server.name} refuses the request with error {number}")
                time.sleep(0.01)


def watched(server: Server, command: Sequence[str], seconds: float) -> tuple[dict[str, Any], Spent, float]:
    """What a generator said that takes about so long, and what the broker and the machine spent meanwhile."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # The generator bounds itself; this is for the day it does not.
    watchdog = threading.Timer(seconds + 60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        process.stdout.readline()
        before, busy_before = server.cost(), machine_busy_s()
        line = process.stdout.readline()
        spent = server.cost().since(before)
        busy_s = machine_busy_s() - busy_before
        _, complaint = process.communicate()
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode or not line:
        raise GeneratorFailedError(f"{server.name}: {complaint.strip() or 'the load generator was stopped'}")
    return json.loads(line), spent, busy_s

"""Starts Barnabas as a user would: the installed command `barnabas up` on an address and a data folder.

Called by the bench for its other side. BARNABAS_COMMAND names another command, for a tree that is not installed.
Nothing is set that a user would not get but for what Kafka's side is given too.
"""

from __future__ import annotations

import compileall
import os
import shlex
import sys
from functools import cache
from pathlib import Path

from bench.server import BrokerFailedError, Server, free_port, launch

SOURCES = Path(__file__).resolve().parent.parent / "src"

# As in kafka.py: three seconds of waiting for more members to come would be all that a rebalance shows.
SETTINGS = ("--set", "group.initial.rebalance.delay.ms=0")


def command() -> tuple[str, ...]:
    chosen = os.environ.get("BARNABAS_COMMAND")
    if chosen:
        return tuple(shlex.split(chosen))
    installed = Path(sys.executable).parent / "barnabas"
    if not installed.exists():
        raise BrokerFailedError(f"{installed} is not there: run `make install` first")
    return (str(installed),)


@cache
def compile_sources() -> None:
    """Bytecode for all of it, as an installation has it: otherwise a start would be spent on compiling."""
    compileall.compile_dir(SOURCES, quiet=2)


def start(directory: Path, name: str = "barnabas") -> Server:
    program = command()
    compile_sources()
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    where = ("--listen", f"127.0.0.1:{port}", "--data", str(directory / "data"))
    return launch(name, (*program, "up", *where, *SETTINGS), port, directory / "server.log")

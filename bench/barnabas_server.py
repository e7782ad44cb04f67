"""Starts Barnabas as a user would: the installed command `barnabas up` on an address and a data folder.

Called by the bench for its other side. Nothing is set that a user would not get.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.server import BrokerFailedError, Server, free_port, launch


def start(directory: Path, name: str = "barnabas") -> Server:
    command = Path(sys.executable).parent / "barnabas"
    if not command.exists():
        raise BrokerFailedError(f"{command} is not there: run `make install` first")
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    arguments = (str(command), "up", "--listen", f"127.0.0.1:{port}", "--data", str(directory / "data"))
    return launch(name, arguments, port, directory / "server.log")

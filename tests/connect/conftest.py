"""Owns what flows of tests need: a way to run a declaration to its end, and databases that are real."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.connect.declaration import read_declaration
from barnabas.connect.flow import FlowRun
from tests.conftest import postgres_programs
from tests.process import free_port

RunFile = Callable[..., FlowRun]

_TIMEOUT_S = 180


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if postgres_programs() is None:
        left_out = [item for item in items if "postgres" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def run_file(spark: Any, tmp_path: Path) -> RunFile:
    """Runs the only flow of a declaration until there is nothing new, on a checkpoint in tmp_path."""

    def run(text: str, checkpoint: str = "state") -> FlowRun:
        file = tmp_path / "flows.toml"
        file.write_text(text)
        (flow,) = read_declaration(file).flows.values()
        running = FlowRun(flow, spark, tmp_path / checkpoint, once=True).start()
        assert running.wait(_TIMEOUT_S)
        return running

    return run


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The JDBC address of a PostgreSQL server of our own."""
    binaries = postgres_programs()
    assert binaries is not None
    folder = Path(tempfile.mkdtemp(prefix="barnabas-postgres-"))
    # PostgreSQL refuses to run as root.
    as_user: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
    if as_user:
        shutil.chown(folder, "postgres")
    data = folder / "data"

    def quietly(*command: Any) -> None:
        log = subprocess.DEVNULL  # the server keeps what its starter gave it: a pipe would never end
        subprocess.run(command, check=True, stdout=log, stderr=log, timeout=_TIMEOUT_S, cwd=folder, **as_user)

    quietly(binaries / "initdb", "-D", data, "-U", "barnabas", "-A", "trust", "--no-sync")
    port = free_port()
    settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off"
    waiting = ("-w", "-t", str(_TIMEOUT_S))
    quietly(binaries / "pg_ctl", "-D", data, "-l", folder / "log", *waiting, "-o", settings, "start")
    try:
        yield f"jdbc:postgresql://127.0.0.1:{port}/postgres"
    finally:
        quietly(binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

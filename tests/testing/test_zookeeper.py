"""ZooKeeper as a process: it starts, keeps what it was told over a kill, and says in a sentence why it cannot run."""

import os
import re
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.errors import BarnabasError
from barnabas.processes.zookeeper import ZooKeeperProcess, start_ensemble, start_zookeeper

COMMAND = str(Path(sys.executable).with_name("barnabas"))


def client(*servers: ZooKeeperProcess) -> KazooClient:
    opened = KazooClient(",".join(server.address for server in servers), timeout=10)
    opened.start()
    return opened


def closed(opened: KazooClient) -> None:
    opened.stop()
    opened.close()


@pytest.mark.java
def test_what_it_was_told_is_there_after_a_kill_at_the_same_address(tmp_path: Path) -> None:
    server = start_zookeeper(tmp_path)
    try:
        address, asked = server.address, client(server)
        asked.create("/kept", b"value")
        server.kill()
        assert server.pid == 0
        closed(asked)
        assert not server.serves()
        server.start().wait_ready()
        assert server.address == address
        asked = client(server)
        assert asked.get("/kept")[0] == b"value"
        closed(asked)
    finally:
        server.kill()


@pytest.mark.java
def test_an_ensemble_goes_on_without_its_leader(tmp_path: Path) -> None:
    servers = start_ensemble(tmp_path)
    try:
        asked = client(*servers)
        asked.create("/kept", b"value")
        leader = next(server for server in servers if _leads(server))
        leader.kill()
        assert asked.retry(asked.get, "/kept")[0] == b"value"
        closed(asked)
    finally:
        for server in servers:
            server.kill()


def _leads(server: ZooKeeperProcess) -> bool:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"srvr")
        return b"Mode: leader" in b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.java
def test_a_port_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    server = start_zookeeper(tmp_path / "one")
    try:
        with pytest.raises(BarnabasError, match=f"cannot listen at {server.address}: address already in use"):
            start_zookeeper(tmp_path / "two", int(server.address.split(":")[1]))
    finally:
        server.kill()


@pytest.mark.java
def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    (tmp_path / "version-2").write_text("not a folder")
    with pytest.raises(BarnabasError, match=r"ended at once: .*Exception"):
        start_zookeeper(tmp_path)


def test_a_missing_java_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BarnabasError, match="needs Java"):
        start_zookeeper(tmp_path)


@pytest.mark.java
def test_a_home_without_jars_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(BarnabasError, match=f"ZOOKEEPER_HOME is {tmp_path}"):
        start_zookeeper(tmp_path)


def _jars_of_pyspark() -> list[Path]:
    """Those that a ZooKeeper needs: the distribution and Debian's package have the same under other names."""
    (home,) = find_spec("pyspark").submodule_search_locations  # type: ignore[union-attr, misc]
    jars = sorted(Path(home, "jars").glob("*.jar"))
    needed = ("zookeeper", "slf4j-api", "netty", "metrics", "snappy")
    return [jar for jar in jars if jar.name.startswith(needed) and "tcnative" not in jar.name]


@pytest.mark.java
def test_it_runs_from_the_folder_that_it_is_distributed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = tmp_path / "home" / "lib"
    lib.mkdir(parents=True)
    for jar in _jars_of_pyspark():
        (lib / jar.name).symlink_to(jar)
    monkeypatch.setenv("ZOOKEEPER_HOME", str(lib.parent))
    server = start_zookeeper(tmp_path / "data")
    try:
        assert str(lib) in Path(f"/proc/{server.pid}/cmdline").read_text()
        closed(client(server))
    finally:
        server.kill()


@pytest.mark.java
def test_it_runs_from_debians_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There jars have no version in their name, and lie among those of other packages."""
    folder = tmp_path / "java"
    folder.mkdir()
    for jar in _jars_of_pyspark():
        name = re.sub(r"-[0-9][0-9.]*[0-9](\.Final)?", "", jar.name)
        (folder / name).symlink_to(jar)
    (folder / "zookeeper-it.jar").write_text("not a jar that is needed")
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr("barnabas.processes.zookeeper._pyspark_jars", lambda: None)
    monkeypatch.setattr("barnabas.processes.zookeeper.DEBIANS_FOLDER", str(folder))
    server = start_zookeeper(tmp_path / "data")
    try:
        assert str(folder) in Path(f"/proc/{server.pid}/cmdline").read_text()
        closed(client(server))
    finally:
        server.kill()


@pytest.mark.java
def test_jars_that_are_nowhere_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr("barnabas.processes.zookeeper.glob", lambda pattern: [])
    with pytest.raises(BarnabasError, match="jars of ZooKeeper are not here"):
        start_zookeeper(tmp_path)


@pytest.mark.java
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    command = [COMMAND, "zookeeper", "--data", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("ready on ").strip()
        asked = KazooClient(address)
        asked.start()
        closed(asked)
        process.send_signal(number)
        assert process.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        _connect(address)


def _connect(address: str) -> None:
    host, port = address.split(":")
    socket.create_connection((host, int(port)), timeout=5).close()

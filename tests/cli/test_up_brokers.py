"""Promises of `barnabas up --brokers`."""

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, Run
from tests.deadline import Deadline, eventually


@pytest.mark.parametrize(
    "setting", ["broker.id=1", "listeners=PLAINTEXT://:1", "zookeeper.connect=x", "log.dirs=y"]
)
def test_what_differs_between_brokers_cannot_be_set_for_all(
    barnabas: Run, tmp_path: Path, setting: str
) -> None:
    ended = barnabas("up", "--brokers", "3", "--data", tmp_path / "data", "--set", setting)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert setting.partition("=")[0] in ended.err
    assert not (tmp_path / "data").exists()


def test_a_folder_of_one_broker_is_not_taken_for_a_cluster(barnabas: Run, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    ended = barnabas("up", "--brokers", "3", "--data", tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert (
        ended.err
        == f"barnabas: {tmp_path} has the data of a single broker: give another folder with --data.\n"
    )


def test_a_folder_of_a_cluster_is_not_taken_for_one_broker(barnabas: Run, tmp_path: Path) -> None:
    (tmp_path / "broker-1.properties").touch()
    ended = barnabas("up", "--data", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("has the data of a cluster: say with --brokers how many brokers it has.\n")


def test_without_java_a_cluster_says_so(barnabas: Run, environment: dict[str, str], tmp_path: Path) -> None:
    environment |= {"PATH": os.fspath(tmp_path), "JAVA_HOME": ""}
    ended = barnabas("up", "--brokers", "2", "--listen", "127.0.0.1:0", "--data", tmp_path / "data")
    assert (ended.code, ended.out.count("ready")) == (1, 0)
    assert ended.err.startswith("barnabas: ZooKeeper needs Java, and there is none")
    assert ended.err.count("\n") == 1


def test_an_address_that_is_none_is_one_sentence(barnabas: Run, tmp_path: Path) -> None:
    ended = barnabas("up", "--brokers", "2", "--listen", "here", "--data", tmp_path)
    assert ended == (2, "", "barnabas: --listen takes HOST:PORT, not 'here'.\n")


class Up:
    """`barnabas up --brokers N` as a process, and the lines that it prints."""

    def __init__(self, data: Path, *options: str) -> None:
        command = [str(COMMAND), "up", "--brokers", "3", "--data", str(data), *options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, words: str) -> str:
        deadline = Deadline(120.0, f"{words!r} from up; it said {self.said}")
        while True:
            line = self._lines.get(timeout=deadline.left())
            assert line is not None, f"up ended without {words!r}: {self.said}"
            self.said.append(line)
            if words in line:
                return line

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        code = self._process.wait(120)
        self._reader.join(60)
        while (line := self._lines.get_nowait()) is not None:
            self.said.append(line)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)


def pid_of(data: Path, broker: int) -> int | None:
    """The process that has a broker's settings file on its command line."""
    wanted = str(data / f"broker-{broker}.properties").encode()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if wanted in words and b"broker" in words and b"-c" not in words:
                return int(entry.parent.name)
    return None


@pytest.fixture
def start_up() -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(data: Path, *options: str) -> Up:
        started.append(Up(data, *options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.java
@pytest.mark.slow(seconds=20)
def test_a_cluster_is_up_restarts_what_dies_and_goes_on_where_it_was(
    barnabas: Run, start_up: Callable[..., Up], tmp_path: Path
) -> None:
    up = start_up(tmp_path, "--listen", "127.0.0.1:0", "--set", "num.partitions=3")
    ready = up.wait_for("ready on ")
    addresses = ready.split()[-1]
    assert len(addresses.split(",")) == 3
    first = addresses.split(",")[0]
    assert barnabas("topic", "create", "kept", "--bootstrap", first).code == 0
    described = barnabas("topic", "describe", "kept", "--bootstrap", first).out
    assert "PartitionCount: 3\tReplicationFactor: 3" in described

    victim = eventually(lambda: pid_of(tmp_path, 2), "the process of broker 2")
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    assert "killed by SIGKILL" in up.wait_for("Broker 2 has ended")
    eventually(lambda: pid_of(tmp_path, 2) not in (None, victim), "broker 2 to be started again")
    assert barnabas("cluster", "wait", "--brokers", "3", "--bootstrap", first).out == "in sync\n"

    second = barnabas("up", "--brokers", "3", "--data", tmp_path, "--listen", "127.0.0.1:0")
    assert second.err == f"barnabas: {tmp_path} is in use by another `barnabas up --brokers`.\n"

    up.signal(signal.SIGINT)
    assert up.wait() == 0, up.said
    assert up.said[-1] == "stopped\n"
    for number in (1, 2, 3):
        assert pid_of(tmp_path, number) is None
        assert (tmp_path / f"broker-{number}" / ".kafka_cleanshutdown").exists()

    again = start_up(tmp_path, "--listen", "127.0.0.1:0")
    assert again.wait_for("ready on ").split()[-1] == addresses
    assert "kept" in barnabas("topic", "list", "--bootstrap", first).out
    zookeeper = eventually(lambda: again.said[0].split(";")[0].split()[-1], "the address of ZooKeeper")
    assert "kept" in barnabas("topic", "list", "--zookeeper", zookeeper).out
    nowhere = barnabas("topic", "list", "--zookeeper", f"{zookeeper}/nowhere")
    assert (nowhere.code, nowhere.err.count("\n")) == (1, 1)
    again.signal(signal.SIGKILL)
    eventually(
        lambda: not any(pid_of(tmp_path, number) for number in (1, 2, 3)), "the brokers to end with up"
    )

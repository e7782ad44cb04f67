"""Promises of the processes that a cluster starts: they end with their parent, and say what was wrong."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.errors import BarnabasError
from barnabas.processes.broker import BrokerProcess, Ports, address_before
from barnabas.processes.child import Child, told_exit
from barnabas.properties import properties_text, read_properties
from tests.deadline import eventually

PARENT = """
import sys, time
from pathlib import Path
from barnabas.processes.child import Child
child = Child("A sleeper", Path(sys.argv[1]))
child.start([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"])
child.wait_until_ready(time.monotonic() + 60)
print(child.pid, flush=True)
time.sleep(600)
"""


def lives(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path / "log"], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert lives(child)
        parent.kill()
    eventually(lambda: not lives(child), "the child to end")


def test_a_child_that_ends_before_it_is_ready_is_quoted(tmp_path: Path) -> None:
    child = Child("The program", tmp_path / "log")
    child.start([sys.executable, "-c", "import sys; sys.exit('barnabas: No disk here.')"])
    with pytest.raises(BarnabasError, match=r"^The program did not start: No disk here\.$"):
        child.wait_until_ready(time.monotonic() + 60)
    assert told_exit(child.wait()) == "exit code 1"
    child.close()


def test_a_child_that_takes_too_long_is_told_of(tmp_path: Path) -> None:
    child = Child("The program", tmp_path / "log")
    child.start([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(BarnabasError, match="not ready in time"):
        child.wait_until_ready(time.monotonic())
    child.close()
    assert not child.running


def test_a_broker_is_killed_paused_and_started_again_at_its_address(tmp_path: Path) -> None:
    ports = Ports()
    broker = BrokerProcess(7, tmp_path, f"127.0.0.1:{ports.take()}", {"num.partitions": "3"})
    broker.serve()
    assert address_before(tmp_path, 7) == broker.address
    assert broker.kill() == -signal.SIGKILL
    broker.serve()
    broker.pause()
    broker.resume()
    assert broker.stop() == 0
    assert (tmp_path / "broker-7").is_dir()
    broker.close()
    ports.close()


def test_a_signal_that_ended_a_process_is_named() -> None:
    assert told_exit(-signal.SIGKILL) == "killed by SIGKILL"


def test_a_port_that_is_kept_is_given_once() -> None:
    ports = Ports()
    port = ports.take()
    assert port
    assert address_before(Path("nowhere"), 1) is None
    ports.close()


def test_settings_are_read_as_they_were_written() -> None:
    given = {"log.dirs": "C:\\data dir", "listeners": "PLAINTEXT://[::1]:9092", "a": "x=y:z", "empty": ""}
    assert read_properties(properties_text(given)) == given

"""A process from the fork server is as one that was started, only sooner; without a fork server it is started."""

import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark import launcher
from barnabas.spark.worker_forkserver import _Prompt, python_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")

LIMIT_S = 180
TELLS = """
import json, os, sys
json.dump({"arguments": sys.argv[1:], "said": sys.stdin.read(), "folder": os.getcwd(), "path": sys.path,
           "name": os.environ["NAME"], "hash": hash("word"), "warm": "pyarrow" in sys.modules,
           "chance": __import__("numpy").random.rand()}, sys.stdout)
"""
AS_SPARK_DOES = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "NAME": "a worker"}
Tell = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = python_of(tmp_path_factory.mktemp("forkserver"))
    assert found is not None
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "modules").mkdir()
    return {**os.environ, **AS_SPARK_DOES, "PYTHONPATH": str(tmp_path / "modules")}


@pytest.fixture
def tell(tmp_path: Path, environment: dict[str, str]) -> Tell:
    """What a process of a module of ours has, started as Spark starts its own."""
    (tmp_path / "modules" / "tells.py").write_text(TELLS)

    def run(*command: str, **more: str) -> dict[str, Any]:
        done = subprocess.run(
            [*command, "-m", "tells", "one", "two words"],
            input="to read",
            cwd=tmp_path,
            env=environment | more,
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_a_process_from_the_fork_server_has_all_that_it_was_given_and_is_warm(
    python: Path, tell: Tell
) -> None:
    here, plain = tell(str(python)), tell(sys.executable)
    assert (here.pop("warm"), plain.pop("warm")) == (True, False)
    assert here.pop("chance") != plain.pop("chance")
    assert here.pop("path")[:2] == plain.pop("path")[:2]
    assert here == plain


def test_processes_from_the_fork_server_draw_other_random_numbers(python: Path, tell: Tell) -> None:
    assert len({tell(str(python))["chance"] for _ in range(3)}) == 3


def test_without_a_fork_server_the_process_is_started(tell: Tell, tmp_path: Path) -> None:
    alone = tell(sys.executable, "-I", "-S", launcher.__file__, str(tmp_path / "nobody"))
    assert alone["arguments"] == ["one", "two words"]
    assert not alone["warm"]


def test_what_python_reads_at_its_start_is_as_it_was_asked_for(python: Path, tell: Tell) -> None:
    here = tell(str(python), PYTHONHASHSEED="7")
    assert not here["warm"]
    assert here["hash"] == tell(sys.executable, PYTHONHASHSEED="7")["hash"]


def test_sparks_archives_of_what_is_installed_are_not_looked_into(
    python: Path, tell: Tell, environment: dict[str, str]
) -> None:
    path = os.pathsep.join(["/spark/python/lib/pyspark.zip", environment["PYTHONPATH"]])
    for command in ([str(python)], [sys.executable, "-I", "-S", launcher.__file__, "/nobody"]):
        found = tell(*command, SPARK_HOME="/spark", PYTHONPATH=path)["path"]
        assert environment["PYTHONPATH"] in found
        assert not any(each.startswith("/spark") for each in found)


def test_the_end_of_the_launcher_ends_the_process(
    python: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "modules" / "waits.py").write_text("import os, sys; print(os.getpid()); sys.stdin.read()")
    with subprocess.Popen(
        [python, "-m", "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as started:
        assert started.stdout is not None
        assert int(started.stdout.readline()) != started.pid
        started.send_signal(signal.SIGTERM)
        assert started.stdout.read() == b""  # closed, by the launcher and by the process
        started.wait(LIMIT_S)


def test_the_end_of_the_launcher_before_its_answer_ends_the_process_all_the_same(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as forkserver, ExitStack() as started:
        forkserver.bind(str(door))
        forkserver.listen()
        forkserver.settimeout(LIMIT_S)
        asked_for = started.enter_context(
            subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        )
        asking = started.enter_context(
            subprocess.Popen([sys.executable, "-I", "-S", launcher.__file__, str(door), "-m", "waits"])
        )
        connection, _ = forkserver.accept()
        with connection:
            _, fds, _, _ = socket.recv_fds(connection, 4, 3)
            for fd in fds:
                os.close(fd)
            asking.send_signal(signal.SIGTERM)
            connection.sendall(launcher.TAKEN + b"%d" % asked_for.pid)
            assert asked_for.wait(LIMIT_S) == -signal.SIGTERM
        assert asking.wait(LIMIT_S) == 0


def test_the_fork_server_ends_with_its_driver_even_if_that_is_killed(tmp_path: Path) -> None:
    driver = (
        "import os, sys; from pathlib import Path; from barnabas.spark.worker_forkserver import _Prompt, python_of\n"
        "python_of(Path(sys.argv[1]))\n"
        "print(Path(f'/proc/self/task/{os.getpid()}/children').read_text(), flush=True); sys.stdin.read()"
    )
    folder = tmp_path / "shared"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", driver, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        forkserver = os.pidfd_open(int(started.stdout.readline()))
        started.kill()
    with os.fdopen(forkserver):
        ended, _, _ = select.select([forkserver], [], [], LIMIT_S)
    assert ended
    assert not folder.exists()


def test_what_comes_over_tcp_is_read_whole_and_acknowledged_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    sent = bytes(range(256)) * 2000

    def send() -> None:
        with sender:
            sender.sendall(sent)

    writer = threading.Thread(target=send)
    writer.start()
    with io.BufferedReader(_Prompt(receiver), 1000) as prompt:
        assert prompt.read(7) == sent[:7]
        assert prompt.read() == sent[7:]
    writer.join()
    assert receiver.fileno() == -1


def test_short_pieces_do_not_wait_for_each_other() -> None:
    """A peer that says two short things and waits, as Spark does: Nagle's algorithm held the second back for 40 ms."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        spark = socket.create_connection(listener.getsockname())
        worker, _ = listener.accept()

    def rounds(read: Callable[[int], bytes]) -> Iterator[float]:
        for _ in range(50):
            began = time.monotonic()
            spark.sendall(b"one")
            spark.sendall(b"two")
            assert read(6) == b"onetwo"
            worker.sendall(b"done")
            assert spark.recv(4, socket.MSG_WAITALL) == b"done"
            yield time.monotonic() - began

    with spark, io.BufferedReader(_Prompt(worker), 1000) as prompt:
        # Of some, because this process may have to wait for a core in others.
        assert sorted(rounds(prompt.read))[25] < 0.03, (
            "an acknowledgement that is sent late takes 0.04 s a round"
        )

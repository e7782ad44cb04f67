"""Owns a process that has imported what Spark's Python processes need, and forks each of them: a start takes 20 ms.

Spark starts a new Python for every stream, and ten for the first query of a session: 0.9 s of imports each, more than
a small batch takes. `python_of` gives a session of ours a `python` that asks here (launcher.py). Only where driver and
workers are on one machine. The process ends with the driver; what it has forked ends when Spark says so.
Always holds: a request that cannot be met as if by a new Python (other settings for its start) is turned down.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from barnabas.spark import launcher

WARM = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "barnabas.spark.source",
    "barnabas.spark.writer",
    "barnabas.client.columns.columns",
    "barnabas.client.consumer.partition_reader",
    "encodings.idna",  # which Python imports to look up the name of a host
)
_WARM_IF_THERE = "pandas"
"""pyarrow imports it to make an array of a list, as Spark does of what a task that has written says: 0.4 s."""
_SEED = "PYTHONHASHSEED"
_LATER = ("PYTHONPATH", "PYTHON_")
_LONGEST_DOOR = 107
"""Bytes of a Unix socket's name."""

_REQUEST_LIMIT_S = 5.0
_BUFFER = 65536


@functools.cache
def python_of(folder: Path) -> Path | None:
    """A `python` in this folder whose processes come from a fork server of this process; None where that cannot be."""
    python, door = folder / "python", folder / "forkserver"
    if sys.platform != "linux" or len(os.fsencode(door)) > _LONGEST_DOOR:
        return None
    command = shlex.join([sys.executable, "-I", "-S", launcher.__file__, str(door)])
    python.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    python.chmod(0o700)
    if not os.access(python, os.X_OK):  # a folder that nothing may be run from
        return None
    # Spark gives its workers these two, so that they hash alike and speak at once.
    environment = os.environ | {"PYTHONUNBUFFERED": "YES"}
    environment.setdefault(_SEED, "0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(door))
        listener.listen()  # a request during the imports waits: that is shorter than to import all again
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno()), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    atexit.register(_end, process, os.getpid())
    return python


@functools.cache
def private_folder() -> Path:
    """A folder for this user alone, gone when this process ends."""
    folder = tempfile.mkdtemp(prefix="barnabas-spark-")
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: "subprocess.Popen[bytes]", owner: int) -> None:
    if os.getpid() != owner:
        return
    assert process.stdin is not None
    process.stdin.close()  # that alone ends it, also where signals are ignored
    process.terminate()
    process.wait()


def serve(listener: socket.socket, folder: str) -> None:
    """Fork what is asked for until the driver has ended. Comes back in each forked process, to run it."""
    own = _settings(os.environ)
    with listener:
        for module in WARM:
            importlib.import_module(module)
        with suppress(ImportError):
            importlib.import_module(_WARM_IF_THERE)
        from barnabas.spark.source import stream_reader  # not in the driver, which may have no PySpark

        stream_reader()
        gc.collect()
        gc.freeze()  # so that no process looks for garbage in it, or copies its pages
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        watched = select.poll()
        watched.register(0, select.POLLIN)
        watched.register(listener, select.POLLIN)
        while 0 not in (ready := dict(watched.poll())):
            assert listener.fileno() in ready
            connection, _ = listener.accept()
            if _fork(connection, own):
                return
            connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit()


def _fork(connection: socket.socket, own: Mapping[str, str]) -> bool:
    """Whether this is the process that was asked for; it stands as if it had just been started."""
    fds: list[int] = []
    try:
        connection.settimeout(_REQUEST_LIMIT_S)
        head, fds, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as stream:
            request = json.loads(stream.read(int.from_bytes(head)))
        # Without a seed any will do.
        if len(fds) == 3 and own == {_SEED: own[_SEED], **_settings(request["environment"])}:
            pid = os.fork()
            if not pid:
                try:
                    _begin(connection, fds, **request)
                except BaseException:
                    os._exit(1)  # not back to where processes are forked
                return True
            connection.sendall(launcher.TAKEN + b"%d" % pid)
    except (OSError, ValueError):
        pass  # a launcher whose connection is closed starts its own process
    finally:
        for fd in fds:
            os.close(fd)
    return False


def _begin(
    connection: socket.socket,
    fds: Sequence[int],
    *,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.detach()  # left open for as long as this process lives: the launcher waits for that
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    # Python draws other random numbers after a fork by itself, numpy does not.
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    try:
        os.chdir(folder)
    except OSError as error:
        os.write(2, f"{folder}: {error}\n".encode())
        os._exit(1)  # not back to where processes are forked
    _acknowledge_at_once()
    sys.argv = list(arguments[1:])
    first = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [folder, *first, *(each for each in sys.path[1:] if each not in first)]


class _Prompt(io.RawIOBase):
    """What comes over TCP, each piece acknowledged when it is read.

    Spark says several short things at the start of a task. Nagle's algorithm holds the second back until the first is
    acknowledged, which Linux does after 40 ms. Sessions of ours have Unix sockets instead.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._connection.fileno()

    def readinto(self, buffer: Any) -> int:
        size = self._connection.recv_into(buffer)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return size

    def close(self) -> None:
        self._connection.close()
        super().close()


def _acknowledge_at_once() -> None:
    """Have workers read what Spark says over TCP through `_Prompt`. Nothing of a task was read before it runs."""
    import pyspark.worker

    run = pyspark.worker.main

    def main(infile: Any, outfile: Any) -> None:
        connection = socket.socket(fileno=os.dup(infile.fileno()))
        if connection.family == socket.AF_UNIX:
            connection.close()
            run(infile, outfile)
            return
        with io.BufferedReader(_Prompt(connection), _BUFFER) as prompt:
            run(prompt, outfile)

    pyspark.worker.main = main


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python looks at when it starts, and never again."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("PYTHON") and not name.startswith(_LATER)
    }


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

"""Owns the way of a warning from a Spark worker to the log of the driver, in sessions of ours on this machine.

What Spark's own process and its workers write to stderr goes to a file there, or nowhere. `session` opens the way, a
worker takes it with its first task. Always holds: a warning that cannot go this way goes to stderr.
"""

import functools
import logging
import os
import threading
from pathlib import Path

WAY = "BARNABAS_SPARK_WARNINGS"
"""The environment variable that names the pipe. Workers inherit it."""

_LONGEST = 4000
"""Bytes of a line: what is shorter than PIPE_BUF is written whole or not at all."""

log = logging.getLogger("barnabas.spark")


@functools.cache
def open_way(folder: Path) -> Path:
    """A pipe in this folder; each line that comes through it is a warning in the log of this process."""
    pipe = folder / "warnings"
    os.mkfifo(pipe, 0o600)
    # Open for writing too: a pipe that nothing writes to would be at its end.
    fd = os.open(pipe, os.O_RDWR)
    threading.Thread(target=_listen, args=(fd,), name="barnabas-warnings", daemon=True).start()
    return pipe


def _listen(fd: int) -> None:
    with open(fd, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            log.warning("%s", line.rstrip("\n"))


@functools.cache
def take_way(pipe: str) -> None:
    """In a worker: from now on warnings of Barnabas go through this pipe."""
    logger = logging.getLogger("barnabas")
    logger.addHandler(_Sent(pipe))
    logger.propagate = False


class _Sent(logging.Handler):
    def __init__(self, pipe: str) -> None:
        super().__init__(logging.WARNING)
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        line = " ".join(record.getMessage().split()).encode()[:_LONGEST] + b"\n"
        try:
            fd = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # the driver is not there any more
            os.write(2, line)
            return
        try:
            os.write(fd, line)
        except OSError:
            os.write(2, line)
        finally:
            os.close(fd)

"""Disks that are full for one process: what a program sees of them."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.full_disks import FullDisks
from barnabas.testing.preloaded import can_be_preloaded

pytestmark = pytest.mark.skipif(not can_be_preloaded(), reason="there is no C compiler")

PROGRAM = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
end = 0
for line in sys.stdin:
    at = end if line == "grow\\n" else 0
    try:
        written = os.pwrite(file, b"1234", at)
        end = max(end, at + written)
        with open(sys.argv[1] + ".other", "ab") as other:
            if at: other.write(b"1234")
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class Program:
    """Lets a file grow, or writes into what it has, and says with which error."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", PROGRAM, str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, what: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=30)


@pytest.fixture
def disks() -> Iterator[FullDisks]:
    with FullDisks() as disks:
        yield disks


def test_files_of_the_named_process_grow_no_more_until_there_is_room(
    disks: FullDisks, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    with Program(path) as program, Program(tmp_path / "another") as another:
        assert program("grow") == 0
        disks.fill(program.process.pid)
        assert program("grow") == errno.ENOSPC
        assert program("overwrite") == 0, "that needs no room"
        assert another("grow") == 0
        assert path.stat().st_size == 4
        disks.empty(program.process.pid)
        assert program("grow") == 0
        assert path.stat().st_size == 8

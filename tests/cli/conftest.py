"""Owns how tests run the command: the real one, as a process of its own, talking to the broker they share."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

COMMAND = Path(sys.executable).with_name("barnabas")
_numbers = itertools.count()


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ended]


@pytest.fixture
def environment(bootstrap: str) -> dict[str, str]:
    return os.environ | {"BARNABAS_BOOTSTRAP": bootstrap}


@pytest.fixture
def barnabas(environment: dict[str, str]) -> Run:
    """Runs `barnabas` with these arguments; text given as `stdin` comes through a pipe.

    Bytes that are no UTF-8 are surrogates here, as they are in sys.argv: os.fsdecode.
    """

    def run(*arguments: str | Path, stdin: str = "") -> Ended:
        done = subprocess.run(
            [COMMAND, *arguments],
            input=os.fsencode(stdin),
            capture_output=True,
            env=environment,
            timeout=120,
            check=False,
        )
        return Ended(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))

    return run


@pytest.fixture
def topic() -> str:
    """A name nobody else has."""
    return f"cli-{os.getpid()}-{next(_numbers)}"

"""Owns a small library that programs load before all others (LD_PRELOAD), and a file with a number for each of them.

`wall_clocks` and `full_disks` are such libraries. The C compiler of this machine makes them; no rights are needed. What
stands in a library's source answers in place of the C library; `slots`, by process id, says what is wanted of it, and
can be changed while a program runs. Programs started outside of the `with` block are let alone.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.errors import BarnabasError

_MOST_PIDS = 1 << 22
_SLOT = struct.calcsize("q")
_COMPILE_S = 60.0

_HEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile long long *slots;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv(SLOTS_AT);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, MOST_PIDS * sizeof *slots, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) slots = found;
    close(file);
}

static long long wanted(void) { return slots ? slots[getpid() % MOST_PIDS] : 0; }
"""


def can_be_preloaded() -> bool:
    """Whether this machine has what it takes: Linux and a C compiler."""
    return sys.platform.startswith("linux") and _compiler() is not None


class Preloaded:
    """Programs started inside the `with` block have the library; `put` says what is wanted of one of them."""

    def __init__(self, name: str, source: str) -> None:
        if not can_be_preloaded():
            raise BarnabasError(f"To have {name}, Linux and a C compiler are needed: install gcc.")
        self._name = name
        self._variable = f"BARNABAS_{name.replace(' ', '_').upper()}"
        self._source = source
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-preloaded-"))
        self._before: dict[str, str | None] = {}
        self._slots: mmap.mmap | None = None

    def __enter__(self) -> Self:
        library, slots = self._folder / "preloaded.so", self._folder / "slots"
        self._compile(library)
        with slots.open("w+b") as file:
            file.truncate(_MOST_PIDS * _SLOT)
            self._slots = mmap.mmap(file.fileno(), 0)
        preloaded = os.environ.get("LD_PRELOAD")
        self._set("LD_PRELOAD", f"{library}:{preloaded}" if preloaded else str(library))
        self._set(self._variable, str(slots))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        self._before.clear()
        if self._slots is not None:
            self._slots.close()
            self._slots = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, pid: int, number: int) -> None:
        """Let a process have this number in its slot; 0 lets it alone."""
        if self._slots is None:
            raise BarnabasError(f"There are {self._name} inside of their `with` block only.")
        struct.pack_into("q", self._slots, pid % _MOST_PIDS * _SLOT, number)

    def _set(self, name: str, value: str) -> None:
        self._before[name] = os.environ.get(name)
        os.environ[name] = value

    def _compile(self, library: Path) -> None:
        source = library.with_suffix(".c")
        source.write_text(_HEAD + self._source)
        command = [
            *(str(_compiler()), "-O2", "-shared", "-fPIC", f"-DMOST_PIDS={_MOST_PIDS}"),
            *(f'-DSLOTS_AT="{self._variable}"', "-o", str(library), str(source), "-ldl"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        if done.returncode:
            raise BarnabasError(f"The library for {self._name} was not compiled: {done.stderr[:300]}")


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")

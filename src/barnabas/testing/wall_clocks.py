"""Wall clocks that can be set, one a process: what a bad NTP server or a person does to a broker's time of day.

    with WallClocks() as clocks:
        ...                                # start programs
        clocks.jump(pid, seconds=3600)     # one of them lives an hour later from here on

Owns a small library (LD_PRELOAD, made by the C compiler of this machine) that adds to the time of day that the C
library tells, and a file in which each process finds its own difference. Monotonic time, which runs timers, stays as it
is, as it does on a real machine. Used by `testing.faults`. Programs started outside of the `with` block are let alone.
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

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *slots;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("BARNABAS_WALL_CLOCKS");
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, MOST_PIDS * sizeof *slots, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) slots = found;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_gettime) real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_gettime(clock, at);
    if (result || !slots || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    long long ns = at->tv_nsec + slots[getpid() % MOST_PIDS];
    at->tv_sec += ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
    if (at->tv_nsec < 0) { at->tv_nsec += 1000000000; at->tv_sec--; }
    return 0;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def can_be_set() -> bool:
    """Whether this machine has what it takes: Linux and a C compiler."""
    return sys.platform.startswith("linux") and _compiler() is not None


class WallClocks:
    """Programs started inside the `with` block have wall clocks that can be set."""

    def __init__(self) -> None:
        if not can_be_set():
            raise BarnabasError("Wall clocks can be set on Linux with a C compiler: install gcc.")
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-clocks-"))
        self._before: dict[str, str | None] = {}
        self._slots: mmap.mmap | None = None

    def __enter__(self) -> Self:
        library, slots = self._folder / "wall_clocks.so", self._folder / "slots"
        _compile(library)
        with slots.open("w+b") as file:
            file.truncate(_MOST_PIDS * _SLOT)
            self._slots = mmap.mmap(file.fileno(), 0)
        preloaded = os.environ.get("LD_PRELOAD")
        self._put("LD_PRELOAD", f"{library}:{preloaded}" if preloaded else str(library))
        self._put("BARNABAS_WALL_CLOCKS", str(slots))
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

    def jump(self, pid: int, seconds: float) -> None:
        """Set a process's clock this far from the machine's, forward or back; 0 sets it right."""
        if self._slots is None:
            raise BarnabasError("Wall clocks can be set inside of their `with` block only.")
        struct.pack_into("q", self._slots, pid % _MOST_PIDS * _SLOT, int(seconds * 1e9))

    def _put(self, name: str, value: str) -> None:
        self._before[name] = os.environ.get(name)
        os.environ[name] = value


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def _compile(library: Path) -> None:
    source = library.with_suffix(".c")
    source.write_text(_SOURCE)
    command = [
        *(str(_compiler()), "-O2", "-shared", "-fPIC", f"-DMOST_PIDS={_MOST_PIDS}"),
        *("-o", str(library), str(source), "-ldl"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if done.returncode:
        raise BarnabasError(f"The library that sets wall clocks was not compiled: {done.stderr[:300]}")

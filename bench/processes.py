"""Reads what processes cost from /proc: CPU seconds with all children, the busiest thread, resident memory.

Called around every measurement. Reading costs well under a millisecond and changes nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
# A thread that runs this much of the time has nothing left to give.
SATURATED = 0.85
# A machine that does no more than this is at rest.
RESTING = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process and its children had used at one moment. Two of them make a difference."""

    cpu_s: float
    threads: dict[int, float]
    rss_bytes: int

    def since(self, before: Cost) -> Spent:
        busiest = max(
            (used - before.threads.get(thread, 0.0) for thread, used in self.threads.items()), default=0.0
        )
        return Spent(self.cpu_s - before.cpu_s, busiest, self.rss_bytes)


@dataclass(frozen=True, slots=True)
class Spent:
    cpu_s: float
    busiest_thread_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Who used the machine while something was measured."""

    seconds: float
    client_cpu_s: float
    client_busiest_s: float
    broker: Spent
    machine_busy_s: float

    @property
    def limit(self) -> str:
        """Who could not go faster: the client's busiest thread, the broker's, or all cores together."""
        if self.client_busiest_s / self.seconds >= SATURATED:
            return "client"
        if self.broker.busiest_thread_s / self.seconds >= SATURATED:
            return "broker"
        if self.machine_busy_s / self.seconds >= SATURATED * CORES:
            return "machine"
        return "waiting"

    @property
    def others(self) -> float:
        """The share of the machine that neither client nor broker used: what disturbed the measurement."""
        stray = self.machine_busy_s - self.client_cpu_s - self.broker.cpu_s
        return max(0.0, stray) / (self.seconds * CORES)


def cost(pid: int) -> Cost:
    """CPU and memory of a process, its threads and its children; what has ended in between counts too."""
    cpu_s, rss_bytes = 0.0, 0
    threads: dict[int, float] = {}
    for process in _family(pid):
        try:
            fields = _stat(Path(f"/proc/{process}/stat"))
            resident = int(Path(f"/proc/{process}/statm").read_text().split()[1])
            threads.update(_threads(process))
        except (FileNotFoundError, ProcessLookupError):
            continue
        # utime, stime, and the same of children that have ended.
        cpu_s += sum(int(field) for field in fields[11:15]) / TICKS_A_SECOND
        rss_bytes += resident * PAGE_BYTES
    return Cost(cpu_s, threads, rss_bytes)


def machine_busy_s() -> float:
    """CPU seconds that all cores together have spent on anything, or that the hypervisor took away."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = _first_line("/proc/stat")[:8]
    return (user + nice + system + irq + softirq + steal) / TICKS_A_SECOND


def wait_for_rest(limit_s: float) -> None:
    """Wait until nobody works off what went before (files deleted, code compiled), or no longer than this."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        begun, busy = time.monotonic(), machine_busy_s()
        time.sleep(0.2)
        if machine_busy_s() - busy <= RESTING * CORES * (time.monotonic() - begun):
            return


def _first_line(path: str) -> list[int]:
    with Path(path).open() as file:
        return [int(field) for field in file.readline().split()[1:]]


def _threads(pid: int) -> dict[int, float]:
    used = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = _stat(task / "stat")
        except (FileNotFoundError, ProcessLookupError):
            continue
        used[int(task.name)] = (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND
    return used


def _family(pid: int) -> list[int]:
    found, new = [], [pid]
    while new:
        process = new.pop()
        found.append(process)
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                new.extend(int(child) for child in (task / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _stat(path: Path) -> list[str]:
    # The name in the second field may hold blanks and brackets: count from behind its last bracket.
    return path.read_text().rpartition(")")[2].split()

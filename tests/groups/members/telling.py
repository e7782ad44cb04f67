"""Owns how a member of a group tells the tests its story: one JSON object a line on standard output.

Used by the members beside it, each a process of its own. Every line has the moment it was told, on the machine's
monotonic clock, which all processes share. A member leaves its group when its standard input ends. It commits what
it has read after each poll, and again if it was refused, for as long as the partition is its own.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BATCH = 50


@dataclass(frozen=True)
class Wanted:
    """What a member is to be: the one argument of its command, as JSON."""

    bootstrap: str
    group: str
    topic: str
    name: str
    protocol: str
    assignors: list[str]
    session_ms: int
    heartbeat_ms: int


def wanted() -> Wanted:
    return Wanted(**json.loads(sys.argv[1]))


def told_to_leave() -> threading.Event:
    """Set when the tests close our standard input, or are no more."""
    leave = threading.Event()

    def wait() -> None:
        while os.read(0, 1024):
            pass
        leave.set()

    threading.Thread(target=wait, daemon=True).start()
    return leave


def tell(event: str, **facts: Any) -> None:
    line = json.dumps({"at": time.monotonic_ns(), "event": event, **facts})
    os.write(1, line.encode() + b"\n")


def tell_partitions(event: str, partitions: Iterable[int], generation: int | None = None) -> None:
    tell(event, partitions=sorted(partitions), generation=generation)


def tell_records(rows: Iterable[tuple[int, int]]) -> None:
    """Partition and offset of each record."""
    tell("records", rows=list(rows))


def tell_offsets(event: str, offsets: Mapping[int, int], why: str = "") -> None:
    tell(event, offsets=list(offsets.items()), why=why)

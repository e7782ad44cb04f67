"""Owns one group of real clients, each member a process of its own that tests kill, stop, resume or let go.

Called by the tests beside it. What members tell goes into the group's ledger. No process is left behind.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.groups.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
JAVA_MEMBER = Path(__file__).with_name("members") / "JavaMember.java"
PARTITIONS = 16
WAIT_S = 120.0
SESSION_MS = 6000
HEARTBEAT_MS = 300

JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A client library, the group protocol it speaks, and the assignors it offers, best first."""

    client: str
    assignors: tuple[str, ...] = ("range",)
    protocol: str = "classic"

    def __str__(self) -> str:
        way = "kip-848" if self.protocol == "consumer" else "classic"
        return "-".join((self.client, way, *self.assignors))


class Member:
    """One member: a process, and the thread that reads what it tells."""

    def __init__(self, name: str, command: Sequence[str], ledger: Ledger, errors: Path) -> None:
        self.name = name
        self._ledger = ledger
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT
            )
        self._may_end = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as story:
            for line in story:
                try:
                    self._ledger.note(self.name, json.loads(line))
                except Exception as error:
                    self._ledger.broken.append(f"{self.name} told {line!r}: {error!r}")
        self._ledger.note(self.name, {"event": "gone", "at": time.monotonic_ns()})

    def kill(self) -> None:
        """kill -9: it says nothing to anybody."""
        self._may_end = True
        self._ledger.note(self.name, _silenced(for_good=False))
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._ledger.note(self.name, _silenced(for_good=True))

    def stop(self) -> None:
        self._ledger.note(self.name, _silenced(for_good=False))
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Tells it to leave its group and end; does not wait."""
        assert self._process.stdin is not None
        self._may_end = True
        self._process.stdin.close()

    @property
    def has_fallen(self) -> bool:
        """It has ended, and nobody had asked for it."""
        return not self._may_end and self.name in self._ledger.ended

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-3000:]


class Group:
    """Mutable: a group over one topic with 16 partitions, and those who have joined it."""

    def __init__(self, bootstrap: str, topic: str, name: str, java: Callable[[], str], folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = name
        self.ledger = Ledger(PARTITIONS, SESSION_MS)
        self.members: list[Member] = []
        self._java = java
        self._folder = folder

    def join(self, *kinds: Kind) -> list[Member]:
        """Starts one member of each kind; does not wait for them."""
        joined = []
        for kind in kinds:
            name = f"{kind.client}-{len(self.members)}"
            errors = self._folder / f"{self.name}-{name}.err"
            member = Member(name, self._command(kind, name), self.ledger, errors)
            self.members.append(member)
            joined.append(member)
        return joined

    def wait_until_shared_by(self, members: Iterable[Member], within: float = WAIT_S) -> None:
        """Until these members, and no others, own all partitions between them."""
        names = [member.name for member in members]
        self._wait(lambda: self.ledger.is_shared_by(names), f"{names} to share all partitions", within)

    def wait_until_balanced(self, each: int, within: float = WAIT_S) -> None:
        """Until every member owns so many partitions: they move one by one, and all may be owned before that."""
        self._wait(
            lambda: all(len(self.ledger.owned(member.name)) == each for member in self.members),
            f"{each} partitions for everybody",
            within,
        )

    def wait_until_owned_by(self, members: Iterable[Member], within: float = WAIT_S) -> None:
        """The same, whatever members that were stopped believe that they own."""
        names = [member.name for member in members]
        self._wait(lambda: self.ledger.is_owned_by(names), f"{names} to own all partitions", within)

    def wait_until_committed(self, ends: list[int], within: float = WAIT_S) -> None:
        self._wait(
            lambda: self.ledger.has_committed(ends), f"all of {sum(ends)} records to be committed", within
        )

    def wait_for_progress(self, records: int = 100, within: float = WAIT_S) -> None:
        """Until so many more records are committed."""
        goal = self.ledger.committed() + records
        self._wait(lambda: self.ledger.committed() >= goal, f"{goal} committed records", within)

    def let_go(self, members: Iterable[Member]) -> None:
        """Lets members leave, and waits until they are gone."""
        members = list(members)
        for member in members:
            member.leave()
        names = {member.name for member in members}
        self._wait(lambda: names <= self.ledger.ended, f"{sorted(names)} to leave", WAIT_S)

    def close(self) -> None:
        for member in self.members:
            member.close()

    def _wait(self, look: Callable[[], bool], what: str, within: float) -> None:
        def look_or_mourn() -> bool:
            fallen = [member.name for member in self.members if member.has_fallen]
            assert not fallen, f"{fallen} ended by themselves, while we waited for {what}"
            return look()

        try:
            self.ledger.wait(look_or_mourn, what, within)
        except AssertionError as failed:
            said = "".join(f"\n--- {m.name}: {m.errors()}" for m in self.members if m.errors())
            raise AssertionError(f"{failed}{said}") from None

    def _command(self, kind: Kind, name: str) -> list[str]:
        if kind.client == "java":
            return self._java_command(kind, name)
        want = {
            "bootstrap": self.bootstrap,
            "group": self.name,
            "topic": self.topic,
            "name": name,
            "protocol": kind.protocol,
            "assignors": kind.assignors,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
        }
        module = f"tests.groups.members.{kind.client.replace('-', '_')}"
        return [sys.executable, "-m", module, json.dumps(want)]

    def _java_command(self, kind: Kind, name: str) -> list[str]:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "client.id": name,
            "group.id": self.name,
            "group.protocol": kind.protocol,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": "50",
            "max.poll.records": "50",
            "reconnect.backoff.max.ms": "200",
            "retry.backoff.ms": "50",
        }
        if kind.protocol == "consumer":
            settings |= {"group.remote.assignor": kind.assignors[0]} if kind.assignors else {}
        else:
            package = "org.apache.kafka.clients.consumer"
            settings |= {
                "partition.assignment.strategy": ",".join(
                    f"{package}.{JAVA_ASSIGNORS[a]}" for a in kind.assignors
                ),
                "session.timeout.ms": str(SESSION_MS),
                "heartbeat.interval.ms": str(HEARTBEAT_MS),
                "max.poll.interval.ms": "30000",
            }
        lean = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        pairs = [f"{key}={value}" for key, value in settings.items()]
        return ["java", *lean, "-cp", self._java(), "JavaMember", self.topic, *pairs]


def marked(kinds: Iterable[Kind]) -> list[Any]:
    """Kinds as parameters of a test, with the marks they need."""
    return [
        pytest.param(kind, id=str(kind), marks=[pytest.mark.java] if kind.client == "java" else [])
        for kind in kinds
    ]


def compile_java(libs: Path, folder: Path, source: Path = JAVA_MEMBER) -> str:
    """Compiles a Java source; gives the class path to run it with."""
    jars = [str(jar) for name in ("kafka-clients", "slf4j-api") for jar in sorted(libs.glob(f"{name}-*.jar"))]
    path = os.pathsep.join([str(folder), *jars])
    done = subprocess.run(
        ["javac", "-cp", path, "-d", str(folder), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return path


def _silenced(*, for_good: bool) -> dict[str, object]:
    return {"event": "silenced", "at": time.monotonic_ns(), "for_good": for_good}

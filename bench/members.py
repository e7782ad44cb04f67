"""Owns raw members of classic groups: one connection each, one request in flight, driven by one event loop.

Called by the workload groups. MemberState is pure: given an answer it says what to send next, at once; so a rebalance
takes as long as the broker takes, and never as long as some client's poll. A member sends heartbeats only while it
is watched.
"""

from __future__ import annotations

import heapq
import itertools
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

from bench import group_wire, wire
from bench.server import Server

CONNECT_LIMIT_S = 20.0
RECEIVED_BYTES = 1 << 16
OTHER_FILES = 200


class MemberFailedError(RuntimeError):
    """A member got an error it cannot go on from, or nothing came in time."""


class Phase(Enum):
    OUT = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()
    COMMITTING = auto()
    LEAVING = auto()


class MemberState:
    """One member without its socket. It answers every call to rebalance at once."""

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.member = ""
        self.generation = group_wire.NOBODY
        self.phase = Phase.OUT

    def join(self) -> bytes:
        self.phase = Phase.JOINING
        return group_wire.join(self.group, self.member, self.topic)

    def leave(self) -> bytes:
        self.phase = Phase.LEAVING
        return group_wire.leave(self.group, self.member)

    def commit(self, partition: int, offset: int) -> bytes:
        self.phase = Phase.COMMITTING
        return group_wire.commit(
            self.group, self.topic, partition, offset, generation=self.generation, member=self.member
        )

    def beat(self) -> bytes:
        """What is due when the heartbeat is: a member that was told to wait asks to join once more."""
        if self.phase is Phase.STABLE:
            return group_wire.heartbeat(self.group, self.generation, self.member)
        return self.join()

    def answered(self, answer: bytes) -> bytes | None:
        """The next frame to send now; None when there is nothing until the next heartbeat."""
        match self.phase:
            case Phase.JOINING:
                return self._joined(group_wire.joined(answer))
            case Phase.COMMITTING:
                at = group_wire.commit_error_offset(self.topic) - wire.LENGTH_BYTES
                self._expect(group_wire.error_at(answer, at))
                self.phase = Phase.STABLE
            case Phase.LEAVING:
                self._expect(group_wire.error_of(answer))
                self.phase, self.member, self.generation = Phase.OUT, "", group_wire.NOBODY
            case _:  # SyncGroup or Heartbeat: either may say that it all begins again
                error = group_wire.error_of(answer)
                if error == group_wire.REBALANCE_IN_PROGRESS:
                    return self.join()
                self._expect(error)
                self.phase = Phase.STABLE
        return None

    def _joined(self, said: group_wire.Joined) -> bytes | None:
        if said.error in group_wire.LOADING:
            return None
        if said.error == group_wire.MEMBER_ID_REQUIRED:
            self.member = said.member
            return self.join()
        self._expect(said.error)
        self.member, self.generation, self.phase = said.member, said.generation, Phase.SYNCING
        # Only the leader was told of any members: the others assign nothing.
        assignments = [
            (member, group_wire.assignment(self.topic, place)) for place, member in enumerate(said.members)
        ]
        return group_wire.sync(self.group, self.generation, self.member, assignments)

    def _expect(self, error: int) -> None:
        if error != group_wire.NO_ERROR:
            raise MemberFailedError(f"a member of {self.group} got error {error} ({self.phase.name.lower()})")


class Member:
    """A MemberState with its connection, and when it last learned of a rebalance and was through with it."""

    def __init__(self, server: Server, group: str, topic: str) -> None:
        self.state = MemberState(group, topic)
        self.sock = socket.create_connection((server.host, server.port), timeout=CONNECT_LIMIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # As clients begin. It also shows that the broker has accepted: Kafka lets 50 wait, the next waits 1 s.
        wire.ask(self.sock, wire.api_versions_request())
        self.received = b""
        self.in_flight = False
        self.noticed_s = self.synced_s = 0.0

    def send(self, frame: bytes) -> None:
        # Nothing else is in flight and frames are small: the kernel takes them whole.
        self.in_flight = True
        self.sock.sendall(frame)

    def receive(self) -> bool:
        """Takes what has come; whether the member now has nothing to do until its next heartbeat."""
        part = self.sock.recv(RECEIVED_BYTES)
        if not part:
            raise MemberFailedError(f"the broker closed the connection of a member of {self.state.group}")
        self.received += part
        (size,) = struct.unpack_from(">i", self.received) if len(self.received) >= 4 else (RECEIVED_BYTES,)
        if len(self.received) < 4 + size:
            return False
        answer, self.received = self.received[4 : 4 + size], self.received[4 + size :]
        self.in_flight = False
        was, following = self.state.phase, self.state.answered(answer)
        if was is Phase.SYNCING and self.state.phase is Phase.STABLE:
            self.synced_s = time.monotonic()
        elif was is Phase.STABLE and self.state.phase is Phase.JOINING:
            self.noticed_s = time.monotonic()
        if following is not None:
            self.send(following)
        return following is None


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """From LeaveGroup (and from the last member's notice) to the last SyncGroup answer of those that stay."""

    seconds: float
    after_notice_s: float


class Members:
    """All members of one measurement and their event loop."""

    def __init__(self, server: Server, limit_s: float) -> None:
        self._server = server
        self._limit_s = limit_s
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Member]] = []
        self._numbers = itertools.count()

    def form(self, groups: Sequence[str], topic: str, size: int, every_s: float) -> list[Member]:
        """New members, so many in each group, until every group is stable with all of its own."""
        members = [Member(self._server, group, topic) for group in groups for _ in range(size)]
        for member in members:
            self._selector.register(member.sock, selectors.EVENT_READ, member)
            member.send(member.state.join())
        self._watch([], every_s, lambda: settled(members))
        return members

    def leave(self, leaver: Member, others: Sequence[Member], every_s: float) -> Rebalanced:
        before, begun = leaver.state.generation, time.monotonic()
        leaver.send(leaver.state.leave())
        self._watch(others, every_s, lambda: settled(others, above=before), begun)
        synced = max(member.synced_s for member in others)
        return Rebalanced(synced - begun, synced - max(member.noticed_s for member in others))

    def come_back(self, comer: Member, others: Sequence[Member], every_s: float) -> None:
        before, members = others[0].state.generation, [comer, *others]
        comer.send(comer.state.join())
        self._watch(others, every_s, lambda: settled(members, above=before))

    def commit(self, members: Sequence[Member], partitions: int, offset: int) -> None:
        for place, member in enumerate(members):
            member.send(member.state.commit(place % partitions, offset))
        self._run(lambda: not any(member.in_flight for member in members), None)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.sock.close()
        self._selector.close()

    def _watch(
        self,
        beating: Sequence[Member],
        every_s: float,
        until: Callable[[], bool],
        begun: float | None = None,
    ) -> None:
        """Runs with heartbeats of those that beat and of whoever settles, then lets what is in flight come."""
        start = time.monotonic() if begun is None else begun
        # Spread evenly, and the same in every round: none of what is measured is chance of the client's.
        for place, member in enumerate(beating):
            self._beat_at(start + every_s * (place + 1) / (len(beating) + 1), member)
        self._run(until, every_s)
        self._due.clear()
        members = [key.data for key in self._selector.get_map().values()]
        self._run(lambda: not any(member.in_flight for member in members), None)

    def _run(self, until: Callable[[], bool], every_s: float | None) -> None:
        deadline = time.monotonic() + self._limit_s
        while not until():
            now = time.monotonic()
            if now > deadline:
                raise MemberFailedError(f"{self._server.name}: no end after {self._limit_s:.0f} s")
            while self._due and self._due[0][0] <= now:
                member = heapq.heappop(self._due)[2]
                member.send(member.state.beat())
            next_s = min(deadline, self._due[0][0]) if self._due else deadline
            for key, _ in self._selector.select(max(0.0, next_s - time.monotonic())):
                member = key.data
                if member.receive() and every_s is not None and member.state.phase is not Phase.OUT:
                    self._beat_at(time.monotonic() + every_s, member)

    def _beat_at(self, due_s: float, member: Member) -> None:
        heapq.heappush(self._due, (due_s, next(self._numbers), member))


def settled(members: Sequence[Member], above: int = group_wire.NOBODY) -> bool:
    """Whether all are through with a rebalance later than `above`, and with the same one in each group."""
    generations: dict[str, int] = {}
    for member in members:
        state = member.state
        if state.phase is not Phase.STABLE or state.generation <= above:
            return False
        if generations.setdefault(state.group, state.generation) != state.generation:
            return False
    return True


@contextmanager
def members_of(server: Server, limit_s: float) -> Iterator[Members]:
    made = Members(server, limit_s)
    try:
        yield made
    finally:
        made.close()


def make_room(connections: int) -> None:
    """Lets this process, and brokers it starts from now on, hold so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise MemberFailedError(f"{needed} open files are needed and {hard} allowed: raise `ulimit -Hn`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

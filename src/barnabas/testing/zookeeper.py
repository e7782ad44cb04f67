"""A ZooKeeper in memory for simulations: sessions, nodes that end with them, one-shot watches, multis, versions.

Each broker gets a `FakeSession`, an adapter of `barnabas.cluster.zookeeper.client`, below the same `ZooKeeperStore`
that runs over the real one; tests/cluster/test_zookeeper_client.py runs one script against both. No threads, no
sockets, no time: the same calls give the same run. Callbacks are given to `schedule` in order; without one they come as
soon as the call that caused them ends. A session can be cut off (`cut`, `heal`), can end (`expire`), and can lose the
answer to its next change (`lose_next_answer`).
"""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from barnabas.cluster.zookeeper.client import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NotConnected,
    Reason,
    RefusedByZooKeeper,
    SessionState,
    SetData,
    ZkOperation,
)

Work: TypeAlias = Callable[[], None]


@dataclass(slots=True)
class _Entry:
    """Mutable: one node of the tree."""

    node: Node
    children: set[str] = field(default_factory=set)
    next_number: int = 0


class FakeZooKeeper:
    """Mutable: the tree that all sessions see."""

    def __init__(
        self, schedule: Callable[[Work], None] | None = None, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self.zxid = 0
        self._now_ms = now_ms
        self._tree: dict[str, _Entry] = {"/": _Entry(Node(b"", 0, 0, 0, 0))}
        self._numbers = count(1)
        self._sessions: list[FakeSession] = []
        self._schedule = schedule
        self._waiting: deque[Work] = deque()
        self._untold: list[tuple[str, bool]] = []
        self._is_delivering = False
        self.on_write: Callable[[Sequence[ZkOperation]], None] = lambda operations: None
        """Called with what was done in one step: a test may judge it."""

    def open(self, name: str = "fake") -> "FakeSession":
        """A client for one broker."""
        session = FakeSession(self, name)
        self.join(session)
        return session

    def join(self, session: "FakeSession") -> None:
        """Let a session hear of changes."""
        self._sessions.append(session)

    def paths(self) -> list[str]:
        return sorted(self._tree)

    # What sessions ask

    def begin_session(self) -> int:
        self.zxid += 1
        return next(self._numbers)

    def end_session(self, session: int) -> None:
        """Take away the nodes that end with a session."""
        self.zxid += 1
        for path in [path for path, entry in self._tree.items() if session and entry.node.session == session]:
            self._apply(Delete(path), 0)
        self._tell()
        self.deliver()

    def find(self, path: str) -> Node | None:
        entry = self._tree.get(path)
        return None if entry is None else entry.node

    def names_below(self, path: str) -> list[str] | None:
        entry = self._tree.get(path)
        return None if entry is None else sorted(entry.children)

    def apply(self, operations: Sequence[ZkOperation], session: int) -> list[str]:
        """Do all of them, or none."""
        before = {
            path: _Entry(e.node, set(e.children), e.next_number) for path, e in self._touched(operations)
        }
        made: list[str] = []
        added: list[str] = []
        self.zxid += 1
        for index, operation in enumerate(operations):
            reason = self._refusal(operation)
            if reason is not None:
                self._undo(before, added)
                self._untold.clear()
                raise RefusedByZooKeeper(reason, operation.path, index)
            path = self._apply(operation, session)
            if isinstance(operation, Create):
                made.append(path)
                added.append(path)
        self.on_write(operations)
        self._tell()
        return made

    def _touched(self, operations: Sequence[ZkOperation]) -> list[tuple[str, _Entry]]:
        paths = {path for operation in operations for path in (operation.path, _parent(operation.path))}
        return [(path, self._tree[path]) for path in sorted(paths) if path in self._tree]

    def _undo(self, before: dict[str, _Entry], added: list[str]) -> None:
        for path in added:
            self._tree.pop(path, None)
        self._tree.update(before)

    def _refusal(self, operation: ZkOperation) -> Reason | None:
        entry = self._tree.get(operation.path)
        if isinstance(operation, Create):
            if operation.is_sequential:
                return None if _parent(operation.path) in self._tree else Reason.NO_NODE
            if entry is not None:
                return Reason.NODE_EXISTS
            return None if _parent(operation.path) in self._tree else Reason.NO_NODE
        if entry is None:
            return Reason.NO_NODE
        if operation.version not in (ANY_VERSION, entry.node.version):
            return Reason.BAD_VERSION
        return Reason.NOT_EMPTY if isinstance(operation, Delete) and entry.children else None

    def _apply(self, operation: ZkOperation, session: int) -> str:
        path = operation.path
        match operation:
            case Create(_, data, is_ephemeral, is_sequential):
                above = self._tree[_parent(path)]
                if is_sequential:
                    path = f"{path}{above.next_number:010}"
                above.next_number += 1
                above.children.add(_name(path))
                owner = session if is_ephemeral else 0
                self._tree[path] = _Entry(Node(data, 0, self.zxid, owner, self._now_ms()))
                self._untold += [(path, False), (_parent(path), True)]
            case SetData(_, data, _):
                entry = self._tree[path]
                entry.node = entry.node._replace(data=data, version=entry.node.version + 1)
                self._untold.append((path, False))
            case Delete():
                del self._tree[path]
                self._tree[_parent(path)].children.discard(_name(path))
                self._untold += [(path, False), (path, True), (_parent(path), True)]
            case Check():
                pass
        return path

    # Watches

    def _tell(self) -> None:
        """Let the watches of what has changed go off."""
        for path, is_of_children in self._untold:
            for session in self._sessions:
                session.changed(path, is_of_children)
        self._untold.clear()

    def enqueue(self, work: Work) -> None:
        self._waiting.append(work)

    def deliver(self) -> None:
        """Let callbacks come: at once, or when the schedule says."""
        if self._schedule is not None:
            while self._waiting:
                self._schedule(self._waiting.popleft())
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._is_delivering = False


class FakeSession:
    """Mutable: an adapter of `cluster.zookeeper.client` over a `FakeZooKeeper`."""

    def __init__(self, ensemble: FakeZooKeeper, name: str) -> None:
        self.name = name
        self.session = 0
        self.zxid = 0
        self.is_connected = False
        self._ensemble = ensemble
        self._is_closed = False
        self._is_expired = False
        self._loses_answer = False
        self._watched: set[str] = set()
        self._watched_children: set[str] = set()
        self._on_state: Callable[[SessionState], None] = lambda state: None
        self._on_change: Callable[[str], None] = lambda path: None

    def start(self, on_state: Callable[[SessionState], None], on_change: Callable[[str], None]) -> None:
        self._on_state, self._on_change = on_state, on_change
        self.session = self._ensemble.begin_session()
        self.is_connected = True

    def make_root(self) -> None:
        """The root is there from the beginning."""

    def read(self, paths: Sequence[str], *, watched: bool = False) -> list[Node | None]:
        self._ask()
        if watched:
            self._watched.update(paths)
        return [self._ensemble.find(path) for path in paths]

    def children(self, path: str, *, watched: bool = False) -> list[str] | None:
        self._ask()
        names = self._ensemble.names_below(path)
        if watched and names is not None:
            self._watched_children.add(path)
        return names

    def multi(self, operations: Sequence[ZkOperation]) -> list[str]:
        self._ask()
        made = self._ensemble.apply(operations, self.session)
        if self._loses_answer:
            self._loses_answer = False
            self.cut()
            self.heal()
            raise ConnectionLost(f"The connection to ZooKeeper at {self.name} was lost.")
        self._ask()
        self._ensemble.deliver()
        return made

    def wait_gone(self, path: str, seconds: float) -> bool:
        """Nothing changes while a single thread waits."""
        return self.read([path]) == [None]

    def wait_connected(self, seconds: float) -> bool:
        return self.is_connected

    def dispatch(self, work: Work) -> None:
        self._ensemble.enqueue(lambda: None if self._is_closed else work())
        self._ensemble.deliver()

    def close(self) -> None:
        self._is_closed = True
        self.is_connected = False
        self._forget_watches()
        self._ensemble.end_session(self.session)

    # What a network and a quorum do to a session

    def cut(self) -> None:
        """Lose the connection; the session goes on until it expires."""
        if self.is_connected:
            self.is_connected = False
            self._forget_watches()
            self._on_state(SessionState.DISCONNECTED)
            self._ensemble.deliver()

    def heal(self) -> None:
        """Connect again: in the same session, or in a new one after `expire`."""
        if self.is_connected or self._is_closed:
            return
        if self._is_expired:
            self._is_expired = False
            self._on_state(SessionState.EXPIRED)
            self.session = self._ensemble.begin_session()
        self.is_connected = True
        self._on_state(SessionState.CONNECTED)
        self._ensemble.deliver()

    def expire(self) -> None:
        """End the session. A client that is cut off hears of that when it heals; any other begins anew at once."""
        was_connected = self.is_connected
        self.cut()
        self._is_expired = True
        self._ensemble.end_session(self.session)
        if was_connected:
            self.heal()

    def lose_next_answer(self) -> None:
        """Let the next multi be done and its answer be lost, with the connection."""
        self._loses_answer = True

    def changed(self, path: str, is_of_children: bool) -> None:
        watched = self._watched_children if is_of_children else self._watched
        if path in watched:
            watched.discard(path)
            self._notify(path)

    def _notify(self, path: str) -> None:
        session = self.session

        def tell() -> None:
            # What a lost connection has on its way is lost with it.
            if self.is_connected and self.session == session:
                self._on_change(path)

        self._ensemble.enqueue(tell)

    def _forget_watches(self) -> None:
        self._watched.clear()
        self._watched_children.clear()

    def _ask(self) -> None:
        if not self.is_connected:
            raise NotConnected(errno.ENOTCONN, f"no connection to ZooKeeper at {self.name}")
        self.zxid = self._ensemble.zxid


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]

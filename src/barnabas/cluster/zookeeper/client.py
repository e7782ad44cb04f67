"""The part of ZooKeeper that a store needs, as a port: nodes, multis, one-shot watches, a session. PURE.

`store` drives one. Adapters: `kazoo_client` (a real ZooKeeper) and `barnabas.testing.zookeeper`
(for simulations); tests/cluster/test_zookeeper_client.py holds both to what is said here.

- Calls block, and may come from any thread. While there is no connection they are refused at once (`NotConnected`) and
  never wait for one. A call whose answer is lost is `ConnectionLost`: a change may have been made or not.
- `on_change` hears of a path once after each look at it with `watched`: when its data or its existence changes, or
  after `children` that of its children. A lost connection ends all watches without a word: `on_state` tells of it.
- Callbacks come one at a time, in order. `on_state` may come from a thread that must not block.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.errors import BarnabasError

ANY_VERSION = -1


class Node(NamedTuple):
    """What lies at a path, and ZooKeeper's notes on it."""

    data: bytes
    version: int
    """Counts the changes of the data."""
    created: int
    """The number of the change that made it (czxid): larger than those of all changes before."""
    session: int
    """The session with which it ends; 0 for a node that stays."""
    created_ms: int
    """When it was made, by ZooKeeper's clock."""


class Create(NamedTuple):
    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuse the whole multi unless a node has this version."""

    path: str
    version: int


ZkOperation: TypeAlias = Create | SetData | Delete | Check


class SessionState(Enum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    """The session may go on, or end without a word before there is a connection again."""
    EXPIRED = "expired"
    """The session is over, and all nodes that ended with it are gone. A new one begins with the next CONNECTED."""


class Reason(Enum):
    """Why ZooKeeper refuses an operation."""

    NO_NODE = "there is no such node"
    NODE_EXISTS = "the node is there already"
    BAD_VERSION = "the node has another version"
    NOT_EMPTY = "the node has children"
    OTHER = "ZooKeeper refuses it"


class RefusedByZooKeeper(BarnabasError):
    """Nothing has changed: this operation was refused, and all others of its multi with it."""

    def __init__(self, reason: Reason, path: str, index: int = 0, more: str = "") -> None:
        super().__init__(f"{path}: {more or reason.value}")
        self.reason = reason
        self.path = path
        self.index = index


class NotConnected(OSError):
    """There is no connection, and nothing was sent."""


class ConnectionLost(BarnabasError):
    """The connection was lost before the answer: a change may have been made or not."""


class ZooKeeperClient(Protocol):
    """A session with ZooKeeper."""

    @property
    def name(self) -> str:
        """The addresses, for messages."""

    @property
    def session(self) -> int:
        """The number of the session; 0 before the first."""

    @property
    def zxid(self) -> int:
        """The number of the newest change that answers have told of."""

    @property
    def is_connected(self) -> bool: ...

    def start(self, on_state: Callable[[SessionState], None], on_change: Callable[[str], None]) -> None:
        """Connect; a sentence (BarnabasError) where that does not work in bounded time."""

    def make_root(self) -> None:
        """Make the node that all paths are below, where that is not ZooKeeper's own root, with its parents."""

    def read(self, paths: Sequence[str], *, watched: bool = False) -> list[Node | None]:
        """The nodes at these paths; None where there is none."""

    def children(self, path: str, *, watched: bool = False) -> list[str] | None:
        """The names of the nodes below a path, sorted; None where there is no such node."""

    def multi(self, operations: Sequence[ZkOperation]) -> list[str]:
        """Do all of these or none (RefusedByZooKeeper); the paths of the nodes that were created."""

    def wait_gone(self, path: str, seconds: float) -> bool:
        """Wait until there is no node at a path; False where there still is one. Not from a callback."""

    def wait_connected(self, seconds: float) -> bool:
        """Wait for a connection; False where there is none."""

    def dispatch(self, work: Callable[[], None]) -> None:
        """Do this in the thread of the callbacks, after those that wait already."""

    def close(self) -> None:
        """End the session and all nodes that end with it; nothing is heard any more."""

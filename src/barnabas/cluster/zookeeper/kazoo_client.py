"""Owns the connection to a real ZooKeeper, through kazoo. An adapter of `client`; made by `open_store`.

Of kazoo only connections, requests and watches are used. It queues calls while it has no connection: here they are
refused. It waits longer and longer between attempts to connect: here half a second at most. Its warnings go to our log
as details. Reading many nodes is one request (multiRead of ZooKeeper 3.6), which kazoo does not have.

Measured on 2 cores: a session is there after 15 ms; 1,500 nodes are read in 10 ms (one by one, pipelined, 170 to 320);
1,500 are written as two multis in 20 to 30 ms. kazoo is imported with this module, which takes 20 to 60 ms.
"""

import errno
import logging
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import (
    MultiHeader,
    ZnodeStat,
    multiheader_struct,
    read_buffer,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState

from barnabas.cluster.zookeeper.client import (
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
from barnabas.errors import BarnabasError

READ_AT_ONCE = 2000
RETRY_S = 0.5
_PROBE_S = 1.0

log = logging.getLogger("barnabas.zookeeper")
_details = logging.getLogger("barnabas.zookeeper.kazoo")
_details.setLevel(logging.ERROR)

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.DISCONNECTED,
    KazooState.LOST: SessionState.EXPIRED,
}
_REASONS = {
    exceptions.NoNodeError: Reason.NO_NODE,
    exceptions.NodeExistsError: Reason.NODE_EXISTS,
    exceptions.BadVersionError: Reason.BAD_VERSION,
    exceptions.NotEmptyError: Reason.NOT_EMPTY,
}
_LOST = (
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,
    exceptions.ConnectionClosedError,
    exceptions.OperationTimeoutError,
    KazooTimeoutError,
)


class KazooZooKeeper:
    """A session with the ZooKeeper at `connect` (h1:p,h2:p/chroot)."""

    def __init__(self, connect: str, session_timeout_ms: int, connection_timeout_ms: int) -> None:
        self.name = connect
        self._chroot = ""
        self._has_begun = False
        self._session_timeout_s = session_timeout_ms / 1000
        self._connection_timeout_s = connection_timeout_ms / 1000
        try:
            hosts, chroot = collect_hosts(connect)
            self._chroot = "/" + chroot.strip("/") if chroot and chroot.strip("/") else ""
            self._client: Any = KazooClient(
                ",".join(f"{host}:{port}" for host, port in hosts),
                timeout=self._session_timeout_s,
                logger=_details,
                connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": RETRY_S},
            )
        except (exceptions.ConfigurationError, ValueError) as error:
            raise BarnabasError(
                f"zookeeper.connect is {connect!r}, and has to be like host1:2181,host2:2181/chroot: {error}."
            ) from None
        self._on_change: Callable[[str], None] = lambda path: None
        self._is_closed = False

    @property
    def session(self) -> int:
        return int(self._client._session_id or 0)

    @property
    def zxid(self) -> int:
        return int(self._client.last_zxid)

    @property
    def is_connected(self) -> bool:
        return bool(self._client.connected)

    def start(self, on_state: Callable[[SessionState], None], on_change: Callable[[str], None]) -> None:
        def tell(state: Any) -> None:
            if self._has_begun and not self._is_closed:
                on_state(_STATES[state])
                if self._client.client_state == KeeperState.CLOSED:
                    # kazoo gives up for good on an error that it does not know.
                    threading.Timer(RETRY_S, self._restart).start()

        self._on_change = on_change
        self._client.add_listener(tell)
        if not self._client.start_async().wait(self._connection_timeout_s):
            self.close()
            raise BarnabasError(_why_not(self._client.hosts, self.name, self._connection_timeout_s))
        self._has_begun = True
        if not self.is_connected:
            on_state(SessionState.DISCONNECTED)

    def _restart(self) -> None:
        if not self._is_closed:
            log.error("the connection to ZooKeeper at %s begins anew after an unknown error", self.name)
            self._client.start_async()

    def make_root(self) -> None:
        if self._chroot:
            self._answer(self._sent(self._client.ensure_path_async, self._chroot))

    def read(self, paths: Sequence[str], *, watched: bool = False) -> list[Node | None]:
        if watched:
            return self._read_watched(paths)
        if len(paths) == 1:
            return [self._node(self._answer(self._sent(self._client.get_async, self._full(paths[0]))))]
        found: list[Node | None] = []
        for start in range(0, len(paths), READ_AT_ONCE):
            found += self._read_many(paths[start : start + READ_AT_ONCE])
        return found

    def children(self, path: str, *, watched: bool = False) -> list[str] | None:
        watch = self._watch if watched else None
        names = self._answer(self._sent(self._client.get_children_async, self._full(path), watch))
        return None if names is None else sorted(names)

    def multi(self, operations: Sequence[ZkOperation]) -> list[str]:
        request = self._client.transaction()
        full = self._full
        for operation in operations:
            match operation:
                case Create(path, data, is_ephemeral, is_sequential):
                    request.create(full(path), data, ephemeral=is_ephemeral, sequence=is_sequential)
                case SetData(path, data, version):
                    request.set_data(full(path), data, version)
                case Delete(path, version):
                    request.delete(full(path), version)
                case Check(path, version):
                    request.check(full(path), version)
        results = self._answer(self._sent(request.commit_async))
        for index, result in enumerate(results):
            # The one that was refused, or one that was rolled back because of it: those have other errors.
            if isinstance(result, exceptions.ZookeeperError) and not isinstance(result, _ROLLED_BACK):
                raise _refusal(result, operations[index].path, index)
        return [result.removeprefix(self._chroot) for result in results if isinstance(result, str)]

    def wait_gone(self, path: str, seconds: float) -> bool:
        gone = threading.Event()
        stat = self._answer(self._sent(self._client.exists_async, self._full(path), lambda event: gone.set()))
        return stat is None or (gone.wait(seconds) and self.read([path]) == [None])

    def wait_connected(self, seconds: float) -> bool:
        return bool(self._client._live.wait(seconds))

    def dispatch(self, work: Callable[[], None]) -> None:
        if not self._is_closed:
            self._client.handler.dispatch_callback(Callback("watch", work, ()))

    def close(self) -> None:
        self._is_closed = True
        with suppress(Exception):
            self._client.stop()
            self._client.close()

    def _watch(self, event: Any) -> None:
        # kazoo also calls with NONE when a connection is lost: the watch is over then, and on_state says so.
        if event.type != EventType.NONE and not self._is_closed:
            self._on_change(event.path.removeprefix(self._chroot) or "/")

    def _read_watched(self, paths: Sequence[str]) -> list[Node | None]:
        get, exists, watch = self._client.get_async, self._client.exists_async, self._watch
        full = [self._full(path) for path in paths]
        # Not as one request: in a multiRead ZooKeeper passes over watches.
        asked = [self._sent(get, path, watch) for path in full]
        found = [self._node(self._answer(one)) for one in asked]
        for index, path in enumerate(full):
            # A look at a node that is not there leaves no watch behind, a question whether it is does.
            while found[index] is None and self._answer(self._sent(exists, path, watch)):
                found[index] = self._node(self._answer(self._sent(get, path, watch)))
        return found

    def _read_many(self, paths: Sequence[str]) -> list[Node | None]:
        if not paths:
            return []
        result = self._client.handler.async_result()
        full = [self._full(path) for path in paths]
        request = _MultiRead(full)
        try:
            found = self._answer(self._sent(lambda: self._client._call(request, result) or result))
        except RefusedByZooKeeper:
            # A ZooKeeper older than 3.6.
            asked = [self._sent(self._client.get_async, path) for path in full]
            found = [self._answer(one) for one in asked]
        return [self._node(one) for one in found]

    def _full(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _sent(self, call: Callable[..., Any], *arguments: Any) -> Any:
        if not self.is_connected:
            raise NotConnected(errno.ENOTCONN, f"no connection to ZooKeeper at {self.name}")
        return call(*arguments)

    def _answer(self, result: Any) -> Any:
        """What was answered; None for a node that is not there."""
        try:
            return result.get(timeout=self._session_timeout_s)
        except exceptions.NoNodeError:
            return None
        except _LOST:
            raise ConnectionLost(f"The connection to ZooKeeper at {self.name} was lost.") from None
        except exceptions.ZookeeperError as error:
            raise _refusal(error, self.name, 0) from None

    def _node(self, answer: tuple[bytes, ZnodeStat] | None) -> Node | None:
        if answer is None:
            return None
        data, stat = answer
        return Node(data or b"", stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime)


_ROLLED_BACK = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)


class _MultiRead:
    """Many getData in one request: opcode 22."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytearray:
        body = bytearray()
        header = MultiHeader(_GET_DATA, False, -1).serialize()
        for path in self._paths:
            body += header + write_string(path) + b"\0"
        body += multiheader_struct.pack(-1, True, -1)
        return body

    @classmethod
    def deserialize(cls, body: bytes, offset: int) -> list[tuple[bytes, ZnodeStat] | None]:
        found: list[tuple[bytes, ZnodeStat] | None] = []
        while True:
            header, offset = MultiHeader.deserialize(body, offset)
            if header.done:
                return found
            if header.type != _GET_DATA:
                offset += _ERROR.size
                found.append(None)
                continue
            data, offset = read_buffer(body, offset)
            found.append((data, ZnodeStat._make(stat_struct.unpack_from(body, offset))))
            offset += stat_struct.size


_GET_DATA = 4
_ERROR = struct.Struct("!i")


def _refusal(error: Exception, path: str, index: int) -> RefusedByZooKeeper:
    reason = _REASONS.get(type(error), Reason.OTHER)
    more = "" if reason is not Reason.OTHER else type(error).__name__
    return RefusedByZooKeeper(reason, path, index, more)


def _why_not(hosts: Sequence[tuple[str, int]], name: str, seconds: float) -> str:
    """Why no session began, in a sentence: each server is asked how it is."""
    answers = [_asked(host, port) for host, port in hosts]
    if any("Mode: read-only" in answer for answer in answers):
        return f"ZooKeeper at {name} is read-only: most of its servers cannot be reached. Start them first."
    if any("not currently serving" in answer for answer in answers):
        return f"ZooKeeper at {name} does not serve: most of its servers cannot be reached. Start them first."
    if any(answers):
        return f"ZooKeeper at {name} is there, and began no session within {seconds:g} s."
    return (
        f"ZooKeeper at {name} does not answer: no session within {seconds:g} s. Is it running, and is "
        "zookeeper.connect right?"
    )


def _asked(host: str, port: int) -> str:
    with suppress(OSError), socket.create_connection((host, port), timeout=_PROBE_S) as connection:
        connection.settimeout(_PROBE_S)
        connection.sendall(b"srvr")
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    return ""

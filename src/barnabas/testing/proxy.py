"""A TCP proxy before a broker: what a network does to its connections, on command.

A broker whose `advertised.listeners` is a proxy is reached through it alone, by clients and by other brokers.

    with Proxy(broker_port) as proxy:
        proxy.cut()                        # nothing passes, nothing is lost: as a cable that was pulled
        proxy.heal()                       # what was held goes on

Owns the connections that go through it, in a thread of its own. Called by `testing.Cluster` and by tests. The proxy's
door is open exactly while the broker's is: a killed broker resets connections and then refuses them, as without one.
"""

import asyncio
import enum
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.errors import BarnabasError

Clients = Callable[[], Collection[int]]
"""The ids of processes, asked anew for each chunk: a broker that was started again has another."""

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
_CHUNK = 256 << 10
_LOOK_S = 0.02
"""How often a door that is shut looks whether the broker listens again."""
_START_S = 10.0


class Way(enum.Enum):
    TO_BROKER = "to the broker"
    FROM_BROKER = "from the broker"

    @property
    def opposite(self) -> "Way":
        return Way.FROM_BROKER if self is Way.TO_BROKER else Way.TO_BROKER


BOTH_WAYS = frozenset(Way)


@dataclass(frozen=True, slots=True)
class Cut:
    """What does not pass: these ways, of the connections that these processes opened (None: of all)."""

    ways: frozenset[Way]
    clients: Clients | None


class _Connection:
    """Mutable: one client's connection, and the proxy's to the broker once it was dialled."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.broker: socket.socket | None = None
        self.task: asyncio.Task[None] | None = None
        self.has_left = False
        """The client has ended it."""
        self._inode: str | None = None

    def is_of(self, pids: Collection[int]) -> bool:
        if self._inode is None:
            with suppress(OSError):
                self._inode = inode_of(self.client.getpeername(), self.client.getsockname())
        return self._inode is not None and any(holds(pid, self._inode) for pid in pids)

    def close(self, *, reset: bool) -> None:
        for side in (self.client, self.broker):
            if side is None:
                continue
            if reset:
                with suppress(OSError):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.close()


class Proxy:
    """Forwards connections at `address` to a broker on this machine until it is told to do otherwise.

    The port is taken when the proxy is made, so that settings can name it before anything runs.
    """

    def __init__(self, broker_port: int, *, port: int = 0) -> None:
        self._broker = (LOOPBACK, broker_port)
        self._keeper = _bound(port)
        self.port: int = self._keeper.getsockname()[1]
        self.address = f"{LOOPBACK}:{self.port}"
        self._cuts: list[Cut] = []
        self._delay_s = 0.0
        self._refuses = False
        self._connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._shut = asyncio.Event()
        """The door is."""
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        if not self._started.wait(_START_S):
            raise BarnabasError(f"The proxy at {self.address} did not start within {_START_S:g} s.")
        return self

    def stop(self) -> None:
        """Reset all connections and give the port back."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._keeper.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What a network does

    def cut(self, ways: Collection[Way] = BOTH_WAYS, *, clients: Clients | None = None) -> None:
        """Let nothing pass, these ways, until it heals: no byte, no end of a connection, no new connection.

        Nothing is lost either: what was held goes on at `heal`, as TCP sends again what a network swallowed.
        """

        def cut() -> None:
            self._cuts.append(Cut(frozenset(ways), clients))

        self._change(cut)

    def delay(self, seconds: float) -> None:
        """Hold every chunk for this long, up to 256 KiB at a time, both ways."""

        def slow_down() -> None:
            self._delay_s = seconds

        self._change(slow_down)

    def reset(self) -> None:
        """End all connections that there are at once, as a crash does; new ones are welcome."""
        self._change(self._reset)

    def refuse(self) -> None:
        """Reset all connections and refuse new ones: a broker that lives looks dead."""

        def shut() -> None:
            self._refuses = True
            self._shut_door()
            self._reset()

        self._change(shut)

    def heal(self) -> None:
        """Forward everything at once again."""

        def restore() -> None:
            self._cuts.clear()
            self._delay_s = 0.0
            self._refuses = False

        self._change(restore)

    # The thread

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        door = asyncio.create_task(self._keep_door())
        self._started.set()
        await self._stopping.wait()
        door.cancel()
        self._shut_door()
        self._reset()
        left = [door, *(each.task for each in self._connections if each.task is not None)]
        await asyncio.gather(*left, return_exceptions=True)

    def _change(self, act: Callable[[], None]) -> None:
        """Act in the proxy's thread, and wake what waits for a change; returns when it is done."""
        if self._loop is None or not self._thread.is_alive():
            raise BarnabasError(f"The proxy at {self.address} does not run.")

        async def change() -> None:
            act()
            self._changed.set()
            self._changed = asyncio.Event()

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(_START_S)

    def _reset(self) -> None:
        for connection in self._connections:
            if connection.task is not None:
                connection.task.cancel()

    # The door

    async def _keep_door(self) -> None:
        """Listen while the broker does."""
        while True:
            if self._refuses:
                await self._changed.wait()
            elif not await self._broker_listens():
                await asyncio.sleep(_LOOK_S)
            else:
                self._open_door()
                await self._shut.wait()

    def _open_door(self) -> None:
        self._listener = _bound(self.port)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._shut.clear()
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _shut_door(self) -> None:
        """The next connection is refused."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self._shut.set()

    async def _broker_listens(self) -> bool:
        probe = await self._dial()
        if probe is None:
            return False
        probe.close()
        return True

    async def _dial(self) -> socket.socket | None:
        broker = _socket()
        try:
            await asyncio.get_running_loop().sock_connect(broker, self._broker)
        except BaseException as error:
            broker.close()
            if isinstance(error, OSError):
                return None
            raise
        return broker

    def _accept(self) -> None:
        """A client is at the door."""
        if self._listener is None:
            return
        with suppress(BlockingIOError, ConnectionError):
            client, _ = self._listener.accept()
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(client)
            connection.task = asyncio.create_task(self._forward(connection))
            self._connections.add(connection)

    # One connection

    async def _forward(self, connection: _Connection) -> None:
        """Both ways until both have ended; anything else is a reset for both."""
        reset = True
        try:
            for way in Way:
                await self._pass(connection, way)
            broker = connection.broker = await self._dial()
            if broker is None:
                self._shut_door()
                return
            client = connection.client
            await _all(
                self._pump(connection, Way.TO_BROKER, client, broker),
                self._pump(connection, Way.FROM_BROKER, broker, client),
            )
            reset = False
        except OSError:
            pass
        finally:
            connection.close(reset=reset)
            self._connections.discard(connection)

    async def _pump(
        self, connection: _Connection, way: Way, source: socket.socket, sink: socket.socket
    ) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await self._end_of(connection, way, loop.sock_recv(source, _CHUNK)):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await self._pass(connection, way)
            await self._end_of(connection, way.opposite, loop.sock_sendall(sink, chunk))
        await self._end(connection, way)
        sink.shutdown(socket.SHUT_WR)

    async def _end_of(self, connection: _Connection, way: Way, act: Awaitable[T]) -> T:
        """What an act gives; the news that it failed travels this way, and is cut as all else is."""
        try:
            return await act
        except OSError:
            await self._end(connection, way)
            raise

    async def _end(self, connection: _Connection, way: Way) -> None:
        """One side has ended: a broker that died must be found with its door shut by the next connection."""
        if way is Way.TO_BROKER:
            connection.has_left = True
        elif not connection.has_left and not await self._broker_listens():
            self._shut_door()
        await self._pass(connection, way)

    async def _pass(self, connection: _Connection, way: Way) -> None:
        """Wait until nothing is cut this way."""
        while any(self._holds_back(cut, connection, way) for cut in self._cuts):
            await self._changed.wait()

    def _holds_back(self, cut: Cut, connection: _Connection, way: Way) -> bool:
        return way in cut.ways and (cut.clients is None or connection.is_of(cut.clients()))


async def _all(*pumps: Coroutine[Any, Any, None]) -> None:
    """Run them together; the first error ends all and is raised."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _socket() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _bound(port: int) -> socket.socket:
    """A socket that has the port. One that never listens keeps it: a listener that reuses addresses may come and go."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((LOOPBACK, port))
    return made


def inode_of(local: tuple[str, int], remote: tuple[str, int]) -> str | None:
    """The kernel's number of the socket at this end of a connection, where the system tells of it."""
    ends = _hex(local), _hex(remote)
    with suppress(OSError):
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = row.split()
            if (fields[1], fields[2]) == ends:
                return fields[9]
    return None


def holds(pid: int, inode: str) -> bool:
    """Whether a process has this socket open."""
    wanted = f"socket:[{inode}]"
    try:
        return any(_points_to(link, wanted) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _points_to(link: Path, wanted: str) -> bool:
    try:
        return str(link.readlink()) == wanted
    except OSError:
        return False


def _hex(end: tuple[str, int]) -> str:
    """An address as /proc/net/tcp writes it."""
    return f"{int.from_bytes(socket.inet_aton(end[0]), 'little'):08X}:{end[1]:04X}"

"""Owns servers that misbehave: one that plays a script, a proxy that loses answers, and one that cuts and stalls."""

import random
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class ScriptedServer:
    """Gives every connection to a function, in a thread of its own, and hangs up when that returns."""

    def __init__(self, script: Callable[[socket.socket], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._script(connection)
            except OSError:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(10)


class LossyProxy(ScriptedServer):
    """Passes everything on to a broker, until it is told to lose the next answer and hang up."""

    def __init__(self) -> None:
        self.target = 0
        self.lose_next = threading.Event()
        self.lost = 0
        self._lock = threading.Lock()
        super().__init__(self._pass_on)

    def _loses_this(self) -> bool:
        with self._lock:
            told = self.lose_next.is_set()
            self.lost += told
            self.lose_next.clear()
            return told

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.target)) as broker:
            forward = threading.Thread(target=_pump, args=(client, broker))
            forward.start()
            try:
                while data := broker.recv(1 << 16):
                    if self._loses_this():
                        return
                    client.sendall(data)
            finally:
                for end in (client, broker):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        continue
                forward.join(10)


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


class FaultyProxy(ScriptedServer):
    """Passes everything on to a broker, and does that badly when told to: cuts, stalls, or passes on drop by drop.

    A cut comes in the middle of what is passed on, in either direction, after as many bytes as the seed says.
    """

    def __init__(self, seed: int = 1) -> None:
        self.target = 0
        self.cuts = 0
        self._chance = random.Random(seed)
        self._cut_about: int | None = None
        self._left = 0
        self._drop: tuple[int, float] | None = None
        self._flowing = threading.Event()
        self._flowing.set()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        super().__init__(self._pass_on)

    def cut_about_every(self, size: int | None) -> None:
        """From now on cut a connection after about this many bytes; None: no more."""
        with self._lock:
            self._cut_about = size
            self._left = self._chance.randrange(1, 2 * size) if size else 0

    def stall(self) -> None:
        """Take everything, pass nothing on, hang up on no client."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    def trickle(self, size: int, pause: float) -> None:
        """Pass on this many bytes at a time, with a pause between them."""
        self._drop = (size, pause)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._flowing.set()
        super().__exit__(kind, error, trace)

    def _pass_on(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            return
        with broker:
            forward = threading.Thread(target=self._flow, args=(client, broker))
            forward.start()
            self._flow(broker, client)
            forward.join(10)

    def _flow(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self._flowing.wait()
                whole = self._until_cut(data)
                self._send(target, data[:whole])
                if whole < len(data):
                    break
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _until_cut(self, data: bytes) -> int:
        """How much of the data still goes through."""
        with self._lock:
            if self._cut_about is None:
                return len(data)
            self._left -= len(data)
            if self._left > 0:
                return len(data)
            self.cuts += 1
            whole = max(0, len(data) + self._left - 1)
            self._left = self._chance.randrange(1, 2 * self._cut_about)
            return whole

    def _send(self, target: socket.socket, data: bytes) -> None:
        if self._drop is None:
            target.sendall(data)
            return
        size, pause = self._drop
        for at in range(0, len(data), size):
            target.sendall(data[at : at + size])
            self._ended.wait(pause)

"""Owns servers that misbehave: one that plays a script, and a proxy that loses answers."""

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
        super().__init__(self._pass_on)

    def _pass_on(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self.target)) as broker:
            forward = threading.Thread(target=_pump, args=(client, broker))
            forward.start()
            try:
                while data := broker.recv(1 << 16):
                    if self.lose_next.is_set():
                        self.lose_next.clear()
                        self.lost += 1
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

"""One client's socket: whole frames in, answers out, in the order they were asked for.

Owned by `server`. One request is under way at a time, as in Kafka; a client that does not read its answers
is not read from either. Raw sockets instead of uvloop's transports: only they can `sendfile`, which halves the
CPU of a fetch, and for small requests they are as fast.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.network.log_limiter import LogLimiter
from barnabas.broker.network.rounds import Rounds
from barnabas.disk import FileSlice
from barnabas.wire.codec import Malformed
from barnabas.wire.schema import Chunk

if TYPE_CHECKING:
    from barnabas.broker.network.promise import Promise
    from barnabas.broker.router import Later
    from barnabas.broker.shortcuts import Attempt

FIRST_BUFFER = 4096
KEPT_BUFFER = 4 << 20
"""A larger buffer is given back as soon as its frame is done; this much stays until the connection falls silent."""

LARGE_FRAME = 64 << 10
"""From here on a frame is read to its end and no further, so that the next one need not be moved."""

FLAT = 32 << 10
"""Up to here the records of an answer are read and sent in one piece with what surrounds them: one call and one packet
instead of three. That is 10 us less for a small fetch, and its reader wakes once; more are cheaper by `sendfile`."""

SLICE_BYTES = 4 << 20
"""The most that one connection sends, or is read from, before the others have their turn."""

log_limiter = LogLimiter()

_LENGTH = Struct(">i").unpack_from


class Answers(Protocol):
    """What a connection needs of the router."""

    def answer(self, frame: memoryview, peer: "Connection") -> "list[Chunk] | Later | None": ...


class Connection:
    """Reads, asks the router, writes; keeps the order and the limits."""

    __slots__ = (
        "_buffer",
        "_closed",
        "_end",
        "_fd",
        "_loop",
        "_max_request",
        "_on_close",
        "_out",
        "_pending",
        "_reading",
        "_rounds",
        "_router",
        "_sent",
        "_sock",
        "_start",
        "_view",
        "_writing",
        "active",
        "address",
        "bytes_in",
        "bytes_out",
        "is_broker",
        "on_more",
        "shortcuts",
    )

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        router: Answers,
        rounds: Rounds,
        max_request: int,
        on_close: "Callable[[Connection], None]",
    ) -> None:
        self.address = address
        self.active = True
        self.bytes_in = 0
        self.bytes_out = 0
        self.is_broker = False
        """Whether another broker is at the other end."""
        self.on_more: Callable[[], None] | None = None
        """Called when more comes while an answer is owed: a follower that asks again wants the first answer now."""
        self.shortcuts: dict[int, Attempt] = {}
        """The router's: attempts at frames that repeat earlier ones, by API key and version as one number."""
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()
        self._router = router
        self._rounds = rounds
        self._max_request = max_request
        self._on_close = on_close
        self._buffer = bytearray(FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._out: deque[Chunk] = deque()
        self._sent = 0
        self._pending: Later | None = None
        self._closed = False
        self._writing = False
        self._reading = True
        self._rounds.hear(self._fd, self._readable)

    @property
    def waits_for_us(self) -> bool:
        """Whether it has asked for something that is still to come. Half a request, and answers that it does not read,
        are for itself to go on with."""
        return self._pending is not None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._rounds.forget(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        if self._pending is not None:
            self._pending.waited_for.cancel()
        self._out.clear()
        self._on_close(self)

    def is_of_broker(self) -> None:
        """Another broker is at the other end."""
        self.is_broker = True
        self._rounds.is_broker(self._fd)

    def shrink(self) -> None:
        """Give the buffer back while nothing is in it."""
        if self._start == self._end and len(self._buffer) > FIRST_BUFFER:
            self._replace_buffer(FIRST_BUFFER)

    # Reading

    def _readable(self) -> None:
        start, end = self._start, self._end
        if start == end:
            self._start = end = 0
            into = self._view
        else:
            # Whole frames were served and lengths checked before, unless an answer is owed: then nothing grows.
            owed = self._pending is not None or bool(self._out)
            have = end - start
            room = len(self._buffer)
            wanted = 4 + _LENGTH(self._buffer, start)[0] if have >= 4 and not owed else FIRST_BUFFER
            if start + wanted > room and not owed:
                self._make_room(wanted)
                start, end, room = 0, have, len(self._buffer)
            if end == room:
                self._reading = False
                self._rounds.ignore(self._fd)
                return
            into = self._view[end : min(start + wanted, room) if wanted > LARGE_FRAME else room]
        count = 0
        try:
            count = more = self._sock.recv_into(into)
            while more and LARGE_FRAME <= count < min(len(into), SLICE_BYTES):
                # A large frame on its way: another round for each piece of it would cost a tenth of its time.
                more = self._sock.recv_into(into[count:])
                count += more
        except (BlockingIOError, InterruptedError):
            if not count:
                return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self.active = True
        self.bytes_in += count
        self._end = end + count
        if self._pending is None and not self._out:
            self._serve()
        elif self.on_more is not None:
            self.on_more()

    def _make_room(self, wanted: int) -> None:
        """Move what has come of a frame to the front, of a larger buffer if need be.

        The buffer grows with what has arrived, not with what was promised: a claimed length costs nothing.
        """
        have = self._end - self._start
        size = min(wanted, max(LARGE_FRAME, 4 * have))
        if size > len(self._buffer):
            self._replace_buffer(1 << (size - 1).bit_length())
        else:
            self._buffer[:have] = self._buffer[self._start : self._end]
            self._start, self._end = 0, have

    def _replace_buffer(self, size: int) -> None:
        have = self._end - self._start
        buffer = bytearray(size)
        buffer[:have] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._end = 0, have

    def _serve(self) -> None:
        """Answer the whole frames that are there, until one has to wait."""
        view, out = self._view, self._out
        try:
            while not out:
                start = self._start
                have = self._end - start
                if have < 4:
                    break
                size = _LENGTH(view, start)[0]
                if not 8 <= size <= self._max_request:
                    raise Malformed(f"a frame of {size} bytes")
                if have < 4 + size:
                    break
                self._start = start = start + 4 + size
                answer = self._router.answer(view[start - size : start], self)
                if answer is None:
                    if self._closed:
                        return
                elif isinstance(answer, list):
                    self._send(answer)
                else:
                    self._park(answer)
                    break
        except Malformed as error:
            self._refuse(error)
            return
        if len(self._buffer) > KEPT_BUFFER:
            self.shrink()

    def _refuse(self, error: Malformed) -> None:
        log_limiter.closed(self.address, f"it sent {error}")
        self.close()

    def _park(self, later: "Later") -> None:
        if self._closed:
            later.waited_for.cancel()
            return
        self._pending = later
        self._rounds.parked.add(self._fd)
        later.waited_for.add_done_callback(self._unpark)

    def _unpark(self, done: "asyncio.Future[Any] | Promise[Any]") -> None:
        later, self._pending = self._pending, None
        if self._closed or later is None:
            return
        try:
            if done.cancelled():
                raise Malformed("a request whose handler was cancelled")
            self._send(later.frame())
        except Malformed as error:
            self._refuse(error)
            return
        self._resume()

    # Writing

    def _send(self, answer: list[Chunk]) -> None:
        """Send at once what the socket takes, or when the round ends; what it does not take waits until it does."""
        if len(answer) > 1:
            if sum(c.size for c in answer if type(c) is FileSlice) > FLAT:
                self._out += answer
                self._flush()
                return
            try:
                answer = [b"".join([c.read() if type(c) is FileSlice else c for c in answer])]  # type: ignore[misc]
            except OSError:
                self.close()
                return
        self._out += answer
        if self._rounds.under_way:
            self._rounds.owing.append(self)
        else:
            self._send_one()

    def send_owed(self) -> None:
        """The round ends: send what is owed, and go on with what has come in meanwhile."""
        if self._out:
            self._send_one()
            if self._start != self._end:
                self._resume()

    def _send_one(self) -> None:
        """Send the one small answer there is: the usual case, one system call."""
        out = self._out
        chunk = out[0]
        try:
            count = self._sock.send(chunk)  # type: ignore[arg-type]
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError:
            self.close()
            return
        self.bytes_out += count
        if count == len(chunk):
            out.clear()
        else:
            self._sent = count
            self._flush()

    def _flush(self) -> None:
        out = self._out
        left = SLICE_BYTES
        try:
            while out and left > 0:
                chunk = out[0]
                if type(chunk) is FileSlice:
                    count = self._send_slice(chunk, left)
                else:
                    # More to come: let the kernel put the header and the file into one packet.
                    flags = socket.MSG_MORE if len(out) > 1 else 0
                    rest = memoryview(chunk)[self._sent :] if self._sent else chunk  # type: ignore[arg-type]
                    count = self._sock.send(rest, flags)  # type: ignore[arg-type]
                self.bytes_out += count
                self._sent += count
                self.active = True
                if self._sent == len(chunk):
                    out.popleft()
                    self._sent = 0
                left -= count
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()
            return
        if out and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    def _send_slice(self, chunk: FileSlice, most: int) -> int:
        wanted = chunk.size - self._sent
        count = os.sendfile(self._fd, chunk.file.fileno(), chunk.position + self._sent, min(wanted, most))
        if not count:
            raise OSError("the file ended before its slice")
        return count

    def _writable(self) -> None:
        self._flush()
        if self._out or self._closed:
            return
        self._writing = False
        self._loop.remove_writer(self._fd)
        self._resume()

    def _resume(self) -> None:
        """Go on with what has come in meanwhile."""
        if self._closed or self._out or self._pending is not None:
            return
        if self._start != self._end:
            self._serve()
        if not self._reading and not self._closed and self._pending is None and not self._out:
            self._reading = True
            self._rounds.hear(self._fd, self._readable)

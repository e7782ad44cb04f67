"""One non-blocking connection to one broker: connects, writes, reads, ends. The shell of a `wire.conversation`.

Owned by `network`, in whose thread everything here runs. Always holds: each request is told its outcome once;
answers come in the order of the requests; after any failure the connection is closed, so that an answer is
never taken for another request's.
"""

import errno
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias

from barnabas.client.network.failures import TimedOut, Unreachable
from barnabas.client.network.guarded import guarded
from barnabas.client.network.metadata import Address
from barnabas.client.network.poller import Poller
from barnabas.errors import Code, Refused
from barnabas.types import Buffer
from barnabas.wire.batch import BatchInTwo
from barnabas.wire.codec import Message
from barnabas.wire.conversation import Call, Conversation, Features, Nonsense

Endpoint: TypeAlias = tuple[int, Any]
"""A family and a socket address, as getaddrinfo gives them."""

_JOIN_BELOW = 64 * 1024
_MOST_PIECES = 512
"""Pieces in one sendmsg: half of what Linux takes."""
_NEVER = float("inf")
_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)


class State(Enum):
    WAITING = "no socket yet: the name is being looked up, or the last attempt was a moment ago"
    CONNECTING = "the system is connecting"
    AGREEING = "connected; both sides tell what they speak"
    OPEN = "requests go out"
    CLOSED = "over; another channel takes its place"


class PendingCall(Call):
    """A request and the callback for its outcome: the answer, None where there is none to come, or a failure."""

    __slots__ = ("begins", "channel", "deadline", "done", "ends", "seconds")

    def __init__(
        self,
        request: Message,
        answer: type[Any] | None,
        done: Callable[[Any], None],
        now: float,
        seconds: float,
        versions: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(request, answer, versions)
        self.done = done
        self.seconds = seconds
        self.deadline = now + seconds
        self.channel: Channel | None = None
        self.begins = self.ends = sys.maxsize
        """Where its bytes lie among all that its channel has to write."""

    @property
    def was_sent(self) -> bool:
        """Whether the system has all of it. Where it has not, the broker never gets it, once the channel is closed."""
        return self.channel is not None and self.ends <= self.channel.written

    def recall(self) -> bool:
        """Call it off, so that it is neither sent nor told of; False where it was sent, and may arrive."""
        return self.channel is None or self.channel.recall(self)

    def tell(self, outcome: Any) -> None:
        guarded(self.done, outcome)


class Host(Protocol):
    """What a channel needs of the network that owns it."""

    client_id: str
    poller: Poller
    scratch: memoryview
    """A buffer to read into that all channels share: nothing stays there."""

    def opened(self, channel: "Channel") -> None: ...
    def closed(self, channel: "Channel", why: Refused) -> None: ...
    def soon(self, action: Callable[[], None]) -> None:
        """Run it in this thread, after what is being done now."""


class Channel:
    """A connection from its first request to its end, of which its host hears once."""

    def __init__(self, address: Address, host: Host) -> None:
        self.address = address
        self.state = State.WAITING
        self.expires = _NEVER
        """No request can be late before this moment."""
        self.used = 0.0
        self.was_tried = False
        self.was_open = False
        self._host = host
        self._poller = host.poller
        self._socket: socket.socket | None = None
        self._endpoints: deque[Endpoint] = deque()
        self._connect_by = _NEVER
        self._connect_s = 0.0
        self._is_listening = False
        self._is_blocked = False
        """The system takes no more now, and will say when it does."""
        self.written = 0
        """Bytes that the system has taken."""
        self._to_write = 0
        """Bytes of all that was asked, written or not."""
        self._conversation: Conversation[PendingCall] = Conversation(
            str(address), host.client_id, host.scratch
        )
        self._waiting = self._conversation.pending
        self._queued: deque[PendingCall] = deque()
        """What is asked once the connection is open."""
        self._out: deque[Buffer] = deque()

    @property
    def features(self) -> Features:
        """What the broker says that its cluster has agreed on."""
        return self._conversation.features

    @property
    def is_busy(self) -> bool:
        return bool(self._queued or self._waiting or self._out)

    @property
    def in_flight(self) -> int:
        """Requests whose outcome is not known yet."""
        return len(self._queued) + len(self._waiting)

    def ask(self, call: PendingCall, now: float) -> None:
        """Queue a request; it is written with the next `flush`."""
        self.used = now
        self.expires = min(self.expires, call.deadline)
        call.channel = self
        if self.state is State.OPEN:
            self._write(call)
        else:
            self._queued.append(call)

    # Connecting

    def connect(self, endpoints: Sequence[Endpoint], now: float, seconds: float) -> None:
        """Try these one after another, within these seconds together; the host hears what comes of it."""
        self._endpoints.extend(endpoints)
        self._connect_s = seconds
        self._connect_by = now + seconds
        self.expires = min(self.expires, self._connect_by)
        self._connect_next(Unreachable(f"The host of {self.address} is not known."))

    def _connect_next(self, failure: Refused) -> None:
        while self._endpoints:
            family, where = self._endpoints.popleft()
            try:
                self._socket = sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                code = sock.connect_ex(where)
            except (OSError, OverflowError) as error:
                failure = self._no_answer(getattr(error, "strerror", None) or str(error))
                self._drop_socket()
                continue
            if code and code not in _UNDER_WAY:
                failure = self._no_answer(_words(code))
                self._drop_socket()
                continue
            self.state = State.CONNECTING
            self._listen(writes=True, reads=False)
            return
        self.close(failure)

    def _connected(self) -> None:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._drop_socket()
            self._connect_next(self._no_answer(_words(code)))
            return
        self.state = State.AGREEING
        self._listen(writes=False)
        self._greet()

    def _greet(self) -> None:
        self._put(self._conversation.greet())
        self.flush()

    def _agreed(self) -> None:
        self.state = State.OPEN
        self.was_open = True
        self._host.opened(self)
        while self._queued and self.state is State.OPEN:
            self._write(self._queued.popleft())

    def _no_answer(self, reason: str) -> Unreachable:
        return Unreachable(f"No broker answers at {self.address} ({reason.lower()}).")

    # Writing

    def _write(self, call: PendingCall) -> None:
        try:
            chunks = self._conversation.ask(call)
        except Refused as refusal:
            self._host.soon(partial(call.tell, refusal))
        except Exception as error:  # whatever is wrong with it is its sender's alone
            unwritten = Refused(Code.INVALID_REQUEST, f"The request cannot be written: {error}.")
            self._host.soon(partial(call.tell, unwritten))
        else:
            call.begins = self._to_write
            self._put(chunks)
            call.ends = self._to_write

    def _put(self, chunks: list[Any]) -> None:
        size = sum(map(len, chunks))
        self._to_write += size
        if len(chunks) > 1 and size < _JOIN_BELOW:
            self._out.append(b"".join(chunks))
            return
        for chunk in chunks:
            self._out += (chunk.start, chunk.body) if type(chunk) is BatchInTwo else (chunk,)

    def flush(self) -> None:
        """Write what was asked, unless the system has said that it takes no more now."""
        if self._out and self._socket is not None and not self._is_blocked:
            self._send(self._socket)

    def _send(self, sock: socket.socket) -> None:
        out = self._out
        try:
            while out:
                taken = sock.send(out[0]) if len(out) == 1 else sock.sendmsg(islice(out, _MOST_PIECES))
                self.written += taken
                while out and taken >= len(out[0]):
                    taken -= len(out.popleft())
                if taken:
                    out[0] = memoryview(out[0])[taken:]
        except (BlockingIOError, InterruptedError):
            if not self._is_blocked:
                self._is_blocked = True
                self._listen(writes=True)
            return
        except OSError as error:
            self.close(self._lost(error))
            return
        if self._is_blocked:
            self._is_blocked = False
            self._listen(writes=False)
        self._settle_unanswered()

    def recall(self, call: PendingCall) -> bool:
        """Call a request off; False where the system has all of it.

        Of one that the system has in part, the rest is never written: the connection is closed, and the others hear
        of that after what is being done now.
        """
        if call in self._queued:
            self._queued.remove(call)
            return True
        if call not in self._waiting:
            return not call.was_sent
        if call.ends <= self.written:
            return False
        is_begun = call.begins < self.written
        if is_begun:
            self._waiting.remove(call)
            self.close(
                Unreachable(f"The connection to {self.address} was given up: it takes too long."), soon=True
            )
        else:
            self._cut_out(call)
        return True

    def _cut_out(self, call: PendingCall) -> None:
        """Forget a request of which nothing is written."""
        at, kept = self.written, deque[Buffer]()
        for chunk in self._out:
            if not call.begins <= at < call.ends:
                kept.append(chunk)
            at += len(chunk)
        self._out = kept
        size = call.ends - call.begins
        self._to_write -= size
        for other in self._waiting:
            if other.begins > call.begins:
                other.begins -= size
                other.ends -= size
        self._waiting.remove(call)
        call.begins = call.ends = sys.maxsize
        if not kept and self._is_blocked:
            self._is_blocked = False
            self._listen(writes=False)

    def _settle_unanswered(self) -> None:
        """Requests without an answer (acks=0) are done when they are written and next in line."""
        while (call := self._conversation.next_unanswered()) is not None:
            call.tell(None)

    # Reading

    def handle(self, readable: bool, writable: bool) -> None:
        """The poller saw something."""
        if self.state is State.CONNECTING:
            self._connected()
            return
        if writable and self._out and self._socket is not None:
            self._send(self._socket)
        if readable and self._socket is not None:
            self._receive(self._socket)

    def _receive(self, sock: socket.socket) -> None:
        """One read: into the frame under way, straight to its place, or else into the scratch buffer."""
        conversation = self._conversation
        try:
            got = sock.recv_into(conversation.buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(self._lost(error))
            return
        if not got:
            self.close(Unreachable(f"The connection to {self.address} was closed by the other side."))
            return
        try:
            for call, answer in conversation.received(got):
                if not self._out:
                    self._settle_unanswered()
                call.tell(answer)
                if self._socket is None:
                    return
        except Nonsense as error:
            self.close(Unreachable(str(error)))
            return
        if self.state is State.AGREEING:
            if conversation.is_agreed:
                self._agreed()
            elif conversation.must_greet:
                self._greet()

    # The end

    def expire(self, now: float) -> None:
        """Close if a request is late: its answer, should it still come, would be taken for another's."""
        if self.state is not State.OPEN and self._connect_by <= now:
            said = (
                "took the connection, but said nothing"
                if self.state is State.AGREEING
                else "did not take a connection"
            )
            self.close(TimedOut(f"{self.address} {said} in {self._connect_s:g} s."), now)
            return
        deadlines = [call.deadline for call in self._waiting] + [call.deadline for call in self._queued]
        soonest = min(deadlines, default=_NEVER)
        if soonest > now:
            self.expires = soonest if self.state is State.OPEN else min(soonest, self._connect_by)
            return
        self.close(Unreachable(f"The connection to {self.address} was given up: it answers too late."), now)

    def close(self, failure: Refused, now: float = 0.0, *, soon: bool = False) -> None:
        """End the connection; all that was asked is told why, or that its time is up: now, or soon."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self.expires = _NEVER
        self._drop_socket()
        self._out.clear()
        told = [*self._waiting, *self._queued]
        self._waiting.clear()
        self._queued.clear()
        self._host.closed(self, failure)
        for call in told:
            if call.deadline <= now:
                why: Refused = TimedOut(f"{self.address} did not answer in {call.seconds:g} s.")
            else:
                why = failure
            if soon:
                self._host.soon(partial(call.tell, why))
            else:
                call.tell(why)

    def abandon(self) -> None:
        """Let go of the socket and of nothing else: in a forked process it is the parent's."""
        self.state = State.CLOSED
        if self._socket is not None:
            self._socket.close()

    def _drop_socket(self) -> None:
        if self._socket is not None:
            if self._is_listening:
                self._poller.forget(self._socket.fileno())
                self._is_listening = False
            self._socket.close()
            self._socket = None

    def _listen(self, *, writes: bool, reads: bool = True) -> None:
        assert self._socket is not None
        self._is_listening = True
        self._poller.listen(self._socket.fileno(), self.handle, writes=writes, reads=reads)

    def _lost(self, error: OSError) -> Unreachable:
        reason = (error.strerror or str(error)).lower()
        return Unreachable(f"The connection to {self.address} is lost ({reason}).")


def _words(code: int) -> str:
    return os.strerror(code)

"""One connection to another broker: requests out, answers in, several under way.

`peers` keeps them; fetchers, the sender of ISR changes and the controller ask. It dials when it is first asked, and
again after a loss, at once the first time and then less and less often. Answers come in order, so one that is late
holds up all behind it: when a request's time is up, the connection is given up and the next one dials anew.

Always holds: every `ask` ends, with its answer or with PeerLost. A watched peer that refuses a connection after it
had one is told of at once: its process is dead, long before its session with the metadata store ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.broker.peers.lines import Dialer, Line
from barnabas.errors import BarnabasError, reason_of
from barnabas.wire.apis import response_class
from barnabas.wire.codec import Message
from barnabas.wire.conversation import Call, Conversation, Nonsense

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
"""After a connection that could not be opened the next one waits, each time twice as long."""

DIAL_S = 5.0
"""How long opening a connection may take: a machine that is gone does not even refuse."""


class PeerLost(BarnabasError):
    """There is no answer, and whether the request was carried out is not known.

    `is_refused` says that nothing listens at the broker's address: the process that did is dead.
    """

    def __init__(self, text: str, *, is_refused: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused


class PendingAsk(Call):
    """Mutable: a request, and the future of its answer."""

    __slots__ = ("future",)

    def __init__(self, request: Message, future: asyncio.Future[Any]) -> None:
        super().__init__(request, response_class(request.api))
        self.future = future


class Peer:
    """Mutable: the connection, while there is one, and what waits for it."""

    between_brokers = True
    """Whether a broker is at this end, too: a simulated client is none."""

    def __init__(self, host: str, port: int, client_id: str, dialer: Dialer) -> None:
        self.host, self.port = host, port
        self._client_id = client_id
        self._dialer = dialer
        self._line: Line | None = None
        self._conversation: Conversation[PendingAsk] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._agreed: asyncio.Future[None] | None = None
        self._pause_s = 0.0
        self._on_refused: Callable[[], None] | None = None
        self.is_closed = False

    def __str__(self) -> str:
        return f"the broker at {self.host}:{self.port}"

    async def ask(self, request: Message, timeout_ms: int) -> Any:
        """The answer to a request; raises PeerLost, and Refused where the broker does not speak it."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        if not self.is_open:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.opened()
            except TimeoutError:
                raise PeerLost(f"{self} could not be reached in {timeout_ms} ms.") from None
        return await self.send(request, timeout_ms)

    def send(self, request: Message, timeout_ms: int) -> "asyncio.Future[Any]":
        """The answer that is to come to a request, of a peer that is open."""
        conversation, line = self._conversation, self._line
        assert conversation is not None
        assert line is not None
        loop = asyncio.get_running_loop()
        call = PendingAsk(request, loop.create_future())
        line.write(conversation.ask(call))
        late = loop.call_later(timeout_ms / 1000, self._expire, conversation, timeout_ms)
        call.future.add_done_callback(lambda future: late.cancel())
        return call.future

    @property
    def is_open(self) -> bool:
        return self._conversation is not None and self._conversation.is_agreed

    def _expire(self, conversation: Conversation[PendingAsk], timeout_ms: int) -> None:
        """A request's time is up: all behind it would wait for the same."""
        if self._conversation is conversation:
            self._give_up(PeerLost(f"{self} did not answer in {timeout_ms} ms."))

    def watch(self, on_refused: Callable[[], None]) -> None:
        """Keep a connection open from here on, and call this whenever one is refused."""
        self._on_refused = on_refused
        self._open_soon()

    def close(self) -> None:
        """Let go; whatever waits for an answer is told."""
        self.is_closed = True
        self._on_refused = None
        if self._opening is not None:
            self._opening.cancel()
        self._give_up(PeerLost(f"The connection to {self} is closed."))

    # Opening

    async def opened(self) -> None:
        """Come back when the peer can be asked; raises PeerLost where it cannot be reached now."""
        while not self.is_open:
            if self.is_closed:
                raise PeerLost(f"The connection to {self} is closed.")
            self._open_soon()
            opening = self._opening
            assert opening is not None
            await asyncio.wait([opening])
            if not opening.cancelled():
                opening.result()

    def _open_soon(self) -> None:
        if self._opening is None and self._line is None and not self.is_closed:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_heard)

    async def _open(self) -> None:
        is_refused = False
        try:
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            async with asyncio.timeout(DIAL_S):
                await self._greet()
            self._pause_s = 0.0
        except OSError as error:  # TimeoutError is one
            is_refused = isinstance(error, ConnectionRefusedError)
            why = reason_of(error) if not isinstance(error, TimeoutError) else "it takes too long"
            lost = PeerLost(f"{self} cannot be reached: {why}.", is_refused=is_refused)
            self._give_up(lost)
            raise lost from error
        finally:
            self._opening = None
            if is_refused and self._on_refused is not None:
                self._on_refused()
            if self._on_refused is not None and self._line is None:
                self._open_soon()

    async def _greet(self) -> None:
        """Dial, and hear what the peer speaks."""
        conversation: Conversation[PendingAsk] = Conversation(
            str(self), self._client_id, between_brokers=self.between_brokers
        )
        self._agreed = asyncio.get_running_loop().create_future()
        self._agreed.add_done_callback(_heard)
        self._conversation = conversation
        self._line = await self._dialer.dial(self.host, self.port, Hearing(self, conversation))
        self._line.write(conversation.greet())
        await self._agreed

    # What the line says

    def heard(self, conversation: Conversation[PendingAsk], count: int) -> None:
        """Bytes have come."""
        if conversation is not self._conversation:
            return
        try:
            for call, answer in conversation.received(count):
                if not call.future.done():
                    call.future.set_result(answer)
            if conversation.is_agreed and self._agreed is not None and not self._agreed.done():
                self._agreed.set_result(None)
            elif conversation.must_greet and self._line is not None:
                self._line.write(conversation.greet())
        except Nonsense as nonsense:
            self._give_up(PeerLost(str(nonsense)))

    def lost(self, conversation: Conversation[PendingAsk], error: Exception | None) -> None:
        """The line is gone."""
        if conversation is self._conversation:
            why = reason_of(error) if isinstance(error, OSError) else "it hung up"
            self._give_up(PeerLost(f"{self} is gone: {why}."))

    def _give_up(self, lost: PeerLost) -> None:
        """End the conversation there is; the next `ask`, or the watch, begins another."""
        conversation, line, agreed = self._conversation, self._line, self._agreed
        self._conversation = self._line = self._agreed = None
        if line is not None:
            line.close()
        if agreed is not None and not agreed.done():
            agreed.set_exception(ConnectionResetError(str(lost)))
        for call in conversation.pending if conversation is not None else ():
            if not call.future.done():
                call.future.set_exception(lost)
                call.future.exception()  # marked as seen: its asker may have gone
        if self._on_refused is not None:
            self._open_soon()


class Hearing:
    """What one line says, told to the peer that opened it: an older line has nothing to say any more."""

    __slots__ = ("_conversation", "_peer", "buffer")

    def __init__(self, peer: Peer, conversation: Conversation[PendingAsk]) -> None:
        self._peer = peer
        self._conversation = conversation
        self.buffer = conversation.buffer

    def received(self, count: int) -> None:
        self._peer.heard(self._conversation, count)

    def lost(self, error: Exception | None) -> None:
        self._peer.lost(self._conversation, error)


def _heard(done: "asyncio.Future[None]") -> None:
    """Marks a failure as seen: all that waited may be gone."""
    if not done.cancelled():
        done.exception()

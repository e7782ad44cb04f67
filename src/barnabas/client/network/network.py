"""Owns every connection of a client, and what it knows of its cluster: requests out, answers in.

Producer, Consumer and Admin drive their pure machines from it. Everything here is called in the network's thread, as
`loop` says what that is, unless it says "any thread". Always holds: `done` of a request is called once, in that thread,
and never before `ask` has returned; what it raises is shown (threading.excepthook) and stops nothing.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Generic, TypeVar

from barnabas.client.declared import ConnectedSettings, default_of
from barnabas.client.network.any_broker import AnyBroker
from barnabas.client.network.channel import Channel, Endpoint, PendingCall, State
from barnabas.client.network.failures import Closed, TimedOut, Unreachable, check
from barnabas.client.network.loop import Loop
from barnabas.client.network.metadata import Address, Broker, Metadata, Snapshot, addresses
from barnabas.client.network.refresher import Refresher
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId
from barnabas.wire.codec import Message
from barnabas.wire.conversation import Features
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_SCRATCH = 64 * 1024
_CONNECT_S = 10.0
"""What Kafka calls socket.connection.setup.timeout.ms."""
_LONGEST_PAUSE_S = 1.0
"""What Kafka calls reconnect.backoff.max.ms and retry.backoff.max.ms."""
_JITTER = 0.2


class CoordinatorKind(IntEnum):
    """What a coordinator looks after, as FindCoordinator has it."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def word(self) -> str:
        return "Group" if self is CoordinatorKind.GROUP else "Transactional id"


class Outcome(Generic[T]):
    """A future: the network's thread leaves an answer there, or a failure, that a user's waits for."""

    __slots__ = ("_found", "_is_there", "_seconds", "_what")

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._is_there = threading.Event()
        self._found: Any = None

    def put(self, found: T | Refused) -> None:
        self._found = found
        self._is_there.set()

    def get(self) -> T:
        """Wait for it; raises the failure, or TimedOut after the seconds that it has."""
        if not self._is_there.wait(self._seconds):
            raise TimedOut(f"{self._what} took longer than {self._seconds:g} s.")
        if isinstance(self._found, Refused):
            raise self._found
        found: T = self._found
        return found


class Network(Loop):
    """The connections and the metadata of one client, and the loop that drives them."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str,
        request_timeout_ms: int = default_of(ConnectedSettings, "request_timeout_ms"),
        retry_backoff_ms: int = default_of(ConnectedSettings, "retry_backoff_ms"),
        metadata_max_age_ms: int = default_of(ConnectedSettings, "metadata_max_age_ms"),
        connections_max_idle_ms: int = default_of(ConnectedSettings, "connections_max_idle_ms"),
        name: str = "barnabas-network",
    ) -> None:
        self.bootstrap = addresses(bootstrap_servers)  # first: what is wrong leaves nothing open
        super().__init__(name)
        self.client_id = client_id
        self.request_timeout = request_timeout_ms / 1000
        self.retry_backoff = retry_backoff_ms / 1000
        self.metadata = Metadata()
        self.scratch = memoryview(bytearray(_SCRATCH))
        self.features = Features()
        """What the cluster has agreed on, by the newest word of any broker."""
        self._max_idle = connections_max_idle_ms / 1000
        self._pauses: dict[Address, tuple[int, float]] = {}
        """Addresses that did not answer: how often in a row, and when to try again."""
        self.pauses: set[_Pause] = set()
        """Of the threads that wait to ask again."""
        self._refresher = Refresher(self, metadata_max_age_ms / 1000)
        self.metadata.on_want = self._refresher.look_up

    def start(self) -> None:
        """Any thread, once."""
        self.later(self._max_idle, self._close_idle)
        super().start()

    # Requests

    def ask(
        self,
        node: BrokerId | None,
        request: Message,
        answer: type[M],
        done: Callable[[M | Refused], None],
        *,
        wait: float = 0.0,
        lane: str = "",
        versions: tuple[int, int] | None = None,
    ) -> PendingCall | None:
        """Send a request to a broker, or to any; `done` gets the answer, or a Refused that says why there is none.

        Gives what was asked of a certain broker, which can be recalled while it is not sent; None where it never is.

        `wait` is what the broker may take on purpose, as in a long-polling fetch: it comes on top of
        request.timeout.ms. A `lane` is a connection of its own: its requests are pipelined and answered in order, and
        never wait behind those of another lane. `versions` are the lowest and the highest that will do, of a certain
        broker; otherwise the newest that both sides speak is taken.
        """
        if self._is_closed:
            self.soon(lambda: done(Closed()))
            return None
        seconds = self.request_timeout + wait
        if node is None:
            AnyBroker(self, request, answer, done, seconds, lane).try_next(Unreachable(""))
            return None
        broker = self.metadata.snapshot.brokers.get(node)
        if broker is None:
            self.refresh_soon()
            text = f"There is no broker {node} in the cluster now."
            self.soon(lambda: done(Refused(Code.BROKER_NOT_AVAILABLE, text)))
            return None
        now = time.monotonic()
        call = PendingCall(request, answer, done, now, seconds, versions)
        self.channel(broker.address, lane).ask(call, now)
        return call

    def tell(
        self, node: BrokerId, request: Message, done: Callable[[Refused | None], None], *, lane: str = ""
    ) -> PendingCall | None:
        """Send what brokers do not answer (acks=0); `done` gets None when the system has taken all of it."""
        return self.ask(node, request, None, done, lane=lane)  # type: ignore[arg-type,type-var]

    def call(
        self,
        node: BrokerId | None,
        request: Message,
        answer: type[M],
        *,
        timeout: float,
        wait: float = 0.0,
        lane: str = "",
    ) -> M:
        """Any thread but the network's: ask, and wait for the answer; raises Refused."""
        found: M = self.wait_for(
            lambda done: self.ask(node, request, answer, done, wait=wait, lane=lane),
            timeout,
            type(request).__name__,
        )
        return found

    def wait_for(
        self,
        start: Callable[[Callable[[Any], None]], object],
        timeout: float,
        what: str = "An answer",
    ) -> Any:
        """Any thread but the network's: run `start(done)` in the network's thread, wait for what `done` is given."""
        self.refuse_in_callbacks()
        outcome: Outcome[Any] = Outcome(what, timeout)
        self.post(lambda: start(outcome.put))
        return outcome.get()

    def pause(self, seconds: float, *, is_stale: bool) -> None:
        """Any thread but the network's: wait this long. Raises when the client is closed meanwhile.

        Where what is known is stale, fresh metadata is asked for, and what it changes ends the pause.
        """
        pause = _Pause(self, seconds, is_stale)
        self.wait_for(pause.begin, seconds + self.request_timeout, "A pause")

    def _stop(self) -> None:
        super()._stop()
        for pause in list(self.pauses):
            pause.end(Closed())

    def find_coordinator(
        self,
        key: str,
        done: Callable[[BrokerId | Refused], None],
        kind: CoordinatorKind = CoordinatorKind.GROUP,
    ) -> None:
        """Which broker looks after a group, or a transactional id; it can be asked from then on."""

        def found(answer: FindCoordinatorResponse | Refused) -> None:
            if isinstance(answer, Refused):
                done(answer)
                return
            each = answer.coordinators[0] if answer.coordinators else answer
            try:
                check(each.error_code, f"{kind.word} {key!r}", each.error_message)
            except Refused as refused:
                done(refused)
                return
            node = BrokerId(each.node_id)
            self.metadata.add_broker(Broker(node, each.host, each.port))
            done(node)

        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        self.ask(None, request, FindCoordinatorResponse, found)

    # Metadata

    def refresh(
        self,
        topics: Iterable[str] | None = (),
        done: Callable[[Snapshot | Refused], None] | None = None,
        *,
        create: bool = False,
    ) -> None:
        """Ask for these topics now (None: for all there are); `done` gets the snapshot that has them or says why not.

        `create` lets the broker create one that there is not, where it does so.
        """
        names = None if topics is None else list(dict.fromkeys(topics))
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]

        def told(answer: MetadataResponse | Refused) -> None:
            found = answer if isinstance(answer, Refused) else self.metadata.update(answer, names)
            if done is not None:
                done(found)

        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        self.ask(None, request, MetadataResponse, told)

    def refresh_soon(self) -> None:
        """What is known is stale: ask again for all that is wanted, but not more often than retry.backoff.ms."""
        if not self._is_closed:
            self._refresher.soon()

    @property
    def trouble(self) -> Refused | None:
        """Why the last refresh failed; None when it did not."""
        return self._refresher.trouble

    def backoff(self, failures: int) -> float:
        """The pause after this many failures in a row: it doubles, up to a second; not the same for every client."""
        longest = max(_LONGEST_PAUSE_S, self.retry_backoff)
        pause = min(self.retry_backoff * 2.0 ** min(max(failures - 1, 0), 20), longest)
        return pause * random.uniform(1 - _JITTER, 1 + _JITTER)

    # Channels

    def channel(self, address: Address, lane: str) -> Channel:
        channel = self._channels.get((address, lane))
        if channel is None:
            channel = self._channels[address, lane] = Channel(address, self)
            channel.used = now = time.monotonic()
            _, not_before = self._pauses.get(address, (0, 0.0))
            if not_before > now:
                self.later(not_before - now, lambda: self._connect(channel))
            else:
                self._connect(channel)
        return channel

    def candidates(self, lane: str) -> list[Address]:
        """Where any broker may be found, the best first: connected, known, given to start from; resting ones last."""
        now = time.monotonic()
        open_ones = [
            address
            for (address, its_lane), channel in self._channels.items()
            if its_lane == lane and channel.state is State.OPEN
        ]
        known = [broker.address for broker in self.metadata.snapshot.brokers.values()]
        others = list(dict.fromkeys([*known, *self.bootstrap]))
        random.shuffle(others)
        others.sort(key=lambda address: max(self._pauses.get(address, (0, 0.0))[1] - now, 0.0))
        # The connected one comes twice: an idle connection may have been closed by its broker long ago.
        return [*open_ones[:1], *others]

    def opened(self, channel: Channel) -> None:
        self._pauses.pop(channel.address, None)
        if channel.features.epoch >= self.features.epoch:
            self.features = channel.features

    def closed(self, channel: Channel, why: Refused) -> None:
        for key, each in list(self._channels.items()):
            if each is channel:
                del self._channels[key]
        # A request that had no time to wait for the end of a pause says nothing about the broker.
        if channel.was_tried and not channel.was_open:
            failures = self._pauses.get(channel.address, (0, 0.0))[0] + 1
            self._pauses[channel.address] = failures, time.monotonic() + self.backoff(failures)
        if not self._is_closed and not isinstance(why, _Idle):
            self.refresh_soon()

    def _connect(self, channel: Channel) -> None:
        if self._is_closed or channel.state is not State.WAITING:
            return
        channel.was_tried = True
        host, port = channel.address
        try:
            endpoints = _look_up(host, port, socket.AI_NUMERICHOST)
        except OSError:
            # A name: looking it up may take seconds, which no other thread should wait for.
            resolver = threading.Thread(
                target=self._resolve, args=(channel,), name="barnabas-resolver", daemon=True
            )
            resolver.start()
            return
        self._connect_to(channel, endpoints)

    def _resolve(self, channel: Channel) -> None:
        """In a thread of its own."""
        try:
            endpoints = _look_up(*channel.address)
        except OSError:
            endpoints = []
        try:
            self.post(lambda: self._connect_to(channel, endpoints))
        except Refused:
            return  # closed meanwhile

    def _connect_to(self, channel: Channel, endpoints: list[Endpoint]) -> None:
        if channel.state is State.WAITING:
            channel.connect(endpoints, time.monotonic(), min(_CONNECT_S, self.request_timeout))

    def _close_idle(self) -> None:
        now = time.monotonic()
        self.later(self._max_idle / 2, self._close_idle)
        for channel in list(self._channels.values()):
            if not channel.is_busy and channel.used + self._max_idle <= now:
                channel.close(_Idle(f"The connection to {channel.address} was not used."))


class _Pause:
    """Ends once, in the network's thread: when its time is over, the metadata changes, or the client is closed."""

    def __init__(self, network: Network, seconds: float, is_stale: bool) -> None:
        self._network = network
        self._seconds = seconds
        self._is_stale = is_stale
        self._before = network.metadata.snapshot
        self._done: Callable[[Any], None] = lambda found: None

    def begin(self, done: Callable[[Any], None]) -> None:
        network = self._network
        self._done = done
        network.pauses.add(self)
        self._timer = network.later(self._seconds, self.end)
        if self._is_stale:
            network.metadata.subscribe(self._look)
            network.refresh_soon()

    def _look(self, found: Snapshot) -> None:
        if (found.brokers, found.topics) != (self._before.brokers, self._before.topics):
            self.end()

    def end(self, found: Any = None) -> None:
        """Whatever ends it; what is a failure is raised where it is waited for."""
        if self in self._network.pauses:
            self._network.pauses.remove(self)
            self._timer.cancel()
            if self._is_stale:
                self._network.metadata.forget_subscriber(self._look)
            self._done(found)


class _Idle(Unreachable):
    """Nothing is wrong: a connection was closed because it was not used."""


def _look_up(host: str, port: int, flags: int = 0) -> list[Endpoint]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, _, _, _, where in found]

"""One thread that owns every connection of a client: requests out, answers in, timers.

Producer, Consumer and Admin drive their pure machines from it. Everything here is called in the network's own
thread, unless it says "any thread". Always holds: `done` of a request is called once, in that thread, and never
before `ask` has returned; what it raises is shown (threading.excepthook) and stops nothing.

A process that forks gets none of its parent's threads: a client must be made in the process that uses it, and
one made before a fork says so. The thread is a daemon: a client nobody closes keeps no program from ending.
"""

import heapq
import random
import socket
import threading
import time
from _thread import LockType, get_ident
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from barnabas.client.any_broker import AnyBroker
from barnabas.client.channel import Asked, Channel, Endpoint, State
from barnabas.client.failures import Closed, TimedOut, Unreachable, check
from barnabas.client.guarded import guarded
from barnabas.client.held_signals import HeldSignals
from barnabas.client.metadata import Address, Broker, Metadata, Snapshot, addresses
from barnabas.client.poller import new_poller
from barnabas.client.refresher import Refresher
from barnabas.client.this_process import this_process
from barnabas.client.timer import Timer
from barnabas.client.wheel import STAND_BY_S, Wheel
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId
from barnabas.wire.codec import Message
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

M = TypeVar("M", bound=Message)

_SCRATCH = 64 * 1024
_CONNECT_S = 10.0
"""What Kafka calls socket.connection.setup.timeout.ms."""
_LONGEST_PAUSE_S = 1.0
"""What Kafka calls reconnect.backoff.max.ms and retry.backoff.max.ms."""
_LONGEST_SLEEP_S = 3600.0
_JITTER = 0.2
_NEVER = float("inf")


class Outcome:
    """Where one thread leaves an answer, or a failure, that another waits for."""

    __slots__ = ("_found", "_is_there")

    def __init__(self) -> None:
        self._is_there = threading.Event()
        self._found: Any = None

    def put(self, found: Any) -> None:
        self._found = found
        self._is_there.set()

    def get(self, timeout: float, what: str) -> Any:
        if not self._is_there.wait(timeout):
            raise TimedOut(f"{what} took longer than {timeout:g} s.")
        if isinstance(self._found, Refused):
            raise self._found
        return self._found


class Network:
    """The connections, timers and metadata of one client."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300_000,
        connections_max_idle_ms: int = 540_000,
        name: str = "barnabas-network",
    ) -> None:
        self.bootstrap = addresses(bootstrap_servers)
        self.client_id = client_id
        self.request_timeout = request_timeout_ms / 1000
        self.retry_backoff = retry_backoff_ms / 1000
        self.metadata = Metadata()
        self.metadata.on_want = self.refresh_soon
        self.poller = new_poller()
        self.scratch = memoryview(bytearray(_SCRATCH))
        self._max_idle = connections_max_idle_ms / 1000
        self._channels: dict[tuple[Address, str], Channel] = {}
        self._pauses: dict[Address, tuple[int, float]] = {}
        """Addresses that did not answer: how often in a row, and when to try again."""
        self._timers: list[Timer] = []
        self._posts: deque[Callable[[], None]] = deque()
        self._refresher = Refresher(self, metadata_max_age_ms / 1000)
        self._is_asleep = False
        self._is_closed = False
        self._born_in = this_process.generation
        self._wheel = Wheel(self._wake_up, self._is_busy, self._posts)
        self._waiting: set[LockType] = set()
        """The gates of users who wait."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # The thread

    def start(self) -> None:
        """Any thread, once."""
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Any thread, any number of times: hang up; what has no answer yet is told that the client is closed."""
        if self._born_in != this_process.generation:
            self._release()  # the copies of a forked process; the parent's connections go on
            return
        if self._thread.ident is None:
            self._is_closed = True
            self._release()
            return
        if not self._is_closed:
            self._posts.append(self._stop)
            self._wake_up()
            self.nudge()
        if not self.is_current_thread:
            self._thread.join(timeout)

    @property
    def is_current_thread(self) -> bool:
        """Whether who asks is called by the network, in whatever thread, where nothing may wait."""
        return self._wheel.is_mine

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def post(self, action: Callable[[], None], *, is_urgent: bool = True) -> None:
        """Any thread: run it in the network's thread, soon and in order. Raises when the client is closed.

        What is not urgent is left to this thread itself, should it come to `wait` in the next 2 ms, as it did before.
        """
        if self._is_closed:
            raise Closed
        if self._born_in != this_process.generation:
            raise _forked()
        self._posts.append(action)
        if self._is_asleep:
            self.poller.wake()
        else:
            self._wheel.nudge(is_urgent=is_urgent)

    def nudge(self, *, is_urgent: bool = True) -> None:
        """Any thread: what was posted, and was not urgent, is now."""
        self._wheel.nudge(is_urgent=is_urgent)

    def wait(self, gate: LockType, timeout: float | None) -> bool:
        """Any thread but the one that drives: wait until what the network does releases the gate, and drive meanwhile.

        False after so many seconds.
        """
        if self._wheel.is_mine:
            raise BarnabasError(
                "A callback runs in the client's own thread and cannot wait there for an answer."
            )
        if self._born_in != this_process.generation:
            raise _forked()
        until = _NEVER if timeout is None else time.monotonic() + timeout
        is_main = get_ident() == this_process.main_thread
        self._waiting.add(gate)
        try:
            while not gate.acquire(False):
                held = HeldSignals(self.poller.wake) if is_main else None
                try:
                    has_driven = self._drive(gate, until, held)
                finally:
                    if held is not None:
                        held.let_go()
                if not has_driven:
                    self.nudge()
                    left = max(until - time.monotonic(), 0.0)
                    return gate.acquire(timeout=-1 if timeout is None else left)
                if timeout is not None and time.monotonic() >= until:
                    return gate.acquire(False)
            return True
        finally:
            self._waiting.discard(gate)

    def _drive(self, gate: LockType, until: float, held: HeldSignals | None) -> bool:
        """Take turns until the gate is open, the time is up, or a signal has come; False where somebody else drives."""
        left = until - time.monotonic()
        # Where several wait, the network's thread serves them all, and nobody asks for its wheel.
        if self._is_closed or not self._wheel.board(left, may_ask=len(self._waiting) == 1):
            return False
        try:
            while left > 0 and gate.locked() and not self._is_closed and not (held and held.came):
                self._turn(left, gate)
                left = until - time.monotonic()
            return not self._is_closed
        finally:
            self._wheel.leave()

    def _wake_up(self) -> None:
        """Any thread: end the sleep of who drives."""
        if self._is_asleep:
            self.poller.wake()

    def _is_busy(self) -> bool:
        """Whether there is something to do before long, or a request has no answer yet."""
        for channel in self._channels.values():
            if channel.is_busy:
                return True
        timers = self._timers
        return self._is_closed or (bool(timers) and timers[0].at < time.monotonic() + 2 * STAND_BY_S)

    def soon(self, action: Callable[[], None]) -> None:
        """Run it after what is being done now."""
        self._posts.append(action)

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run it after so many seconds, unless it is cancelled."""
        timer = Timer(time.monotonic() + seconds, action)
        heapq.heappush(self._timers, timer)
        return timer

    def _run(self) -> None:
        wheel = self._wheel
        wheel.take()
        self.later(self._max_idle, self._close_idle)
        while not self._is_closed:
            self._turn(_LONGEST_SLEEP_S)
            if wheel.is_wanted:
                wheel.stand_by()
        while self._posts:
            guarded(self._posts.popleft())
        self._release()

    def _turn(self, longest: float, gate: LockType | None = None) -> None:
        """Do what there is to do, and sleep until there is more, or the gate is open, so many seconds at most.

        For who has the wheel.
        """
        # Hot: 3 us besides what is done, one turn for each record that is sent and waited for alone.
        posts, channels, timers = self._posts, self._channels, self._timers
        for _ in range(len(posts)):
            guarded(posts.popleft())
        now = time.monotonic()
        while timers and timers[0].at <= now:
            action = heapq.heappop(timers).action
            if action is not None:
                guarded(action)
        for channel in list(channels.values()):
            channel.flush()
        until = now + longest
        for channel in channels.values():
            if channel.expires < until:
                until = channel.expires
        while timers and timers[0].action is None:
            heapq.heappop(timers)
        if timers and timers[0].at < until:
            until = timers[0].at
        pause = until - time.monotonic()
        # In this order: whoever wants something either sees us asleep and wakes us, or is seen here.
        self._is_asleep = True
        is_due = pause <= 0 or posts or self._is_closed or self._wheel.is_wanted
        if gate is not None and not gate.locked():
            is_due = True
        ready = self.poller.poll(0 if is_due else min(pause, _LONGEST_SLEEP_S))
        self._is_asleep = False
        for handler, readable, writable in ready:
            guarded(handler, readable, writable)
        now = time.monotonic()
        for channel in list(channels.values()):
            if channel.expires <= now:
                channel.expire(now)

    def _stop(self) -> None:
        self._is_closed = True
        for channel in list(self._channels.values()):
            channel.close(Closed())

    def _release(self) -> None:
        for channel in self._channels.values():
            channel.abandon()
        self._channels.clear()
        # A forked process shares its parent's epoll: closing it is harmless, unregistering would not be.
        self.poller.close()

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
    ) -> None:
        """Send a request to a broker, or to any; `done` gets the answer, or a Refused that says why there is none.

        `wait` is what the broker may take on purpose, as in a long-polling fetch: it comes on top of
        request.timeout.ms. A `lane` is a connection of its own: its requests are pipelined and answered in order, and
        never wait behind those of another lane.
        """
        if self._is_closed:
            self.soon(lambda: done(Closed()))
            return
        seconds = self.request_timeout + wait
        if node is None:
            AnyBroker(self, request, answer, done, seconds, lane).try_next(Unreachable(""))
            return
        broker = self.metadata.snapshot.brokers.get(node)
        if broker is None:
            self.refresh_soon()
            text = f"There is no broker {node} in the cluster now."
            self.soon(lambda: done(Refused(Code.BROKER_NOT_AVAILABLE, text)))
            return
        now = time.monotonic()
        self.channel(broker.address, lane).ask(Asked(request, answer, done, now, seconds), now)

    def tell(
        self, node: BrokerId, request: Message, done: Callable[[Refused | None], None], *, lane: str = ""
    ) -> None:
        """Send what brokers do not answer (acks=0); `done` gets None when the system has taken all of it."""
        self.ask(node, request, None, done, lane=lane)  # type: ignore[arg-type,type-var]

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
        start: Callable[[Callable[[Any], None]], None],
        timeout: float,
        what: str = "An answer",
    ) -> Any:
        """Any thread but the network's: run `start(done)` in the network's thread, wait for what `done` is given."""
        if self.is_current_thread:
            raise BarnabasError(
                "A callback runs in the client's own thread and cannot wait there for an answer."
            )
        outcome = Outcome()
        self.post(lambda: start(outcome.put))
        return outcome.get(timeout, what)

    def find_coordinator(self, group: str, done: Callable[[BrokerId | Refused], None]) -> None:
        """Which broker looks after a group; it can be asked from then on."""

        def found(answer: FindCoordinatorResponse | Refused) -> None:
            if isinstance(answer, Refused):
                done(answer)
                return
            each = answer.coordinators[0] if answer.coordinators else answer
            try:
                check(each.error_code, f"Group {group!r}", each.error_message)
            except Refused as refused:
                done(refused)
                return
            node = BrokerId(each.node_id)
            self.metadata.add_broker(Broker(node, each.host, each.port))
            done(node)

        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
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
        """The pause after so many failures in a row: it doubles, up to a second; not the same for every client."""
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

    def closed(self, channel: Channel, why: Refused) -> None:
        for key, each in list(self._channels.items()):
            if each is channel:
                del self._channels[key]
        if not channel.was_open:
            failures = self._pauses.get(channel.address, (0, 0.0))[0] + 1
            self._pauses[channel.address] = failures, time.monotonic() + self.backoff(failures)
        if not self._is_closed and not isinstance(why, _Idle):
            self.refresh_soon()

    def _connect(self, channel: Channel) -> None:
        if self._is_closed or channel.state is not State.WAITING:
            return
        host, port = channel.address
        try:
            endpoints = _look_up(host, port, socket.AI_NUMERICHOST)
        except OSError:
            # A name: looking it up may take seconds, which nobody else should wait for.
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


class _Idle(Unreachable):
    """Nothing is wrong: a connection was closed because nobody used it."""


def _forked() -> BarnabasError:
    return BarnabasError("This client was made before the process forked: make one in each process.")


def _look_up(host: str, port: int, flags: int = 0) -> list[Endpoint]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, _, _, _, where in found]

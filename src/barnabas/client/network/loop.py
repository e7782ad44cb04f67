"""The loop of one client: what was posted, timers, connections that are ready, turn after turn. The base of `network`.

A thread of its own runs it, or a user's thread that waits; `loop_driver` decides. "The network's thread" is the one
that runs it at the moment, and never two do at once. Everything here is called in it, unless it says "any thread".

A process that forks gets none of its parent's threads: a client must be made in the process that uses it, and
one made before a fork says so. The thread is a daemon: a client that is never closed keeps no program from ending.
"""

import heapq
import threading
import time
from _thread import LockType, get_ident
from collections import deque
from collections.abc import Callable

from barnabas.client.network.channel import Channel
from barnabas.client.network.failures import Closed
from barnabas.client.network.guarded import guarded
from barnabas.client.network.held_signals import HeldSignals
from barnabas.client.network.loop_driver import STAND_BY_S, LoopDriver
from barnabas.client.network.metadata import Address
from barnabas.client.network.poller import new_poller
from barnabas.client.network.spin import Spin
from barnabas.client.network.this_process import this_process
from barnabas.client.network.timer import Timer
from barnabas.errors import BarnabasError

_LONGEST_SLEEP_S = 3600.0
_CROWD_LASTS = 64
"""Waits after which a crowd of waiting users may have gone."""
_LOOK_FOR_SIGNALS_S = 0.25
"""Longest sleep of a main thread that holds signals. One that comes just before the sleep, or that another thread is
given, does not end it: Python notes it for the main thread, which finds it when it wakes."""
_NEVER = float("inf")


class Loop:
    """The turns, and the users that wait for what they bring."""

    def __init__(self, name: str) -> None:
        self.poller = new_poller()
        self._channels: dict[tuple[Address, str], Channel] = {}
        self._timers: list[Timer] = []
        self._posts: deque[Callable[[], object]] = deque()
        self._is_asleep = False
        self._is_closed = False
        self._born_in = this_process.generation
        self._waiting: set[LockType] = set()
        """The gates of users that wait."""
        self._crowd = 0
        self._spin = Spin()
        self._driver = LoopDriver(self._wake_up, self._is_busy, self._posts)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

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
        """Whether the caller is called by the network, in whatever thread, where nothing may wait."""
        return self._driver.is_mine

    def refuse_in_callbacks(self) -> None:
        """What the network calls cannot wait for what the network brings."""
        if self.is_current_thread:
            raise BarnabasError(
                "A callback runs in the client's own thread and cannot wait there for an answer."
            )

    def refuse_in_forks(self) -> None:
        """Any thread: a forked process has none of the threads that do the work, and may have locks that stay held."""
        if self._born_in != this_process.generation:
            raise BarnabasError("This client was made before the process forked: make one in each process.")

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def post(self, action: Callable[[], object], *, is_urgent: bool = True) -> None:
        """Any thread: run it in the network's thread, soon and in order. Raises when the client is closed.

        What is not urgent is left to this thread where it has waited a moment ago: as a rule it will do so again.
        Where it does not, that costs 2 ms.
        """
        if self._is_closed:
            raise Closed
        self.refuse_in_forks()
        self._posts.append(action)
        self._wake_up()
        self._driver.nudge(is_urgent=is_urgent)

    def nudge(self, *, is_urgent: bool = True) -> None:
        """Any thread: what was posted, and was not urgent, is now."""
        self.refuse_in_forks()
        self._driver.nudge(is_urgent=is_urgent)

    def wait(self, gate: LockType, timeout: float | None) -> bool:
        """Any thread but the one that drives: wait until what the network does releases the gate, and drive meanwhile.

        False after `timeout` seconds.
        """
        self.refuse_in_callbacks()
        self.refuse_in_forks()
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
        """Take turns until the gate is open, the time is up, or a signal came; False where another thread drives."""
        left = until - time.monotonic()
        longest = _NEVER if held is None else _LOOK_FOR_SIGNALS_S
        if self._is_closed or not self._driver.try_to_drive(left, self._may_ask):
            return False
        try:
            while left > 0 and gate.locked() and not self._is_closed and not (held and held.came):
                self._turn(min(left, longest), gate)
                left = until - time.monotonic()
            return not self._is_closed
        finally:
            self._driver.stop_driving()

    def _may_ask(self) -> bool:
        """Whether a user that waits should ask to drive: where many wait, the network's thread serves them best."""
        waiting = len(self._waiting)
        if waiting > 2:
            self._crowd = _CROWD_LASTS
        elif self._crowd:
            self._crowd -= 1
        return waiting == 1 and not self._crowd

    def _wake_up(self) -> None:
        """Any thread: end the sleep of the thread that drives."""
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
        """Run it after this many seconds, unless it is cancelled."""
        timer = Timer(time.monotonic() + seconds, action)
        heapq.heappush(self._timers, timer)
        return timer

    def _run(self) -> None:
        driver = self._driver
        driver.take()
        while not self._is_closed:
            self._turn(_LONGEST_SLEEP_S)
            if driver.is_wanted:
                driver.stand_by()
        while self._posts:
            guarded(self._posts.popleft())
        self._release()

    def _turn(self, longest: float, gate: LockType | None = None) -> None:
        """Do what there is to do, and sleep until there is more, or the gate is open: `longest` seconds at most.

        For the thread that drives.
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
        now = time.monotonic()
        pause = until - now
        # In this order: a thread that posts either sees this one asleep and wakes it, or its post is seen here.
        self._is_asleep = True
        is_due = pause <= 0 or posts or self._is_closed or self._driver.is_wanted
        if is_due or (gate is not None and not gate.locked()):
            ready = self.poller.poll(0)
        elif gate is None:
            ready = self.poller.poll(min(pause, _LONGEST_SLEEP_S))
        else:
            ready = self.poller.poll(min(pause, _LONGEST_SLEEP_S), self._spin.seconds)
            self._spin.learn(time.monotonic() - now)
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

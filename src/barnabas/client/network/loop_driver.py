"""Owns which thread drives a network: its own, or that of a user that waits for an answer.

The thread that has the wheel runs the turns of the network's loop; no other touches its connections and timers. A user
that drives is woken by the answer itself, not by another thread that was woken by it: `send().result()` has no hops
between threads then.

A user that comes while the network's thread drives asks it for the wheel. That thread then stands by: for STAND_BY_S
after the last user has left, the next one finds the wheel free. After that it drives again, or when it is rung for.

Always holds:
- One thread drives. Of the users only the one in the seat may: none waits for the wheel while a user has it.
- The wheel is free without a ring only while nothing is under way: a thread that leaves it rings where a request
  has no answer yet or something was posted; a thread that posts rings where none drives.
- None of that is missed: one posts, then looks at the wheel; the other lets go of the wheel, then looks at the posts.
- The last driver may post without ringing (`nudge`): as a rule it is about to drive again. If it does not, the
  network's thread finds what was posted after STAND_BY_S.
"""

from _thread import allocate_lock, get_ident
from collections.abc import Callable, Sized

STAND_BY_S = 0.002
_ASK_S = 0.05
"""The network's thread may be in a callback that takes its time: then it keeps the wheel."""


class LoopDriver:
    """Which thread drives. The network's thread takes it and stands by; a user's thread boards and leaves."""

    def __init__(self, wake: Callable[[], None], is_busy: Callable[[], bool], posts: Sized) -> None:
        self.is_wanted = False
        """A user waits for the wheel: the network's thread is to stand by, without another sleep."""
        self._wake = wake
        self._is_busy = is_busy
        """Asked by the driving thread: whether a request has no answer yet, or a timer is due soon."""
        self._posts = posts
        self._lock = allocate_lock()
        self._seat = allocate_lock()
        self._bell = allocate_lock()
        self._bell.acquire()
        self._driver = 0
        self._last_user = 0
        self._drives = 0
        self._stands_by = False
        self._is_needed = False
        self._waits_for_leave = False

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is driving: in what it calls nothing may wait."""
        return self._driver == get_ident()

    # The network's thread

    def take(self) -> None:
        """Wait for the wheel, at the start."""
        self._lock.acquire()
        self._driver = get_ident()

    def stand_by(self) -> None:
        """Let a user have the wheel; come back with it when it is needed, or when no user drives any more."""
        self._bell.acquire(False)
        self._is_needed = self._waits_for_leave = False
        self._stands_by = True
        self._driver = 0
        self._lock.release()
        drives, patience = self._drives, STAND_BY_S
        while True:
            if self._bell.acquire(timeout=patience) and not self._is_needed:
                patience = STAND_BY_S  # a user has left, and may be back in a moment
                continue
            self._is_needed = False
            self._waits_for_leave = True
            if not self._lock.acquire(False):
                patience = -1  # the driving thread will ring
                continue
            self._waits_for_leave = False
            if self._drives == drives or self._posts or self._is_busy():
                break
            drives, patience = self._drives, STAND_BY_S
            self._lock.release()
            if self._posts:
                patience = 0
        self._driver = get_ident()
        self._stands_by = False

    # Users

    def board(self, seconds: float, may_ask: Callable[[], bool]) -> bool:
        """Get the wheel in time, if no other user has it; the network's thread is asked for it if it may."""
        if not self._seat.acquire(False):
            return False
        has_it = False
        try:
            has_it = self._lock.acquire(False)
            has_it = has_it or (may_ask() and self._ask(min(max(seconds, 0.0), _ASK_S)))
        finally:
            if not has_it:
                self._seat.release()
        if has_it:
            self._driver = get_ident()
        return has_it

    def _ask(self, seconds: float) -> bool:
        self.is_wanted = True
        has_it = False
        try:
            self._wake()
            has_it = self._lock.acquire(timeout=seconds)
        finally:
            self.is_wanted = False
            if not has_it:
                self.ring()  # it may have stood by too late
        return has_it

    def leave(self) -> None:
        """Let go of the wheel."""
        is_busy = self._is_busy()
        self._last_user = self._driver
        self._driver = 0
        self._drives += 1
        self._lock.release()
        if is_busy or self._posts:
            self.ring()
        elif self._waits_for_leave:
            self._waits_for_leave = False
            self._strike()
        self._seat.release()

    # Any thread

    def nudge(self, *, is_urgent: bool) -> None:
        """Something was posted: see to it that a thread drives; what is not urgent may wait for the last driver."""
        if self._stands_by and not self._lock.locked() and (is_urgent or self._last_user != get_ident()):
            self.ring()

    def ring(self) -> None:
        """The network's thread is to drive as soon as no other does."""
        self._is_needed = True
        self._strike()

    def _strike(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            return  # it has not heard the last one yet

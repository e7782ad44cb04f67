"""Owns which thread drives a network's loop: the network's own, or that of a user that waits for an answer.

The thread that drives runs the turns of the loop; no other touches its connections and timers. A user that drives is
woken by the answer itself, not by another thread that was woken by it: `send().result()` then has no hops between
threads.

A user that comes while the network's thread drives asks to drive instead. That thread then stands by: for STAND_BY_S
after the last user has stopped, the next one may drive at once. After that it drives again, or when it is called.

Called by `loop`. Always holds:
- One thread drives. Of the users only one may drive or ask to; the others wait for their answers without driving.
- No thread drives and none is called only while nothing is under way: a user that stops driving calls the network's
  thread where a request has no answer yet or something was posted; a thread that posts calls it where none drives.
- None of that is missed: one posts, then looks for a driver; the other stops driving, then looks at the posts.
- The user that drove last may post without calling (`nudge`): as a rule it is about to drive again. If it does not,
  the network's thread finds what was posted after STAND_BY_S.
"""

from _thread import allocate_lock, get_ident
from collections.abc import Callable, Sized

STAND_BY_S = 0.002
_ASK_S = 0.05
"""The network's thread may be in a callback that takes its time: then it goes on driving."""


class LoopDriver:
    """One thread drives: the network's own, which stands by for users, or that of a user, until it has its answer."""

    def __init__(self, wake: Callable[[], None], is_busy: Callable[[], bool], posts: Sized) -> None:
        self.is_wanted = False
        """A user has asked to drive: the network's thread is to stand by, without another sleep."""
        self._wake = wake
        self._is_busy = is_busy
        """Asked by the thread that drives: whether a request has no answer yet, or a timer is due soon."""
        self._posts = posts
        self._lock = allocate_lock()
        """Held by the thread that drives."""
        self._user_lock = allocate_lock()
        """Held by the one user that drives or asks to."""
        self._bell = allocate_lock()
        """Released to call the network's thread while it stands by."""
        self._bell.acquire()
        self._driver = 0
        self._last_user = 0
        self._drives = 0
        self._stands_by = False
        self._is_needed = False
        self._waits_for_leave = False

    @property
    def is_mine(self) -> bool:
        """Whether the caller's thread drives: in what it calls nothing may wait."""
        return self._driver == get_ident()

    # The network's thread

    def take(self) -> None:
        """Begin to drive, at the start; wait for a user that does."""
        self._lock.acquire()
        self._driver = get_ident()

    def stand_by(self) -> None:
        """Let users drive; drive again from here on, when called or when no user drives any more."""
        self._bell.acquire(False)
        self._is_needed = self._waits_for_leave = False
        self._stands_by = True
        self._driver = 0
        self._lock.release()
        drives, patience = self._drives, STAND_BY_S
        while True:
            if self._bell.acquire(timeout=patience) and not self._is_needed:
                patience = STAND_BY_S  # a user has stopped, and may be back in a moment
                continue
            self._is_needed = False
            self._waits_for_leave = True
            if not self._lock.acquire(False):
                patience = -1  # the user that drives will call
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

    def try_to_drive(self, seconds: float, may_ask: Callable[[], bool]) -> bool:
        """Drive within this many seconds; False where another user does. Asks the network's thread where it may."""
        if not self._user_lock.acquire(False):
            return False
        drives = False
        try:
            drives = self._lock.acquire(False)
            drives = drives or (may_ask() and self._ask(min(max(seconds, 0.0), _ASK_S)))
        finally:
            if not drives:
                self._user_lock.release()
        if drives:
            self._driver = get_ident()
        return drives

    def _ask(self, seconds: float) -> bool:
        self.is_wanted = True
        drives = False
        try:
            self._wake()
            drives = self._lock.acquire(timeout=seconds)
        finally:
            self.is_wanted = False
            if not drives:
                self.call()  # it may have stood by too late
        return drives

    def stop_driving(self) -> None:
        """Leave the loop to the next user, or to the network's thread where something is under way."""
        is_busy = self._is_busy()
        self._last_user = self._driver
        self._driver = 0
        self._drives += 1
        self._lock.release()
        if is_busy or self._posts:
            self.call()
        elif self._waits_for_leave:
            self._waits_for_leave = False
            self._strike()
        self._user_lock.release()

    # Any thread

    def nudge(self, *, is_urgent: bool) -> None:
        """Something was posted: make sure that a thread drives. Not urgent: the user that drove last may come back."""
        if self._stands_by and not self._lock.locked() and (is_urgent or self._last_user != get_ident()):
            self.call()

    def call(self) -> None:
        """The network's thread is to drive as soon as no user does."""
        self._is_needed = True
        self._strike()

    def _strike(self) -> None:
        try:
            self._bell.release()
        except RuntimeError:
            return  # it has not heard the last one yet

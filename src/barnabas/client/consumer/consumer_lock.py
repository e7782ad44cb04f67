"""Owns whose turn it is: the user's thread and the network's share a consumer's machines, one at a time.

Held for moments only, never while anything is waited for or sent.
"""

from collections.abc import Callable
from threading import Condition, Lock


class ConsumerLock(Condition):
    """A lock, and a bell for the user: something has come. An event loop has a bell of its own."""

    def __init__(self) -> None:
        super().__init__(Lock())
        self.on_news: Callable[[], None] | None = None
        """Called at every bell, in the network's thread."""

    def tell(self) -> None:
        """Ring the bell. The lock must be held."""
        self.notify_all()
        if self.on_news is not None:
            self.on_news()

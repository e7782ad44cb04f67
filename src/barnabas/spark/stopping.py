"""Owns how something that runs for long is told to end: by a signal, by another thread, or by its own end.

Used by pipelines, connectors and the demo.
"""

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Stop:
    """How a run is told to end: by a signal, by another thread, or by the end of its queries."""

    def __init__(self) -> None:
        self.told = False
        # Of all that waits in Python, this alone may be woken from a signal handler.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def now(self) -> None:
        """End the run."""
        self.told = True
        self._news.put(None)

    def look(self) -> None:
        """Something has ended: a waiting thread wakes and looks at what it was."""
        self._news.put(None)

    def wait(self, seconds: float) -> None:
        with suppress(queue.Empty):
            self._news.get(timeout=seconds)


@contextmanager
def on_signals(stop: Stop) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run while it is in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: stop.now())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

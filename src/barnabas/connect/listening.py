"""Hears how far a query of Spark's has come: rows and time of each batch. Used by `flow`, called in Spark's threads.

Always holds: no batch is missed, because the listener is there before the query is.
"""

import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener


class Listener(StreamingQueryListener):  # type: ignore[misc]
    """Tells of the batches of one query, once it knows which: those of others are passed over."""

    def __init__(self, note: Callable[[int, int, float], None]) -> None:
        self._note = note
        self._run: str | None = None
        self._early: list[Any] = []
        self._early_ends: set[str] = set()
        self._lock = threading.Lock()
        self.heard_the_end = threading.Event()

    def follow(self, run: str) -> None:
        """This is the one; what it did before we knew is told now."""
        with self._lock:
            self._run = run
            early, self._early = self._early, []
            ended = run in self._early_ends
        for progress in early:
            self._tell(progress)
        if ended:
            self.heard_the_end.set()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            if self._run is None:
                self._early.append(event.progress)
                return
        self._tell(event.progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            if self._run is None:
                self._early_ends.add(str(event.runId))
                return
        if str(event.runId) == self._run:
            self.heard_the_end.set()

    def _tell(self, progress: Any) -> None:
        if str(progress.runId) == self._run:
            self._note(progress.batchId, progress.numInputRows, progress.batchDuration / 1000)

"""Hears how far a query of Spark's has come: rows and time of each batch. Used by `flow`, called in Spark's threads."""

import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener


class Listener(StreamingQueryListener):  # type: ignore[misc]
    """Tells of the batches of one query."""

    def __init__(self, query: StreamingQuery, note: Callable[[int, int, float], None]) -> None:
        self._run = str(query.runId)
        self._note = note
        self.heard_the_end = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        if str(progress.runId) == self._run:
            self._note(progress.batchId, progress.numInputRows, progress.batchDuration / 1000)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        if str(event.runId) == self._run:
            self.heard_the_end.set()

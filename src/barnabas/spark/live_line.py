"""Owns one line that tells how far something has come. Used by pipelines and connectors, from any thread."""

import shutil
import threading
import time
from collections.abc import Callable
from typing import TextIO

_QUIET_S = 10.0


class LiveLine:
    """One line that changes in place on a terminal, and is repeated now and then elsewhere."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._shown_at = clock()
        self._shown = ""
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        with self._lock:
            if self._is_terminal:
                width = shutil.get_terminal_size().columns - 1
                self._out.write(f"\r\x1b[K{text[:width]}")
            elif self._clock() - self._shown_at >= _QUIET_S:
                self._out.write(f"{text}\n")
                self._shown = text
                self._shown_at = self._clock()
            self._out.flush()

    def end(self, text: str) -> None:
        with self._lock:
            if self._is_terminal:
                self._out.write(f"\r\x1b[K{text}\n")
            elif text != self._shown:
                self._out.write(f"{text}\n")
            self._out.flush()

"""Keeps the log readable when clients misbehave: the first closed connections are logged, the rest are counted.

Called by a connection that is closed for what it sent, and by the server for a connection that it has no room for.
Fifty thousand of them must not fill a disk.
"""

import logging
from time import monotonic

WRITTEN = 10
PERIOD_S = 10.0
"""At most this many lines in each period of this length."""

log = logging.getLogger("barnabas.server")


class LogLimiter:
    """Mutable: lines written and lines held back in this period."""

    def __init__(self) -> None:
        self._since = 0.0
        self._written = 0
        self._held_back = 0

    def closed(self, address: str, problem: object) -> None:
        now = monotonic()
        if now - self._since > PERIOD_S:
            if self._held_back:
                log.warning("closed %d more connections", self._held_back)
            self._since, self._written, self._held_back = now, 0, 0
        if self._written == WRITTEN:
            self._held_back += 1
            return
        self._written += 1
        log.warning("closed the connection from %s: %s", address, problem)

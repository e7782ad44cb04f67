"""Keeps the log readable when somebody misbehaves: the first complaints are written, the rest are counted.

Called by connections that are closed for what they sent, and by the server for those it has no room for; fifty thousand
of them must not fill a disk.
"""

import logging
from time import monotonic

WRITTEN = 10
"""How many complaints a period has at the most, and how long one is."""
PERIOD_S = 10.0

log = logging.getLogger("barnabas.server")


class Complaints:
    """Mutable: how many were written and held back in this period."""

    def __init__(self) -> None:
        self._since = 0.0
        self._written = 0
        self._held_back = 0

    def about(self, address: str, problem: object) -> None:
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

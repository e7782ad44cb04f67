"""Owns what went wrong with the disk of one log: errors become refusals, and each is told once. The log has one.

An fsync that has failed is never forgotten: what it was to write may be gone, and no later one says so.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.disk import SyncFailed
from barnabas.errors import Code, Refused

_logger = logging.getLogger("barnabas.log")


class DiskTrouble:
    """Mutable: the last complaint, and the fsync that failed."""

    __slots__ = ("_complaint", "_partition", "_sync_error")

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self._complaint = ""
        self._sync_error: OSError | None = None

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Turn an OSError of the work into a refusal."""
        try:
            yield
        except OSError as error:
            raise self.refused(what, error) from error

    def refused(self, what: str, error: OSError) -> Refused:
        """The refusal of requests that need what could not be done."""
        if isinstance(error, SyncFailed):
            self._sync_error = error
        complaint = f"cannot {what} the log of {self._partition}: {error}"
        # A full disk refuses thousands of appends a second: that is one line, not thousands.
        if complaint != self._complaint:
            self._complaint = complaint
            _logger.error("%s", complaint)
        return Refused(Code.KAFKA_STORAGE_ERROR, complaint)

    def check_syncs(self) -> None:
        """Refuse to flush a log of which an fsync has failed."""
        if self._sync_error is not None:
            raise self.refused("flush", self._sync_error) from self._sync_error

    def is_over(self) -> None:
        """A flush has succeeded: the same complaint would be news."""
        self._complaint = ""

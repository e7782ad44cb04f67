"""Decides which segment of a log has had its time. `Log.retain` asks, and removes; nothing is kept here."""

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.config import TopicConfig
from barnabas.log.segment import Segment
from barnabas.types import Millis, Offset

_logger = logging.getLogger("barnabas.log")


class Removed(NamedTuple):
    """A segment that retention took."""

    base: Offset
    end: Offset
    size: int
    reason: str


def reason_to_remove(
    segments: Sequence[Segment], config: TopicConfig, *, size: int, start: Offset, now: Millis
) -> str | None:
    """Why the oldest of these segments need not be kept any longer; None where it must be.

    A compacted topic keeps its old segments unless its cleanup.policy names delete, too.
    """
    first = segments[0]
    if first.size and first.end <= start:
        return f"the log starts at offset {start}"
    if "delete" not in config.cleanup_policy:
        return None
    if 0 <= config.retention_bytes <= size - first.size:
        return f"retention.bytes={config.retention_bytes}"
    # Records without timestamps are as old as their segment.
    newest = first.max_timestamp if first.max_timestamp >= 0 else first.created
    if 0 <= config.retention_ms < now - newest:
        return f"retention.ms={config.retention_ms}"
    return None


def report(directory: str, gone: Sequence[Removed]) -> None:
    """Say in one line what retention took from a partition, and why."""
    _logger.info(
        "%s: removed the records from offset %d up to %d, %d bytes: %s",
        os.path.basename(directory),
        gone[0].base,
        gone[-1].end,
        sum(removed.size for removed in gone),
        gone[-1].reason,
    )

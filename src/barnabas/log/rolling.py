"""Decides when a log must begin a new segment. The log asks on every append, and now and then without one."""

from zlib import crc32

from barnabas.config import TopicConfig
from barnabas.log.segment import LARGEST_RELATIVE_OFFSET, Segment
from barnabas.types import Millis, Offset


def must_roll(
    active: Segment, config: TopicConfig, size: int, last: Offset, max_timestamp: Millis, now: Millis
) -> bool:
    """Whether the active segment cannot take a batch any more, or has been taking them for too long.

    Age is told by the batches' own timestamps where they have them, so that a copy rolls like its original.
    """
    if active.size == 0:
        return False
    if (
        active.size + size > config.segment_bytes
        or active.index_bytes >= config.segment_index_bytes
        or last - active.base > LARGEST_RELATIVE_OFFSET
    ):
        return True
    begun = active.first_timestamp
    age = max_timestamp - begun if begun >= 0 else now - active.created
    return age > config.segment_ms or (config.segment_jitter_ms > 0 and age > _patience(active, config))


def is_stale(active: Segment, config: TopicConfig, now: Millis) -> bool:
    """Whether segment.ms has passed since the active segment was begun, and it holds something."""
    return active.size > 0 and now - active.created > _patience(active, config)


def _patience(active: Segment, config: TopicConfig) -> int:
    """segment.ms less a part of segment.jitter.ms, so that logs which were made together roll apart.

    A compacted topic rolls within max.compaction.lag.ms, too: the active segment is never compacted.
    """
    longest = config.segment_ms
    if "compact" in config.cleanup_policy:
        longest = min(longest, config.max_compaction_lag_ms)
    spread = min(config.segment_jitter_ms, longest)
    return longest - (crc32(active.path.encode()) % (spread + 1) if spread else 0)

"""What a topic can be told. Read by the log, and by what decides on topics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from barnabas.config.declaring import DAY_MS, declare, declare_int, declared
from barnabas.setting import LONG_MAX, ConfigError, ItemShape, Setting

THROTTLED = ItemShape(
    re.compile("[0-9]{1,10}:[0-9]{1,10}"),
    "*",
    "* for all, or a list like 0:1,0:2 of a partition and a broker each",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What a topic can be told. Defaults are Kafka's."""

    cleanup_policy: frozenset[str] = declare(
        frozenset({"delete"}),
        "What happens to old records: delete drops old segments, compact keeps the newest value of each key; "
        "empty keeps everything.",
        among=("delete", "compact"),
        synonyms=("log.cleanup.policy",),
    )
    compression_gzip_level: int = declare_int(
        -1,
        "The level of what the broker itself compresses with gzip; -1 is the library's own.",
        among=("-1", *map(str, range(1, 10))),
        synonyms=("compression.gzip.level",),
    )
    compression_lz4_level: int = declare_int(
        9,
        "The level of what the broker itself compresses with lz4; 9 is the fastest, as it is with Kafka.",
        least=1,
        most=17,
        synonyms=("compression.lz4.level",),
    )
    compression_type: str = declare(
        "producer",
        "How batches are stored: producer keeps what the producer chose, else the broker recompresses.",
        among=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonyms=("compression.type",),
    )
    compression_zstd_level: int = declare_int(
        3,
        "The level of what the broker itself compresses with zstd.",
        least=-131_072,
        most=22,
        synonyms=("compression.zstd.level",),
    )
    delete_retention_ms: int = declare(
        DAY_MS,
        "How long a tombstone stays in a compacted topic, so that slow readers see the deletion.",
        least=0,
        synonyms=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = declare(
        60_000,
        "Accepted for compatibility: deleted files are freed as soon as no answer is being sent from them.",
        least=0,
        synonyms=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = declare(
        LONG_MAX,
        "After how many records a partition is forced to disk; by default the operating system decides. With 1, no "
        "record is acknowledged or seen by a reader before it is on the disk.",
        least=1,
        synonyms=("log.flush.interval.messages",),
    )
    flush_ms: int = declare(
        LONG_MAX,
        "After how many milliseconds a partition with new records is forced to disk.",
        least=0,
        synonyms=("log.flush.interval.ms",),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = declare(
        (),
        "The replicas that follower.replication.throttled.rate holds while they catch up: a list of "
        "partition:broker, or * for all.",
        shape=THROTTLED,
    )
    index_interval_bytes: int = declare_int(
        4096,
        "How many bytes of log lie between two entries of the sparse index.",
        least=0,
        synonyms=("log.index.interval.bytes",),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = declare(
        (),
        "The leaders whose answers to replicas that catch up are held to leader.replication.throttled.rate: a list of "
        "partition:broker, or * for all.",
        shape=THROTTLED,
    )
    local_retention_bytes: int = declare(
        -2,
        "Accepted for compatibility: all segments are local, and retention.bytes is what counts.",
        least=-2,
        synonyms=("log.local.retention.bytes",),
    )
    local_retention_ms: int = declare(
        -2,
        "Accepted for compatibility: all segments are local, and retention.ms is what counts.",
        least=-2,
        synonyms=("log.local.retention.ms",),
    )
    max_compaction_lag_ms: int = declare(
        LONG_MAX,
        "After how long a record must have become eligible for compaction, whatever the dirty ratio.",
        least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = declare_int(
        1_048_588,
        "The largest record batch the topic accepts, as it is after compression.",
        least=0,
        synonyms=("message.max.bytes",),
    )
    message_timestamp_after_max_ms: int = declare(
        3_600_000,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = declare(
        LONG_MAX,
        "How far a record's timestamp may lie behind the broker's clock.",
        least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = declare(
        "CreateTime",
        "Whose clock a record's timestamp comes from: the producer's or, at the append, the broker's.",
        among=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = declare(
        0.5,
        "The share of a compacted log that must be uncleaned before it is cleaned again.",
        least=0,
        most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = declare(
        0,
        "How long a record stays uncompacted at the least.",
        least=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = declare_int(
        1,
        "How many replicas must have a record before a producer with acks=all gets its answer.",
        least=1,
        synonyms=("min.insync.replicas",),
    )
    preallocate: bool = declare(
        False,
        "Accepted for compatibility: segments always grow as they are written.",
        synonyms=("log.preallocate",),
    )
    remote_log_copy_disable: bool = declare(
        False, "Accepted for compatibility: nothing is copied to a remote storage."
    )
    remote_log_delete_on_disable: bool = declare(
        False, "Accepted for compatibility: there is nothing in a remote storage to delete."
    )
    remote_storage_enable: bool = declare(
        False,
        "Whether segments are kept in a remote storage too: there is none here.",
        among=("false",),
    )
    retention_bytes: int = declare(
        -1,
        "How large a partition may grow before its oldest segments are deleted; -1 sets no limit.",
        least=-1,
        synonyms=("log.retention.bytes",),
    )
    retention_ms: int = declare(
        7 * DAY_MS,
        "How old records may become before their segment is deleted; -1 keeps them for ever.",
        least=-1,
        synonyms=("log.retention.ms", ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    )
    segment_bytes: int = declare_int(
        1 << 30,
        "How large a segment file grows before the next one is begun.",
        least=14,
        synonyms=("log.segment.bytes",),
    )
    segment_index_bytes: int = declare_int(
        10 << 20,
        "How large a segment's offset index may grow; a full index begins a new segment.",
        least=12,
        synonyms=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = declare(
        0,
        "Up to how much earlier than segment.ms a segment is rolled, so that not all roll at once.",
        least=0,
        synonyms=("log.roll.jitter.ms", ("log.roll.jitter.hours", 3_600_000)),
    )
    segment_ms: int = declare(
        7 * DAY_MS,
        "After how long a segment is rolled even if it is not full, so that retention can get at it.",
        least=1,
        synonyms=("log.roll.ms", ("log.roll.hours", 3_600_000)),
    )
    unclean_leader_election_enable: bool = declare(
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
        synonyms=("unclean.leader.election.enable",),
    )


@cache
def topic_settings() -> dict[str, Setting]:
    """All settings a topic has, by Kafka's name."""
    return {setting.name: setting for setting in map(declared, fields(TopicConfig))}


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """A topic's settings: what it was told, else what the broker hands down."""
    known = topic_settings()
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        if name not in known:
            raise ConfigError(f"The topic setting {name!r} does not exist.")
        values[name.replace(".", "_")] = known[name].parse(text)
    return replace(defaults, **values) if values else defaults

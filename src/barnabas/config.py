"""Every setting, declared once: Kafka's name, type, default, doc and bounds.

A field's name is Kafka's with underscores for dots. From the declarations come parsing, flags, the answers of
DescribeConfigs and the table in the docs. Used by every layer; knows none of them.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from typing import Any

from barnabas.setting import INT_MAX, LONG_MAX, ConfigError, Kind, Setting, Value

DAY_MS = 24 * 60 * 60 * 1000


def _setting(
    default: Value,
    doc: str,
    *,
    kind: Kind | None = None,
    least: float | None = None,
    most: float | None = None,
    among: tuple[str, ...] = (),
    synonyms: tuple[str | tuple[str, int], ...] = (),
    dynamic: bool = False,
) -> Any:
    if kind is None:
        kind = {bool: Kind.BOOLEAN, int: Kind.LONG, float: Kind.DOUBLE, str: Kind.STRING}.get(
            type(default), Kind.LIST
        )
    pairs = tuple((name, 1) if isinstance(name, str) else name for name in synonyms)
    facts = {
        "kind": kind,
        "doc": doc,
        "least": least,
        "most": most,
        "among": among,
        "synonyms": pairs,
        "dynamic": dynamic,
    }
    return field(default=default, metadata=facts)


def _int(default: int, doc: str, **facts: Any) -> Any:
    return _setting(default, doc, kind=Kind.INT, **facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What a topic can be told. Defaults are Kafka's."""

    cleanup_policy: frozenset[str] = _setting(
        frozenset({"delete"}),
        "What happens to old records: delete drops old segments, compact keeps the newest value of each key; "
        "empty keeps everything.",
        among=("delete", "compact"),
        synonyms=("log.cleanup.policy",),
    )
    compression_gzip_level: int = _int(
        -1,
        "The level of what the broker itself compresses with gzip; -1 is the library's own.",
        among=("-1", *map(str, range(1, 10))),
        synonyms=("compression.gzip.level",),
    )
    compression_lz4_level: int = _int(
        9,
        "The level of what the broker itself compresses with lz4; 9 is the fastest, as it is with Kafka.",
        least=1,
        most=17,
        synonyms=("compression.lz4.level",),
    )
    compression_type: str = _setting(
        "producer",
        "How batches are stored: producer keeps what the producer chose, else the broker recompresses.",
        among=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        synonyms=("compression.type",),
    )
    compression_zstd_level: int = _int(
        3,
        "The level of what the broker itself compresses with zstd.",
        least=-131_072,
        most=22,
        synonyms=("compression.zstd.level",),
    )
    delete_retention_ms: int = _setting(
        DAY_MS,
        "How long a tombstone stays in a compacted topic, so that slow readers see the deletion.",
        least=0,
        synonyms=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = _setting(
        60_000,
        "Accepted for compatibility: deleted files are freed as soon as no answer is being sent from them.",
        least=0,
        synonyms=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = _setting(
        LONG_MAX,
        "After how many records a partition is forced to disk; by default the operating system decides. With 1, no "
        "record is acknowledged or seen by a reader before it is on the disk.",
        least=1,
        synonyms=("log.flush.interval.messages",),
    )
    flush_ms: int = _setting(
        LONG_MAX,
        "After how many milliseconds a partition with new records is forced to disk.",
        least=0,
        synonyms=("log.flush.interval.ms",),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _setting(
        (), "Accepted for compatibility: no follower is slowed down."
    )
    index_interval_bytes: int = _int(
        4096,
        "How many bytes of log lie between two entries of the sparse index.",
        least=0,
        synonyms=("log.index.interval.bytes",),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _setting(
        (), "Accepted for compatibility: no leader is slowed down."
    )
    local_retention_bytes: int = _setting(
        -2,
        "Accepted for compatibility: all segments are local, and retention.bytes is what counts.",
        least=-2,
        synonyms=("log.local.retention.bytes",),
    )
    local_retention_ms: int = _setting(
        -2,
        "Accepted for compatibility: all segments are local, and retention.ms is what counts.",
        least=-2,
        synonyms=("log.local.retention.ms",),
    )
    max_compaction_lag_ms: int = _setting(
        LONG_MAX,
        "After how long a record must have become eligible for compaction, whatever the dirty ratio.",
        least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = _int(
        1_048_588,
        "The largest record batch the topic accepts, as it is after compression.",
        least=0,
        synonyms=("message.max.bytes",),
    )
    message_timestamp_after_max_ms: int = _setting(
        3_600_000,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = _setting(
        LONG_MAX,
        "How far a record's timestamp may lie behind the broker's clock.",
        least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = _setting(
        "CreateTime",
        "Whose clock a record's timestamp comes from: the producer's or, at the append, the broker's.",
        among=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = _setting(
        0.5,
        "The share of a compacted log that must be uncleaned before it is cleaned again.",
        least=0,
        most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = _setting(
        0,
        "How long a record stays uncompacted at the least.",
        least=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = _int(
        1,
        "How many replicas must have a record before a producer with acks=all gets its answer.",
        least=1,
        synonyms=("min.insync.replicas",),
    )
    preallocate: bool = _setting(
        False,
        "Accepted for compatibility: segments always grow as they are written.",
        synonyms=("log.preallocate",),
    )
    remote_log_copy_disable: bool = _setting(
        False, "Accepted for compatibility: nothing is copied to a remote storage."
    )
    remote_log_delete_on_disable: bool = _setting(
        False, "Accepted for compatibility: there is nothing in a remote storage to delete."
    )
    remote_storage_enable: bool = _setting(
        False,
        "Whether segments are kept in a remote storage too: there is none here.",
        among=("false",),
    )
    retention_bytes: int = _setting(
        -1,
        "How large a partition may grow before its oldest segments are deleted; -1 sets no limit.",
        least=-1,
        synonyms=("log.retention.bytes",),
    )
    retention_ms: int = _setting(
        7 * DAY_MS,
        "How old records may become before their segment is deleted; -1 keeps them for ever.",
        least=-1,
        synonyms=("log.retention.ms", ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    )
    segment_bytes: int = _int(
        1 << 30,
        "How large a segment file grows before the next one is begun.",
        least=14,
        synonyms=("log.segment.bytes",),
    )
    segment_index_bytes: int = _int(
        10 << 20,
        "How large a segment's offset index may grow; a full index begins a new segment.",
        least=12,
        synonyms=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = _setting(
        0,
        "Up to how much earlier than segment.ms a segment is rolled, so that not all roll at once.",
        least=0,
        synonyms=("log.roll.jitter.ms", ("log.roll.jitter.hours", 3_600_000)),
    )
    segment_ms: int = _setting(
        7 * DAY_MS,
        "After how long a segment is rolled even if it is not full, so that retention can get at it.",
        least=1,
        synonyms=("log.roll.ms", ("log.roll.hours", 3_600_000)),
    )
    unclean_leader_election_enable: bool = _setting(
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
        synonyms=("unclean.leader.election.enable",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker can be told. Settings that topics inherit are in `topic_defaults`."""

    broker_id: int = _int(1, "The number this broker is known by in its cluster.", least=0)
    listeners: str = _setting(
        "PLAINTEXT://127.0.0.1:9092", "Where the broker listens, as PLAINTEXT://HOST:PORT."
    )
    advertised_listeners: str = _setting(
        "", "The address given to clients; where empty, the one the broker listens on."
    )
    controller_listener_names: tuple[str, ...] = _setting(
        (), "Which of the listeners are for controllers: there is nobody here who listens there."
    )
    log_dirs: tuple[str, ...] = _setting(
        ("data",), "The folders the partitions are spread over, separated by commas."
    )
    num_partitions: int = _int(1, "How many partitions a topic gets when nobody says.", least=1)
    default_replication_factor: int = _int(1, "How many replicas a topic gets when nobody says.", least=1)
    auto_create_topics_enable: bool = _setting(True, "Whether asking for an unknown topic creates it.")
    delete_topic_enable: bool = _setting(True, "Whether topics can be deleted.")
    socket_request_max_bytes: int = _int(
        100 * 1024 * 1024,
        "The largest request that is read; a larger one costs its sender the connection.",
        least=1,
    )
    # The most that Linux grants when nobody has told it otherwise. A gigabyte consumed costs a tenth less CPU than with
    # Kafka's 102,400 (0.20 to 0.28 s instead of 0.23 to 0.31 in four shapes), and a tenth less than with much more.
    socket_send_buffer_bytes: int = _int(
        212_992, "The size of a connection's send buffer in the kernel; -1 leaves it to the system.", least=-1
    )
    # Kafka's is 102,400, which the kernel never lets grow: a request of 1 MiB then comes in nine pieces, and is stored
    # at 1,300 MB/s instead of 2,300.
    socket_receive_buffer_bytes: int = _int(
        -1,
        "The size of a connection's receive buffer in the kernel; -1 leaves it to the system.",
        least=-1,
    )
    socket_listen_backlog_size: int = _int(128, "How many connections may wait to be accepted.", least=1)
    max_connections: int = _int(
        INT_MAX, "How many connections the broker keeps at once.", least=0, dynamic=True
    )
    max_connections_per_ip: int = _int(
        INT_MAX, "How many of them may come from one address.", least=0, dynamic=True
    )
    connections_max_idle_ms: int = _setting(
        600_000, "After how long a silent connection is closed.", least=-1
    )
    fetch_max_bytes: int = _int(
        55 * 1024 * 1024, "The most one fetch answer carries, whatever was asked for.", least=1024
    )
    request_timeout_ms: int = _int(
        30_000, "How long the broker waits for others before it gives up.", least=1
    )
    log_retention_check_interval_ms: int = _setting(300_000, "How often retention is looked at.", least=1)
    log_flush_scheduler_interval_ms: int = _setting(
        1000, "How often flush.ms and flush.messages are looked at.", least=1
    )
    log_flush_offset_checkpoint_interval_ms: int = _int(
        60_000, "How often recovery points are written down.", least=1
    )
    log_cleaner_enable: bool = _setting(True, "Whether compacted topics are compacted.")
    log_cleaner_backoff_ms: int = _setting(15_000, "How often compacted topics are looked at.", least=0)
    log_cleaner_dedupe_buffer_size: int = _setting(
        128 << 20, "How much memory compaction may use for its map of keys.", least=1 << 20
    )
    producer_id_expiration_ms: int = _int(
        DAY_MS, "How long a producer that wrote nothing more is remembered.", least=1, dynamic=True
    )
    offsets_topic_num_partitions: int = _int(
        50, "How many partitions __consumer_offsets gets; it should not change later.", least=1
    )
    offsets_topic_replication_factor: int = _int(
        1, "How many replicas __consumer_offsets gets when it is made.", least=1
    )
    offsets_topic_segment_bytes: int = _int(
        100 << 20, "The segment.bytes that __consumer_offsets is made with.", least=14
    )
    offsets_retention_minutes: int = _int(
        7 * 24 * 60,
        "How long the offsets of a group that has no members any more are kept; alone, since the commit.",
        least=1,
    )
    offsets_retention_check_interval_ms: int = _setting(
        600_000, "How often offsets that nobody needs any more are looked for.", least=1
    )
    offset_metadata_max_bytes: int = _int(
        4096, "How long the metadata of a committed offset may be.", least=0
    )
    group_min_session_timeout_ms: int = _int(
        6000, "The shortest session timeout a member may ask for.", least=0
    )
    group_max_session_timeout_ms: int = _int(
        1_800_000, "The longest session timeout a member may ask for.", least=0
    )
    group_initial_rebalance_delay_ms: int = _int(
        3000, "How long an empty group waits for more members before its first rebalance.", least=0
    )
    group_max_size: int = _int(INT_MAX, "How many members a classic group may have.", least=1)
    group_consumer_session_timeout_ms: int = _int(
        45_000, "After how long a silent member of a consumer group counts as gone.", least=1
    )
    group_consumer_heartbeat_interval_ms: int = _int(
        5000, "How often members of a consumer group are told to send heartbeats.", least=1
    )
    group_consumer_max_size: int = _int(INT_MAX, "How many members a consumer group may have.", least=1)
    group_consumer_assignors: tuple[str, ...] = _setting(
        ("uniform", "range"),
        "The assignors consumer groups may use; the first is for members that do not choose.",
        among=("uniform", "range"),
    )
    group_consumer_migration_policy: str = _setting(
        "bidirectional",
        "Which way a group with members may change between the classic and the consumer protocol.",
        among=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    metrics_listen: str = _setting(
        "", "Where metrics are served for Prometheus, as HOST:PORT; nowhere where empty."
    )

    topic_defaults: TopicConfig = TopicConfig()
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The settings as a person wrote them, for DescribeConfigs."""


@cache
def topic_settings() -> dict[str, Setting]:
    """All settings a topic has, by Kafka's name."""
    return {setting.name: setting for setting in map(_declared, fields(TopicConfig))}


@cache
def broker_settings() -> dict[str, Setting]:
    """All settings a broker has, by Kafka's name: its own, and the defaults it hands to topics."""
    found = {s.name: s for s in map(_declared, fields(BrokerConfig)) if s.doc}
    for topical in topic_settings().values():
        for name, scale in topical.synonyms:
            # Of several spellings only the coarsest has a default, as in Kafka: log.retention.hours is 168.
            scaled = (
                topical.default // scale
                if isinstance(topical.default, int) and scale > 1
                else topical.default
            )
            found[name] = replace(
                topical,
                name=name,
                default=scaled if name == topical.synonyms[-1][0] else None,
                doc=f"The default of a topic's {topical.name}. {topical.doc}",
                least=-1 if scale > 1 else topical.least,
                synonyms=(),
                dynamic=True,
            )
    return found


def _declared(declaration: Field[Any]) -> Setting:
    facts = declaration.metadata or dict.fromkeys(("kind", "least", "most"), None) | {
        "doc": "",
        "among": (),
        "synonyms": (),
        "dynamic": False,
    }
    default: Any = declaration.default
    return Setting(name=declaration.name.replace("_", "."), default=default, **facts)


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """A topic's settings: what it was told, else what the broker hands down."""
    known = topic_settings()
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        if name not in known:
            raise ConfigError(f"The topic setting {name!r} does not exist.")
        values[name.replace(".", "_")] = known[name].parse(text)
    return replace(defaults, **values) if values else defaults


def broker_config(*places: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """A broker's settings, and the names nobody knows (to be warned about; Kafka has more than we do).

    Of a setting that is given in several places, as in a file and on the command line, the last one counts.
    """
    known = broker_settings()
    own = {declaration.name for declaration in fields(BrokerConfig)}
    given: dict[str, str] = {}
    for place in places:
        given |= _with_aliases(place)
    values: dict[str, Any] = {}
    unknown = [name for name in given if name not in known]
    for name in given.keys() - set(unknown):
        value = known[name].parse(given[name])
        if name.replace(".", "_") in own:
            values[name.replace(".", "_")] = value
    kept = {name: text for name, text in given.items() if name in known}
    return BrokerConfig(**values, topic_defaults=handed_down(kept), given=kept), unknown


def handed_down(given: Mapping[str, str]) -> TopicConfig:
    """The defaults that a broker's log.* settings make for its topics."""
    known = broker_settings()
    values: dict[str, Any] = {}
    for topical in topic_settings().values():
        # Of several spellings the finest unit wins, as in Kafka: log.retention.ms before .hours.
        for name, scale in topical.synonyms:
            if name in given:
                value = known[name].parse(given[name])
                scaled = value * scale if isinstance(value, int) and scale > 1 and value >= 0 else value
                values[topical.name.replace(".", "_")] = scaled
                break
    return TopicConfig(**values)


KAFKAS_OWN = frozenset(
    {
        "alter.config.policy.class.name",
        "background.threads",
        "broker.rack",
        "control.plane.listener.name",
        "controlled.shutdown.enable",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "early.start.listeners",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "log.cleaner.threads",
        "metadata.log.dir",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "process.roles",
        "queued.max.requests",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
        "zookeeper.connect",
        "zookeeper.connection.timeout.ms",
    }
)
"""Settings of Kafka's sample files that mean nothing here: one thread serves, and no quorum is kept."""


def _with_aliases(given: Mapping[str, str]) -> dict[str, str]:
    """Kafka's other spellings: log.dir for log.dirs, node.id for broker.id. As in Kafka, ids must agree."""
    ids = {given[name].strip() for name in ("broker.id", "node.id") if name in given}
    if len(ids) > 1:
        raise ConfigError(
            "broker.id and node.id are two names of one setting: give one of them, or both the same value, "
            f"not {' and '.join(sorted(ids))}."
        )
    settled = dict(given)
    for alias, name in (("log.dir", "log.dirs"), ("node.id", "broker.id")):
        if alias in settled:
            settled.setdefault(name, settled.pop(alias))
            settled.pop(alias, None)
    return settled

"""What a broker can be told about groups and committed offsets. Read by the coordinators and their host."""

from dataclasses import dataclass

from barnabas.config.declaring import declare, declare_int
from barnabas.setting import INT_MAX


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """Members, sessions, `__consumer_offsets`."""

    offsets_topic_num_partitions: int = declare_int(
        50, "How many partitions __consumer_offsets gets; it should not change later.", least=1
    )
    offsets_topic_replication_factor: int = declare_int(
        1, "How many replicas __consumer_offsets gets when it is made.", least=1
    )
    offsets_topic_segment_bytes: int = declare_int(
        100 << 20, "The segment.bytes that __consumer_offsets is made with.", least=14
    )
    offsets_commit_timeout_ms: int = declare_int(
        5000,
        "How long an answer waits until what it tells of is on enough replicas; then the client is told to try again.",
        least=1,
    )
    offsets_retention_minutes: int = declare_int(
        7 * 24 * 60,
        "How long the offsets of a group that has no members any more are kept; alone, since the commit.",
        least=1,
    )
    offsets_retention_check_interval_ms: int = declare(
        600_000, "How often offsets that are no longer needed are looked for.", least=1
    )
    offset_metadata_max_bytes: int = declare_int(
        4096, "How long the metadata of a committed offset may be.", least=0
    )
    group_min_session_timeout_ms: int = declare_int(
        6000, "The shortest session timeout a member may ask for.", least=0
    )
    group_max_session_timeout_ms: int = declare_int(
        1_800_000, "The longest session timeout a member may ask for.", least=0
    )
    group_initial_rebalance_delay_ms: int = declare_int(
        3000, "How long an empty group waits for more members before its first rebalance.", least=0
    )
    group_max_size: int = declare_int(INT_MAX, "How many members a classic group may have.", least=1)
    group_consumer_session_timeout_ms: int = declare_int(
        45_000, "After how long a silent member of a consumer group counts as gone.", least=1
    )
    group_consumer_heartbeat_interval_ms: int = declare_int(
        5000, "How often members of a consumer group are told to send heartbeats.", least=1
    )
    group_consumer_max_size: int = declare_int(
        INT_MAX, "How many members a consumer group may have.", least=1
    )
    group_consumer_assignors: tuple[str, ...] = declare(
        ("uniform", "range"),
        "The assignors consumer groups may use; the first is for members that do not choose.",
        among=("uniform", "range"),
    )
    group_consumer_migration_policy: str = declare(
        "bidirectional",
        "Which way a group with members may change between the classic and the consumer protocol.",
        among=("bidirectional", "upgrade", "downgrade", "disabled"),
    )

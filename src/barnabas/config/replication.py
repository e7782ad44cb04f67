"""What a broker can be told about copies of partitions on other brokers. Read by leaders, fetchers, fetch sessions."""

from dataclasses import dataclass

from barnabas.config.declaring import declare, declare_int


@dataclass(frozen=True, kw_only=True)
class ReplicationConfig:
    """Following, leading, reading from the nearest replica."""

    broker_rack: str = declare(
        "", "The rack this broker stands in: replicas are spread over racks, and read in their own."
    )
    replica_lag_time_max_ms: int = declare(
        30_000,
        "After how long a replica that has not caught up with its leader counts as out of sync.",
        least=1,
    )
    replica_lag_max_messages: int = declare(
        4000, "Retired: a replica is judged by time alone (replica.lag.time.max.ms).", least=1
    )
    replica_fetch_max_bytes: int = declare_int(
        1 << 20, "How much a follower asks for of one partition at a time.", least=0
    )
    replica_fetch_response_max_bytes: int = declare_int(
        10 << 20, "How much a follower asks for in one fetch.", least=0
    )
    replica_fetch_min_bytes: int = declare_int(
        1, "How much a leader waits for before it answers a follower.", least=0
    )
    replica_fetch_wait_max_ms: int = declare_int(
        500, "How long a leader lets a follower wait for records.", least=0
    )
    replica_fetch_backoff_ms: int = declare_int(
        1000, "How long a follower waits at the most after a fetch of a partition failed.", least=0
    )
    replica_socket_timeout_ms: int = declare_int(
        30_000, "How long a follower waits for its leader's answer before it connects anew.", least=1
    )
    replica_high_watermark_checkpoint_interval_ms: int = declare(
        5000, "How often high watermarks are written down.", least=1
    )
    replica_selector_class: str = declare(
        "",
        "How a reader is told of a replica nearer than the leader: empty for never, "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector for one in its rack (client.rack).",
        among=("", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    )
    leader_replication_throttled_rate: int = declare(
        (1 << 63) - 1,
        "Bytes a second that this broker may send to followers of throttled partitions before those that are not in "
        "sync have to wait (leader.replication.throttled.replicas of a topic).",
        least=0,
        dynamic=True,
    )
    follower_replication_throttled_rate: int = declare(
        (1 << 63) - 1,
        "Bytes a second that this broker may fetch of throttled partitions before those that are not in sync have to "
        "wait (follower.replication.throttled.replicas of a topic).",
        least=0,
        dynamic=True,
    )
    replication_quota_window_num: int = declare_int(
        11, "How many windows the rate of throttled replicas is taken over.", least=1
    )
    replication_quota_window_size_seconds: int = declare_int(1, "How long one of them is.", least=1)
    max_incremental_fetch_session_cache_slots: int = declare_int(
        1000, "How many fetch sessions of clients the broker keeps.", least=0
    )

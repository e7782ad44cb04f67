"""What a broker of a cluster can be told: where its metadata is, how it stops."""

from dataclasses import dataclass

from barnabas.config.declaring import declare, declare_int


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Read by the store's adapter for ZooKeeper, by the controller, and by a broker that stops."""

    zookeeper_connect: str = declare(
        "",
        "The ZooKeeper servers that keep the cluster's metadata: HOST:PORT,HOST:PORT/CHROOT. Without them the broker "
        "is a cluster of its own.",
    )
    zookeeper_session_timeout_ms: int = declare_int(
        6_000, "How long a broker may be silent before ZooKeeper takes it for dead.", least=1
    )
    zookeeper_connection_timeout_ms: int = declare_int(
        18_000, "How long a start waits for ZooKeeper to answer.", least=1
    )
    zookeeper_chroot_create: bool = declare(
        False, "Whether a chroot that is missing in ZooKeeper is made: for the first broker of a new cluster."
    )
    controlled_shutdown_enable: bool = declare(
        True, "Whether a broker that stops has its partitions led by others first."
    )
    controlled_shutdown_max_retries: int = declare_int(
        3, "How often a broker that stops asks the controller to move its partitions.", least=1
    )
    controlled_shutdown_retry_backoff_ms: int = declare_int(
        1_000, "How long a broker that stops waits between two such attempts.", least=0
    )
    auto_leader_rebalance_enable: bool = declare(
        True, "Whether partitions go back, by and by, to the broker that is the first of their replicas."
    )
    leader_imbalance_per_broker_percentage: int = declare_int(
        10, "How many percent of a broker's partitions others may lead before they go back.", least=0
    )
    leader_imbalance_check_interval_seconds: int = declare(
        300, "How often that is looked at, in seconds.", least=1
    )

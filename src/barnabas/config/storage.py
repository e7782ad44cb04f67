"""What a broker can be told about its disks: where logs lie, how often it looks after them. Read by housekeeping."""

from dataclasses import dataclass

from barnabas.config.declaring import DAY_MS, declare, declare_int
from barnabas.setting import Kind


@dataclass(frozen=True, kw_only=True)
class StorageConfig:
    """Data directories and chores."""

    log_dirs: tuple[str, ...] = declare(
        ("data",), "The folders the partitions are spread over, separated by commas."
    )
    log_retention_check_interval_ms: int = declare(300_000, "How often retention is looked at.", least=1)
    log_flush_scheduler_interval_ms: int = declare(
        1000, "How often flush.ms and flush.messages are looked at.", least=1
    )
    log_flush_offset_checkpoint_interval_ms: int = declare_int(
        60_000, "How often recovery points are written down.", least=1
    )
    log_cleaner_enable: bool = declare(True, "Whether compacted topics are compacted.")
    log_cleaner_backoff_ms: int = declare(15_000, "How often compacted topics are looked at.", least=0)
    log_cleaner_dedupe_buffer_size: int = declare(
        128 << 20, "How much memory compaction may use for its map of keys.", least=1 << 20
    )
    producer_id_expiration_ms: int = declare_int(
        DAY_MS, "How long a producer that wrote nothing more is remembered.", least=1, dynamic=True
    )
    replica_alter_log_dirs_io_max_bytes_per_second: float = declare(
        (1 << 63) - 1,
        "Bytes a second at which replicas move between the data directories of a broker.",
        kind=Kind.DOUBLE,
        least=1,
        dynamic=True,
    )

"""What a broker can be told about transactions. Read by their coordinators and by the partitions they are in."""

from dataclasses import dataclass

from barnabas.config.declaring import declare, declare_int


@dataclass(frozen=True, kw_only=True)
class TransactionConfig:
    """Timeouts, `__transaction_state`."""

    transaction_state_log_num_partitions: int = declare_int(
        50, "How many partitions __transaction_state gets; it should not change later.", least=1
    )
    transaction_state_log_replication_factor: int = declare_int(
        1, "How many replicas __transaction_state gets when it is made.", least=1
    )
    transaction_state_log_segment_bytes: int = declare_int(
        100 << 20, "The segment.bytes that __transaction_state is made with.", least=14
    )
    transaction_state_log_min_isr: int = declare_int(
        1, "The min.insync.replicas that __transaction_state is made with.", least=1
    )
    transaction_max_timeout_ms: int = declare_int(
        900_000, "The longest transaction timeout that a producer may ask for.", least=1
    )
    transactional_id_expiration_ms: int = declare_int(
        604_800_000, "How long a transactional id is remembered after its last use.", least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = declare_int(
        10_000, "How often transactions that took longer than their timeout are looked for.", least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = declare_int(
        3_600_000, "How often transactional ids that are no longer needed are looked for.", least=1
    )
    transaction_partition_verification_enable: bool = declare(
        True, "Whether a partition asks the coordinator before the first record of a transaction enters it."
    )
    transaction_two_phase_commit_enable: bool = declare(
        False, "Whether producers may leave the end of their transactions to others, without any timeout."
    )

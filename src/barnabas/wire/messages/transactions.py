"""What producers, brokers and tools say to a transaction coordinator, and TxnOffsetCommit, which goes to a group's.

AddPartitionsToTxn names one transaction in the fields `v3_and_below_...` up to version 3, which clients speak, and
several in `transactions` from 4 on, which brokers speak.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int16, Int32, Int64, Since, String, Until


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    name: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnTransaction:
    transactional_id: Annotated[str, String] = ""
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int16] = 0
    verify_only: Annotated[bool, Bool] = False
    """Asks whether the partitions are in the transaction, and adds none."""
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    api: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN

    transactions: Annotated[list[AddPartitionsToTxnTransaction], Since(4)] = field(default_factory=list)
    v3_and_below_transactional_id: Annotated[str, String, Until(3)] = ""
    v3_and_below_producer_id: Annotated[int, Int64, Until(3)] = 0
    v3_and_below_producer_epoch: Annotated[int, Int16, Until(3)] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], Until(3)] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    partition_error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    name: Annotated[str, String] = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnResult:
    transactional_id: Annotated[str, String] = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    api: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16, Since(4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], Since(4)] = field(default_factory=list)
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], Until(3)] = field(
        default_factory=list
    )


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    api: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN

    transactional_id: Annotated[str, String] = ""
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int16] = 0
    group_id: Annotated[str, String] = ""


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    api: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class EndTxnRequest:
    api: ClassVar[ApiKey] = ApiKey.END_TXN

    transactional_id: Annotated[str, String] = ""
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int16] = 0
    committed: Annotated[bool, Bool] = False


@dataclass(slots=True)
class EndTxnResponse:
    api: ClassVar[ApiKey] = ApiKey.END_TXN

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    producer_id: Annotated[int, Int64, Since(5)] = -1
    """The id and epoch that the producer goes on with: every transaction has an epoch of its own (KIP-890)."""
    producer_epoch: Annotated[int, Int16, Since(5)] = -1


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    partition_index: Annotated[int, Int32] = 0
    committed_offset: Annotated[int, Int64] = 0
    committed_leader_epoch: Annotated[int, Int32, Since(2)] = -1
    committed_metadata: Annotated[str | None, String] = ""


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    name: Annotated[str, String] = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    """To the group's coordinator: offsets that count once the transaction is committed."""

    api: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT

    transactional_id: Annotated[str, String] = ""
    group_id: Annotated[str, String] = ""
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int16] = 0
    generation_id: Annotated[int, Int32, Since(3)] = -1
    member_id: Annotated[str, String, Since(3)] = ""
    group_instance_id: Annotated[str | None, String, Since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    name: Annotated[str, String] = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    api: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT

    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)


@dataclass(slots=True)
class DescribeTransactionsRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS

    transactional_ids: Annotated[list[str], String] = field(default_factory=list)


@dataclass(slots=True)
class TransactionTopic:
    topic: Annotated[str, String] = ""
    partitions: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class DescribedTransaction:
    error_code: Annotated[int, Int16] = 0
    transactional_id: Annotated[str, String] = ""
    transaction_state: Annotated[str, String] = ""
    transaction_timeout_ms: Annotated[int, Int32] = 0
    transaction_start_time_ms: Annotated[int, Int64] = 0
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int16] = 0
    topics: list[TransactionTopic] = field(default_factory=list)
    """Of a transaction that is being ended: the partitions without a marker so far."""


@dataclass(slots=True)
class DescribeTransactionsResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_TRANSACTIONS

    throttle_time_ms: Annotated[int, Int32] = 0
    transaction_states: list[DescribedTransaction] = field(default_factory=list)


@dataclass(slots=True)
class ListTransactionsRequest:
    """Asks each broker for the transactions that it coordinates."""

    api: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS

    state_filters: Annotated[list[str], String] = field(default_factory=list)
    producer_id_filters: Annotated[list[int], Int64] = field(default_factory=list)
    duration_filter: Annotated[int, Int64, Since(1)] = -1
    """Milliseconds: only transactions that have been open for longer."""
    transactional_id_pattern: Annotated[str | None, String, Since(2)] = None


@dataclass(slots=True)
class ListedTransaction:
    transactional_id: Annotated[str, String] = ""
    producer_id: Annotated[int, Int64] = 0
    transaction_state: Annotated[str, String] = ""


@dataclass(slots=True)
class ListTransactionsResponse:
    api: ClassVar[ApiKey] = ApiKey.LIST_TRANSACTIONS

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    unknown_state_filters: Annotated[list[str], String] = field(default_factory=list)
    transaction_states: list[ListedTransaction] = field(default_factory=list)

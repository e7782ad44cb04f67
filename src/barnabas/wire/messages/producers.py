"""InitProducerId and DescribeProducers: the ids of idempotent producers."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int16, Int32, Int64, Since, String


@dataclass(slots=True)
class InitProducerIdRequest:
    api: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    transactional_id: Annotated[str | None, String] = None
    transaction_timeout_ms: Annotated[int, Int32] = 0
    producer_id: Annotated[int, Int64, Since(3)] = -1
    producer_epoch: Annotated[int, Int16, Since(3)] = -1
    enable2_pc: Annotated[bool, Bool, Since(6)] = False
    """The transactions are ended from outside, and have no timeout (KIP-939)."""
    keep_prepared_txn: Annotated[bool, Bool, Since(6)] = False
    """A transaction that is open stays open, to be ended by a producer with the id and epoch of the answer."""


@dataclass(slots=True)
class InitProducerIdResponse:
    api: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    producer_id: Annotated[int, Int64] = -1
    producer_epoch: Annotated[int, Int16] = 0
    ongoing_txn_producer_id: Annotated[int, Int64, Since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[int, Int16, Since(6)] = -1


@dataclass(slots=True)
class DescribeProducersTopic:
    name: Annotated[str, String] = ""
    partition_indexes: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class DescribeProducersRequest:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_PRODUCERS

    topics: list[DescribeProducersTopic] = field(default_factory=list)


@dataclass(slots=True)
class ActiveProducer:
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int32] = 0
    last_sequence: Annotated[int, Int32] = -1
    last_timestamp: Annotated[int, Int64] = -1
    coordinator_epoch: Annotated[int, Int32] = 0
    current_txn_start_offset: Annotated[int, Int64] = -1


@dataclass(slots=True)
class DescribeProducersPartitionResponse:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    error_message: Annotated[str | None, String] = None
    active_producers: list[ActiveProducer] = field(default_factory=list)


@dataclass(slots=True)
class DescribeProducersTopicResponse:
    name: Annotated[str, String] = ""
    partitions: list[DescribeProducersPartitionResponse] = field(default_factory=list)


@dataclass(slots=True)
class DescribeProducersResponse:
    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_PRODUCERS

    throttle_time_ms: Annotated[int, Int32] = 0
    topics: list[DescribeProducersTopicResponse] = field(default_factory=list)


@dataclass(slots=True)
class AllocateProducerIdsRequest:
    """A broker asks the controller for ids that it may give to producers."""

    api: ClassVar[ApiKey] = ApiKey.ALLOCATE_PRODUCER_IDS

    broker_id: Annotated[int, Int32] = 0
    broker_epoch: Annotated[int, Int64] = -1


@dataclass(slots=True)
class AllocateProducerIdsResponse:
    api: ClassVar[ApiKey] = ApiKey.ALLOCATE_PRODUCER_IDS

    throttle_time_ms: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0
    producer_id_start: Annotated[int, Int64] = 0
    producer_id_len: Annotated[int, Int32] = 0

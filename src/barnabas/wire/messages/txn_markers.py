"""WriteTxnMarkers: a transaction coordinator, or an administrator, ends transactions in the partitions of a leader."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from barnabas.wire.apis import ApiKey
from barnabas.wire.schema import Bool, Int8, Int16, Int32, Int64, Since, String


@dataclass(slots=True)
class WritableTxnMarkerTopic:
    name: Annotated[str, String] = ""
    partition_indexes: Annotated[list[int], Int32] = field(default_factory=list)


@dataclass(slots=True)
class WritableTxnMarker:
    producer_id: Annotated[int, Int64] = 0
    producer_epoch: Annotated[int, Int16] = 0
    transaction_result: Annotated[bool, Bool] = False
    """True commits, False aborts."""
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: Annotated[int, Int32] = 0
    """The leader epoch of the coordinator's partition of `__transaction_state`."""
    transaction_version: Annotated[int, Int8, Since(2)] = 0
    """2 where the epoch is one above the transaction's own (KIP-890)."""


@dataclass(slots=True)
class WriteTxnMarkersRequest:
    api: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarker] = field(default_factory=list)


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult:
    partition_index: Annotated[int, Int32] = 0
    error_code: Annotated[int, Int16] = 0


@dataclass(slots=True)
class WritableTxnMarkerTopicResult:
    name: Annotated[str, String] = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class WritableTxnMarkerResult:
    producer_id: Annotated[int, Int64] = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


@dataclass(slots=True)
class WriteTxnMarkersResponse:
    api: ClassVar[ApiKey] = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)

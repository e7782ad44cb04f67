"""Records on their way to a partition: the batch they wait in, and the handle their sender holds.

Filled by `producer`, settled by `delivery`. Always holds: a batch is settled once, and then every handle of
its records has an answer.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.errors import Refused
from barnabas.types import Millis, Offset, TopicPartition
from barnabas.wire.batch import HEADER_SIZE, Record


class RecordMetadata(NamedTuple):
    """Where a record is stored; the offset is -1 with acks=0, or where only a lost answer had told it."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis


class BatchState:
    """Records of one partition on their way; settled once, with an offset or a failure."""

    __slots__ = (
        "append_time",
        "base_offset",
        "failure",
        "halves",
        "is_settled",
        "partition",
        "records",
        "size",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.records: list[Record] = []
        self.size = HEADER_SIZE
        self.is_settled = False
        self.base_offset = -1
        self.append_time = -1
        self.failure: Refused | None = None
        self.halves: tuple[BatchState, BatchState] | None = None

    def split(self) -> "tuple[BatchState, BatchState]":
        """Two batches with the records of this one, which the broker found too large."""
        middle = len(self.records) // 2
        halves = BatchState(self.partition), BatchState(self.partition)
        for half, records in zip(halves, (self.records[:middle], self.records[middle:]), strict=True):
            half.records = [record._replace(offset=n) for n, record in enumerate(records)]
            half.size = self.size // 2
        self.halves = halves
        return halves


class Sent:
    """A record on its way. `result` waits for it, and says where it is stored or raises why it is not."""

    __slots__ = ("_batch", "_flush", "_index")

    def __init__(self, flush: Callable[[TopicPartition], None], batch: BatchState, index: int) -> None:
        self._flush = flush
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        return self._place()[0].is_settled

    def result(self) -> RecordMetadata:
        batch, index = self._place()
        if not batch.is_settled:
            self._flush(batch.partition)
            batch, index = self._place()
        if batch.failure is not None:
            raise batch.failure
        timestamp = batch.records[index].timestamp if batch.append_time < 0 else batch.append_time
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        return RecordMetadata(*batch.partition, Offset(offset), Millis(timestamp))

    def _place(self) -> tuple[BatchState, int]:
        batch, index = self._batch, self._index
        while batch.halves is not None:
            first, second = batch.halves
            batch, index = (
                (first, index) if index < len(first.records) else (second, index - len(first.records))
            )
        return batch, index

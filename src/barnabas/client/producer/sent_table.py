"""The future of a whole table: made by `Producer.send_table`, settled batch by batch."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from barnabas.client.producer.batches import Batch, nudge, settled_in_loop, wait_for
from barnabas.errors import BarnabasError
from barnabas.types import Offset, TopicPartition


class TableMetadata(NamedTuple):
    """Where the rows of a table are: how many, and the first and last offset in each partition.

    Offsets are -1 where no broker tells them (acks=0); other producers' records may lie between the first and last.
    """

    topic: str
    rows: int
    offsets: dict[int, tuple[Offset, Offset]]


class PartlySent(BarnabasError):
    """Of a table some rows are on their way and the others are not sent: of each partition, the first rows go."""

    def __init__(self, sent: "SentTable", why: BarnabasError) -> None:
        super().__init__(
            f"{why} {sent.rows} rows of the table are on their way, the others are not sent: "
            "`sent` of this error is the future of the first."
        )
        self.sent = sent


class SentTable:
    """A table on its way: a future."""

    __slots__ = ("_batches", "_counts", "_topic")

    def __init__(self, topic: str, batches: Sequence[Batch], counts: Sequence[int]) -> None:
        self._topic = topic
        self._batches = batches
        self._counts = counts
        """Rows of each batch, which lets go of them when it is settled."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(self._counts)

    def done(self) -> bool:
        """Whether every row is stored, or known not to be."""
        return all(part.is_settled for batch in self._batches for part, _ in _parts(batch, 0))

    def result(self, timeout: float | None = None) -> TableMetadata:
        """Where the rows are. Raises why one of them is not stored, or TimedOut after the timeout."""
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        offsets: dict[int, tuple[Offset, Offset]] = {}
        for batch, count in zip(self._batches, self._counts, strict=True):
            for part, rows in _parts(batch, count):
                index = TopicPartition(*part.partition).partition
                first = Offset(part.base_offset)
                last = Offset(part.base_offset + rows - 1 if part.base_offset >= 0 else -1)
                offsets[index] = (offsets[index][0] if index in offsets else first, last)
        return TableMetadata(self._topic, self.rows, offsets)

    def exception(self, timeout: float | None = None) -> BarnabasError | None:
        """Why a row is not stored; None if all are."""
        if self._batches:
            for batch in self._batches:
                batch.is_seen = True
                if batch.hurry is not None and not batch.is_settled:
                    batch.hurry(batch.partition)
            wait_for(self._batches, timeout, "The table")
        parts = (part for batch in self._batches for part, _ in _parts(batch, 0))
        failures = [part.failure for part in parts if part.failure is not None]
        return next((why for why in failures if why.may_be_stored), failures[0] if failures else None)

    def add_done_callback(self, callback: Callable[["SentTable"], Any]) -> None:
        """Call it with this future when it is done, in the client's own thread; now, if it is done already."""
        left = [None] * len(self._batches)

        def one_more() -> None:
            left.pop()
            if not left:
                callback(self)

        if not self._batches:
            callback(self)
        for batch in self._batches:
            batch.is_seen = True
            batch.when_settled(one_more)
        nudge(self._batches)

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        for batch in self._batches:
            batch.is_seen = True
            yield from settled_in_loop(batch)
        return self.result()


def _parts(batch: Batch, rows: int) -> list[tuple[Batch, int]]:
    """The batch, or what it was split into, each with how many rows it has."""
    if batch.halves is None:
        return [(batch, rows)]
    first, second = batch.halves
    return _parts(first, len(first.timestamps)) + _parts(second, len(second.timestamps))

"""Which batches of a fetched stretch stay hidden: those of aborted transactions, and the markers that end any.

PURE. Follows one partition batch by batch, with what the leader told of aborted transactions.
"""

from collections.abc import Iterable

from barnabas.types import Buffer
from barnabas.wire.batch import BatchHeader, decode_batch
from barnabas.wire.messages.fetch import AbortedTransaction

_ABORT = b"\x00\x00\x00\x00"
"""The key of a control record that ends a transaction that came to nothing: version 0, type 0."""


class AbortedTransactions:
    """Mutable: the transactions that are open at the batch in hand and will come to nothing."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, data: Buffer, at: int, header: BatchHeader) -> bool:
        """Whether the batch is not for users. To be asked for every batch, in order."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._open and any(r.key == _ABORT for r in decode_batch(data, at)):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open

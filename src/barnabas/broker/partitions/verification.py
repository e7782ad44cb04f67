"""Asks the transaction coordinator whether a producer's batch is part of a transaction that it knows (KIP-890).

Called by `handlers.produce` before the first batch of a transaction enters a partition, and by whatever else writes in
a producer's name. Without it a batch that comes after its transaction's end would open another one that never ends.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from barnabas.errors import Code
from barnabas.types import ProducerId, TopicPartition


class Verifier(Protocol):
    """The way to the coordinator of a transactional id, on this broker or on another: `broker.transactions`."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, Code]:
        """Whether the partitions are in the transaction that this producer has open: `Code.NONE` each, or why not.

        With `add` they are put into it first, and a transaction begins if none is open (transaction.version 2). Then
        an answer waits for the end of the transaction before, as long as that takes less than a request may. Raises
        nothing: a coordinator that cannot be reached, or is loading, is a code as well.
        """
        ...

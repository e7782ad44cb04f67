"""Chooses the partition of a record that is not free to go anywhere: the one it names, or the one of its key.

Used by `fast_send` and Producer. Compiled (setup.py), as every record with a key comes through here.
"""

from typing import Any

from barnabas.client.network.failures import no_partition
from barnabas.client.partitioner import KeyedPartitions, Partitioner
from barnabas.client.producer.partition_state import PartitionState, TopicState
from barnabas.errors import BarnabasError


class Chooser:
    """Chooses the partitions of records that are not free to go anywhere."""

    def __init__(self, partitioner: Partitioner | None, keyed: KeyedPartitions) -> None:
        self._partitioner: Any = partitioner
        """What it gives is checked: it is the user's."""
        self._keyed = keyed

    def choose(self, topic: TopicState, key: bytes | None, partition: Any) -> PartitionState | None:
        """The partition that is asked for or follows from the key; None where any will do."""
        partitions = topic.partitions
        if partition is not None:
            found = _at(partitions, partition)
            if found is None:
                raise no_partition(topic.name, partition, len(partitions))
            return found
        if self._partitioner is not None:
            chosen = self._partitioner(topic.name, key, len(partitions))
            found = _at(partitions, chosen)
            if found is None:
                raise BarnabasError(
                    f"The partitioner chose partition {chosen!r} of topic {topic.name!r}, which has {len(partitions)}: "
                    f"it must give a whole number, 0 to {len(partitions) - 1}."
                )
            return found
        if key is not None:
            return partitions[self._keyed.partition_of(key, len(partitions))]
        return None


def _at(partitions: list[PartitionState], number: Any) -> PartitionState | None:
    try:
        return partitions[number] if number >= 0 else None
    except (IndexError, TypeError):
        return None

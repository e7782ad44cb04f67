"""Where a record goes that names no partition: by its key, exactly as Java's clients do it.

Used by Producer. Always holds: equal keys go to equal partitions, whichever client sends them.
"""

from collections.abc import Callable
from struct import iter_unpack
from typing import Any, Final, TypeAlias

from barnabas.client.failures import no_partition
from barnabas.client.partition_state import PartitionState, TopicState
from barnabas.errors import BarnabasError

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int]
"""Chooses a partition: of a topic, for a key, of so many."""

_M: Final = 0x5BD1E995
_MOST_KNOWN: Final = 1 << 16


def murmur2(data: bytes) -> int:
    """The 32-bit hash Java's default partitioner takes of a key, unsigned."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for (k,) in iter_unpack("<I", data[:whole]):
        k = k * _M & 0xFFFFFFFF
        k ^= k >> 24
        h = h * _M & 0xFFFFFFFF ^ (k * _M & 0xFFFFFFFF)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & 0xFFFFFFFF
    h = (h ^ h >> 13) * _M & 0xFFFFFFFF
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class KeyedPartitions:
    """Remembers where keys go: hashing one costs over a microsecond, and keys come again."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def partition_of(self, key: bytes, partitions: int) -> int:
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = murmur2(key) & 0x7FFFFFFF
        return found % partitions


class Chooser:
    """Chooses the partitions of records that are not free to go anywhere."""

    def __init__(self, partitioner: Partitioner | None, keyed: KeyedPartitions) -> None:
        self._partitioner: Any = partitioner
        """Of which nobody knows what it gives."""
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

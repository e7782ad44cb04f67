"""Where a record goes that names no partition: by its key, exactly as Java's clients do it.

Used by Producer. Always holds: equal keys go to equal partitions, whichever client sends them.
"""

from collections.abc import Callable
from struct import iter_unpack
from typing import Final, TypeAlias

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int]
"""Chooses a partition from a topic, a key, and the number of partitions."""

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
    """The partition of a key, of this many."""
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

"""Where a record goes that names no partition: by its key exactly as Java's clients do it, else in turn.

Used by Producer. Always holds: equal keys go to equal partitions, whichever client sends them.
"""

from struct import iter_unpack

_M = 0x5BD1E995


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


class StickyTurns:
    """Records without a key fill one partition's batch, then the next one's: full batches, even load."""

    def __init__(self) -> None:
        self._turn: dict[str, int] = {}

    def current(self, topic: str, partitions: int) -> int:
        return self._turn.get(topic, 0) % partitions

    def move_on(self, topic: str) -> None:
        self._turn[topic] = self._turn.get(topic, 0) + 1

"""The words every layer speaks: offsets, epochs, times and names that must never be mixed up."""

from typing import NamedTuple, NewType, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that may be looked at in place (collections.abc.Buffer comes with Python 3.12 only)."""

Offset = NewType("Offset", int)
"""A record's place in a partition. Never changes once given."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders a partition has had; -1 where it is not known."""

Millis = NewType("Millis", int)
"""Milliseconds since 1970, the unit of every timestamp on the wire."""

BrokerId = NewType("BrokerId", int)

ProducerId = NewType("ProducerId", int)
"""Given by InitProducerId; -1 where a producer has none."""

NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TIMESTAMP = Millis(-1)
NO_PRODUCER = ProducerId(-1)


class TopicPartition(NamedTuple):
    """One log's name, and the name of its folder on disk."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

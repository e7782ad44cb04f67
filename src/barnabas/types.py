"""The words every layer speaks: offsets, epochs, times and names that must never be mixed up."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, NewType, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that may be looked at in place (collections.abc.Buffer comes with Python 3.12 only)."""

Offset = NewType("Offset", int)
"""A record's place in a partition. Never changes once given."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders a partition has had; -1 where it is not known."""

Millis = NewType("Millis", int)
"""Milliseconds since 1970, the unit of every timestamp on the wire."""

BrokerId = NewType("BrokerId", int)

BrokerEpoch = NewType("BrokerEpoch", int)
"""Tells the lives of a broker apart: each registration has a larger one; -1 where it is not known."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Counts the changes of one partition, of its leader and of anything else."""

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


def short_id(number: UUID) -> str:
    """A UUID as Kafka writes it: 22 characters of base64."""
    return urlsafe_b64encode(number.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> UUID:
    """The UUID in 22 characters; raises ValueError."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))

"""The values Admin takes and gives: settings and whose they are, topics made, data directories. All frozen."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from barnabas.client.cluster import Broker
from barnabas.errors import Code
from barnabas.types import BrokerId, TopicPartition


class ResourceType(IntEnum):
    """What settings can belong to."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """What settings belong to: a topic by its name, a broker by its id; "" stands for all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "All brokers"
        return f"{self.type.name.capitalize()} {self.name!r}"


class ConfigSource(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class Operation(IntEnum):
    """What an incremental change does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Config:
    """One setting. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What became of a wish for a topic; -1 where an old broker does not tell."""

    name: str
    id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster without its topics."""

    id: str
    controller: BrokerId
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition in a data directory, in bytes; `lag` is how far a copy is behind."""

    partition: TopicPartition
    size: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A data directory of a broker; `total` and `usable` are bytes, -1 where unknown."""

    broker: BrokerId
    path: str
    error: Code
    total: int
    usable: int
    partitions: tuple[StoredPartition, ...]

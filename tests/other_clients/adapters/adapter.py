"""Owns what the tests ask of a Kafka client, whichever library is behind it. Called by all tests of clients.

Each library gets one adapter, so that what the broker promises is written once and proven to every client.
Groups are no part of it: partitions are assigned by hand.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

DEADLINE_S = (
    60.0  # no single call of a client may take longer; a healthy broker on an idle machine needs moments
)


class Record(NamedTuple):
    """What a producer writes and a consumer must see again, unchanged."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Stored(NamedTuple):
    """A record as it is read back, with the place it has in its partition."""

    offset: int
    record: Record


class Refusal(Exception):
    """The broker's refusal as the client reported it: Kafka's error code."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"error code {code}: {text}")
        self.code = code


class ClientAdapter(ABC):
    """One client library, pointed at one broker. Every call is synchronous and bounded by DEADLINE_S."""

    name: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def partition_count(self, topic: str) -> int:
        """How many partitions with a leader the topic has; 0 when there is no such topic."""

    @abstractmethod
    def add_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def configs(self, topic: str) -> dict[str, str | None]:
        """All settings of the topic, defaults included."""

    @abstractmethod
    def set_config(self, topic: str, name: str, value: str) -> None:
        """Sets one setting and leaves those set before as they are."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Forgets what is below `before` (-1: everything); gives the partition's new first offset."""

    @abstractmethod
    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of the partition and the one the next record gets."""

    @abstractmethod
    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is as new as the timestamp, or newer; None when there is none."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        """Writes with acks=all, waits for every answer and gives the offset of each record."""

    @abstractmethod
    def read(self, topic: str, partition: int, start: int, count: int) -> list[Stored]:
        """Reads exactly `count` records from `start`; fails when they do not come in time."""

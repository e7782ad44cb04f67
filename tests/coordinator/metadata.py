"""What consumers of the classic protocol put into their requests, as bytes."""

from collections.abc import Iterable
from struct import pack

from barnabas.coordinator.consumer_protocol import (
    AssignedPartitions,
    PartitionsOfTopic,
    Subscription,
)
from barnabas.wire.codec import encoder


def subscription_bytes(
    topics: Iterable[str], owned: Iterable[tuple[str, int]] = (), version: int = 3
) -> bytes:
    out = bytearray(pack(">h", version))
    encoder(Subscription, version)(Subscription(list(topics), None, _rows(owned)), out)
    return bytes(out)


def assigned_bytes(
    partitions: Iterable[tuple[str, int]], version: int = 1, user_data: bytes | None = None
) -> bytes:
    out = bytearray(pack(">h", version))
    encoder(AssignedPartitions, version)(AssignedPartitions(_rows(partitions), user_data), out)
    return bytes(out)


def _rows(partitions: Iterable[tuple[str, int]]) -> list[PartitionsOfTopic]:
    rows: dict[str, PartitionsOfTopic] = {}
    for topic, index in partitions:
        rows.setdefault(topic, PartitionsOfTopic(topic)).partitions.append(index)
    return list(rows.values())

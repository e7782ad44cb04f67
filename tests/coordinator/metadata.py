"""What consumers of the classic protocol put into their requests, as bytes."""

from collections.abc import Iterable

from barnabas.wire.messages.consumer_protocol import (
    AssignedPartitions,
    PartitionsOfTopic,
    Subscription,
    to_bytes,
)


def subscription_bytes(
    topics: Iterable[str], owned: Iterable[tuple[str, int]] = (), version: int = 3
) -> bytes:
    return to_bytes(Subscription(list(topics), None, _rows(owned)), version)


def assigned_bytes(
    partitions: Iterable[tuple[str, int]], version: int = 1, user_data: bytes | None = None
) -> bytes:
    return to_bytes(AssignedPartitions(_rows(partitions), user_data), version)


def _rows(partitions: Iterable[tuple[str, int]]) -> list[PartitionsOfTopic]:
    rows: dict[str, PartitionsOfTopic] = {}
    for topic, index in partitions:
        rows.setdefault(topic, PartitionsOfTopic(topic)).partitions.append(index)
    return list(rows.values())

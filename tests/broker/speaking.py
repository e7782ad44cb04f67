"""Requests as the tests of the broker need them, over a plain connection."""

import time
from typing import Any

from barnabas.testing import Broker
from barnabas.wire.batch import Record, encode_batch
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceTopic,
)
from barnabas.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.raw import RawConnection


def connect(broker: Broker) -> RawConnection:
    return RawConnection(int(broker.bootstrap.rpartition(":")[2]))


def create(connection: RawConnection, topic: str, partitions: int = 1, /, **configs: str) -> None:
    """A topic with these settings (underscores for dots)."""
    rows = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
    answer = connection.ask(CreateTopicsRequest([CreatableTopic(topic, partitions, 1, configs=rows)]), 7)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def batch(*values: bytes, **facts: Any) -> bytes:
    now = int(time.time() * 1000)
    return encode_batch([Record(i, now, None, value, ()) for i, value in enumerate(values)], **facts)


def produce_request(topic: str, records: bytes, partition: int = 0, acks: int = -1) -> ProduceRequest:
    part = ProducePartition(partition, memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[ProduceTopic(topic, [part])])


def produce(
    connection: RawConnection, topic: str, records: bytes, partition: int = 0
) -> ProducePartitionResponse:
    answer = connection.ask(produce_request(topic, records, partition), 9)
    row: ProducePartitionResponse = answer.responses[0].partition_responses[0]
    return row


def fetch_request(
    topic: str,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
) -> FetchRequest:
    parts = [
        FetchPartition(
            index, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[FetchTopic(topic, parts)]
    )


def fetch(connection: RawConnection, topic: str, offsets: dict[int, int], **facts: int) -> list[Any]:
    answer = connection.ask(fetch_request(topic, offsets, **facts), 12)
    rows: list[Any] = answer.responses[0].partitions
    return rows

"""Promises of client/producer/one_batch.py: it is the produce request that it stands for, byte for byte."""

from typing import Any

import pytest

from barnabas.client.producer.one_batch import Envelope, OneBatch
from barnabas.types import TopicPartition
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.frames import encode_request
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

API = APIS[ApiKey.PRODUCE]


@pytest.mark.parametrize("version", range(API.lowest, API.highest + 1))
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 30_000])
@pytest.mark.parametrize("topic", ["t", "naïve", "x" * 200])
def test_it_is_the_same_on_the_wire(version: int, size: int, topic: str) -> None:
    records = bytes(size)
    written: list[Any] = encode_request(
        OneBatch(Envelope(TopicPartition(topic, 7), -1, 30_000), records), version, 5, "client"
    )
    part = ProducePartition(index=7, records=memoryview(records))
    whole = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceTopic(name=topic, partition_data=[part])]
    )
    expected: list[Any] = encode_request(whole, version, 5, "client")
    assert b"".join(written) == b"".join(expected)

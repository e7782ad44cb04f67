"""Promises of AsyncProducer and AsyncConsumer, kept with our broker and with Apache Kafka alike."""

import asyncio
from collections.abc import Callable

from barnabas import AsyncConsumer, AsyncProducer
from tests.client_with_broker.conftest import NewTopic

Unique = Callable[[str], str]


def test_records_are_sent_and_read_while_the_loop_goes_on(
    broker: str, new_topic: NewTopic, unique: Unique
) -> None:
    topic, group = new_topic(2), unique("group")

    async def send() -> list[int]:
        async with AsyncProducer(bootstrap_servers=broker, linger_ms=2) as producer:
            sent = [await producer.send(topic, b"%d" % number, partition=number % 2) for number in range(200)]
            return [(await each).offset for each in sent]

    async def read() -> list[int]:
        found: list[int] = []
        async with AsyncConsumer(
            topic, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            async for record in consumer:
                found.append(int(record.value))
                if len(found) == 200:
                    return found
        return found

    async def both() -> tuple[list[int], list[int]]:
        async with asyncio.timeout(60):
            return await asyncio.gather(send(), read())

    offsets, found = asyncio.run(both())
    assert offsets == [number // 2 for number in range(200)]
    assert sorted(found) == list(range(200))
    assert [number for number in found if number % 2] == list(range(1, 200, 2))

"""Promises of client/consumer/async_consumer.py: the same records, awaited."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import pytest

from barnabas import AsyncProducer, BarnabasError, Producer, TopicPartition
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.network.failures import NoBroker
from tests.deadline import eventually
from tests.process import free_port

NewTopic = Callable[..., str]


@pytest.fixture
def numbers(bootstrap: str, new_topic: NewTopic) -> TopicPartition:
    """A partition with the records 0 to 99."""
    topic = new_topic()
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    return TopicPartition(topic, 0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def settings(bootstrap: str, **more: object) -> dict[str, Any]:
    return {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50} | more


def test_records_come_one_by_one_while_others_have_their_turn(
    bootstrap: str, numbers: TopicPartition
) -> None:
    async def work() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        found: list[int] = []
        async with AsyncConsumer(
            numbers.topic, **settings(bootstrap, group_id=f"a-{numbers.topic}", max_poll_records=10)
        ) as consumer:
            async for record in consumer:
                found.append(int(record.value))
                if len(found) == 100:
                    break
            await consumer.commit()
            assert await consumer.committed([numbers]) == {numbers: 100}
        assert found == list(range(100))
        assert turns > 10
        beside.cancel()

    run(work())


def test_polling_waits_for_what_is_produced_meanwhile(bootstrap: str, new_topic: NewTopic) -> None:
    partition = TopicPartition(new_topic(), 0)

    async def work() -> None:
        async with AsyncConsumer(**settings(bootstrap)) as consumer:
            await consumer.assign([partition])
            assert await consumer.poll(0.05) == []
            waiting = asyncio.create_task(consumer.poll(20.0))
            await asyncio.sleep(0)

            def send() -> None:
                with Producer(bootstrap) as producer:
                    producer.send(partition.topic, b"x").result()

            await asyncio.to_thread(send)
            (record,) = await waiting
            assert record.value == b"x"
            consumer.seek(partition, 0)
            batch = await consumer.poll_arrow(20.0)
            assert batch is not None
            assert batch.column("value").to_pylist() == [b"x"]
            assert await consumer.position(partition) == 1
            assert await consumer.end_offsets([partition]) == {partition: 1}

    run(work())


def test_listeners_may_be_coroutines_and_commit(bootstrap: str, numbers: TopicPartition) -> None:
    story: list[str] = []

    async def work() -> None:
        class Listener:
            async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
                await asyncio.sleep(0)
                story.append(f"assigned {len(assigned)}")

            async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
                await consumer.commit({numbers: 7})
                story.append(f"revoked {len(revoked)}")

        group = f"l-{numbers.topic}"
        async with AsyncConsumer(
            **settings(bootstrap, group_id=group, enable_auto_commit=False, heartbeat_interval_ms=50)
        ) as consumer:
            await consumer.subscribe(numbers.topic, listener=Listener())
            assert len(await consumer.poll(20.0)) == 100
            theirs = settings(bootstrap, group_id=group, enable_auto_commit=False)
            async with AsyncConsumer(numbers.topic, **theirs) as other:
                while len(story) < 2:
                    await consumer.poll(0.05)
                    await other.poll(0.05)
            assert story[:2] == ["assigned 1", "revoked 1"]
            assert await consumer.committed([numbers]) == {numbers: 7}

    run(work())


def test_mistakes_are_told(bootstrap: str) -> None:
    async def work() -> None:
        consumer = AsyncConsumer(**settings(bootstrap))
        with pytest.raises(BarnabasError, match="async with"):
            await consumer.poll()
        async with consumer:
            with pytest.raises(BarnabasError, match="call assign first"):
                await consumer.poll()
            with pytest.raises(BarnabasError, match=r"without a group\.id"):
                await consumer.subscribe("t")
        with pytest.raises(NoBroker):
            await AsyncConsumer(bootstrap_servers=f"127.0.0.1:{free_port()}").start()

    run(work())


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.002, 0.005, 0.02])
def test_a_start_or_close_that_is_cancelled_leaves_nothing_behind(
    bootstrap: str, numbers: TopicPartition, after_s: float
) -> None:
    async def cancel(work: Coroutine[Any, Any, None], after_s: float) -> None:
        task = asyncio.create_task(work)
        await asyncio.wait([task], timeout=after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def start() -> None:
        async with AsyncConsumer(numbers.topic, **settings(bootstrap, group_id="cancelled")):
            await asyncio.Event().wait()

    async def work() -> None:
        await cancel(start(), after_s)
        consumer = AsyncConsumer(**settings(bootstrap))
        await consumer.start()
        await cancel(consumer.close(), 0)

    before = set(threading.enumerate())
    run(work())
    eventually(lambda: set(threading.enumerate()) <= before, "the threads of consumers that were given up")


def test_arguments_that_cannot_be_are_told_as_by_the_plain_consumer(
    bootstrap: str, numbers: TopicPartition
) -> None:
    async def work() -> None:
        with pytest.raises(BarnabasError, match="consumer_timeout_ms cannot be 'x'"):
            await AsyncConsumer(**settings(bootstrap, consumer_timeout_ms="x")).start()
        async with AsyncConsumer(**settings(bootstrap)) as consumer:
            await consumer.assign([numbers])
            with pytest.raises(BarnabasError, match="poll: timeout cannot be None"):
                await consumer.poll(None)  # type: ignore[arg-type]
        async with AsyncProducer(bootstrap) as producer:
            with pytest.raises(BarnabasError, match="A topic is a name"):
                await producer.send([numbers.topic], b"")  # type: ignore[arg-type]
            with pytest.raises(BarnabasError, match="has been started"):
                await producer.start()

    run(work())

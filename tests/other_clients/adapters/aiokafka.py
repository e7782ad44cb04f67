"""Owns how the tests drive aiokafka. Called through ClientAdapter.

The interface is synchronous, so an event loop runs inside, for the time of each call.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError

from tests.deadline import Deadline
from tests.other_clients.adapters.adapter import DEADLINE_S, ClientAdapter, Record, Refusal, Stored

_DEFAULT_SOURCES = {4, 5}  # static broker setting, default: nobody set it on the topic


class AiokafkaAdapter(ClientAdapter):
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._runner = asyncio.Runner()
        self._admin = self._run(self._start_admin())

    async def _start_admin(self) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        return admin

    def _run(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        try:
            return self._runner.run(bounded())
        except BrokerResponseError as refused:
            raise Refusal(refused.errno, str(refused)) from refused

    def close(self) -> None:
        self._run(self._admin.close())
        self._runner.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        # It refuses to leave the number of replicas to the broker: as many as brokers were given.
        replicas = len(self.bootstrap.split(","))
        new = NewTopic(topic, partitions, replicas, topic_configs=dict(configs or {}))
        answer = self._run(self._admin.create_topics([new]))
        _refuse(answer.topic_errors[0][1], answer.topic_errors[0][2])

    def delete_topic(self, topic: str) -> None:
        answer = self._run(self._admin.delete_topics([topic]))
        _refuse(answer.topic_error_codes[0][1])

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def partition_count(self, topic: str) -> int:
        found = [t for t in self._run(self._admin.describe_topics()) if t["topic"] == topic]
        return sum(p["leader"] >= 0 for t in found for p in t["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def _entries(self, topic: str) -> list[Any]:
        answers = self._run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        (resource,) = answers[0].resources
        _refuse(resource[0], resource[1])
        return list(resource[4])

    def configs(self, topic: str) -> dict[str, str | None]:
        return {entry[0]: entry[1] for entry in self._entries(topic)}

    def set_config(self, topic: str, name: str, value: str) -> None:
        # AlterConfigs replaces everything that was set, so what is set already has to be sent again.
        settings = {entry[0]: entry[1] for entry in self._entries(topic) if entry[3] not in _DEFAULT_SOURCES}
        settings[name] = value
        answers = self._run(
            self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
        )
        _refuse(answers[0].resources[0][0], answers[0].resources[0][1])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._run(self._admin.delete_records({place: RecordsToDelete(before)}))[place])

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                first = await consumer.beginning_offsets([place])
                return first[place], (await consumer.end_offsets([place]))[place]

        return self._run(ask())

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask() -> int | None:
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None else found.offset

        return self._run(ask())

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        async def write() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks="all",
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=5,
                max_batch_size=64 * 1024,
                request_timeout_ms=int(DEADLINE_S * 1000),
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition=partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                return [answer.offset for answer in await asyncio.gather(*sent)]
            finally:
                await producer.stop()

        return self._run(write())

    def read(self, topic: str, partition: int, start: int, count: int) -> list[Stored]:
        async def fetch() -> list[Stored]:
            place = TopicPartition(topic, partition)
            deadline = Deadline(DEADLINE_S, f"{count} records of {topic}")
            stored: list[Stored] = []
            async with self._consumer() as consumer:
                consumer.assign([place])
                consumer.seek(place, start)
                while len(stored) < count:
                    polled = await consumer.getmany(
                        timeout_ms=int(deadline.left(1.0) * 1000), max_records=count - len(stored)
                    )
                    stored += [_stored(message) for message in polled.get(place, ())]
            return stored

        return self._run(fetch())


def _stored(message: Any) -> Stored:
    record = Record(message.key, message.value, tuple(message.headers), message.timestamp)
    return Stored(message.offset, record)


def _refuse(code: int, text: str | None = None) -> None:
    if code:
        raise Refusal(code, text or "")

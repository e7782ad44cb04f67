"""Owns how the tests drive the transactions of each client library. Called by test_transactions.

Every call is synchronous and bounded by DEADLINE_S; a producer that was fenced raises Fenced, whatever its library
calls that.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import barnabas
from barnabas import TopicPartition, errors
from tests.deadline import Deadline
from tests.other_clients.adapters.adapter import DEADLINE_S
from tests.other_clients.adapters.java import JavaAdapter

_FENCED = {47, 90}
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED."""


class Fenced(Exception):
    """Another producer has the transactional id now."""


class Transactional(ABC):
    """A producer with a transactional id, which it has taken over; and a way to read what is committed."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.bootstrap = bootstrap
        self.id = transactional_id

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        """Send these, and wait until they are stored."""

    @abstractmethod
    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def read_committed(self, place: TopicPartition, count: int) -> list[bytes]:
        """The first values of a partition that are committed."""


class Ours(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        super().__init__(bootstrap, transactional_id)
        self._producer = barnabas.Producer(bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.send(place.topic, value, partition=place.partition)
        self._producer.flush(DEADLINE_S)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._producer.send_offsets(offsets, group)

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except errors.ProducerFenced as why:
            raise Fenced from why

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()

    def read_committed(self, place: TopicPartition, count: int) -> list[bytes]:
        return read_committed(self.bootstrap, place, count)


class Confluent(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        super().__init__(bootstrap, transactional_id)
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        self._producer = Producer(settings)
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(place.topic, value, partition=place.partition)
        assert self._producer.flush(DEADLINE_S) == 0

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Place

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        rows = [Place(*place, at) for place, at in offsets.items()]
        metadata = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(rows, metadata, DEADLINE_S)
        consumer.close()

    def commit(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._producer.commit_transaction(DEADLINE_S)
        except KafkaException as why:
            if why.args[0].code() in (KafkaError._FENCED, *_FENCED):
                raise Fenced from why
            raise

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        del self._producer

    def read_committed(self, place: TopicPartition, count: int) -> list[bytes]:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Place

        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.id, "enable.auto.commit": False}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
        consumer.assign([Place(*place, 0)])
        found: list[bytes] = []
        deadline = Deadline(DEADLINE_S, f"{count} committed records")
        while len(found) < count:
            message = consumer.poll(deadline.left(1.0))
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
        consumer.close()
        return found


class KafkaPython(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from kafka import KafkaProducer

        super().__init__(bootstrap, transactional_id)
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        sent = [self._producer.send(place.topic, value, partition=place.partition) for value in values]
        for each in sent:
            each.get(DEADLINE_S)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        from kafka.structs import OffsetAndMetadata
        from kafka.structs import TopicPartition as Place

        rows = {Place(*place): OffsetAndMetadata(at, "", -1) for place, at in offsets.items()}
        self._producer.send_offsets_to_transaction(rows, group)

    def commit(self) -> None:
        from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

        try:
            self._producer.commit_transaction()
        except KafkaError as why:
            fenced = (ProducerFencedError, InvalidProducerEpochError)
            if isinstance(why, fenced) or any(
                isinstance(each, fenced) for each in (why.__cause__, *why.args)
            ):
                raise Fenced from why
            raise

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=5)

    def read_committed(self, place: TopicPartition, count: int) -> list[bytes]:
        from kafka import KafkaConsumer
        from kafka.structs import TopicPartition as Place

        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed")
        consumer.assign([Place(*place)])
        consumer.seek_to_beginning()
        found: list[bytes] = []
        deadline = Deadline(DEADLINE_S, f"{count} committed records")
        while len(found) < count:
            polled = consumer.poll(timeout_ms=int(1000 * deadline.left(1.0)))
            found += [record.value for records in polled.values() for record in records]
        consumer.close()
        return found


class Aiokafka(Transactional):
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        super().__init__(bootstrap, transactional_id)
        self._runner = asyncio.Runner()
        self._producer = self._run(self._start())

    async def _start(self) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.id)
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        from aiokafka.errors import ProducerFenced

        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        try:
            return self._runner.run(bounded())
        except ProducerFenced as why:
            raise Fenced from why

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        async def work() -> None:
            sent = [
                await self._producer.send(place.topic, each, partition=place.partition) for each in values
            ]
            await asyncio.gather(*sent)

        self._run(work())

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        from aiokafka import TopicPartition as Place

        rows = {Place(*place): at for place, at in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(rows, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._runner.close()

    def read_committed(self, place: TopicPartition, count: int) -> list[bytes]:
        async def work() -> list[bytes]:
            from aiokafka import AIOKafkaConsumer
            from aiokafka import TopicPartition as Place

            consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed")
            await consumer.start()
            consumer.assign([Place(*place)])
            await consumer.seek_to_beginning()
            found = [(await consumer.getone()).value for _ in range(count)]
            await consumer.stop()
            return found

        found: list[bytes] = self._run(work())
        return found


class Java(Transactional):
    def __init__(self, client: JavaAdapter, transactional_id: str) -> None:
        super().__init__(client.bootstrap, transactional_id)
        self._client = client
        self._number = client.transaction("Open", id=transactional_id)

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        from tests.other_clients.adapters.adapter import Refusal

        try:
            yield
        except Refusal as why:
            if why.code in _FENCED:
                raise Fenced from why
            raise

    def begin(self) -> None:
        self._client.transaction("Begin", number=self._number)

    def send(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        with self._fencing():
            self._client.transaction(
                "Send",
                number=self._number,
                topic=place.topic,
                partition=place.partition,
                values=[value.decode() for value in values],
            )

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        ((place, at),) = offsets.items()
        self._client.transaction(
            "Offset",
            number=self._number,
            group=group,
            topic=place.topic,
            partition=place.partition,
            offset=at,
        )

    def commit(self) -> None:
        with self._fencing():
            self._client.transaction("Commit", number=self._number)

    def abort(self) -> None:
        self._client.transaction("Abort", number=self._number)

    def close(self) -> None:
        self._client.transaction("Close", number=self._number)

    def read_committed(self, place: TopicPartition, count: int) -> list[bytes]:
        stored = self._client.read(place.topic, place.partition, 0, count, committed=True)
        return [each.record.value or b"" for each in stored]


def read_committed(bootstrap: str, place: TopicPartition, count: int) -> list[bytes]:
    """With our own client."""
    with barnabas.Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({place: 0})
        found: list[bytes] = []
        deadline = Deadline(DEADLINE_S, f"{count} committed records")
        while len(found) < count:
            found += [record.value for record in consumer.poll(deadline.left(1.0))]
        return found

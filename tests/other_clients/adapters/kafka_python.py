"""Owns how the tests drive kafka-python. Called through ClientAdapter."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import BrokerResponseError

from tests.deadline import Deadline
from tests.other_clients.adapters.adapter import DEADLINE_S, ClientAdapter, Record, Refusal, Stored


class KafkaPythonAdapter(ClientAdapter):
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="none",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            max_poll_records=10_000,
        )

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = {
            topic: {"num_partitions": partitions, "replication_factor": -1, "configs": dict(configs or {})}
        }
        with _refusals():
            self._admin.create_topics(new)

    def delete_topic(self, topic: str) -> None:
        with _refusals():
            self._admin.delete_topics([topic])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partition_count(self, topic: str) -> int:
        # All topics, then a pick: asking for one by name may create it.
        found = [t for t in self._admin.describe_topics() if t["name"] == topic]
        return sum(p["leader_id"] >= 0 for t in found for p in t["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        with _refusals():
            self._admin.create_partitions({topic: total})

    def configs(self, topic: str) -> dict[str, str | None]:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin.describe_configs([wanted], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        with _refusals():
            answer = self._admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
        # It turns the broker's refusal into a text, and raises nothing.
        if refused := re.match(r"\[Error (\d+)\]", answer["topic"][topic]):
            raise Refusal(int(refused[1]), answer["topic"][topic])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        with _refusals():
            return int(self._admin.delete_records({place: before})[place]["low_watermark"])

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        first = self._consumer.beginning_offsets([place])[place]
        return int(first), int(self._consumer.end_offsets([place])[place])

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._consumer.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else int(found.offset)

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            batch_size=64 * 1024,
            request_timeout_ms=int(DEADLINE_S * 500),
            delivery_timeout_ms=int(DEADLINE_S * 1000),
        )
        try:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            with _refusals():
                return [future.get(timeout=DEADLINE_S).offset for future in sent]
        finally:
            producer.close(timeout=DEADLINE_S)

    def read(self, topic: str, partition: int, start: int, count: int) -> list[Stored]:
        place = TopicPartition(topic, partition)
        deadline = Deadline(DEADLINE_S, f"{count} records of {topic}")
        stored: list[Stored] = []
        self._consumer.assign([place])
        self._consumer.seek(place, start)
        with _refusals():
            while len(stored) < count:
                polled = self._consumer.poll(
                    timeout_ms=int(deadline.left(1.0) * 1000), max_records=count - len(stored)
                )
                stored += [_stored(message) for message in polled.get(place, ())]
        return stored


def _stored(message: Any) -> Stored:
    record = Record(message.key, message.value, tuple(message.headers), message.timestamp)
    return Stored(message.offset, record)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as refused:
        raise Refusal(refused.errno, str(refused)) from refused

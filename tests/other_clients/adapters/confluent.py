"""Owns how the tests drive confluent-kafka (librdkafka). Called through ClientAdapter."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.deadline import Deadline
from tests.other_clients.adapters.adapter import DEADLINE_S, ClientAdapter, Record, Refusal, Stored

_QUIET = 0  # brokers are killed under this client; it need not tell


class ConfluentAdapter(ClientAdapter):
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": _QUIET})

    def close(self) -> None:
        del self._admin  # librdkafka's clean-up runs when the last reference goes

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(configs or {}))
        _only(self._admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=DEADLINE_S).topics)

    def partition_count(self, topic: str) -> int:
        found = self._admin.list_topics(timeout=DEADLINE_S).topics.get(topic)
        return 0 if found is None else sum(p.leader >= 0 for p in found.partitions.values())

    def add_partitions(self, topic: str, total: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, total)]))

    def configs(self, topic: str) -> dict[str, str | None]:
        entries = _only(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _only(self._admin.incremental_alter_configs([resource]))

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition, before)
        return int(_only(self._admin.delete_records([place])).low_watermark)

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return (
            self._list_offset(topic, partition, OffsetSpec.earliest()),
            self._list_offset(topic, partition, OffsetSpec.latest()),
        )

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = self._list_offset(topic, partition, OffsetSpec.for_timestamp(timestamp_ms))
        return None if found < 0 else found

    def max_timestamp_offset(self, topic: str, partition: int) -> int:
        return self._list_offset(topic, partition, OffsetSpec.max_timestamp())

    def broker_ids(self) -> list[int]:
        return [node.id for node in self._admin.describe_cluster().result(DEADLINE_S).nodes]

    def _list_offset(self, topic: str, partition: int, spec: Any) -> int:
        place = TopicPartition(topic, partition)
        answer = _only(
            self._admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        )
        return int(answer.offset)

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
        retries: int = 1_000_000,
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "retries": retries,
                "linger.ms": 5,
                "batch.num.messages": 1000,
                "queue.buffering.max.messages": 1_000_000,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "log_level": _QUIET,
            }
        )
        offsets: list[int] = [-1] * len(records)
        errors: list[Any] = []

        def answered(index: int, error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets[index] = message.offset()

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=lambda error, message, index=index: answered(index, error, message),
            )
        left = producer.flush(DEADLINE_S)
        if errors:
            raise Refusal(errors[0].code(), errors[0].str())
        assert left == 0, f"{left} records were not answered in time"
        return offsets

    def read(self, topic: str, partition: int, start: int, count: int) -> list[Stored]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "assigned-by-hand",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "log_level": _QUIET,
            }
        )
        deadline = Deadline(DEADLINE_S, f"{count} records of {topic}")
        stored: list[Stored] = []
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            while len(stored) < count:
                for message in consumer.consume(min(10_000, count - len(stored)), deadline.left(1.0)):
                    if message.error() is not None:
                        raise Refusal(message.error().code(), message.error().str())
                    stored.append(_stored(message))
        finally:
            consumer.close()
        return stored


def _stored(message: Any) -> Stored:
    kind, timestamp_ms = message.timestamp()
    assert kind != TIMESTAMP_NOT_AVAILABLE
    record = Record(message.key(), message.value(), tuple(message.headers() or ()), timestamp_ms)
    return Stored(message.offset(), record)


def _only(futures: Mapping[Any, Any]) -> Any:
    (future,) = futures.values()
    try:
        return future.result(DEADLINE_S)
    except KafkaException as refused:
        raise Refusal(refused.args[0].code(), refused.args[0].str()) from refused

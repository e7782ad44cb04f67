"""Owns the records that flow while a group works: a little to each partition, until it is told to end."""

import threading

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.groups.group import PARTITIONS

_PACE_S = 0.05


class Stream:
    """Mutable: a topic with 16 partitions that grows by a record each, some twenty times a second."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._ended = threading.Event()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, -1)])[topic].result(60)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 3}
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(_PACE_S):
            for partition in range(PARTITIONS):
                self._producer.produce(self.topic, str(number), partition=partition)
            self._producer.poll(0)
            number += 1

    def end(self) -> list[int]:
        """Writes no more; gives the offset at which each partition ends."""
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "records were not stored"
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody"})
        try:
            places = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
            return [reader.get_watermark_offsets(place, timeout=60)[1] for place in places]
        finally:
            reader.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1)

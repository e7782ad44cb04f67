"""A member of a group that uses confluent-kafka, of either protocol. Run by tests/groups/group.py."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.groups.members.telling import (
    BATCH,
    Wanted,
    tell,
    tell_offsets,
    tell_partitions,
    tell_records,
    told_to_leave,
    wanted,
)


class Member:
    def __init__(self, want: Wanted) -> None:
        self._topic = want.topic
        self._pending: dict[int, int] = {}
        self._consumer = Consumer(_settings(want))
        self._consumer.subscribe(
            [want.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def run(self) -> None:
        leave = told_to_leave()
        while not leave.is_set():
            self._read()
            self._commit(self._pending)
        self._consumer.close()
        tell("left")

    def _read(self) -> None:
        wait_s = 0.1
        for _ in range(BATCH):
            message = self._consumer.poll(wait_s)
            if message is None:
                return
            if message.error():
                tell("trouble", why=str(message.error()))
                return
            tell_records([(message.partition(), message.offset())])
            self._pending[message.partition()] = message.offset() + 1
            wait_s = 0

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        offsets = dict(offsets)
        tell_offsets("committing", offsets)
        try:
            places = [TopicPartition(self._topic, p, at) for p, at in offsets.items()]
            answers = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            tell_offsets("refused", offsets, str(error))
            return
        refused = {a.partition: a.offset for a in answers if a.error}
        stored = {p: at for p, at in offsets.items() if p not in refused}
        tell_offsets("committed", stored)
        if refused:
            tell_offsets("refused", refused, str([a.error for a in answers if a.error]))
        self._forget(stored)

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._pending.pop(partition, None)

    def _assigned(self, _: Any, places: list[TopicPartition]) -> None:
        tell_partitions("assigned", {place.partition for place in places})

    def _revoked(self, _: Any, places: list[TopicPartition]) -> None:
        gone = {place.partition for place in places}
        self._commit({p: at for p, at in self._pending.items() if p in gone})
        self._forget(gone)
        tell_partitions("revoked", gone)

    def _lost(self, _: Any, places: list[TopicPartition]) -> None:
        gone = {place.partition for place in places}
        self._forget(gone)
        tell_partitions("lost", gone)


def _settings(want: Wanted) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": want.bootstrap,
        "client.id": want.name,
        "group.id": want.group,
        "group.protocol": want.protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "socket.timeout.ms": 5000,
    }
    if want.protocol == "consumer":
        return settings | ({"group.remote.assignor": want.assignors[0]} if want.assignors else {})
    return settings | {
        "partition.assignment.strategy": ",".join(want.assignors),
        "session.timeout.ms": want.session_ms,
        "heartbeat.interval.ms": want.heartbeat_ms,
        "max.poll.interval.ms": 30_000,
    }


if __name__ == "__main__":
    Member(wanted()).run()

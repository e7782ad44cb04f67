"""A member of a group that uses kafka-python. Run by tests/groups/group.py."""

from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

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

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, want: Wanted) -> None:
        self._topic = want.topic
        self._pending: dict[int, int] = {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=want.bootstrap,
            client_id=want.name,
            group_id=want.group,
            partition_assignment_strategy=[ASSIGNORS[name] for name in want.assignors],
            session_timeout_ms=want.session_ms,
            heartbeat_interval_ms=want.heartbeat_ms,
            max_poll_interval_ms=30_000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=50,
        )
        self._consumer.subscribe([want.topic], listener=self)
        # Else it joins before it knows the topic and joins again when it does; a poll that times out meanwhile
        # forgets (in 3.0.12) that it was about to get its share, and waits for ever.
        self._consumer.partitions_for_topic(want.topic)

    def run(self) -> None:
        leave = told_to_leave()
        while not leave.is_set():
            try:
                polled = self._consumer.poll(timeout_ms=100, max_records=BATCH)
            except KafkaError as error:
                tell("trouble", why=repr(error))
                continue
            rows = [(place.partition, record.offset) for place, some in polled.items() for record in some]
            if rows:
                tell_records(rows)
                self._pending |= {partition: offset + 1 for partition, offset in rows}
            self._commit(dict(self._pending))
        self._consumer.close()
        tell("left")

    def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        tell_offsets("committing", offsets)
        places = {TopicPartition(self._topic, p): OffsetAndMetadata(at, "", -1) for p, at in offsets.items()}
        try:
            self._consumer.commit(places, timeout_ms=10_000)
        except KafkaError as error:
            tell_offsets("refused", offsets, repr(error))
        else:
            tell_offsets("committed", offsets)
            self._forget(offsets)

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._pending.pop(partition, None)

    def on_partitions_assigned(self, assigned: Any) -> None:
        tell_partitions(
            "assigned", {place.partition for place in assigned}, self._consumer.group_metadata().generation_id
        )

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._forget(place.partition for place in revoked)
        tell_partitions("revoked", {place.partition for place in revoked})

    def on_partitions_lost(self, lost: Any) -> None:
        self._forget(place.partition for place in lost)
        tell_partitions("lost", {place.partition for place in lost})


if __name__ == "__main__":
    Member(wanted()).run()

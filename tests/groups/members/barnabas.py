"""A member of a group that uses our own Consumer. Run by tests/groups/group.py."""

from collections.abc import Collection, Iterable
from typing import Any

from barnabas import BarnabasError, Consumer, TopicPartition
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
        self._consumer = Consumer(
            bootstrap_servers=want.bootstrap,
            client_id=want.name,
            group_id=want.group,
            group_protocol=want.protocol,
            **_assignors(want),
            session_timeout_ms=want.session_ms,
            heartbeat_interval_ms=want.heartbeat_ms,
            max_poll_interval_ms=30_000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )
        self._consumer.subscribe([want.topic], listener=self)

    def run(self) -> None:
        leave = told_to_leave()
        while not leave.is_set():
            try:
                polled = self._consumer.poll(timeout=0.1, max_records=BATCH)
            except BarnabasError as error:
                tell("trouble", why=repr(error))
                continue
            rows = [(record.partition, record.offset) for record in polled]
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
        try:
            self._consumer.commit(
                {TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()},
                timeout=10,
            )
        except BarnabasError as error:
            tell_offsets("refused", offsets, repr(error))
        else:
            tell_offsets("committed", offsets)
            self._forget(offsets)

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._pending.pop(partition, None)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        tell_partitions("assigned", {place.partition for place in assigned})

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._forget(place.partition for place in revoked)
        tell_partitions("revoked", {place.partition for place in revoked})

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._forget(place.partition for place in lost)
        tell_partitions("lost", {place.partition for place in lost})


def _assignors(want: Wanted) -> dict[str, Any]:
    if want.protocol == "consumer":
        return {"group_remote_assignor": want.assignors[0]} if want.assignors else {}
    return {"partition_assignment_strategy": want.assignors}


if __name__ == "__main__":
    Member(wanted()).run()

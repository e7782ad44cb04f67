"""A member of a group that uses aiokafka. Run by tests/groups/group.py.

Its rebalances go on beside our loop: what was read is committed before partitions are given away.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError

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
}


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, want: Wanted) -> None:
        self._topic = want.topic
        self._owned: set[int] = set()
        self._pending: dict[int, int] = {}
        self._handling = asyncio.Lock()
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=want.bootstrap,
            client_id=want.name,
            group_id=want.group,
            partition_assignment_strategy=[ASSIGNORS[name] for name in want.assignors],
            session_timeout_ms=want.session_ms,
            heartbeat_interval_ms=want.heartbeat_ms,
            rebalance_timeout_ms=30_000,
            max_poll_interval_ms=30_000,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
        )

    async def run(self) -> None:
        leave = told_to_leave()
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        while not leave.is_set():
            try:
                polled = await self._consumer.getmany(timeout_ms=100, max_records=BATCH)
            except KafkaError as error:
                tell("trouble", why=repr(error))
                continue
            async with self._handling:
                rows = [(place.partition, record.offset) for place, some in polled.items() for record in some]
                await self._handle([row for row in rows if row[0] in self._owned])
        await self._consumer.stop()
        tell("left")

    async def _handle(self, rows: list[tuple[int, int]]) -> None:
        if rows:
            tell_records(rows)
            self._pending |= {partition: offset + 1 for partition, offset in rows}
        offsets = dict(self._pending)
        if not offsets:
            return
        tell_offsets("committing", offsets)
        try:
            await self._consumer.commit({TopicPartition(self._topic, p): at for p, at in offsets.items()})
        except (KafkaError, IllegalStateError) as error:
            tell_offsets("refused", offsets, repr(error))
        else:
            tell_offsets("committed", offsets)
            self._pending.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._owned = {place.partition for place in assigned}
        tell_partitions("assigned", self._owned, self._consumer._coordinator.generation)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self._handling:
            self._owned = set()
            self._pending.clear()
            tell_partitions("revoked", {place.partition for place in revoked})


async def main() -> None:
    await Member(wanted()).run()


if __name__ == "__main__":
    asyncio.run(main())

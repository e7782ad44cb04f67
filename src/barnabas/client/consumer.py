"""Reads records from partitions that were assigned by hand, or that its group gives it.

Always holds: a partition's records come in order, each once, from the position on; the position is the offset
of the next record that `poll` will give. A group is told of a record as read only after the poll that follows it,
or by `commit` and `close`.

    with Consumer("localhost:9092", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        for record in consumer.poll(timeout=1.0): ...

    with Consumer("localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer.poll(timeout=1.0): ...
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.failures import RETRIABLE, STALE, check
from barnabas.client.group_member import GroupMember, Phase
from barnabas.client.groups import committed_offsets
from barnabas.client.membership import Membership
from barnabas.client.offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import Offset, TopicPartition
from barnabas.wire.batch import crc_of, decode_batch
from barnabas.wire.batch import headers as batch_headers
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

_RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class ConsumerRecord(NamedTuple):
    """A record and where it was."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Consumer:
    """Reads records. Not for several threads at once."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        *,
        client_id: str = "barnabas-consumer",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        metadata_max_age_ms: int = 300_000,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 52_428_800,
        fetch_max_wait_ms: int = 500,
        max_partition_fetch_bytes: int = 1_048_576,
        max_poll_records: int = 500,
        check_crcs: bool = True,
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
    ) -> None:
        if auto_offset_reset not in _RESETS:
            raise BarnabasError(f"auto.offset.reset is earliest, latest or none, not {auto_offset_reset!r}.")
        self._reset = _RESETS[auto_offset_reset]
        self._min_bytes = fetch_min_bytes
        self._max_bytes = fetch_max_bytes
        self._max_partition_bytes = max_partition_fetch_bytes
        self._max_poll_records = max_poll_records
        self._max_wait = fetch_max_wait_ms / 1000
        self._check_crcs = check_crcs
        self._timeout = request_timeout_ms / 1000
        self._backoff = retry_backoff_ms / 1000
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
        )
        self._positions: dict[TopicPartition, int | None] = {}
        self._fetched: deque[tuple[TopicPartition, memoryview, int]] = deque()
        self._ready: deque[ConsumerRecord] = deque()
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._group_id = group_id
        self._membership: Membership | None = None
        self._new_member = partial(
            GroupMember,
            instance_id=group_instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=max_poll_interval_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            retry_backoff_ms=retry_backoff_ms,
        )
        self._metadata_max_age = metadata_max_age_ms / 1000
        self._given: tuple[TopicPartition, ...] | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._auto_commit = enable_auto_commit
        self._commit_interval = auto_commit_interval_ms / 1000
        self._commit_at = 0.0
        self._cluster.any()  # an unreachable broker is told of here

    def close(self, *, commit: bool = True) -> None:
        """Commit what polls have given, if commits are automatic, and leave the group."""
        try:
            if commit and self._auto_commit:
                self._commit_given()
        finally:
            if self._membership is not None:
                self._membership.leave()
                self._membership = None
            self._cluster.close()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a failure nobody knows whether the last records were dealt with: they will come again.
        self.close(commit=error is None)

    # What is read

    def subscribe(self, topics: Iterable[str]) -> None:
        """Share these topics with the other members of the group; `poll` joins it."""
        if self._group_id is None:
            raise BarnabasError(
                "A consumer without a group.id cannot subscribe: give one, or assign partitions."
            )
        if self._membership is not None:
            raise BarnabasError("This consumer has subscribed already.")
        member = self._new_member(self._group_id, topics)
        self._membership = Membership(
            self._cluster, member, timeout=self._timeout, recount=self._metadata_max_age
        )

    @property
    def has_joined(self) -> bool:
        """Whether the group has given this consumer its partitions; that may be none."""
        return self._given is not None

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read these and no others, from the offsets given, else from where auto.offset.reset says."""
        self._forget_fetched()
        if isinstance(partitions, Mapping):
            self._positions = dict(partitions)
        else:
            self._positions = dict.fromkeys(partitions)

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic."""
        found = self._cluster.retry(lambda: self._cluster.topic(topic), timeout=self._timeout)
        return [TopicPartition(topic, each.index) for each in found.partitions]

    # Where it is read from

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._need_assigned([partition])
        self._forget_fetched()
        self._positions[partition] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek_to(LATEST, partitions)

    def seek_to_time(self, timestamp: int, *partitions: TopicPartition) -> None:
        """Go to the first record at or after a time in milliseconds; to the end where there is none."""
        self._seek_to(timestamp, partitions)

    def position(self, partition: TopicPartition) -> Offset:
        """The offset of the next record `poll` will give."""
        self._need_assigned([partition])
        self._find_positions()
        for record in self._ready:
            if (record.topic, record.partition) == partition:
                return Offset(record.offset)
        for fetched, _, offset in self._fetched:
            if fetched == partition:
                return Offset(offset)
        return Offset(self._positions[partition] or 0)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt | None]:
        """The first record at or after each time; None where there is none."""
        found = list_offsets(self._cluster, times, timeout=self._timeout)
        return {partition: at if at.offset >= 0 else None for partition, at in found.items()}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._ends(EARLIEST, partitions)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return self._ends(LATEST, partitions)

    # Reading

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, waiting up to `timeout` seconds for the first; an empty list when none came."""
        if not self._positions and self._membership is None:
            raise BarnabasError("Nothing is assigned to this consumer: call assign first, or subscribe.")
        limit = max_records or self._max_poll_records
        deadline = time.monotonic() + timeout
        pause = self._backoff
        self._follow_group(0.0)
        while not self._fill(limit):
            left = deadline - time.monotonic()
            try:
                if self._positions:
                    self._find_positions()
                    self._fetch(min(max(left, 0.0), self._max_wait))
                self._follow_group(0.0 if self._positions else max(left, 0.0))
            except Refused as error:
                if error.code not in RETRIABLE or error.code is Code.CORRUPT_MESSAGE or left <= 0:
                    raise
                time.sleep(min(pause, left))
                pause = min(pause * 2, 1.0)
            if left <= 0:
                self._fill(limit)
                break
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    # The group

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Tell the group what has been read: all that polls have given, or these offsets of next records."""
        if self._membership is None:
            raise BarnabasError("This consumer is in no group: subscribe first.")
        code = self._commit_given() if offsets is None else self._membership.commit(offsets)
        if code:
            raise Refused(code, f"Group {self._group_id!r} did not take the commit: {code.advice}")

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed of these."""
        if self._group_id is None:
            raise BarnabasError("This consumer has no group.id.")
        return committed_offsets(self._cluster, self._group_id, list(partitions), timeout=self._timeout)

    def _follow_group(self, wait: float) -> None:
        """Heartbeats, commits and rebalances; waits so long for partitions where there are none."""
        if self._membership is None:
            return
        if self._auto_commit and self._given and time.monotonic() >= self._commit_at:
            self._commit_given()
        self._membership.drive(wait)
        member = self._membership.member
        if member.phase is Phase.REVOKING:
            if self._auto_commit:
                self._commit_given()
            member.given_back()
        if member.assignment is not self._given:
            self._take_over(member.assignment)

    def _take_over(self, partitions: tuple[TopicPartition, ...] | None) -> None:
        """Read these from where the group has got to."""
        committed = self.committed(partitions) if partitions else {}
        self._committed = dict(committed)
        self.assign([])
        self._positions = {each: committed.get(each) for each in partitions or ()}
        self._given = partitions
        self._commit_at = time.monotonic() + self._commit_interval

    def _commit_given(self) -> Code:
        self._commit_at = time.monotonic() + self._commit_interval
        changed = {p: at for p, at in self._delivered().items() if self._committed.get(p) != at}
        if not changed or not self._given or self._membership is None:
            return Code.NONE
        code = self._membership.commit(changed)
        if not code:
            self._committed.update(changed)
        return code

    def _delivered(self) -> dict[TopicPartition, int]:
        """Where the reader is: behind the last record that a poll gave."""
        found = {partition: at for partition, at in self._positions.items() if at is not None}
        found |= {partition: offset for partition, _, offset in reversed(self._fetched)}
        found |= {TopicPartition(each.topic, each.partition): each.offset for each in reversed(self._ready)}
        return found

    def _fill(self, limit: int) -> bool:
        """Decode fetched batches until there are enough records; False when there is none at all."""
        while self._fetched and len(self._ready) < limit:
            partition, batch, position = self._fetched.popleft()
            topic, index = partition
            self._ready.extend(
                ConsumerRecord(topic, index, *record)
                for record in decode_batch(batch)
                if record.offset >= position
            )
        return bool(self._ready)

    def _fetch(self, wait: float) -> None:
        """Ask every leader at once, then take in what they answer; what one cannot give stops no other."""
        failure: Refused | None = None
        groups: dict[Connection, list[TopicPartition]] = {}
        for partition in self._positions:
            try:
                groups.setdefault(self._cluster.leader_of(partition), []).append(partition)
            except Refused as error:
                failure = error
        asked: list[Connection] = []
        for connection, partitions in groups.items():
            try:
                connection.send(self._request(partitions, wait), FetchResponse)
                asked.append(connection)
            except Refused as error:
                failure = error
        for connection in asked:
            try:
                answer: FetchResponse = connection.receive(wait=wait)
                check(answer.error_code, f"A fetch from {connection.address}")
            except Refused as error:
                failure = error
                continue
            for topic in answer.responses:
                for each in topic.partitions:
                    try:
                        self._take(TopicPartition(topic.topic, each.partition_index), each)
                    except Refused as error:
                        failure = error
        if failure is not None:
            if failure.code in STALE:
                self._cluster.forget()
            if not self._fetched:
                raise failure

    def _request(self, partitions: list[TopicPartition], wait: float) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, FetchTopic(topic=partition.topic))
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._cluster.leader_epoch_of(partition),
                    fetch_offset=self._positions[partition] or 0,
                    partition_max_bytes=self._max_partition_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=int(wait * 1000),
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            topics=list(topics.values()),
        )

    def _take(self, partition: TopicPartition, answer: FetchPartitionResponse) -> None:
        if answer.error_code == Code.OFFSET_OUT_OF_RANGE and self._reset is not None:
            self._positions[partition] = None
            return
        check(answer.error_code, f"Partition {partition}")
        self._high_watermarks[partition] = answer.high_watermark
        records = answer.records
        if records is None or len(records) == 0:
            return
        assert isinstance(records, memoryview)
        position = self._positions[partition] or 0
        for at, header in batch_headers(records):
            batch = records[at : at + header.size]
            if self._check_crcs and crc_of(batch, 0, header.size) != header.crc:
                raise Refused(
                    Code.CORRUPT_MESSAGE,
                    f"Partition {partition}: the batch at offset {header.base_offset} is corrupt.",
                )
            if header.next_offset > position:
                if not header.is_control:
                    self._fetched.append((partition, batch, position))
                position = header.next_offset
        self._positions[partition] = position
        # The next fetch begins with another partition, so that a busy one cannot starve the rest.
        self._positions[partition] = self._positions.pop(partition)

    def _find_positions(self) -> None:
        """Partitions without a position get one from auto.offset.reset."""
        unknown = [partition for partition, position in self._positions.items() if position is None]
        if not unknown:
            return
        if self._reset is None:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"Partition {unknown[0]} has no position, and auto.offset.reset is none: seek first.",
            )
        self._positions.update(self._ends(self._reset, unknown))

    def _seek_to(self, timestamp: int, partitions: Iterable[TopicPartition]) -> None:
        wanted = list(partitions) or list(self._positions)
        self._need_assigned(wanted)
        self._forget_fetched()
        found = list_offsets(self._cluster, dict.fromkeys(wanted, timestamp), timeout=self._timeout)
        late = [partition for partition in wanted if found[partition].offset < 0]
        ends = self._ends(LATEST, late) if late else {}
        for partition in wanted:
            self._positions[partition] = ends.get(partition, found[partition].offset)

    def _ends(self, which: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        found = list_offsets(self._cluster, dict.fromkeys(partitions, which), timeout=self._timeout)
        return {partition: at.offset for partition, at in found.items()}

    def _need_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._positions:
                raise BarnabasError(f"Partition {partition} is not assigned to this consumer.")

    def _forget_fetched(self) -> None:
        """Records read ahead are given up; the positions go back to where the reader is."""
        self._positions.update(self._delivered())
        self._ready.clear()
        self._fetched.clear()

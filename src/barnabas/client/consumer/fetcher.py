"""Owns the fetches that are under way: sends what `fetches` plans and takes in what leaders answer.

Called in the network's thread, except where it says "any thread". `lock` is held whenever `fetches` is touched, and is
notified when there is something for the user: records, or a failure.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.client.consumer.consumer_lock import ConsumerLock
from barnabas.client.consumer.epoch_lookup import ask_epoch_ends
from barnabas.client.consumer.fetches import NEVER, Fetch, Fetches, Lookup
from barnabas.client.consumer.offset_lookup import ask_offsets, missing
from barnabas.client.consumer.offsets import Found
from barnabas.client.consumer.reading import Check, EpochEnd, Leader, PendingRead, Position
from barnabas.client.network.network import Network
from barnabas.client.network.timer import Timer
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.messages.fetch import FetchResponse

AskCommitted = Callable[
    [list[TopicPartition], Callable[[dict[TopicPartition, Position] | Refused], None]], None
]


class Due(NamedTuple):
    """What is to be sent, and in how many seconds to look again for what has failed."""

    lookup: Lookup
    fetches: list[Fetch]
    checks: list[Check]
    retry_in: float


class Fetcher:
    """Drives the fetches of one consumer."""

    def __init__(
        self,
        network: Network,
        fetches: Fetches,
        lock: ConsumerLock,
        ask_committed: AskCommitted,
        *,
        read_committed: bool,
    ) -> None:
        self._network = network
        self._fetches = fetches
        self._lock = lock
        self._ask_committed = ask_committed
        self._read_committed = read_committed
        self._timer: Timer | None = None
        self._told: set[TopicPartition] = set()
        network.metadata.subscribe(lambda snapshot: self.go_on())

    def wake(self) -> None:
        """Any thread: something has changed, look what there is to do."""
        self._network.post(self.go_on)

    def go_on(self) -> None:
        """Send all that is due."""
        with self._lock:
            due = self._plan()
        self._carry_out(due)

    def _plan(self) -> Due:
        """What is to be sent now; the lock must be held."""
        now = time.monotonic()
        fetches = self._fetches
        self._network.metadata.want({each.topic for each in fetches.partitions})
        lookup, plans = fetches.look_up(now), fetches.plan(now, self._leader_of)
        return Due(lookup, plans, fetches.checks(), fetches.retry_at(now) - now)

    def _carry_out(self, due: Due) -> None:
        if due.lookup.committed:
            self._look_up_committed(due.lookup.committed)
        if due.lookup.by_time:
            self._look_up_by_time(due.lookup.by_time)
        if due.checks:
            ask_epoch_ends(self._network, due.checks, self._checked)
        for fetch in due.fetches:
            self._send(fetch)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due.retry_in < NEVER:
            self._timer = self._network.later(due.retry_in, self.go_on)

    def _leader_of(self, partition: TopicPartition) -> Leader | None:
        snapshot = self._network.metadata.snapshot
        found = snapshot.partition(partition)
        if found is None or found.leader not in snapshot.brokers:
            self._explain(partition)
            return None
        return Leader(found.leader, found.leader_epoch, snapshot.topics[partition.topic].id)

    def _explain(self, partition: TopicPartition) -> None:
        """A partition without a leader is waited for; one that there is not is a mistake, told once."""
        snapshot = self._network.metadata.snapshot
        is_known = partition.topic in snapshot.topics or partition.topic in snapshot.refused
        why = missing(snapshot, partition) if is_known else None
        if why is not None:
            self._network.refresh_soon()
            if why.code is Code.UNKNOWN_TOPIC_OR_PARTITION and partition not in self._told:
                self._told.add(partition)
                self._fetches.failures.append(why)
                self._lock.tell()

    def _send(self, fetch: Fetch) -> None:
        def told(answer: FetchResponse | Refused) -> None:
            with self._lock:
                is_stale = self._fetches.take(fetch, answer, time.monotonic())
                # At once, so that the user's thread need not wake us for more.
                due = self._plan()
                self._lock.tell()
            if is_stale:
                self._network.refresh_soon()
            self._carry_out(due)

        wait = fetch.request.max_wait_ms / 1000
        self._network.ask(fetch.node, fetch.request, FetchResponse, told, wait=wait, lane=fetch.lane)

    def _checked(self, found: list[tuple[Check, EpochEnd | Refused]]) -> None:
        now = time.monotonic()
        with self._lock:
            stale = [check for check, end in found if self._fetches.checked(check, end, now)]
            self._lock.tell()
        if stale:
            self._network.refresh_soon()
        self.go_on()

    def _look_up_committed(self, asked: list[PendingRead]) -> None:
        def told(found: dict[TopicPartition, Position] | Refused) -> None:
            with self._lock:
                if isinstance(found, Refused):
                    self._fetches.not_found(asked, found, time.monotonic())
                else:
                    self._fetches.found_committed(asked, found)
                self._lock.tell()
            self.go_on()

        self._ask_committed([each.reading.partition for each in asked], told)

    def _look_up_by_time(self, rows: Iterable[tuple[PendingRead, int]]) -> None:
        wanted = {asked.reading.partition: timestamp for asked, timestamp in rows}
        asked = [each for each, _ in rows]

        def told(found: Found | Refused) -> None:
            now = time.monotonic()
            with self._lock:
                if isinstance(found, Refused):
                    self._fetches.not_found(asked, found, now)
                else:
                    for partition in found:
                        self._explain(partition)
                    self._fetches.found_by_time(asked, found, now)
                self._lock.tell()
            self.go_on()

        ask_offsets(self._network, wanted, told, read_committed=self._read_committed)

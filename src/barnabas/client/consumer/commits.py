"""Owns what a consumer tells its group of what it has read: one commit after another, so that none overtakes another.

Called in the network's thread, except where it says "any thread". A commit goes out in the name of the member and its
generation, as they are when it is sent; without a subscription it goes out without a member, which a group takes while
it has no members.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping

from barnabas.client.consumer.committed_offsets import commit_request, committed_in, committed_request
from barnabas.client.consumer.consumer_lock import ConsumerLock
from barnabas.client.consumer.member import Member
from barnabas.client.consumer.offset_lookup import missing
from barnabas.client.consumer.reading import Position
from barnabas.client.network.coordinator_link import CoordinatorLink
from barnabas.client.network.failures import RETRIABLE
from barnabas.client.network.network import Network
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchResponse

_WORTH_WAITING = RETRIABLE - {Code.UNKNOWN_TOPIC_OR_PARTITION} | {
    Code.REBALANCE_IN_PROGRESS,
    Code.STALE_MEMBER_EPOCH,
}
"""Refusals that may pass by themselves; a topic that is gone does not come back."""

Done = Callable[[Refused | None], None]


class Commit:
    """Offsets of next records, with the epochs before them, on their way to the group."""

    __slots__ = ("deadline", "done", "offsets")

    def __init__(self, offsets: Mapping[TopicPartition, Position], deadline: float, done: Done) -> None:
        self.offsets = dict(offsets)
        self.deadline = deadline
        self.done = done


class Commits:
    """Mutable: the commits of one consumer that are not settled yet, in order."""

    def __init__(self, network: Network, coordinator: CoordinatorLink, lock: ConsumerLock) -> None:
        self.member: Member | None = None
        """In whose name; None for a consumer that assigns its partitions itself."""
        self.settled: dict[TopicPartition, Position] = {}
        """What the group has taken from us; guarded by `lock`."""
        self._network = network
        self._coordinator = coordinator
        self._lock = lock
        self._queue: deque[Commit] = deque()

    def add(self, offsets: Mapping[TopicPartition, Position], timeout: float, done: Done) -> None:
        """Any thread: commit these; `done` hears, in the network's thread, what came of it."""
        commit = Commit(offsets, time.monotonic() + timeout, done)
        self._network.post(lambda: self._enqueue(commit))

    def ask_committed(
        self,
        partitions: list[TopicPartition],
        done: Callable[[dict[TopicPartition, Position] | Refused], None],
    ) -> None:
        """What the group has committed of these; where nothing is committed nothing is said."""
        group = self._coordinator.group

        def told(answer: OffsetFetchResponse | Refused) -> None:
            try:
                found = answer if isinstance(answer, Refused) else committed_in(answer, group)
            except Refused as why:
                self._coordinator.doubt(why.code)
                found = why
            done(found)

        self._coordinator.ask(committed_request(group, partitions), OffsetFetchResponse, told)

    def ask_where_to_begin(
        self,
        partitions: list[TopicPartition],
        done: Callable[[dict[TopicPartition, Position] | Refused], None],
    ) -> None:
        """What the group has committed of partitions that are to be read from there: these count as committed."""

        def told(found: dict[TopicPartition, Position] | Refused) -> None:
            if not isinstance(found, Refused):
                with self._lock:
                    self.settled.update(found)
            done(found)

        self.ask_committed(partitions, told)

    def _enqueue(self, commit: Commit) -> None:
        self._queue.append(commit)
        if len(self._queue) == 1:
            self._send()

    def _send(self) -> None:
        commit = self._queue[0]
        with self._lock:
            request = self._request(commit)
        if isinstance(request, Refused):
            self._settle(request)
            return
        generation = request.generation_id_or_member_epoch

        def told(answer: OffsetCommitResponse | Refused) -> None:
            why = answer if isinstance(answer, Refused) else self._refusal(answer)
            if why is None:
                self._settle(None)
                return
            with self._lock:
                if self.member is not None:
                    self.member.commit_refused(why.code, generation, time.monotonic())
                    self._lock.tell()
            if why.code in _WORTH_WAITING and time.monotonic() < commit.deadline:
                self._network.later(self._network.retry_backoff, self._send)
            else:
                self._settle(why)

        self._coordinator.ask(request, OffsetCommitResponse, told)

    def _request(self, commit: Commit) -> OffsetCommitRequest | Refused:
        member, group = self.member, self._coordinator.group
        if member is None:
            return commit_request(group, commit.offsets)
        foreign = next((each for each in commit.offsets if each not in member.given), None)
        if foreign is not None:
            return self._not_ours(TopicPartition(*foreign))
        if not member.may_commit:
            return Refused(
                Code.UNKNOWN_MEMBER_ID,
                f"Group {group!r} did not take the commit: it has gone on without this consumer, "
                "and another may read the partitions already. Poll more often, or raise max.poll.interval.ms.",
            )
        return commit_request(
            group,
            commit.offsets,
            generation=member.generation,
            member_id=member.id,
            instance_id=member.instance_id,
        )

    def _not_ours(self, partition: TopicPartition) -> Refused:
        """A consumer commits only partitions that it reads, and only such as exist."""
        why = missing(self._network.metadata.snapshot, partition)
        if why is not None and why.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            return why
        return Refused(
            Code.REBALANCE_IN_PROGRESS,
            f"Group {self._coordinator.group!r} did not take the commit: "
            f"partition {partition} is not assigned to this consumer now.",
        )

    def _refusal(self, answer: OffsetCommitResponse) -> Refused | None:
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    self._coordinator.doubt(row.error_code)
                    code = Code.of(row.error_code)
                    where = TopicPartition(topic.name, row.partition_index)
                    group = self._coordinator.group
                    return Refused(code, f"Group {group!r} did not take the commit of {where}: {code.advice}")
        return None

    def _settle(self, why: Refused | None) -> None:
        commit = self._queue.popleft()
        if why is None:
            with self._lock:
                self.settled.update(commit.offsets)
        if self._queue:
            self._network.soon(self._send)
        commit.done(why)

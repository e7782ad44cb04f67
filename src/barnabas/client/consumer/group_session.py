"""Owns a consumer's part in its group, as its user sees it: the subscription, the partitions given and taken, commits.

Called in the user's thread. What the group wants is done in poll (`tend`): partitions that go to others are committed
and given back, then the listener hears of those that are new. Always holds: what a listener was told is revoked or
lost is no longer read.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from barnabas.client.consumer.commits import Commits
from barnabas.client.consumer.consumer_lock import ConsumerLock
from barnabas.client.consumer.fetches import COMMITTED, Fetches
from barnabas.client.consumer.member import Handover, Member
from barnabas.client.consumer.membership import Membership
from barnabas.client.consumer.reading import NO_EPOCH, Position
from barnabas.client.consumer.subscription import Subscription
from barnabas.client.group_offsets import GroupMetadata, GroupOffsets, NextOffset
from barnabas.client.network.coordinator_link import CoordinatorLink
from barnabas.client.network.network import Network
from barnabas.errors import BarnabasError, Refused
from barnabas.types import TopicPartition

Committed = Callable[[dict[TopicPartition, int], Refused | None], None]
"""Hears what was to be committed, and why that failed, or None."""


class GroupSession:
    """Mutable: one consumer among others of its group, or alone."""

    def __init__(
        self,
        network: Network,
        fetches: Fetches,
        lock: ConsumerLock,
        *,
        group: str | None,
        new_member: Callable[[str, Iterable[str]], Member],
        new_subscription: Callable[..., Subscription],
        auto_commit_interval: float | None,
        timeout: float,
        wake_fetcher: Callable[[], None],
    ) -> None:
        self.group = group
        self._wake_fetcher = wake_fetcher
        self.subscription: Subscription | None = None
        self._network = network
        self._fetches = fetches
        self._lock = lock
        self._new_member = new_member
        self._new_subscription = new_subscription
        self._timeout = timeout
        self._interval = auto_commit_interval if group is not None else None
        self._commit_at = 0.0
        self._coordinator = CoordinatorLink(network, group or "")
        self._commits = Commits(network, self._coordinator, lock)
        self.ask_where_to_begin = self._commits.ask_where_to_begin
        """For the fetcher: what the group has committed."""
        self._membership: Membership | None = None
        self._settled: deque[Callable[[], None]] = deque()

    @property
    def member(self) -> Member | None:
        return None if self._membership is None else self._membership.member

    @property
    def start(self) -> int | None:
        """Where a partition without a position begins."""
        return None if self.group is None else COMMITTED

    @property
    def has_news(self) -> bool:
        """Whether the group wants something of the user; the lock must be held."""
        member = self.member
        return bool(self._settled) or (
            member is not None and (member.handover is not None or member.is_stuck)
        )

    # Coming and going

    def subscribe(
        self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, listener: object | None
    ) -> None:
        if self.group is None:
            raise BarnabasError(
                "A consumer without a group.id cannot subscribe: give one, or assign partitions."
            )
        if self.subscription is None and self._fetches.partitions:
            raise BarnabasError("Partitions are assigned by hand: unsubscribe before you subscribe.")
        if self.subscription is not None:
            self.subscription.end()
        found = self._new_subscription(self._network, topics=topics, pattern=pattern, listener=listener)
        found.on_mistake = self._mistaken
        found.on_change = self._changed
        self.subscription = found
        if pattern is not None:
            self._network.wait_for(found.begin, self._timeout, "Looking for topics")
        else:
            self._network.post(partial(found.begin, lambda _: None))
        now = time.monotonic()
        with self._lock:
            if self._membership is None:
                member = self._commits.member = self._new_member(self.group, found.topics)
                self._membership = Membership(self._network, self._coordinator, member, self._lock)
                self._commit_at = now + (self._interval or 0.0)
                member.works(now)
            else:
                self._membership.member.subscribe(found.topics, now)
        self._membership.wake()

    def leave(self, deadline: float) -> None:
        """Give everything back, and say goodbye."""
        subscription, membership = self.subscription, self._membership
        if subscription is None or membership is None:
            return
        self.subscription = self._membership = None
        subscription.end()
        with self._lock:
            given = membership.member.given
        try:
            if given:
                subscription.revoked(given)
        finally:
            with self._lock:
                self._fetches.drop(given)
                self._commits.member = None
            left = deadline - time.monotonic()
            try:
                self._network.wait_for(membership.leave, max(left, 0.1), "Leaving the group")
            except Refused:
                pass  # the session ends by itself

    def polls(self) -> None:
        """The user has come to poll."""
        if self._membership is not None:
            with self._lock:
                was_away = self._membership.member.is_away
                self._membership.member.polls(time.monotonic())
                is_back = was_away and not self._membership.member.is_away
            if is_back:
                self._membership.wake()

    def works(self) -> None:
        """The user leaves poll with what it got."""
        if self._membership is not None:
            with self._lock:
                self._membership.member.works(time.monotonic())

    # What poll has to do

    def tend(self) -> None:
        """Do all that the group wants of the user, and commit if it is time."""
        while self._settled:
            self._settled.popleft()()
        while (membership := self._membership) is not None:
            with self._lock:
                failure = membership.member.failure()
                handover = membership.member.handover
                if handover is not None and handover.assigned is not None:
                    # At once, before the group can change its mind.
                    membership.member.took_over(time.monotonic())
                    self._fetches.add(handover.assigned, COMMITTED)
                    for each in handover.assigned:
                        self._commits.settled.pop(each, None)
            if handover is not None:
                self._hand_over(handover, membership)
            elif failure is not None:
                raise failure
            else:
                break
        if self._interval is not None and time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + self._interval
            if changed := self._changed_offsets():
                self._commits.add(changed, self._timeout, lambda why: None)

    def _hand_over(self, handover: Handover, membership: Membership) -> None:
        subscription = self.subscription
        assert subscription is not None
        if handover.assigned is not None:
            membership.wake()
            self._wake_fetcher()
            subscription.assigned(handover.assigned)
            return
        gone = handover.lost or handover.revoked
        try:
            if handover.lost:
                subscription.lost(gone)
            else:
                if self._interval is not None:
                    self.commit_given(time.monotonic() + self._timeout, gone)
                subscription.revoked(gone)
        finally:
            with self._lock:
                self._fetches.drop(gone)
                membership.member.gave_back(gone, time.monotonic())
            membership.wake()

    # Commits

    @property
    def metadata(self) -> GroupMetadata:
        """In whose name offsets are committed."""
        self._need_group()
        with self._lock:
            member = self.member
            if member is None:
                return GroupMetadata(self.group or "")
            return GroupMetadata(self.group or "", member.generation, member.id, member.instance_id)

    def offsets_to_send(self) -> GroupOffsets:
        """What polls have given, for a producer to commit with its transaction."""
        if self._interval is not None:
            raise BarnabasError(
                "This consumer commits by itself, so a transaction that is aborted would be committed in part: "
                "give it enable_auto_commit=False."
            )
        offsets = {where: NextOffset(*at) for where, at in self._wanted(None).items()}
        return GroupOffsets(self.metadata, offsets)

    def commit_given(self, deadline: float, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Commit what polls have given, if commits are automatic. After a failure its records come again."""
        if self._interval is None:
            return
        self._commit_at = time.monotonic() + self._interval
        wanted = None if partitions is None else set(partitions)
        changed = {
            partition: at
            for partition, at in self._changed_offsets().items()
            if wanted is None or partition in wanted
        }
        try:
            self._commit(changed, max(deadline - time.monotonic(), 0.0))
        except Refused:
            return

    def commit(self, offsets: Mapping[TopicPartition, int] | None, timeout: float | None) -> None:
        """Commit, and wait until the group has taken it; raises Refused where it has not."""
        self._need_group()
        self._commit(self._wanted(offsets), self._timeout if timeout is None else timeout)

    def _commit(self, wanted: dict[TopicPartition, Position], seconds: float) -> None:
        if wanted:
            self._network.wait_for(
                lambda done: self._commits.add(wanted, seconds, done), seconds, "The commit"
            )

    def commit_async(self, offsets: Mapping[TopicPartition, int] | None, callback: Committed | None) -> None:
        self._need_group()
        wanted = self._wanted(offsets)
        told = {partition: at.offset for partition, at in wanted.items()}

        def done(why: Refused | None) -> None:
            if callback is not None:
                self._settled.append(lambda: callback(told, why))
                with self._lock:
                    self._lock.tell()

        if wanted:
            self._commits.add(wanted, self._timeout, done)

    def committed(
        self,
        partitions: list[TopicPartition],
        done: Callable[[dict[TopicPartition, Position] | Refused], None],
    ) -> None:
        """In the network's thread: what the group has committed of these."""
        self._commits.ask_committed(partitions, done)

    def _wanted(self, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, Position]:
        with self._lock:
            return self._fetches.with_epochs(self._fetches.positions() if offsets is None else offsets)

    def _changed_offsets(self) -> dict[TopicPartition, Position]:
        settled = self._commits.settled
        return {
            partition: at
            for partition, at in self._wanted(None).items()
            if is_news(at, settled.get(partition))
        }

    def _need_group(self) -> None:
        if self.group is None:
            raise BarnabasError("This consumer is in no group: give it a group.id to commit.")

    # What the network tells

    def _mistaken(self, why: Refused) -> None:
        with self._lock:
            self._fetches.failures.append(why)
            self._lock.tell()

    def _changed(self, topics: frozenset[str]) -> None:
        membership = self._membership
        if membership is not None:
            with self._lock:
                membership.member.subscribe(topics, time.monotonic())
                self._lock.tell()
            membership.drive()


def is_news(at: Position, settled: Position | None) -> bool:
    """Whether a group should hear of a position; the same offset with another epoch is of another history."""
    return settled is None or at.offset != settled.offset or at.epoch not in (NO_EPOCH, settled.epoch)

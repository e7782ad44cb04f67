"""Follows one leader broker: one fetch session over all partitions that follow it (KIP-227).

`replication` has one of these for each broker that leads something followed here. A fetch names the partitions whose
position has changed since the last one, and the leader answers with those that have something new. What comes back goes
to each partition's `Following`, which decides; this carries bytes. Everything happens in callbacks of the event loop:
from an answer to the next fetch there is no task to be woken.

A partition that is throttled and not in sync is left out while this broker fetches faster than it may.

Always holds: a partition that fails backs off alone. A fetch is under way, and a second one only where the first waits
at the leader while something new is to be followed; the leader answers the first then. An answer counts for the
position that was asked for, and for no other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.partitions.follower import Follower
from barnabas.broker.peers.peer import Peer, PeerLost
from barnabas.broker.replication.followers_session import FollowedKey
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.replication.following import Effect, FetchAnswer, FetchPosition
from barnabas.replication.histories import Divergence
from barnabas.replication.throttle import Throttle
from barnabas.types import BrokerId, LeaderEpoch, Millis, Offset
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

FETCHING = "fetcher"
ANEW_S = 0.02
"""How long it takes until a leader that hung up is asked anew."""

log = logging.getLogger("barnabas.replication")


class Fetcher:
    """Mutable: what is followed of one broker, and the session with it."""

    def __init__(self, broker: "Broker", leader: BrokerId, throttle: Throttle) -> None:
        self.leader = leader
        self._broker = broker
        self._throttle = throttle
        self._followers: dict[FollowedKey, Follower] = {}
        self._asked: dict[FollowedKey, FetchPosition] = {}
        """Where the leader's session has each partition."""
        self._changed: dict[FollowedKey, None] = {}
        """What the next fetch has to look at."""
        self._forgotten: set[FollowedKey] = set()
        self._cutting: set[FollowedKey] = set()
        self._lasting: dict[FollowedKey, Offset] = {}
        """Where logs start for the leader, while a later start is being written down."""
        self._session_id = self._session_epoch = 0
        self._under_way: deque[dict[FollowedKey, FetchPosition | None]] = deque()
        """The fetches that are not answered, each with the positions that a later one has changed."""
        self._peer: Peer | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._is_poked = self._is_closed = False

    def __len__(self) -> int:
        return len(self._followers)

    @property
    def lag(self) -> int:
        """How many committed records the partition that is furthest behind does not have yet."""
        return max(
            (max(0, each.following.leaders_watermark - each.log.end) for each in self._followers.values()),
            default=0,
        )

    def follow(self, follower: Follower) -> None:
        """Fetch a partition from here on; again when its epoch is another."""
        key = FollowedKey(follower.topic_id, follower.tp.partition)
        self._followers[key] = follower
        follower.on_stored = self._stored
        self._asked.pop(key, None)
        self._changed[key] = None
        cuts = follower.following.begin()
        if cuts:
            self._cut(key, follower, cuts)
        self._poke()

    def let_go(self, follower: Follower) -> None:
        key = FollowedKey(follower.topic_id, follower.tp.partition)
        if self._followers.get(key) is follower:
            del self._followers[key]
            self._changed.pop(key, None)
            if self._asked.pop(key, None) is not None:
                self._forgotten.add(key)

    def close(self) -> None:
        self._is_closed = True
        self._followers.clear()
        if self._opening is not None:
            self._opening.cancel()
        if self._retry is not None:
            self._retry.cancel()
        for task in self._tasks:
            task.cancel()
        self._broker.peers.drop(self.leader, FETCHING)

    def look_again(self) -> None:
        """The leader's broker has come, or is at another address; or other partitions are throttled."""
        self._poke()

    # Asking

    def _poke(self) -> None:
        """Look soon whether there is something to ask: many partitions may begin at once."""
        if not self._is_poked and not self._is_closed:
            self._is_poked = True
            asyncio.get_running_loop().call_soon(self._go)

    def _go(self) -> None:
        """Send the next fetch, if there is one to send."""
        self._is_poked = False
        if self._is_closed or self._opening is not None or not self._followers:
            return
        if self._peer is None or not self._peer.is_open:
            self._opening = asyncio.create_task(self._open())
            return
        if self._under_way and (len(self._under_way) > 1 or not self._session_id or not self._changed):
            return
        changes = self._changes()
        if not changes and (self._under_way or not self._asked):
            return
        if not changes and self._is_flushing:
            return  # it goes on when the disk has what was fetched
        self._send(changes)

    def _changes(self) -> dict[FollowedKey, FetchPosition]:
        """The positions that the leader does not know yet. What backs off, or waits for the disk or for its throttle,
        leaves the session."""
        now = self._broker.steady_clock.now()
        changes: dict[FollowedKey, FetchPosition] = {}
        waiting: dict[FollowedKey, None] = {}
        is_slow = self._throttle.is_exceeded(now) if self._throttle.topics else False
        is_any_held = False
        for key in self._changed:
            follower = self._followers.get(key)
            if follower is None or key in self._cutting:
                continue
            position = follower.following.next_fetch(now)
            if position is not None and key in self._lasting:
                position = position._replace(log_start=self._lasting[key])
            if is_slow and self._is_held(follower):
                position, is_any_held = None, True
            if position is None:
                waiting[key] = None
                if self._asked.pop(key, None) is not None:
                    self._forgotten.add(key)
            elif position != self._asked.get(key):
                changes[key] = position
        self._changed = waiting
        self._arm_retry(now, [self._throttle.opens_at(now)] if is_any_held else [])
        return changes

    def _is_held(self, follower: Follower) -> bool:
        """Whether a partition waits while the throttle is exceeded."""
        return not follower.following.is_caught_up and self._throttle.counts(follower.tp)

    def _arm_retry(self, now: int, times: list[Millis]) -> None:
        """Look again at the first of these times, or when the first partition has backed off for long enough."""
        times += [
            at
            for key in self._changed
            if (follower := self._followers.get(key)) is not None
            and (at := follower.following.retry_at) > now
        ]
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if times:
            delay = (min(times) - now) / 1000
            self._retry = asyncio.get_running_loop().call_later(delay, self._poke)

    @property
    def _is_flushing(self) -> bool:
        return any(
            follower.must_flush for key in self._changed if (follower := self._followers.get(key)) is not None
        )

    def _send(self, changes: dict[FollowedKey, FetchPosition]) -> None:
        assert self._peer is not None
        config = self._broker.config
        for earlier in self._under_way:
            for key in changes:
                earlier.setdefault(key, self._asked.get(key))
        self._asked |= changes
        forgotten, self._forgotten = self._forgotten - changes.keys(), set()
        request = FetchRequest(
            replica_state=ReplicaState(self._broker.id, self._broker.epoch),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=_topics(changes, config.replica_fetch_max_bytes),
            forgotten_topics_data=_forgotten(forgotten) if self._session_id else [],
        )
        self._session_epoch += 1
        timeout_ms = config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms
        self._under_way.append({})
        try:
            self._peer.send(request, timeout_ms).add_done_callback(self._answered)
        except BarnabasError as error:
            self._lost(error)

    async def _open(self) -> None:
        """Come back when the leader can be asked: it is dialed until it answers, or is not followed any more."""
        try:
            self._forget_session()
            while not self._is_closed:
                leader = self._broker.replicas.brokers.get(self.leader)
                if leader is None:
                    return  # it is dead; `look_again` says when it is back
                self._peer = self._broker.peers.get(leader, FETCHING)
                try:
                    await self._peer.opened()
                except PeerLost as lost:
                    log.debug("%s", lost)
                    continue
                break
        finally:
            self._opening = None
        self._poke()

    def _forget_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._under_way.clear()
        self._asked.clear()
        self._forgotten.clear()
        self._changed = dict.fromkeys(self._followers)

    def _lost(self, error: BarnabasError) -> None:
        """The connection, or the session, is gone: begin anew with all partitions, in a moment."""
        log.info("fetching from broker %d begins anew: %s", self.leader, error)
        self._forget_session()
        if not self._is_closed:
            asyncio.get_running_loop().call_later(ANEW_S, self._poke)

    # Hearing

    def _answered(self, future: "asyncio.Future[Any]") -> None:
        if self._is_closed or not self._under_way:
            if not future.cancelled():
                future.exception()
            return
        try:
            answer: FetchResponse = future.result()
            if answer.error_code:
                raise Refused(Code.of(answer.error_code))
        except BarnabasError as error:
            self._lost(error)
            return
        changed_since = self._under_way.popleft()
        self._session_id = answer.session_id
        if not self._session_id:
            self._session_epoch = 0
        for topic in answer.responses:
            for row in topic.partitions:
                key = FollowedKey(topic.topic_id, row.partition_index)
                position = changed_since[key] if key in changed_since else self._asked.get(key)
                if position is not None:
                    self._heard(key, position, row)
        self._go()

    def _heard(self, key: FollowedKey, position: FetchPosition, row: FetchPartitionResponse) -> None:
        follower = self._followers.get(key)
        if follower is None or key in self._cutting:
            return
        now = self._broker.steady_clock.now()
        diverging = row.diverging_epoch
        answer = FetchAnswer(
            Code.of(row.error_code),
            Offset(row.high_watermark),
            Offset(row.log_start_offset),
            None
            if diverging is None
            else Divergence(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
            row.records or b"",  # type: ignore[arg-type]
        )
        self._changed[key] = None
        if self._throttle.topics and self._throttle.counts(follower.tp):
            self._throttle.passed(len(answer.records), now)
        start = follower.log.start
        try:
            cuts = follower.heard(position, answer, now, self._broker.clock.now())
        except Refused as refused:
            follower.following.failed(now)
            self._broker.note_refusal("ReplicaFetch", refused, *follower.tp)
            return
        if follower.log.start > start and key not in self._lasting:
            self._lasting[key] = start
            self._begin(self._write_start(key, follower))
        if row.error_code or diverging is not None:
            # The leader has it no more in its session.
            self._asked.pop(key, None)
        if row.error_code:
            log.debug("%s: the leader says %s", follower.tp, answer.code.name)
        if cuts:
            self._cut(key, follower, cuts)

    def _stored(self, follower: Follower) -> None:
        """What was fetched is on the disk now, where it had to be."""
        key = FollowedKey(follower.topic_id, follower.tp.partition)
        if self._followers.get(key) is follower:
            self._changed[key] = None
            self._poke()

    # Cutting

    def _cut(self, key: FollowedKey, follower: Follower, cuts: list[Effect]) -> None:
        self._cutting.add(key)
        self._begin(self._carry_out(key, follower, cuts))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _carry_out(self, key: FollowedKey, follower: Follower, cuts: list[Effect]) -> None:
        """Write the recovery point down, then cut: a log that is opened again never ends below the one written."""
        epoch = follower.epoch
        try:
            await self._broker.cuts.begin(follower, cuts)
            # Another epoch, or another role, asks its own leader first.
            if self._followers.get(key) is follower and follower.epoch == epoch:
                before = follower.log.end
                follower.cut(cuts)
                log.info(
                    "%s was cut from %d to %d, as its leader has it", follower.tp, before, follower.log.end
                )
        except Refused as refused:
            follower.following.failed(self._broker.steady_clock.now())
            self._broker.note_refusal("ReplicaFetch", refused, *follower.tp)
        finally:
            self._cutting.discard(key)
            self._changed[key] = None
            self._poke()

    # Where logs start

    async def _write_start(self, key: FollowedKey, follower: Follower) -> None:
        """Let a start last before the leader hears of it: it answers DeleteRecords when all replicas start there."""
        try:
            await self._broker.log_starts.write(follower)
        except Refused as refused:
            self._broker.note_refusal("ReplicaFetch", refused, *follower.tp)
        finally:
            del self._lasting[key]
            self._changed[key] = None
            self._poke()


def _topics(changes: dict[FollowedKey, FetchPosition], max_bytes: int) -> list[FetchTopic]:
    topics: dict[UUID, FetchTopic] = {}
    for key, position in changes.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = FetchTopic(topic_id=key.topic_id)
        offset, last_epoch, epoch, log_start = position
        topic.partitions.append(
            FetchPartition(key.partition, epoch, offset, last_epoch, log_start, max_bytes)
        )
    return list(topics.values())


def _forgotten(keys: set[FollowedKey]) -> list[ForgottenTopic]:
    topics: dict[UUID, ForgottenTopic] = {}
    for key in keys:
        topics.setdefault(key.topic_id, ForgottenTopic(topic_id=key.topic_id)).partitions.append(
            key.partition
        )
    return list(topics.values())

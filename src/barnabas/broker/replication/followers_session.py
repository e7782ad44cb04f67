"""Serves one follower: a fetch session over all partitions that it follows here (KIP-227), between brokers only.

Made by `replication` for the first fetch of a broker, and again when that broker connects anew. A session knows where
the follower stands in each partition and is told by leaders when they grow: a fetch costs what has changed, however
many partitions there are. What has nothing new is not answered.

A fetch that finds nothing waits. Records answer it at the end of the round that brought them; a watermark that moved
waits a moment for records to travel with; another fetch of the follower, which has more to ask, answers it at once.

Records of a throttled partition for a follower that is not in sync stay out of answers while this broker sends
faster than it may, and answer a fetch that waits as soon as it does not.

Always holds: a position counts for the high watermark once, when it comes in, and only if it is fenced by the leader's
epoch, by the follower's broker epoch and by its history. What is served may lie above the watermark, and does so for
replicas alone.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.leader import Leader
from barnabas.errors import Code, Refused
from barnabas.replication.throttle import Throttle
from barnabas.types import BrokerEpoch, BrokerId, LeaderEpoch, Millis, Offset
from barnabas.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

NEWS_S = 0.01
"""How long the news of a watermark waits for records that it can travel with."""

CONSIDER_MS = 300
"""How often a replica that is not in sync is considered anew, though its position is the same. 0.1 us a partition."""

_NOTHING = b""


class FollowedKey(NamedTuple):
    """A partition as followers name it: a successor of the same name has another id."""

    topic_id: UUID
    partition: int


class Followed:
    """Mutable: one partition of a session."""

    __slots__ = ("high_watermark", "is_noted", "key", "leader", "log_start", "wanted")

    def __init__(self, key: FollowedKey, wanted: FetchPartition, leader: Leader | None) -> None:
        self.key = key
        self.wanted = wanted
        self.leader = leader
        """None where it was not led here when the follower asked."""
        self.is_noted = False
        """Whether its position has been told to the leader."""
        self.high_watermark = self.log_start = Offset(-1)
        """What the follower was told last."""


class FollowersSession:
    """Mutable: where a follower stands, and its fetch while that waits."""

    def __init__(self, broker: "Broker", session_id: int, replica: BrokerId, throttle: Throttle) -> None:
        self.id = session_id
        self.replica = replica
        self.epoch = 0
        """That of the next fetch."""
        self._broker = broker
        self._broker_epoch = BrokerEpoch(-1)
        self._partitions: dict[FollowedKey, Followed] = {}
        self._by_leader: dict[Leader, Followed] = {}
        self._ready: dict[Followed, None] = {}
        """What there is to look at, the one that has waited longest first."""
        self._news: dict[Followed, None] = {}
        """Whose watermark or start the follower does not know yet."""
        self._throttle = throttle
        self._held: dict[Followed, None] = {}
        """What has records that wait for the throttle."""
        self._opening: asyncio.TimerHandle | None = None
        """Looks at them again."""
        self._fetched_at = self._considered_at = Millis(0)
        self._left = self._min_bytes = 0
        self._passing = 0
        """Bytes of throttled partitions in the answer that is put together."""
        self._answer: Promise[FetchResponse] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._is_woken = self._is_full = False

    def fetch(self, request: FetchRequest, peer: Connection) -> FetchResponse | Promise[FetchResponse]:
        """Take what the follower says of where it stands, then answer, now or when there is something."""
        self.epoch += 1
        state = request.replica_state
        self._know_life(BrokerEpoch(-1 if state is None else state.replica_epoch))
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget(FollowedKey(forgotten.topic_id, index))
        for topic in request.topics:
            for wanted in topic.partitions:
                self._take(FollowedKey(topic.topic_id, wanted.partition), wanted)
        self._fetched_at = self._broker.steady_clock.now()
        if self._fetched_at - self._considered_at >= CONSIDER_MS:
            self._consider_again()
        self._left = request.max_bytes
        self._min_bytes = request.min_bytes
        rows = self._collect()
        if rows is not None or request.max_wait_ms <= 0:
            return self._response(rows or [])
        return self._park(request.max_wait_ms, peer)

    def close(self) -> None:
        """Let go of the leaders; a fetch that waits is answered with nothing."""
        for leader in self._by_leader:
            leader.leave(self)
        self._by_leader.clear()
        self._partitions.clear()
        self._ready.clear()
        self._held.clear()
        if self._opening is not None:
            self._opening.cancel()
        self._give([])

    # Where the follower stands

    def _know_life(self, epoch: BrokerEpoch) -> None:
        """A follower that has registered anew goes on in its session: leaders have to know it by its new life."""
        if epoch != self._broker_epoch:
            self._broker_epoch = epoch
            for followed in self._partitions.values():
                followed.is_noted = False
                self._ready[followed] = None

    def _take(self, key: FollowedKey, wanted: FetchPartition) -> None:
        followed = self._partitions.get(key)
        leader = self._find(key)
        if followed is None or followed.leader is not leader:
            self._forget(key)
            followed = self._partitions[key] = Followed(key, wanted, leader)
            if leader is not None:
                self._by_leader[leader] = followed
                self._news[followed] = None
                leader.join(self)
        followed.wanted = wanted
        followed.is_noted = False
        self._ready[followed] = None

    def _consider_again(self) -> None:
        """Tell leaders anew where a replica stands that is not in sync: what kept it out may have passed.

        A broker that registers anew, a wish that was refused, a life that the leader had not heard of: in a partition
        that does not grow nothing else would ask again.
        """
        self._considered_at = self._fetched_at
        for leader, followed in self._by_leader.items():
            if leader.leadership is not None and self.replica not in leader.leadership.isr:
                followed.is_noted = False
                self._ready[followed] = None

    def _find(self, key: FollowedKey) -> Leader | None:
        topic = self._broker.metadata.image.topic_by_id(key.topic_id)
        leader = self._broker.replicas.find_leader(topic.name, key.partition) if topic is not None else None
        return leader if leader is not None and leader.topic_id == key.topic_id else None

    def _forget(self, key: FollowedKey) -> None:
        followed = self._partitions.pop(key, None)
        if followed is None:
            return
        self._ready.pop(followed, None)
        self._news.pop(followed, None)
        self._held.pop(followed, None)
        if followed.leader is not None and self._by_leader.pop(followed.leader, None) is not None:
            followed.leader.leave(self)

    # What leaders say

    def grown(self, leader: Leader) -> None:
        followed = self._by_leader[leader]
        if followed not in self._ready:
            if leader.leadership is not None:
                leader.leadership.seen(self.replica, self._fetched_at)
            self._ready[followed] = None
        if self._answer is not None and not self._is_woken:
            self._is_woken = True
            self._broker.server.rounds.wake(self._try)

    def committed(self, leader: Leader) -> None:
        followed = self._by_leader[leader]
        if not self._news and self._answer is not None:
            self._timers.append(asyncio.get_running_loop().call_later(NEWS_S, self._finish))
        self._news[followed] = None

    # Waiting

    def _park(self, max_wait_ms: int, peer: Connection) -> Promise[FetchResponse]:
        loop = asyncio.get_running_loop()
        answer = self._answer = Promise()
        answer.add_done_callback(lambda done: self._unpark(answer, peer))
        peer.on_more = self._finish
        self._timers = [loop.call_later(max_wait_ms / 1000, self._finish)]
        if self._news:
            self._timers.append(loop.call_later(NEWS_S, self._finish))
        return answer

    def _unpark(self, answer: Promise[FetchResponse], peer: Connection) -> None:
        peer.on_more = None
        for timer in self._timers:
            timer.cancel()
        self._timers = []
        if self._answer is answer:
            self._answer = None

    def _try(self) -> None:
        self._is_woken = False
        if self._answer is not None:
            rows = self._collect()
            if rows is not None:
                self._give(rows)

    def _finish(self) -> None:
        """The time is up, or the follower has more to ask: answer with what there is."""
        if self._answer is not None:
            self._give(self._collect(must_answer=True) or [])

    def _give(self, rows: list[tuple[Followed, FetchPartitionResponse]]) -> None:
        if self._answer is not None:
            self._answer.give(self._response(rows))

    # Holding back

    def open_throttle(self) -> None:
        """Look again at what was held back: there is room, or the throttle is another."""
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self._ready.update(self._held)
        self._held.clear()
        self._try()

    def _must_wait(self, leader: Leader) -> bool:
        """Whether records are held back: the replica is not in sync, and this broker has sent what it may."""
        throttle, leadership = self._throttle, leader.leadership
        if leadership is None or self.replica in leadership.isr or not throttle.counts(leader.tp):
            return False
        return throttle.is_exceeded(self._broker.steady_clock.now(), self._passing)

    def _arm_opening(self) -> None:
        """See to it that what is held back goes on as soon as it may."""
        if self._opening is None:
            now = self._broker.steady_clock.now()
            wait_ms = self._throttle.opens_at(now) - now + 1
            self._opening = asyncio.get_running_loop().call_later(wait_ms / 1000, self.open_throttle)

    # Answering

    def _collect(self, *, must_answer: bool = False) -> list[tuple[Followed, FetchPartitionResponse]] | None:
        """The rows that there are, or None where they are too few to leave by themselves."""
        rows: list[tuple[Followed, FetchPartitionResponse]] = []
        found, is_urgent = 0, must_answer
        self._is_full = False
        self._passing = 0
        for followed in list(self._ready):
            row = self._row(followed, self._left - found, is_first=not found)
            if self._is_full:
                break
            # With records it is not looked at again before the follower says that it has them.
            del self._ready[followed]
            if row is None:
                continue
            rows.append((followed, row))
            if row.records:
                found += len(row.records)
            else:
                # A refusal, or a word to cut: said once, and no more before the follower asks anew.
                is_urgent = True
                self._forget(followed.key)
        if not is_urgent and (not rows or found < self._min_bytes):
            for followed, _ in rows:
                self._ready[followed] = None
            if self._held:
                self._arm_opening()
            return None
        if self._passing:
            self._throttle.passed(self._passing, self._broker.steady_clock.now())
        if self._held:
            self._arm_opening()
        told = {followed for followed, _ in rows}
        for followed in [each for each in self._news if each not in told]:
            news = self._news_of(followed)
            if news is not None:
                rows.append((followed, news))
        self._news.clear()
        for followed, row in rows:
            followed.high_watermark = Offset(row.high_watermark)
            followed.log_start = Offset(row.log_start_offset)
        return rows

    def _row(self, followed: Followed, left: int, *, is_first: bool) -> FetchPartitionResponse | None:
        """What there is to say of a partition: records, a refusal, or where to cut; None where there is nothing."""
        leader, wanted = followed.leader, followed.wanted
        try:
            if leader is None or self._broker.replicas.lookup_leader(leader.tp) is not leader:
                raise Refused(self._why_not_led(followed.key))
            return self._read(followed, leader, left, is_first=is_first)
        except Refused as refused:
            self._broker.metrics.api("Fetch").error(refused.code)
            row = FetchPartitionResponse(wanted.partition, refused.code, -1, records=_NOTHING)
            if leader is not None and refused.code is Code.OFFSET_OUT_OF_RANGE:
                row.high_watermark, row.log_start_offset = leader.high_watermark, leader.log.start
            return row

    def _why_not_led(self, key: FollowedKey) -> Code:
        topic = self._broker.metadata.image.topic_by_id(key.topic_id)
        return Code.UNKNOWN_TOPIC_ID if topic is None else Code.NOT_LEADER_OR_FOLLOWER

    def _read(
        self, followed: Followed, leader: Leader, left: int, *, is_first: bool
    ) -> FetchPartitionResponse | None:
        wanted, log = followed.wanted, leader.log
        offset = Offset(wanted.fetch_offset)
        row = FetchPartitionResponse(
            wanted.partition, 0, leader.high_watermark, -1, log.start, records=_NOTHING
        )
        if not followed.is_noted:
            parts = leader.fetched(
                self.replica,
                self._broker_epoch,
                epoch=LeaderEpoch(wanted.current_leader_epoch),
                last_epoch=LeaderEpoch(wanted.last_fetched_epoch),
                offset=offset,
                log_start=Offset(wanted.log_start_offset),
                now=self._fetched_at,
            )
            if parts is not None:
                row.diverging_epoch = EpochEndOffset(*parts)
                return row
            followed.is_noted = True
            row.high_watermark = leader.high_watermark
        leader.check_epoch(wanted.current_leader_epoch)
        if offset == log.end:
            return None
        if self._throttle.topics and self._must_wait(leader):
            self._held[followed] = None
            return None
        if self._held:
            self._held.pop(followed, None)
        limit = min(wanted.partition_max_bytes, max(left, 0))
        piece = log.read(offset, limit, log.end)
        if piece is None:
            return None
        if piece.size > limit and not is_first:
            self._is_full = True
            return None
        if self._throttle.topics and self._throttle.counts(leader.tp):
            self._passing += piece.size
        row.records = piece
        return row

    def _news_of(self, followed: Followed) -> FetchPartitionResponse | None:
        leader = followed.leader
        if leader is None or (leader.high_watermark, leader.log.start) == (
            followed.high_watermark,
            followed.log_start,
        ):
            return None
        return FetchPartitionResponse(
            followed.wanted.partition, 0, leader.high_watermark, -1, leader.log.start, records=_NOTHING
        )

    def _response(self, rows: list[tuple[Followed, FetchPartitionResponse]]) -> FetchResponse:
        topics: dict[UUID, FetchTopicResponse] = {}
        for followed, row in rows:
            topic_id = followed.key.topic_id
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopicResponse(topic_id=topic_id)
            topic.partitions.append(row)
        return FetchResponse(session_id=self.id, responses=list(topics.values()))

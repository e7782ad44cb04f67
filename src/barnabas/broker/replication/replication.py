"""Drives the partitions of this broker that have replicas on others: one door for `broker`, `replicas` and handlers.

`replicas` says which partitions lead and follow; followers are handed to the fetcher of their leader's broker. Fetches
of other brokers are served by their sessions. A tick looks for replicas that fell behind, and high watermarks are
written down every few seconds, off the event loop: they are what a restarted replica begins with.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING

from barnabas.broker.fetch_sessions import FINAL_EPOCH, FULL_EPOCH
from barnabas.broker.network.connection import Connection
from barnabas.broker.network.promise import Promise
from barnabas.broker.partitions.follower import NO_LEADER, Follower
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.replication.fetcher import Fetcher
from barnabas.broker.replication.followers_session import FollowersSession
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.room import Room
from barnabas.cluster.image import ClusterImage
from barnabas.errors import Code, Refused
from barnabas.replication.throttle import FOLLOWERS, LEADERS, Throttle, Windows, throttled_here
from barnabas.types import BrokerId, Offset, TopicPartition
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

TICK_PARTITIONS = 256
"""Leaders that a tick looks at before requests have their turn."""

SHORTEST_TICK_S, LONGEST_TICK_S = 0.05, 1.0

log = logging.getLogger("barnabas.replication")


class Replication:
    """Mutable: the fetchers, the sessions of followers, the wishes under way."""

    def __init__(self, broker: "Broker") -> None:
        self.isr = IsrChanges(broker)
        config = broker.config
        windows = Windows(config.replication_quota_window_num, config.replication_quota_window_size_seconds)
        self.leading, self.following = Throttle(windows), Throttle(windows)
        """What slows down the answers to followers, and the fetches here."""
        self._throttled: ClusterImage | None = None
        """The image that throttles are of."""
        self.room = Room(broker)
        self._broker = broker
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._follows: dict[TopicPartition, Fetcher] = {}
        self._sessions: dict[BrokerId, FollowersSession] = {}
        self._session_ids = count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_leaving = False

    def start(self) -> None:
        config = self._broker.config
        if "replica.lag.max.messages" in config.given:
            log.warning(
                "replica.lag.max.messages is retired: replicas are judged by replica.lag.time.max.ms alone"
            )
        tick_s = min(max(config.replica_lag_time_max_ms / 4000, SHORTEST_TICK_S), LONGEST_TICK_S)
        every_s = config.replica_high_watermark_checkpoint_interval_ms / 1000
        self._tasks = [
            asyncio.create_task(_repeat(self._tick, tick_s)),
            asyncio.create_task(_repeat(self._checkpoint, every_s)),
        ]

    async def stop(self) -> None:
        """Ask nothing and answer nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.isr.stop()
        await self.room.stop()
        for fetcher in self._fetchers.values():
            fetcher.close()
        for session in self._sessions.values():
            session.close()

    def stop_following(self) -> None:
        """Fetch nothing any more: this broker is about to leave.

        A leader that saw it catch up would wish it back into the ISR, and wait for a replica that is gone: 0.8 s
        without an acknowledgement when a controller stopped.
        """
        self._is_leaving = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._follows.clear()

    @property
    def max_lag(self) -> int:
        """How many records the follower here that is furthest behind does not have yet."""
        return max((fetcher.lag for fetcher in self._fetchers.values()), default=0)

    def brokers_changed(self, image: ClusterImage) -> None:
        """Brokers came or went: a leader that is back is asked again, and replicas that are gone are given up."""
        for fetcher in self._fetchers.values():
            if fetcher.leader in image.brokers:
                fetcher.look_again()
        for gone in self._sessions.keys() - image.brokers.keys():
            self._sessions.pop(gone).close()

    def throttle(self, image: ClusterImage) -> None:
        """Hold replicas that catch up to the rates of this broker's settings, as far as topics' settings name them."""
        config = self._broker.config
        before, self._throttled = self._throttled or ClusterImage(image.cluster_id), image
        changed = list(image.topics.changed_since(before.topics))
        is_new = False
        for throttle, name, limit in (
            (self.leading, LEADERS, config.leader_replication_throttled_rate),
            (self.following, FOLLOWERS, config.follower_replication_throttled_rate),
        ):
            is_new |= throttle.limit != limit
            throttle.limit = limit
            for topic in changed:
                found = image.topics.get(topic)
                replicas = "" if found is None else found.configs.get(f"{name}.replicas", "")
                is_new |= throttle.hold(topic, throttled_here(replicas, self._broker.id))
        if is_new:
            self._throttle_changed()

    def _throttle_changed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.look_again()
        for session in self._sessions.values():
            session.open_throttle()

    # Roles, as `replicas` hands them out

    def wishes(self, leader: Leader) -> None:
        self.isr.want(leader)

    def follows(self, follower: Follower) -> None:
        fetcher = self._follows.get(follower.tp)
        if fetcher is not None and fetcher.leader != follower.leader:
            self.follows_no_more(follower)
        if follower.leader == NO_LEADER or self._is_leaving:
            return
        fetcher = self._fetchers.get(follower.leader)
        if fetcher is None:
            fetcher = self._fetchers[follower.leader] = Fetcher(self._broker, follower.leader, self.following)
        self._follows[follower.tp] = fetcher
        fetcher.follow(follower)

    def follows_no_more(self, follower: Follower) -> None:
        fetcher = self._follows.pop(follower.tp, None)
        if fetcher is None:
            return
        fetcher.let_go(follower)
        if not len(fetcher):
            fetcher.close()
            del self._fetchers[fetcher.leader]

    # Fetches of followers

    def serve(self, request: FetchRequest, peer: Connection) -> FetchResponse | Promise[FetchResponse]:
        """Answer a follower's fetch, which begins a session or goes on with one. Raises Refused."""
        state = request.replica_state
        replica = BrokerId(request.replica_id if state is None else state.replica_id)
        session = self._sessions.get(replica)
        if request.session_epoch == FINAL_EPOCH:
            return self._serve_once(request, peer, replica)
        if request.session_epoch == FULL_EPOCH:
            if session is not None:
                session.close()
            session = self._sessions[replica] = FollowersSession(
                self._broker, next(self._session_ids), replica, self.leading
            )
        elif session is None or session.id != request.session_id:
            raise Refused(Code.FETCH_SESSION_ID_NOT_FOUND)
        elif session.epoch != request.session_epoch:
            raise Refused(Code.INVALID_FETCH_SESSION_EPOCH)
        return session.fetch(request, peer)

    def _serve_once(self, request: FetchRequest, peer: Connection, replica: BrokerId) -> FetchResponse:
        """Answer a fetch without a session, at once."""
        request.max_wait_ms = 0
        session = FollowersSession(self._broker, 0, replica, self.leading)
        try:
            response = session.fetch(request, peer)
        finally:
            session.close()
        assert isinstance(response, FetchResponse)
        return response

    def nearest(self, partition: Partition, rack: str, offset: Offset) -> BrokerId | None:
        """A replica in a reader's rack that has what it wants (KIP-392); None where it reads here as well."""
        broker = self._broker
        if not isinstance(partition, Leader) or partition.leadership is None:
            return None
        if not broker.config.replica_selector_class or broker.config.broker_rack == rack:
            return None
        brokers = broker.replicas.brokers
        near = [
            remote
            for remote in partition.leadership.remotes.values()
            if remote.in_sync and remote.log_start <= offset <= remote.end
            if (found := brokers.get(remote.broker)) is not None and found.rack == rack
        ]
        return max(near, key=lambda remote: remote.end).broker if near else None

    # By itself

    async def _tick(self) -> None:
        now = self._broker.steady_clock.now()
        for number, leader in enumerate(list(self._broker.replicas.leaders())):
            if leader.leadership is not None:
                leader.tick(now)
            if number % TICK_PARTITIONS == TICK_PARTITIONS - 1:
                await asyncio.sleep(0)

    async def _checkpoint(self) -> None:
        """Write high watermarks down, where they say more than the ends of logs: with several replicas."""
        replicas = self._broker.replicas
        if not any(each.is_replicated for each in replicas):
            return
        loop = asyncio.get_running_loop()
        for write in self._broker.directories.begin_high_watermarks(replicas.high_watermarks()):
            try:
                await loop.run_in_executor(None, write)
            except OSError as error:
                log.error("high watermarks cannot be written down, and are tried again: %s", error)


async def _repeat(chore: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            await chore()
        except Exception:
            log.exception("a chore of replication failed and is tried again")

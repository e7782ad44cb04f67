"""A metadata store in memory for several brokers: what ZooKeeper is to a real cluster, for simulations.

Each broker opens a `MemoryStore`, its session. Everything happens at once and in the caller's thread, so the same calls
give the same run; brokers in threads of their own take turns. A session can be cut off (`cut`, `heal`) and can end
(`expire`), as those of ZooKeeper do.
"""

import errno
import os
from collections import deque
from collections.abc import Mapping, Sequence
from threading import RLock

from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    ControllerElected,
    ControllerEpoch,
    TopicConfigured,
    Version,
)
from barnabas.cluster.store import ClaimLost, Deposed, Event, Notice, Stale, Subscriber, TopicSettings, Update
from barnabas.types import BrokerId


class MemoryCluster:
    """Mutable: the one truth that all sessions see."""

    def __init__(self, cluster_id: str = "simulated") -> None:
        self.image = ClusterImage(cluster_id)
        self.holder: MemoryStore | None = None
        """The session whose broker is the controller."""
        self.notices: deque[Notice] = deque()
        """What the next controller has to be told."""
        self._sessions: list[MemoryStore] = []
        self.turn = RLock()

    def open(self) -> "MemoryStore":
        """A session for one broker."""
        session = MemoryStore(self)
        self._sessions.append(session)
        return session

    def change(self, changes: Sequence[Change]) -> ClusterImage:
        """Make a change and tell all sessions that are connected."""
        self.image = self.image.after(changes)
        for session in list(self._sessions):
            session.see()
            if session is not self.holder:
                for change in changes:
                    if isinstance(change, TopicConfigured):
                        session.hear_of_settings(change)
        return self.image

    def drop(self, session: "MemoryStore") -> None:
        """End a session: its brokers are gone, and so is its claim."""
        if session in self._sessions:
            self._sessions.remove(session)
        changes: list[Change] = [BrokerGone(broker) for broker in session.brokers]
        if self.holder is session:
            self.holder = None
            changes.append(ControllerElected(NO_BROKER, self.image.controller_epoch))
        if changes:
            self.change(changes)

    def take_up(self, session: "MemoryStore") -> None:
        """Begin a new session for a store whose last one has ended."""
        if session not in self._sessions:
            self._sessions.append(session)


class MemoryStore:
    """Mutable: an adapter of `cluster.store` over a `MemoryCluster`."""

    name = "in memory"

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._listeners: list[Subscriber] = []
        self._is_cut = False
        self._claim: ControllerEpoch | None = None
        self.image = cluster.image
        self.brokers: set[BrokerId] = set()

    def subscribe(self, listener: Subscriber) -> None:
        self._listeners.append(listener)

    def register(self, broker: BrokerImage) -> BrokerEpoch:
        with self._cluster.turn:
            self._check_connection()
            epoch = BrokerEpoch(self._cluster.image.version + 1)
            self.brokers.add(broker.id)
            self._cluster.change([BrokerRegistered(broker._replace(epoch=epoch))])
            return epoch

    def claim(self, broker: BrokerId, over: BrokerId | None = None) -> ControllerEpoch | None:
        with self._cluster.turn:
            self._check_connection()
            cluster = self._cluster
            deposed = cluster.holder if cluster.holder is not self else None
            if deposed is not None and (over is None or over != cluster.image.controller):
                return None
            cluster.holder = self
            if deposed is not None:
                deposed.hear_of_deposition()
            self._claim = ControllerEpoch(cluster.image.controller_epoch + 1)
            cluster.change([ControllerElected(broker, self._claim)])
            while cluster.notices:
                self.give(cluster.notices.popleft())
            return self._claim

    def commit(self, changes: Sequence[Change], expected_version: Version) -> ClusterImage:
        with self._cluster.turn:
            self._check_connection()
            cluster = self._cluster
            if cluster.holder is not self or self._claim != cluster.image.controller_epoch:
                raise Deposed("This broker is not the controller.")
            if expected_version != cluster.image.version:
                raise Stale(
                    f"The cluster is at version {cluster.image.version}, not at {expected_version} any more."
                )
            return cluster.change(changes)

    def topic_configs(self, names: Sequence[str]) -> list[Mapping[str, str]]:
        topics = self.image.topics
        return [topics[name].configs if name in topics else {} for name in names]

    def tell(self, notice: Notice) -> None:
        with self._cluster.turn:
            self._check_connection()
            holder = self._cluster.holder
            if holder is None or holder._is_cut:
                self._cluster.notices.append(notice)
            else:
                holder.give(notice)

    def close(self) -> None:
        self._listeners.clear()
        self.expire()

    # What a network and a quorum do to a session

    def cut(self) -> None:
        """Lose the connection: nothing is heard, nothing can be asked. The session goes on until it expires."""
        self._is_cut = True

    def heal(self) -> None:
        """Connect again, and read everything again: as the same session, or as a new one after `expire`."""
        self._is_cut = False
        self._cluster.take_up(self)
        self._lose_claim()
        self.image = self._cluster.image
        self.give(Update(self.image, is_whole=True))
        while self._cluster.holder is self and self._cluster.notices:
            self.give(self._cluster.notices.popleft())

    def expire(self) -> None:
        """End the session. A store that is cut off does not hear of that before it heals."""
        self._cluster.drop(self)
        self.brokers.clear()
        if not self._is_cut:
            self._lose_claim()

    def see(self) -> None:
        """Hear of the newest image, where there is a connection."""
        if not self._is_cut:
            self.image = self._cluster.image
            self.give(Update(self.image))

    def hear_of_settings(self, change: TopicConfigured) -> None:
        if not self._is_cut:
            self.give(TopicSettings(change.name, change.configs))

    def give(self, event: Event) -> None:
        for listener in list(self._listeners):
            listener(event)

    def hear_of_deposition(self) -> None:
        """Another session has taken the claim; one that is cut off hears of it when it heals."""
        if not self._is_cut:
            self._lose_claim()

    def _lose_claim(self) -> None:
        if self._claim is not None and self._cluster.holder is not self:
            lost, self._claim = self._claim, None
            self.give(ClaimLost(lost))

    def _check_connection(self) -> None:
        if self._is_cut:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

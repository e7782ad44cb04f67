"""Owns a broker's session with ZooKeeper, and the image of what it sees there. An adapter of `cluster.store`.

The store of the controller reads and watches everything. That of any other broker sees its own broker, the controller
and the settings of brokers, and tells of topics whose settings change.

- One thing at a time: a call, or what a watch tells (`_exclusive`, `_drain`). Listeners are called meanwhile; they must
  not call the store.
- Disconnected is not expired. Calls are refused while there is no connection. Watches end with a connection, so after
  each new one everything is read again. A session that has ended takes registration and claim with it: the store
  registers its broker anew (`Registered`), the claim is lost (`ClaimLost`). kazoo does not say that a session has ended
  before ZooKeeper does: past the session's own time without a connection a claim does not count any more.
- A change whose answer is lost is OutcomeUnknown, and everything is read again. Of the nodes that end with a session,
  the session in them tells whether they were made.

Measured (2 cores that others use too, ZooKeeper on the same machine): opening 20 ms, a registration 2 to 9 ms, a claim
that reads 1,500 partitions in 100 topics 60 to 85 ms, the death of a broker with 1,500 partitions, as two multis, 35 to
70 ms, a change of one partition 1 to 2 ms.
"""

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from barnabas.clock import Clock, SystemClock
from barnabas.cluster.image import (
    NO_BROKER,
    BrokerEpoch,
    BrokerImage,
    BrokerRegistered,
    Change,
    ClusterImage,
    ControllerEpoch,
    TopicConfigured,
    Topics,
    Version,
)
from barnabas.cluster.store import (
    ClaimLost,
    Deposed,
    DirectoryFailed,
    Event,
    IsrChanged,
    Notice,
    OutcomeUnknown,
    Registered,
    Stale,
    Subscriber,
    TopicSettings,
    Update,
)
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.changes import with_epochs
from barnabas.cluster.zookeeper.client import (
    ConnectionLost,
    Create,
    NotConnected,
    Reason,
    RefusedByZooKeeper,
    SessionState,
    ZooKeeperClient,
)
from barnabas.cluster.zookeeper.controllership import WATCHED, Controllership
from barnabas.cluster.zookeeper.preparing import prepare
from barnabas.cluster.zookeeper.reading import read_broker_configs, read_configs
from barnabas.cluster.zookeeper.registration import Registration
from barnabas.cluster.zookeeper.settings_feed import SettingsFeed
from barnabas.errors import BarnabasError
from barnabas.types import BrokerId

_RECONNECTED = ""
"""In the inbox: there is a connection again. Everything else there is the path of a node that has changed."""

log = logging.getLogger("barnabas.zookeeper")


class ZooKeeperStore:
    """Mutable: what a broker sees of its cluster.

    `cluster_id` is the cluster that the broker's data belongs to, None where there is no data yet; `new_cluster_id` is
    given to a ZooKeeper without a cluster. `directory` tells the data directory from every other one: a broker that
    comes back before the session of its last life has ended takes its own place again at once.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        cluster_id: str | None,
        new_cluster_id: str,
        *,
        directory: str = "",
        session_timeout_ms: int = 6000,
        creates_chroot: bool = False,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        clock = clock or SystemClock()
        self._client = client
        self._session_timeout_s = session_timeout_ms / 1000
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._inbox: deque[str] = deque()
        self._listeners: list[Subscriber] = []
        self._registration = Registration(client, directory, clock)
        self._chair = Controllership(client, clock)
        self._feed = SettingsFeed(client)
        self._disconnected_at: float | None = None
        self._is_closed = False
        self.name = f"ZooKeeper at {client.name}"
        client.start(self._on_state, self._on_change)
        try:
            found = prepare(client, cluster_id, new_cluster_id, creates_chroot=creates_chroot)
            self.image = ClusterImage(found)
            self._feed.skip()
            self._show(self._shared())
        except (NotConnected, ConnectionLost):
            client.close()
            raise BarnabasError(f"The connection to {self.name} was lost at once.") from None
        except BaseException:
            client.close()
            raise

    # The port

    def subscribe(self, listener: Subscriber) -> None:
        self._listeners.append(listener)

    def register(self, broker: BrokerImage) -> BrokerEpoch:
        with self._exclusive():
            registered = self._registration.make(broker, patience_s=1.5 * self._session_timeout_s + 1)
            self._show(self.image.after([BrokerRegistered(registered)]))
            return registered.epoch

    def claim(self, broker: BrokerId, over: BrokerId | None = None) -> ControllerEpoch | None:
        with self._exclusive():
            try:
                claim = self._chair.take(broker, over)
                image = self._shared()
                if claim is not None:
                    self._show(self._chair.everything(image))
                else:
                    self._show_if_different(image)
            except ConnectionLost as lost:
                self._put(_RECONNECTED)
                self._chair.claim = None
                raise OutcomeUnknown(f"{lost} This broker may be the controller or not.") from lost
            except NotConnected:
                self._chair.claim = None
                raise
            for path in WATCHED if claim is not None else ():
                self._put(path)
            return None if claim is None else claim.epoch

    def commit(self, changes: Sequence[Change], expected_version: Version) -> ClusterImage:
        with self._exclusive():
            self._check_claim()
            if expected_version != self.image.version:
                raise Stale(
                    f"The cluster is at version {self.image.version}, not at {expected_version} any more."
                )
            after = with_epochs(self.image, self.image.after(changes))
            try:
                self._chair.write(self.image, after)
            except Deposed:
                self._lose_claim()
                raise
            except RefusedByZooKeeper as refused:
                raise self._refused(refused) from refused
            except ConnectionLost as lost:
                self._put(_RECONNECTED)
                raise OutcomeUnknown(f"{lost} The change may last or not.") from lost
            self._show(after)
            return self.image

    def topic_configs(self, names: Sequence[str]) -> list[Mapping[str, str]]:
        entities = [znodes.topic_entity(name) for name in names]
        try:
            found = read_configs(self._client, entities)
        except ConnectionLost as lost:
            raise NotConnected(errno.ENOTCONN, str(lost)) from lost
        return [found.get(entity, {}) for entity in entities]

    def tell(self, notice: Notice) -> None:
        match notice:
            case IsrChanged(partitions):
                path, data = znodes.ISR_NOTICE, znodes.encode_isr_notice(partitions)
            case DirectoryFailed(broker):
                path, data = znodes.DIRECTORY_NOTICE, znodes.encode_directory_notice(broker)
        try:
            self._client.multi([Create(path, data, is_sequential=True)])
        except ConnectionLost as lost:
            raise OutcomeUnknown(str(lost)) from lost

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._listeners.clear()
            self._client.close()

    # One thing at a time

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        finally:
            self._drain()

    def _put(self, item: str) -> None:
        if item not in self._inbox:
            self._inbox.append(item)

    def _drain(self) -> None:
        """Handle what has arrived, unless something is under way: that does so when it ends."""
        while self._inbox and self._lock.acquire(blocking=False):
            try:
                if self._inbox and not self._is_closed:
                    self._handle(self._inbox.popleft())
            except (NotConnected, ConnectionLost):
                pass  # everything is read again when there is a connection
            except Deposed:
                self._lose_claim()
            except Exception as error:
                log.error("what ZooKeeper tells could not be followed: %s", error)
            finally:
                self._lock.release()

    def _on_state(self, state: SessionState) -> None:
        match state:
            case SessionState.CONNECTED:
                log.info("connected to %s", self.name)
                self._disconnected_at = None
                self._put(_RECONNECTED)
                self._client.dispatch(self._drain)
            case SessionState.DISCONNECTED:
                log.warning("the connection to %s is lost; the broker goes on and tries again", self.name)
                self._disconnected_at = self._monotonic()
            case SessionState.EXPIRED:
                log.warning("the session with %s has ended; the broker will register anew", self.name)

    def _on_change(self, path: str) -> None:
        self._put(path)
        self._drain()

    def _handle(self, item: str) -> None:
        if item == _RECONNECTED:
            self._take_up()
        elif item == znodes.CONTROLLER:
            self._look_at_controller()
        elif item == znodes.CONFIG_CHANGES:
            self._follow_settings()
        elif item == self._registration.path:
            self._look_at_registration()
        elif self._chair.claim is not None:
            self._handle_as_controller(item)

    def _handle_as_controller(self, item: str) -> None:
        match item:
            case znodes.BROKER_IDS:
                self._show_if_different(self._chair.brokers(self.image))
            case znodes.TOPICS | znodes.DELETE_TOPICS:
                self._show_if_different(self._chair.topics(self.image))
            case znodes.ISR_NOTICES | znodes.DIRECTORY_NOTICES:
                for event in self._chair.notices(item):
                    self._follow_notice(event)
            case znodes.REASSIGN_PARTITIONS | znodes.PREFERRED_ELECTION:
                wish = self._chair.wish(item)
                if wish is not None:
                    self._give(wish)
            case _ if item.startswith(znodes.TOPICS + "/"):
                name = item.removeprefix(znodes.TOPICS + "/")
                self._show_if_different(self._chair.topics_again(self.image, [name]))

    # What is seen

    def _show(self, image: ClusterImage, *, is_whole: bool = False) -> None:
        """Let an image be seen."""
        image = self._permitted(image)
        version = Version(max(self._client.zxid, self.image.version + 1))
        self.image = replace(image, version=version)
        self._give(Update(self.image, is_whole))

    def _permitted(self, image: ClusterImage) -> ClusterImage:
        """A store without a claim keeps nothing of the brokers and topics that it once saw."""
        if self._chair.claim is not None:
            return image
        own = self._registration.broker
        return replace(image, topics=Topics(), brokers={} if own is None else {own.id: own})

    def _show_if_different(self, image: ClusterImage) -> None:
        now, image = self.image, self._permitted(image)
        if any(image.since(now)) or _head(image) != _head(now):
            self._show(image)

    def _give(self, event: Event) -> None:
        for listener in list(self._listeners):
            listener(event)

    def _shared(self) -> ClusterImage:
        """The newest image, with what every broker sees as it is now: the controller and the settings of brokers."""
        holder, counted = self._client.read([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH], watched=True)
        controller = NO_BROKER if holder is None else znodes.parse_controller(holder.data)
        epoch = znodes.parse_controller_epoch(counted.data if counted is not None else b"")
        configs = read_broker_configs(self._client)
        return replace(self.image, controller=controller, controller_epoch=epoch, broker_configs=configs)

    def _take_up(self) -> None:
        """Begin anew after a lost connection: in the same session, or in one that knows nothing of us."""
        if self._chair.claim is not None and not self._chair.is_held():
            self._lose_claim()
        self._chair.release()
        renewed = self._renewed()
        image = self._shared()
        is_controller = self._chair.claim is not None
        self._show(self._chair.everything(image) if is_controller else image, is_whole=True)
        if renewed is not None:
            self._give(Registered(renewed.epoch))
        self._follow_settings()
        for path in WATCHED if is_controller else ():
            self._put(path)

    def _look_at_controller(self) -> None:
        image = self._shared()
        if self._chair.claim is not None and not self._chair.is_held():
            self._lose_claim()
        self._show_if_different(image)

    def _look_at_registration(self) -> None:
        """A broker whose node was taken away, by the controller or by hand, registers anew."""
        renewed = self._renewed()
        if renewed is not None:
            self._show(self.image.after([BrokerRegistered(renewed)]))
            self._give(Registered(renewed.epoch))

    def _renewed(self) -> BrokerImage | None:
        try:
            return self._registration.renewed()
        except BarnabasError as error:
            # It is looked at again when the other broker goes.
            log.error("the broker cannot register anew: %s", error)
            return None

    def _follow_notice(self, event: Event) -> None:
        if isinstance(event, IsrChanged):
            names = sorted({tp.topic for tp in event.partitions})
            self._show_if_different(self._chair.topics_again(self.image, names))
        self._give(event)

    def _follow_settings(self) -> None:
        entities = self._feed.changed()
        if entities is None:
            names = self._client.children(znodes.TOPIC_CONFIGS) or []
            entities = [znodes.BROKER_CONFIGS, *map(znodes.topic_entity, names)]
        topics = [entity.removeprefix("topics/") for entity in entities if entity.startswith("topics/")]
        image = self.image
        if len(topics) < len(entities):
            image = replace(image, broker_configs=read_broker_configs(self._client))
        found = dict(zip(topics, self.topic_configs(topics), strict=True))
        known = {name: configs for name, configs in found.items() if name in image.topics}
        changes = [
            TopicConfigured(name, configs)
            for name, configs in known.items()
            if configs != image.topics[name].configs
        ]
        self._show_if_different(image.after(changes) if changes else image)
        if self._chair.claim is not None:
            self._feed.purge()
        else:
            for name, configs in found.items():
                self._give(TopicSettings(name, configs))

    # Claims

    def _check_claim(self) -> None:
        if self._chair.claim is None:
            raise Deposed("This broker is not the controller.")
        since = self._disconnected_at
        if since is not None and self._monotonic() - since > self._session_timeout_s:
            self._lose_claim()
            raise Deposed(f"The connection to {self.name} is lost for longer than the session lasts.")

    def _lose_claim(self) -> None:
        if self._chair.claim is not None:
            lost, self._chair.claim = self._chair.claim.epoch, None
            self._put(znodes.CONTROLLER)
            self._give(ClaimLost(lost))

    def _refused(self, refused: RefusedByZooKeeper) -> Exception:
        """What a refused write means to the one that decided it: another image, unless it can never work."""
        self._put(_RECONNECTED)
        if refused.reason in (Reason.OTHER, Reason.NOT_EMPTY):
            # Nothing that is read again would make it work.
            return OSError(errno.EIO, str(refused))
        try:
            self._show(self._chair.everything(self._shared()), is_whole=True)
        except (ConnectionLost, NotConnected) as lost:
            return OutcomeUnknown(str(lost))
        return Stale(f"The cluster has changed meanwhile: {refused}.")


def _head(image: ClusterImage) -> tuple[object, ...]:
    return image.controller, image.controller_epoch, image.next_producer_id

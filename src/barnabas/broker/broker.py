"""One broker, put together: data directories, metadata, replicas, groups, server, housekeeping.

Made and run by `barnabas up`, `barnabas broker` and `barnabas.testing`. Everything runs on one event loop; worker
threads do only what blocks (fsync, compaction, the metadata store).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from barnabas.broker.controlling.controlling import Controlling
from barnabas.broker.controlling.leaving import leave
from barnabas.broker.controlling.to_controller import ToController
from barnabas.broker.coordinators.coordinators import Coordinators
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.metadata import Metadata
from barnabas.broker.metrics import Metrics
from barnabas.broker.network.listener import Listener, clients_listener
from barnabas.broker.network.server import Listen, Server
from barnabas.broker.partitions.flusher import Flusher
from barnabas.broker.partitions.log_starts import LogStarts
from barnabas.broker.partitions.moving import Moving
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.replicas import Replicas
from barnabas.broker.peers.lines import Dialer
from barnabas.broker.peers.peers import Peers
from barnabas.broker.replication.cuts import Cuts
from barnabas.broker.replication.replication import Replication
from barnabas.broker.router import Router, Threshold
from barnabas.clock import Clock, SteadyClock, SystemClock
from barnabas.cluster.configs import Levels
from barnabas.cluster.image import BrokerEpoch, BrokerImage, Change, ClusterImage, LeaderRestarted
from barnabas.cluster.local import FILE_NAME, LocalStore
from barnabas.cluster.store import Store, StoreFailed
from barnabas.config import BrokerConfig
from barnabas.disk import Disk, RealDisk, has_no_room
from barnabas.errors import BarnabasError, Code, Refused, reason_of
from barnabas.log.directories import Directories
from barnabas.log.directory import owner_in
from barnabas.types import BrokerId

WAIT_S = 5.0
"""How often a broker that waits to be told of its cluster says that it does."""

log = logging.getLogger("barnabas.broker")


class Broker:
    """A broker. `start`, then `stop`; in between it serves."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
        dialer: Dialer | None = None,
        listen: Listen | None = None,
    ) -> None:
        """`store` is that of a cluster, where the settings name none. `dialer` opens connections to other brokers, and
        `listen` takes those of clients: a simulation has a network of its own."""
        self.id = BrokerId(config.broker_id)
        self.config = config
        self.clock = clock or SystemClock()
        self.steady_clock = clock or SteadyClock()
        """What replication goes by: replicas do not fall behind because the time of day jumps."""
        self.metrics = Metrics()
        self.fetch_sessions = FetchSessions()
        self._given = config.given
        self.epoch = BrokerEpoch(-1)
        """Which life of this broker it is."""
        self.is_alone = store is None and not config.zookeeper_connect
        """Whether this broker is a cluster of its own."""
        self._cluster_store = store
        self._dialer = dialer
        self._listen = listen
        self.has_roles = False
        """Whether the logs and roles here are those of an image."""
        self._disk = disk or RealDisk()
        self._stop_metrics: Callable[[], None] | None = None

    async def start(self) -> None:
        """Open what is on disk, then listen. Raises BarnabasError with a sentence for a person."""
        self.halted: asyncio.Future[BarnabasError] = asyncio.get_running_loop().create_future()
        listener = self._listener("listeners", self.config.listeners)
        router = Router(self)
        self.server = Server(
            listener, router if self.is_alone else Threshold(router), self.config, self._listen
        )
        try:
            me = self._advertised(listener)
            await (self._start_alone(me) if self.is_alone else self._join(me))
        except BaseException:
            self.server.close()
            raise
        self.server.router = router

    async def _start_alone(self, me: BrokerImage) -> None:
        """Be a cluster of one: the store is a file, and this broker decides."""
        self._open_directories(None)
        with self._closing_on_failure():
            self._store = self._open_local_store()
            self.epoch = self._store.register(me)
            self._store.claim(self.id)
            owed = self._begin_epochs()
            self._assemble(owed)
            await self._follow(self._store.image)
            if owed:
                self.replicas.hold()
            self._begin()
            self.server.start()

    async def _join(self, me: BrokerImage) -> None:
        """Become a broker of a cluster: register, then wait until the controller, or this broker as such, says what
        is led and followed here. Brokers are heard from the beginning, clients when all is known."""
        loop = asyncio.get_running_loop()
        if self._cluster_store is not None:
            self._store = self._cluster_store
        else:
            self._store = await loop.run_in_executor(None, self._open_cluster_store)
        try:
            self._open_directories(self._store.image.cluster_id)
            with self._closing_on_failure():
                survived = self.directories.begin_life()
                self._assemble([])
                self.server.start()
                me = me._replace(rack=self.config.broker_rack or None, survived=survived)
                self.epoch = await loop.run_in_executor(None, self._store.register, me)
                await self.controlling.start()
                await self._until_told(me)
                self.directories.forgive()
                self._begin()
        except BaseException:
            await loop.run_in_executor(None, self._store.close)
            raise

    async def _until_told(self, me: BrokerImage) -> None:
        """Come back when the cluster is known here."""
        while not await self.metadata.until(self._is_told, WAIT_S):
            log.warning(
                "Broker %d waits for the controller of cluster %s: can other brokers reach it at %s:%d "
                "(advertised.listeners)?",
                self.id,
                self._store.image.cluster_id,
                me.host,
                me.port,
            )
        if not self.has_roles:
            # It was told before it knew which of its lives this is.
            await self.metadata.follow_again()

    def _is_told(self, image: ClusterImage) -> bool:
        """Whether an image is whole: it has this life of this broker, and what the last one has lost is settled."""
        me = image.brokers.get(self.id)
        return me is not None and me.epoch == self.epoch and me.survived

    def _open_cluster_store(self) -> Store:
        """Connect to the store that the settings name; kazoo is imported only then."""
        from barnabas.cluster.zookeeper import open_store

        owners = (owner_in(self._disk, path) for path in self.config.log_dirs)
        return open_store(self.config, next((owner.cluster_id for owner in owners if owner), None))

    def _open_directories(self, cluster_id: str | None) -> None:
        self.directories = Directories.open(
            self._disk, self.config.log_dirs, node_id=self.id, clock=self.clock, cluster_id=cluster_id
        )

    @contextmanager
    def _closing_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.directories.close()
            raise

    def _assemble(self, owed: Sequence[Change]) -> None:
        """Make all parts; none of them does anything yet."""
        self.config = self.levels(self._store.image).effective()
        self.flusher = Flusher(self._flush_failed)
        self.log_starts = LogStarts(self.directories)
        self.moving = Moving(self)
        self.peers = Peers(self.id, self._dialer)
        self.replicas = Replicas(
            self.id,
            self.directories,
            self.config,
            self.flusher.want,
            clock=self.steady_clock,
            is_alone=self.is_alone,
        )
        self.cuts = Cuts(self)
        self.replication = self.replicas.roles = Replication(self)
        self.metadata = Metadata(
            self._store, self._follow, on_failure=self._halt, is_alone=self.is_alone, owed=owed
        )
        self.to_controller = ToController(self)
        self.controlling = Controlling(self, self._store)
        if not self.is_alone:
            self.metadata.chair = self.controlling
            self.metadata.on_event = self.controlling.happened
            self.metadata.ask_for_producer_ids = self.to_controller.producer_ids
        self.groups = Groups(self)
        self.transactions = Transactions(self)
        self.coordinators: list[Coordinators[Any]] = [self.groups, self.transactions]
        """All that this broker coordinates, by kind."""
        self._housekeeping = Housekeeping(self)

    def _begin(self) -> None:
        """Let everything work: the logs and roles are those of the image."""
        self.replicas.drop_offline()
        if not self.directories.online():
            raise self.directories.none_left()
        self.directories.on_offline = self._without_directory
        if self.config.metrics_listen:
            from barnabas.broker.exposition import serve

            self._stop_metrics = serve(self, self.config.metrics_listen)
        self._housekeeping.start()
        self.moving.start()
        self.replication.start()
        for each in self.coordinators:
            each.start()

    def _open_local_store(self) -> Store:
        home = self.config.log_dirs[0]
        if home not in (directory.path for directory in self.directories.online()):
            raise BarnabasError(
                f"{home} keeps the topics' names and settings, and it does not work: repair it."
            )
        path = f"{home}/{FILE_NAME}"
        if self.directories.logs and not self._disk.exists(path):
            raise BarnabasError(
                f"There are partitions, but no {path} that says which topics they belong to: "
                "restore that file, or move the partitions away."
            )
        try:
            return LocalStore(self._disk, home, self.directories.cluster_id)
        except OSError as error:
            raise StoreFailed(path, error) from error

    def _begin_epochs(self) -> list[Change]:
        """Store that our partitions begin a new epoch; on a full disk that is still to be done, and returned."""
        changes: list[Change] = [LeaderRestarted(self.id)]
        if not self._store.image.topics:
            return []
        try:
            self._store.commit(changes, self._store.image.version)
        except OSError as error:
            log.error(
                "%s cannot be written: %s. Records are served, and none are taken until there is room.",
                self._store.name,
                reason_of(error),
            )
            return changes
        return []

    async def stop(self) -> None:
        """Let go of clients, then leave the logs as a clean stop leaves them."""
        if not self.is_alone:
            await leave(self)
        self.server.close()
        if self._stop_metrics is not None:
            self._stop_metrics()
        self.controlling.stop()
        await self.metadata.finish()
        await self.replication.stop()
        self.peers.close()
        await self._housekeeping.stop()
        await self.moving.stop()
        for each in self.coordinators:
            await each.stop()
        await self.flusher.stop()
        await asyncio.get_running_loop().run_in_executor(
            None, self.directories.close, self.replicas.high_watermarks()
        )
        await asyncio.get_running_loop().run_in_executor(None, self._store.close)

    def reborn(self, epoch: BrokerEpoch) -> None:
        """The session with the store had ended, and another has begun: the controller tells everything anew."""
        log.warning(
            "the session with %s had ended; this is another life of broker %d", self._store.name, self.id
        )
        self.epoch = epoch

    @property
    def address(self) -> str:
        """Where clients find this broker."""
        me = self.metadata.image.brokers[self.id]
        return str(Listener("PLAINTEXT", me.host, me.port))

    def levels(self, image: ClusterImage) -> Levels:
        """The settings that hold, by where they come from."""
        return Levels(image, self.id, self._given)

    def note_refusal(self, api: str, refused: Refused, topic: str, index: int = -1) -> None:
        """Count an error; one that means a broken disk takes its directory offline, and a full one lets others lead."""
        self.metrics.api(api).error(refused.code)
        if refused.code is not Code.KAFKA_STORAGE_ERROR:
            return
        partition = self.replicas.find(topic, index)
        if partition is None or self.directories.failed(partition.tp, refused):
            return
        if has_no_room(refused.__cause__):
            self.replication.room.missed(partition.tp)

    def _flush_failed(self, partition: Partition, error: Exception) -> bool:
        """Whether the partition is gone: its directory is offline now, or it was deleted meanwhile."""
        if self.replicas.find(*partition.tp) is not partition:
            return True
        return self.directories.failed(partition.tp, error)

    def _without_directory(self) -> None:
        """A directory has failed, wherever that was noticed: serve nothing of it any more, and halt without any."""
        self.replicas.drop_offline()
        for each in self.coordinators:
            each.drop_strangers()
        if not self.directories.online():
            self._halt(self.directories.none_left())
        elif not self.is_alone:
            self.controlling.lost_here()

    def _halt(self, reason: BarnabasError) -> None:
        """End the process that runs this broker, and tell why."""
        if not self.halted.done():
            self.halted.set_result(reason)

    async def _follow(self, image: ClusterImage) -> None:
        if image.broker_configs != self.metadata.image.broker_configs:
            self.config = self.levels(image).effective()
            self.server.config = self.config
            self.replicas.reconfigure(self.config)
        self.replication.throttle(image)
        if not self.is_alone:
            self.controlling.watch(image)
            if not self._is_told(image):
                return
        if not self.has_roles:
            await self.replicas.start(image)
            self.has_roles = True
            return
        await self.replicas.follow(image)
        self.replication.brokers_changed(image)
        for each in self.coordinators:
            each.follow(image)

    def _listener(self, setting: str, text: str) -> Listener:
        return clients_listener(text, setting, self.config.controller_listener_names)

    def _advertised(self, listener: Listener) -> BrokerImage:
        if self.config.advertised_listeners:
            named = self._listener("advertised.listeners", self.config.advertised_listeners)
        else:
            named = replace_wildcard(listener)
        return BrokerImage(self.id, named.host, named.port or self.server.port)


def replace_wildcard(listener: Listener) -> Listener:
    """An address that clients can use: 'all addresses' is none to connect to."""
    if listener.host in ("", "0.0.0.0", "::"):
        return listener._replace(host=socket.gethostname())
    return listener

"""One broker, put together: data directories, metadata, replicas, groups, server, housekeeping.

Made and run by `barnabas up`, `barnabas broker` and `barnabas.testing`. Everything runs on one event loop; worker
threads do only what blocks (fsync, compaction, the metadata store).
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from barnabas.broker.coordinators.coordinators import Coordinators
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.idle_rows import IdleRows
from barnabas.broker.metadata import Metadata
from barnabas.broker.metrics import Metrics
from barnabas.broker.network.listener import Listener, clients_listener
from barnabas.broker.network.server import Server
from barnabas.broker.partitions.flusher import Flusher
from barnabas.broker.partitions.log_starts import LogStarts
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.replicas import Replicas
from barnabas.broker.router import Router
from barnabas.clock import Clock, SystemClock
from barnabas.cluster.configs import Levels
from barnabas.cluster.image import BrokerImage, Change, ClusterImage, LeaderRestarted
from barnabas.cluster.local import FILE_NAME, LocalStore
from barnabas.cluster.store import Store, StoreFailed
from barnabas.config import BrokerConfig
from barnabas.disk import Disk, RealDisk
from barnabas.errors import BarnabasError, Code, Refused, reason_of
from barnabas.log.directories import Directories
from barnabas.types import BrokerId

log = logging.getLogger("barnabas.broker")


class Broker:
    """A broker. `start`, then `stop`; in between it serves."""

    def __init__(self, config: BrokerConfig, *, disk: Disk | None = None, clock: Clock | None = None) -> None:
        self.id = BrokerId(config.broker_id)
        self.config = config
        self.clock = clock or SystemClock()
        self.metrics = Metrics()
        self.idle_rows = IdleRows()
        self._given = config.given
        self._disk = disk or RealDisk()
        self._stop_metrics: Callable[[], None] | None = None

    async def start(self) -> None:
        """Open what is on disk, then listen. Raises BarnabasError with a sentence for a person."""
        self.halted: asyncio.Future[BarnabasError] = asyncio.get_running_loop().create_future()
        listener = self._listener("listeners", self.config.listeners)
        self.server = Server(listener, Router(self), self.config)
        try:
            self.directories = Directories.open(
                self._disk, self.config.log_dirs, node_id=self.id, clock=self.clock
            )
            try:
                await self._open(listener)
            except BaseException:
                self.directories.close()
                raise
        except BaseException:
            self.server.close()
            raise
        self.server.start()

    async def _open(self, listener: Listener) -> None:
        self._store = self._open_store()
        self._store.register(self._advertised(listener))
        self._store.claim(self.id)
        owed = self._begin_epochs()
        image = self._store.image
        self.config = self.levels(image).effective()
        self.flusher = Flusher(self._flush_failed)
        self.log_starts = LogStarts(self.directories)
        self.replicas = Replicas(self.id, self.directories, self.config, self.flusher.want)
        await self.replicas.start(image)
        if owed:
            self.replicas.hold()
        self.replicas.drop_offline()
        if not self.directories.online():
            raise self.directories.none_left()
        self.metadata = Metadata(self._store, self._follow, on_failure=self._halt, owed=owed)
        self.groups = Groups(self)
        self.coordinators: list[Coordinators[Any]] = [self.groups]
        """All that this broker coordinates, by kind."""
        self.directories.on_offline = self._without_directory
        if self.config.metrics_listen:
            from barnabas.broker.exposition import serve

            self._stop_metrics = serve(self, self.config.metrics_listen)
        self._housekeeping = Housekeeping(self)
        self._housekeeping.start()
        for each in self.coordinators:
            each.start()

    def _open_store(self) -> Store:
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
        self.server.close()
        if self._stop_metrics is not None:
            self._stop_metrics()
        await self.metadata.finish()
        await self._housekeeping.stop()
        for each in self.coordinators:
            await each.stop()
        await self.flusher.stop()
        await asyncio.get_running_loop().run_in_executor(
            None, self.directories.close, self.replicas.high_watermarks()
        )
        self._store.close()

    @property
    def address(self) -> str:
        """Where clients find this broker."""
        me = self.metadata.image.brokers[self.id]
        return str(Listener("PLAINTEXT", me.host, me.port))

    def levels(self, image: ClusterImage) -> Levels:
        """The settings that hold, by where they come from."""
        return Levels(image, self.id, self._given)

    def note_refusal(self, api: str, refused: Refused, topic: str, index: int = -1) -> None:
        """Count an error; one that means a broken disk takes its directory offline."""
        self.metrics.api(api).error(refused.code)
        if refused.code is not Code.KAFKA_STORAGE_ERROR:
            return
        partition = self.replicas.find(topic, index)
        if partition is not None:
            self.directories.failed(partition.tp, refused)

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

    def _halt(self, reason: BarnabasError) -> None:
        """End the process that runs this broker, and tell why."""
        if not self.halted.done():
            self.halted.set_result(reason)

    async def _follow(self, image: ClusterImage) -> None:
        if image.broker_configs != self.metadata.image.broker_configs:
            self.config = self.levels(image).effective()
            self.server.config = self.config
            self.replicas.reconfigure(self.config)
        await self.replicas.follow(image)
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

"""Owns the coordinators of one internal topic on this broker: one for each partition that it leads.

`groups` is one such; a coordinator of another kind moves in beside it with a topic and a factory, and nothing here
changes. Handlers find the coordinator of a key here; `metadata` tells of each new image. A coordinator is a pure
machine: a host appends its records, applies them, lets its answers go when the high watermark has passed them, and
wakes it when something is due. Partitions are replayed in slices; until then requests are told to come again.

Always holds: a host belongs to one leader epoch of its partition. Another epoch ends it, and another host begins.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Set
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from barnabas.cluster.controller import WantedTopic
from barnabas.cluster.image import ClusterImage
from barnabas.config import BrokerConfig
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.coordinators.host import CoordinatorHost
    from barnabas.coordinator.effects import TopicFacts
    from barnabas.coordinator.machine import Factory, Machine

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""How long it takes until a coordinator that could not be read is loaded anew: each time twice as long."""

log = logging.getLogger("barnabas.coordinators")

M = TypeVar("M", bound="Machine")


class TopicShape(NamedTuple):
    """What an internal topic is made with; all of them are compacted."""

    partitions: int
    replication_factor: int
    segment_bytes: int
    min_insync: int | None = None


class InternalTopic(NamedTuple):
    """A topic of the broker's own, in which coordinators keep what must last."""

    name: str
    shape: Callable[[BrokerConfig], TopicShape]


class Coordinators(Generic[M]):
    """Mutable: the hosts, by partition. Nothing of the coordinators is imported before there is one to host.

    `load` gives the factory; it is called in a worker thread, because imports take their time.
    """

    def __init__(self, broker: "Broker", topic: InternalTopic, load: "Callable[[], Factory[M]]") -> None:
        self._broker = broker
        self._topic = topic
        self._load_factory = load
        self._factory: Factory[M] | None = None
        self._hosts: dict[int, CoordinatorHost[M]] = {}
        self._facts: Mapping[str, TopicFacts] = {}
        self._noted: ClusterImage | None = None
        """The image that the facts are of, or one with the same facts."""
        self._count = 0
        """How many partitions the topic has, once it is followed."""
        self._mine: Set[int] = frozenset()
        """The partitions that this broker leads."""
        self._loading: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        """Take up what the last run has left, behind the first requests."""
        if self._topic.name in self._broker.metadata.image.topics:
            self._go_on(self._resume())

    async def stop(self) -> None:
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)
        for host in self._hosts.values():
            host.close()

    # Finding a coordinator

    def partition_of(self, key: str) -> int:
        count = self._count
        if not count:
            topic = self._broker.metadata.image.topics.get(self._topic.name)
            count = len(topic.partitions) if topic else self._topic.shape(self._broker.config).partitions
        return (java_hash(key) & 0x7FFFFFFF) % count

    async def find(self, key: str) -> BrokerId:
        """The broker that coordinates a key; makes the topic for it where there is none yet."""
        if self._topic.name not in self._broker.metadata.image.topics:
            await self._create_topic()
        topic = self._broker.metadata.image.topics[self._topic.name]
        return topic.partitions[self.partition_of(key)].leader

    def host(self, key: str) -> "CoordinatorHost[M]":
        """The coordinator of a key, if it is here and loaded."""
        host = self._hosts.get(self.partition_of(key))
        if host is None:
            raise Refused(self._why_not_here(key))
        if not host.is_loaded:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return host

    def all(self) -> list["CoordinatorHost[M]"]:
        """All coordinators here, or the refusal that says that some are not loaded yet."""
        if self._loading:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return list(self._hosts.values())

    def machines(self) -> list[M]:
        """The coordinators themselves, for metrics, from any thread."""
        return [host.coordinator for host in list(self._hosts.values())]

    def _why_not_here(self, key: str) -> Code:
        image = self._broker.metadata.image
        topic = image.topics.get(self._topic.name)
        here = topic is not None and topic.partitions[self.partition_of(key)].leader == self._broker.id
        return Code.COORDINATOR_LOAD_IN_PROGRESS if here and self._loading else Code.NOT_COORDINATOR

    async def _create_topic(self) -> None:
        await self._import()
        config = self._broker.config
        shape = self._topic.shape(config)
        wanted = WantedTopic(
            self._topic.name,
            uuid.uuid4(),
            shape.partitions,
            shape.replication_factor,
            configs=_settings(shape),
        )
        try:
            await self._broker.to_controller.create_topic(wanted)
            log.info("created %s with %d partitions", wanted.name, wanted.partitions)
        except Refused as refused:
            if refused.code is not Code.TOPIC_ALREADY_EXISTS:
                raise Refused(Code.COORDINATOR_NOT_AVAILABLE, refused.message) from refused

    # Following the cluster

    def follow(self, image: ClusterImage) -> None:
        """Host coordinators for partitions that are new here, and tell all of them about topics."""
        topic = image.topics.get(self._topic.name)
        self._count = len(topic.partitions) if topic else 0
        if topic is None and not self._hosts:
            return
        if self._factory is None:
            if not self._loading:
                self._go_on(self._resume())
            return
        from barnabas.broker.coordinators.topic_facts import next_facts

        before = self._facts
        self._facts, changes = next_facts(before, self._noted, image)
        self._noted = image
        self._mine = self._partitions_here(image)
        self.drop_strangers()
        taken = self._take(self._factory)
        full = [host for host in taken if host.partition.log.end > host.partition.log.start]
        for host in taken:
            if host not in full:
                host.loaded()
        if full:
            self._go_on(self._load(full))
        if self._facts is not before:
            for host in self._hosts.values():
                if host not in taken:
                    host.topics_changed(self._facts, changes)

    def drop_strangers(self) -> None:
        """Let go of coordinators whose partition has moved or begun another epoch, or whose disk has failed."""
        for index, host in list(self._hosts.items()):
            here = self._broker.replicas.find_leader(self._topic.name, index)
            if index not in self._mine or here is not host.partition or here.epoch != host.epoch:
                del self._hosts[index]
                host.close()

    def _partitions_here(self, image: ClusterImage) -> Set[int]:
        topic = image.topics.get(self._topic.name)
        partitions = topic.partitions if topic else ()
        return {index for index, partition in enumerate(partitions) if partition.leader == self._broker.id}

    def _take(self, factory: "Factory[M]") -> list["CoordinatorHost[M]"]:
        """New hosts for the partitions led here that have none."""
        from barnabas.broker.coordinators.host import CoordinatorHost

        taken = []
        for index in self._mine:
            partition = self._broker.replicas.find_leader(self._topic.name, index)
            if partition is not None and index not in self._hosts:
                host = self._hosts[index] = CoordinatorHost(self._broker, partition, factory, self._facts)
                host.on_send = self.send
                taken.append(host)
        return taken

    def send(self, host: "CoordinatorHost[M]", what: Any) -> None:
        """Tell others what a coordinator wants them to know."""

    # Loading

    def _go_on(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._loading[task] = None
        task.add_done_callback(self._loading.pop)

    async def _import(self) -> None:
        """Off the event loop: of groups some 40 ms, which clients that need no groups are not to wait for."""
        if self._factory is None:
            loop = asyncio.get_running_loop()
            factory = await loop.run_in_executor(None, self._load_factory)
            await loop.run_in_executor(None, import_module, "barnabas.broker.coordinators.host")
            self._factory = factory

    async def _resume(self) -> None:
        await self._import()
        self.follow(self._broker.metadata.image)

    async def _load(self, hosts: list["CoordinatorHost[M]"]) -> None:
        """Load them all. One that cannot be read now is tried again, less and less often, for as long as it is here:
        one that served without what is in its log would tell its clients what is not so."""
        waiting, pause = hosts, FIRST_PAUSE_S
        while waiting := [host for host in waiting if not await self._is_done_with(host)]:
            log.warning(
                "%d coordinators of %s are loaded anew in %.1f s", len(waiting), self._topic.name, pause
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        records = sum(host.replayed for host in hosts)
        log.info("loaded %d records of %s", records, self._topic.name)

    async def _is_done_with(self, host: "CoordinatorHost[M]") -> bool:
        """Try to load a coordinator; False where it may be read another time."""
        tp = host.partition.tp
        if self._hosts.get(tp.partition) is not host:
            return True
        try:
            await host.load()
        except Refused as refused:
            log.error("the coordinator of %s cannot be loaded: %s", tp, refused.message)
            # A disk that has failed goes offline by this, and the coordinator with it.
            self._broker.note_refusal("Coordinators", refused, *tp)
            return False
        return True


def _settings(shape: TopicShape) -> dict[str, str]:
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(shape.segment_bytes),
    }
    if shape.min_insync is not None:
        settings["min.insync.replicas"] = str(shape.min_insync)
    return settings


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """String.hashCode of Java, which decides where a key is coordinated: over UTF-16, in 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code

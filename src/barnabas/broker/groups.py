"""Owns the group coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

Handlers find a group's coordinator here; `metadata` tells of each new image. A coordinator is a pure machine: a host
appends its records, applies them, lets its answers go when the high watermark has passed them, and wakes it when
something is due. After a start the partitions are replayed in slices; until then requests are told to come again.
"""

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Mapping, Set
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.cluster.controller import WantedTopic, create_topic
from barnabas.cluster.image import ClusterImage
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.coordinator_host import CoordinatorHost
    from barnabas.coordinator.effects import TopicFacts

OFFSETS_TOPIC = "__consumer_offsets"

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""How long it takes until a coordinator that could not be read is loaded anew: each time twice as long."""

log = logging.getLogger("barnabas.groups")


class Groups:
    """Mutable: the hosts, by partition. Nothing of the coordinators is imported before there is one to host."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._hosts: dict[int, CoordinatorHost] = {}
        self._facts: Mapping[str, TopicFacts] = {}
        self._noted: ClusterImage | None = None
        """The image that the facts are of, or one with the same facts."""
        self._mine: Set[int] = frozenset()
        """The partitions that this broker leads."""
        self._loading: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Take up the groups of the last run, behind the first requests."""
        if OFFSETS_TOPIC in self._broker.metadata.image.topics:
            self._go_on(self._resume())

    async def stop(self) -> None:
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)
        for host in self._hosts.values():
            host.close()

    # Finding a coordinator

    def partition_of(self, group_id: str) -> int:
        topic = self._broker.metadata.image.topics.get(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic else self._broker.config.offsets_topic_num_partitions
        return (java_hash(group_id) & 0x7FFFFFFF) % count

    async def find(self, group_id: str) -> BrokerId:
        """The broker that coordinates a group; makes the topic for it where there is none yet."""
        if OFFSETS_TOPIC not in self._broker.metadata.image.topics:
            await self._create_topic()
        topic = self._broker.metadata.image.topics[OFFSETS_TOPIC]
        return topic.partitions[self.partition_of(group_id)].leader

    def host(self, group_id: str) -> "CoordinatorHost":
        """The coordinator of a group, if it is here and knows its groups."""
        host = self._hosts.get(self.partition_of(group_id))
        if host is None:
            raise Refused(self._why_not_here(group_id))
        if not host.is_loaded:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return host

    def all(self) -> list["CoordinatorHost"]:
        """All coordinators here, or the refusal that says that some do not know their groups yet."""
        if self._loading:
            raise Refused(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return list(self._hosts.values())

    # For those who watch, from any thread: copies of one dict at a time, which nobody can change meanwhile

    def states(self) -> list[tuple[str, str]]:
        """Kind and state of each group here."""
        rows = [
            group.listed()
            for host in list(self._hosts.values())
            for group in list(host.coordinator.groups.values())
        ]
        return [(row.group_type, row.group_state) for row in rows]

    def committed(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed here."""
        return [row for host in list(self._hosts.values()) for row in host.coordinator.offsets.rows()]

    def _why_not_here(self, group_id: str) -> Code:
        image = self._broker.metadata.image
        topic = image.topics.get(OFFSETS_TOPIC)
        here = topic is not None and topic.partitions[self.partition_of(group_id)].leader == self._broker.id
        return Code.COORDINATOR_LOAD_IN_PROGRESS if here and self._loading else Code.NOT_COORDINATOR

    async def _create_topic(self) -> None:
        await _import_coordinators()
        config = self._broker.config
        wanted = WantedTopic(
            OFFSETS_TOPIC,
            uuid.uuid4(),
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
        try:
            await self._broker.metadata.change(lambda image: create_topic(image, wanted, config))
            log.info("created %s with %d partitions", OFFSETS_TOPIC, wanted.partitions)
        except Refused as refused:
            if refused.code is not Code.TOPIC_ALREADY_EXISTS:
                raise Refused(Code.COORDINATOR_NOT_AVAILABLE, refused.message) from refused

    # Following the cluster

    def follow(self, image: ClusterImage) -> None:
        """Host coordinators for partitions that are new here, and tell all of them about topics."""
        if OFFSETS_TOPIC not in image.topics and not self._hosts:
            return
        from barnabas.broker.topic_facts import next_facts

        before = self._facts
        self._facts, changes = next_facts(before, self._noted, image)
        self._noted = image
        self._mine = self._partitions_here(image)
        self.drop_strangers()
        taken = self._take()
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
        """Let go of coordinators whose partition is not here any more: it has moved, or its disk has failed."""
        for index, host in list(self._hosts.items()):
            if (
                index not in self._mine
                or self._broker.replicas.find_leader(OFFSETS_TOPIC, index) is not host.partition
            ):
                del self._hosts[index]
                host.close()

    def _partitions_here(self, image: ClusterImage) -> Set[int]:
        topic = image.topics.get(OFFSETS_TOPIC)
        partitions = topic.partitions if topic else ()
        return {index for index, partition in enumerate(partitions) if partition.leader == self._broker.id}

    def _take(self) -> list["CoordinatorHost"]:
        """New hosts for the partitions led here that have none."""
        from barnabas.broker.coordinator_host import CoordinatorHost

        taken = []
        for index in self._mine:
            partition = self._broker.replicas.find_leader(OFFSETS_TOPIC, index)
            if partition is not None and index not in self._hosts:
                host = self._hosts[index] = CoordinatorHost(self._broker, partition, self._facts)
                taken.append(host)
        return taken

    # Loading

    def _go_on(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _resume(self) -> None:
        await _import_coordinators()
        self.follow(self._broker.metadata.image)

    async def _load(self, hosts: list["CoordinatorHost"]) -> None:
        """Load them all. One that cannot be read now is tried again, less and less often, for as long as it is here:
        to serve without what it knows would give groups offsets that they do not have."""
        waiting, pause = hosts, FIRST_PAUSE_S
        while waiting := [host for host in waiting if not await self._is_done_with(host)]:
            log.warning("%d coordinators of groups are loaded anew in %.1f s", len(waiting), pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        records = sum(host.replayed for host in hosts)
        groups = sum(len(host.coordinator.groups) for host in hosts)
        log.info("loaded %d groups from %d records of %s", groups, records, OFFSETS_TOPIC)

    async def _is_done_with(self, host: "CoordinatorHost") -> bool:
        """Try to load a coordinator; False where it may be read another time."""
        tp = host.partition.tp
        if self._hosts.get(tp.partition) is not host:
            return True
        try:
            await host.load()
        except Refused as refused:
            log.error("the groups of %s cannot be loaded: %s", tp, refused.message)
            # A disk that has failed goes offline by this, and the coordinator with it.
            self._broker.note_refusal("Groups", refused, *tp)
            return False
        return True


async def _import_coordinators() -> None:
    """Some 40 ms of imports, off the event loop: clients that need no groups are not to wait for them."""
    await asyncio.get_running_loop().run_in_executor(None, import_module, "barnabas.broker.coordinator_host")


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """String.hashCode of Java, which decides where a group lives: over UTF-16, in 32 bits."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code

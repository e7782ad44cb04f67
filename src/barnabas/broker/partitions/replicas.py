"""Owns the partitions this broker has, and makes their logs follow the cluster image.

Handlers look partitions up here; `metadata` calls `follow` with each new image. A partition that is in the
image but not here lies in a data directory that failed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from barnabas.broker.partitions.follower import Follower
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.cluster.image import ClusterImage, PartitionImage, TopicImage
from barnabas.config import BrokerConfig, TopicConfig, topic_config
from barnabas.disk import passes
from barnabas.errors import Code, Refused
from barnabas.log.directories import Directories
from barnabas.log.log import Log
from barnabas.types import BrokerId, Offset, TopicPartition

SLICE_PARTITIONS = 32
"""Logs that are made or removed before other requests have their turn."""

log = logging.getLogger("barnabas.replicas")


class Replicas:
    """The partitions on this broker, by topic and number."""

    def __init__(
        self,
        broker_id: BrokerId,
        directories: Directories,
        config: BrokerConfig,
        want_flush: Callable[[Partition], object],
    ) -> None:
        self.config = config
        self._want_flush = want_flush
        self._broker_id = broker_id
        self._directories = directories
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self.lookup_leader = self._leaders.get
        """`find_leader` by a pair, without the call: for a fetch of a thousand."""
        self.incomplete: set[str] = set()
        """Topics of which a partition could not be made or flushed for now: to `follow` again may help."""
        self._image: ClusterImage | None = None
        self._new = False

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition in whichever role; None where it is not here."""
        return self._partitions.get((topic, index))

    def find_leader(self, topic: str, index: int) -> Leader | None:
        """The partition, if this broker leads it."""
        return self._leaders.get((topic, index))

    def leader(self, topic: str, index: int) -> Leader:
        """The partition that this broker leads, or the refusal that says why it does not."""
        leader = self._leaders.get((topic, index))
        if leader is not None:
            return leader
        expected = self._image.partition(TopicPartition(topic, index)) if self._image else None
        if expected is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        if expected.leader != self._broker_id:
            raise Refused(Code.NOT_LEADER_OR_FOLLOWER)
        raise Refused(Code.KAFKA_STORAGE_ERROR)

    async def start(self, image: ClusterImage) -> None:
        """Take the logs that are there; those whose topics are gone are set aside."""
        self._directories.set_aside_strays(
            {
                TopicPartition(topic.name, index): topic.id
                for topic in image.topics.values()
                for index in range(len(topic.partitions))
            }
        )
        await self.follow(image)
        # From here on a partition that is missing is a new one.
        self._new = True

    async def follow(self, image: ClusterImage) -> None:
        """Make and remove logs, hand out epochs and settings, until all is as the image says.

        Only topics that are different from the last image are looked at, and those that were not finished then.
        """
        before = self._image
        steps = 0
        for name in sorted(image.since(before).topics | self.incomplete):
            self.incomplete.discard(name)
            old = before.topics.get(name) if before else None
            topic = image.topics.get(name)
            if old is not None and (topic is None or old.id != topic.id):
                await self._remove(old)
            if topic is None:
                continue
            config = self.topic_config(topic)
            for index in range(len(topic.partitions)):
                self._take(topic, index, config)
                steps += 1
                if steps % SLICE_PARTITIONS == 0:
                    await asyncio.sleep(0)
        self._image = image

    def topic_config(self, topic: TopicImage) -> TopicConfig:
        return topic_config(self.config.topic_defaults, topic.configs)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Other defaults for the topics that say nothing themselves."""
        self.config = config
        topics = self._image.topics if self._image else {}
        for partition in self._partitions.values():
            partition.configure(self.topic_config(topics[partition.tp.topic]))

    def hold(self) -> None:
        """Take no records until `follow` brings the epochs that they are to be of."""
        for leader in self._leaders.values():
            leader.is_held = True

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        return {partition.tp: partition.high_watermark for partition in self}

    def drop_offline(self) -> None:
        """Let go of partitions whose directory has failed, and answer the requests that wait for them."""
        for key, partition in list(self._partitions.items()):
            if self._directories.find(partition.tp) is None:
                self._drop(key)

    def _take(self, topic: TopicImage, index: int, config: TopicConfig) -> None:
        wanted = topic.partitions[index]
        if self._broker_id not in wanted.replicas:
            return
        tp = TopicPartition(topic.name, index)
        present = self._partitions.get(tp)
        if present is not None:
            present.configure(config)
            self._assign(tp, present.log, wanted)
            return
        try:
            opened = self._directories.find(tp) or self._directories.create(
                tp, config, topic.id, new=self._new
            )
        except Refused as refused:
            log.error("%s has no log: %s", tp, refused.message)
            if passes(refused.__cause__):
                self.incomplete.add(topic.name)
            return
        opened.config = config
        try:
            # What a kill has left is read from memory: it is not to be seen either before it is on the disk.
            if opened.unflushed >= config.flush_messages:
                opened.flush()
        except Refused as refused:
            if not self._directories.failed(tp, refused):
                self.incomplete.add(topic.name)
            return
        self._assign(tp, opened, wanted)

    def _assign(self, tp: TopicPartition, opened: Log, wanted: PartitionImage) -> None:
        """Give a partition the role and the epoch that the image wants. Whatever waits for another role is woken."""
        present = self._partitions.get(tp)
        leads = wanted.leader == self._broker_id
        if leads and isinstance(present, Leader):
            present.epoch = wanted.leader_epoch
            present.is_held = False
            return
        if not leads and isinstance(present, Follower):
            present.epoch = wanted.leader_epoch
            return
        if leads:
            self._partitions[tp] = self._leaders[tp] = Leader(
                tp, opened, wanted.leader_epoch, self._want_flush
            )
        else:
            self._leaders.pop(tp, None)
            seen = opened.start if present is None else present.high_watermark
            self._partitions[tp] = Follower(tp, opened, wanted.leader_epoch, seen, self._want_flush)
        if present is not None:
            present.wake()

    def _drop(self, key: tuple[str, int]) -> Partition | None:
        """Let go of a partition, and wake whatever waits for it."""
        self._leaders.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.wake()
        return partition

    async def _remove(self, topic: TopicImage) -> None:
        for index in range(len(topic.partitions)):
            partition = self._drop((topic.name, index))
            if partition is not None:
                self._directories.delete(partition.tp)
            if index % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                await asyncio.sleep(0)

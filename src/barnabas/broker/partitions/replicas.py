"""Owns the partitions this broker has, and makes their logs and roles follow the cluster image.

Handlers look partitions up here; `metadata` calls `follow` with each new image. A partition that is in the
image but not here lies in a data directory that failed.

Always holds: in a cluster, a log that should be here and is not though the partition is not new (a wiped disk) is made
only when the controller counts on others for what was in it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from uuid import UUID

from barnabas.broker.partitions.follower import Follower
from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.clock import Clock, SteadyClock
from barnabas.cluster.image import (
    NO_BROKER,
    NO_LIFE,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from barnabas.config import BrokerConfig, TopicConfig, topic_config
from barnabas.disk import passes
from barnabas.errors import Code, Refused
from barnabas.log.directories import Directories
from barnabas.log.log import Log
from barnabas.replication.leadership import Leadership
from barnabas.types import BrokerEpoch, BrokerId, Offset, TopicPartition

SLICE_PARTITIONS = 32
"""Logs that are made or removed before other requests have their turn."""

MANY_FOLDERS, FOLDER_THREADS = 8, 16
"""From how many new partitions on their folders are made in threads, and in how many."""

log = logging.getLogger("barnabas.replicas")


class Roles(Protocol):
    """What drives the partitions that have replicas on other brokers: see `broker.replication`."""

    def wishes(self, leader: Leader) -> None:
        """A leader wishes for other in-sync replicas."""

    def follows(self, follower: Follower) -> None:
        """A partition follows a leader, or none for now; again with each epoch."""

    def follows_no_more(self, follower: Follower) -> None: ...


class Alone:
    """The roles of a broker without others."""

    def wishes(self, leader: Leader) -> None: ...
    def follows(self, follower: Follower) -> None: ...
    def follows_no_more(self, follower: Follower) -> None: ...


class Replicas:
    """The partitions on this broker, by topic and number."""

    def __init__(
        self,
        broker_id: BrokerId,
        directories: Directories,
        config: BrokerConfig,
        want_flush: Callable[[Partition], object],
        *,
        clock: Clock | None = None,
        is_alone: bool = True,
    ) -> None:
        self.config = config
        self._is_alone = is_alone
        self.roles: Roles = Alone()
        self.live: dict[BrokerId, BrokerEpoch] = {}
        """The brokers there are, each with its epoch: one mapping, which the leaders look into."""
        self.brokers: Mapping[BrokerId, BrokerImage] = {}
        """The same as the image has them, before all else of it is followed."""
        self._now = (clock or SteadyClock()).now
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
                for index, partition in enumerate(topic.partitions)
                if self._broker_id in partition.replicas
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
        self._note_brokers(image)
        for name in sorted(image.since(before).topics | self.incomplete):
            self.incomplete.discard(name)
            old = before.topics.get(name) if before else None
            topic = image.topics.get(name)
            if old is not None and (topic is None or old.id != topic.id):
                await self._remove(old)
            if topic is None:
                continue
            config = self.topic_config(topic)
            await self._make_folders(topic)
            for index in range(len(topic.partitions)):
                self._take(topic, index, config)
                steps += 1
                if steps % SLICE_PARTITIONS == 0:
                    await asyncio.sleep(0)
        self._image = image

    async def _make_folders(self, topic: TopicImage) -> None:
        """Make the folders of many new partitions at once, off the event loop: one by one they wait for the disk."""
        wanted = [
            (tp, topic.id)
            for index, partition in enumerate(topic.partitions)
            if self._broker_id in partition.replicas
            and (tp := TopicPartition(topic.name, index)) not in self._partitions
            and not self._is_lost(partition)
        ]
        if len(wanted) < MANY_FOLDERS:
            return
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(FOLDER_THREADS, "folders") as threads:
            makings = self._directories.begin_making(wanted)
            await asyncio.gather(*(loop.run_in_executor(threads, make) for make in makings))

    def _note_brokers(self, image: ClusterImage) -> None:
        self.brokers = image.brokers
        live = {broker.id: broker.epoch for broker in image.brokers.values()}
        if live != self.live:
            self.live.clear()
            self.live.update(live)

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

    def leaders(self) -> Iterator[Leader]:
        """The partitions that this broker leads."""
        return iter(self._leaders.values())

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        return {partition.tp: partition.high_watermark for partition in self}

    def drop_offline(self) -> None:
        """Let go of partitions whose directory has failed, and answer the requests that wait for them."""
        for key, partition in list(self._partitions.items()):
            if self._directories.find(partition.tp) is None:
                self._drop(key, Code.KAFKA_STORAGE_ERROR)

    def _take(self, topic: TopicImage, index: int, config: TopicConfig) -> None:
        wanted = topic.partitions[index]
        tp = TopicPartition(topic.name, index)
        present = self._partitions.get(tp)
        if self._broker_id not in wanted.replicas:
            if present is not None:
                self._drop(tp, Code.NOT_LEADER_OR_FOLLOWER)
                self._directories.delete(tp)
            return
        if present is not None:
            present.configure(config)
            self._assign(tp, present.log, topic, wanted)
            return
        try:
            opened = self._directories.find(tp)
            if opened is None:
                if self._is_lost(wanted):
                    log.error(
                        "%s is gone from here, though it is not new: others have to go on without it", tp
                    )
                    return
                opened = self._directories.create(tp, config, topic.id, new=self._new)
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
        self._assign(tp, opened, topic, wanted)

    def _is_lost(self, wanted: PartitionImage) -> bool:
        """Whether a log that is missing had what this replica is counted on for, as after a wiped disk.

        It is not made anew before the controller counts on others: an empty log in the ISR could be elected.
        """
        life = self.live.get(self._broker_id, NO_LIFE)
        return not self._is_alone and not wanted.may_lack_on(self._broker_id, life)

    def _assign(self, tp: TopicPartition, opened: Log, topic: TopicImage, wanted: PartitionImage) -> None:
        """Give a partition the role and the epoch that the image wants. Whatever waits for another role is woken."""
        if wanted.leader == self._broker_id:
            self._lead(tp, opened, wanted).topic_id = topic.id
        else:
            self._follow(tp, opened, wanted, topic.id)

    def _lead(self, tp: TopicPartition, opened: Log, wanted: PartitionImage) -> Leader:
        present = self._partitions.get(tp)
        seen = self._seen(tp, opened, present)
        if isinstance(present, Leader):
            leadership = present.leadership
            if (
                leadership is not None
                and len(wanted.replicas) > 1
                and leadership.epoch == wanted.leader_epoch
            ):
                present.assigned(leadership.assigned(wanted, self._now()))
            else:
                present.lead(wanted.leader_epoch, self._leadership(opened, wanted, seen))
            return present
        leader = Leader(
            tp, opened, wanted.leader_epoch, self._want_flush, self._leadership(opened, wanted, seen)
        )
        leader.on_wish = self.roles.wishes
        self._partitions[tp] = self._leaders[tp] = leader
        if isinstance(present, Follower):
            self.roles.follows_no_more(present)
            present.wake()
        return leader

    def _follow(self, tp: TopicPartition, opened: Log, wanted: PartitionImage, topic_id: UUID) -> None:
        present = self._partitions.get(tp)
        # A broker that may not lead itself waits for another leader.
        leader = wanted.leader if wanted.leader != self._broker_id else NO_BROKER
        if isinstance(present, Follower):
            if (present.epoch, present.leader) != (wanted.leader_epoch, leader):
                present.follow(wanted.leader_epoch, leader)
                self.roles.follows(present)
            return
        self._leaders.pop(tp, None)
        follower = self._partitions[tp] = Follower(
            tp,
            opened,
            wanted.leader_epoch,
            self._seen(tp, opened, present),
            self._want_flush,
            leader=leader,
            backoff_ms=self.config.replica_fetch_backoff_ms,
        )
        follower.topic_id = topic_id
        if present is not None:
            present.resign(Code.NOT_LEADER_OR_FOLLOWER)
        self.roles.follows(follower)

    def _leadership(self, opened: Log, wanted: PartitionImage, seen: Offset) -> Leadership | None:
        """The machine of a partition with several replicas; an only replica needs none."""
        if len(wanted.replicas) < 2:
            return None
        return Leadership(
            self._broker_id,
            wanted,
            epoch_start=opened.end,
            high_watermark=seen,
            live=self.live,
            min_insync=opened.config.min_insync_replicas,
            lag_ms=self.config.replica_lag_time_max_ms,
            now=self._now(),
        )

    def _seen(self, tp: TopicPartition, opened: Log, present: Partition | None) -> Offset:
        """The watermark that this replica knows: after a start that of the last checkpoint, and not its log's end."""
        if present is not None:
            return present.high_watermark
        return max(opened.start, min(self._directories.high_watermarks.get(tp, opened.start), opened.end))

    def _drop(self, key: tuple[str, int], code: Code) -> Partition | None:
        """Let go of a partition, and tell whatever waits for it."""
        self._leaders.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.resign(code)
            if isinstance(partition, Follower):
                self.roles.follows_no_more(partition)
        return partition

    async def _remove(self, topic: TopicImage) -> None:
        for index in range(len(topic.partitions)):
            partition = self._drop((topic.name, index), Code.UNKNOWN_TOPIC_OR_PARTITION)
            if partition is not None:
                self._directories.delete(partition.tp)
            if index % SLICE_PARTITIONS == SLICE_PARTITIONS - 1:
                await asyncio.sleep(0)

"""What the controller tells the other brokers; `cluster.hearing` is what they make of it. PURE.

The controller makes a `Difference` of the image that brokers know and the one that holds now, and asks it what to send
to each of them.

UpdateMetadata has all that changed, for every broker, and comes first. LeaderAndIsr names the partitions of the broker
itself, so that it can answer for each of them; StopReplica those that it has no longer. A broker that has just
registered, and every broker of a new controller, is told everything, which replaces whatever it knew.

Always holds: a broker that has heard all that it was sent has the controller's topics, partitions, brokers and
controller. Settings are not announced. The cost of a difference is that of what it has in it, and it is shared by all
brokers.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from barnabas.cluster.image import (
    NO_LIFE,
    BrokerEpoch,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from barnabas.types import BrokerId
from barnabas.wire.messages.controlling import (
    EPOCH_DURING_DELETE,
    FULL,
    INCREMENTAL,
    LEADER_DURING_DELETE,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

Announcement: TypeAlias = UpdateMetadataRequest | LeaderAndIsrRequest | StopReplicaRequest

LISTENER = "PLAINTEXT"


def announce(before: ClusterImage | None, after: ClusterImage, broker: BrokerId) -> list[Announcement]:
    """What one broker has to be sent; to tell several, keep the `Difference`."""
    return Difference(before, after).to(broker)


class _Changed(NamedTuple):
    """Partitions of a topic that are new or different, with what they were."""

    topic: TopicImage
    partitions: list[tuple[int, PartitionImage | None, PartitionImage]]


class Difference:
    """Two images of a controller, and what brokers that know the first have to be told of the second."""

    def __init__(self, before: ClusterImage | None, after: ClusterImage) -> None:
        self._before = before
        self._after = after
        self._is_full = before is None or before.controller_epoch != after.controller_epoch

    def to(self, broker: BrokerId) -> list[Announcement]:
        """What a broker has to be sent, in this order; nothing where it is not there, or nothing is different."""
        known = self._after.brokers.get(broker)
        if known is None:
            return []
        part = self._whole if self._is_full or self._is_another_life(known) else self._news
        return part.to(known) if part.has_something else []

    def _is_another_life(self, broker: BrokerImage) -> bool:
        was = self._before.brokers.get(broker.id) if self._before is not None else None
        return was is None or was.epoch != broker.epoch

    @cached_property
    def _whole(self) -> "_Part":
        return _Part(None, self._after)

    @cached_property
    def _news(self) -> "_Part":
        return _Part(self._before, self._after)


class _Part:
    """One difference as it is told, made once for all brokers."""

    def __init__(self, before: ClusterImage | None, after: ClusterImage) -> None:
        self._after = after
        self._is_full = before is None
        self._gone: list[TopicImage] = []
        """Topics that were deleted, also where there is another of the same name by now."""
        self._changed: list[_Changed] = []
        self._hosted: dict[BrokerId, list[LeaderAndIsrTopicState]] = {}
        self._stopped: dict[BrokerId, list[StopReplicaTopicState]] = {}
        for name in sorted(after.since(before).topics):
            self._compare(before.topics.get(name) if before is not None else None, after.topics.get(name))
        self._states = [_deleted_state(topic) for topic in self._gone]
        self._states += [_metadata_state(changed, after) for changed in self._changed]
        self._brokers = _broker_states(after) if before is None or before.brokers != after.brokers else []
        self._has_another_controller = before is not None and before.controller != after.controller
        for changed in self._changed:
            self._note_replicas(changed)
        for topic in self._gone:
            self._note_deletion(topic)

    @property
    def has_something(self) -> bool:
        return bool(self._is_full or self._states or self._brokers or self._has_another_controller)

    def to(self, broker: BrokerImage) -> list[Announcement]:
        after = self._after
        kind = FULL if self._is_full else INCREMENTAL
        told: list[Announcement] = [
            UpdateMetadataRequest(
                after.controller,
                type=kind,
                controller_epoch=after.controller_epoch,
                broker_epoch=broker.epoch,
                topic_states=self._states,
                live_brokers=self._brokers,
                image_version=after.version,
            )
        ]
        hosted = self._hosted.get(broker.id)
        if hosted:
            told.append(
                LeaderAndIsrRequest(
                    after.controller,
                    controller_epoch=after.controller_epoch,
                    broker_epoch=broker.epoch,
                    type=kind,
                    topic_states=hosted,
                    live_leaders=_live_leaders(hosted, after),
                    image_version=after.version,
                )
            )
        stopped = self._stopped.get(broker.id)
        if stopped:
            told.append(
                StopReplicaRequest(
                    after.controller,
                    controller_epoch=after.controller_epoch,
                    broker_epoch=broker.epoch,
                    topic_states=stopped,
                    image_version=after.version,
                )
            )
        return told

    def _compare(self, was: TopicImage | None, topic: TopicImage | None) -> None:
        if was is not None and (topic is None or topic.id != was.id):
            self._gone.append(was)
            was = None
        if topic is None:
            return
        known: Sequence[PartitionImage] = was.partitions if was is not None else ()
        partitions = [
            (index, old, partition)
            for index, partition in enumerate(topic.partitions)
            if (old := known[index] if index < len(known) else None) is not partition and old != partition
        ]
        if partitions or was is None:
            self._changed.append(_Changed(topic, partitions))

    def _note_replicas(self, changed: _Changed) -> None:
        """Sort changed partitions by the brokers that have them, or have them no longer."""
        topic = changed.topic
        here: dict[BrokerId, LeaderAndIsrTopicState] = {}
        left: dict[BrokerId, StopReplicaTopicState] = {}
        for index, old, partition in changed.partitions:
            for broker in partition.replicas:
                if broker not in here:
                    here[broker] = LeaderAndIsrTopicState(topic.name, topic.id)
                    self._hosted.setdefault(broker, []).append(here[broker])
                state = _replica_state(index, partition, broker, self._after)
                here[broker].partition_states.append(state)
            for broker in old.replicas if old is not None else ():
                if broker not in partition.replicas:
                    if broker not in left:
                        left[broker] = StopReplicaTopicState(topic.name, topic_id=topic.id)
                        self._stopped.setdefault(broker, []).append(left[broker])
                    stopped = StopReplicaPartitionState(index, partition.leader_epoch, delete_partition=True)
                    left[broker].partition_states.append(stopped)

    def _note_deletion(self, topic: TopicImage) -> None:
        left: dict[BrokerId, StopReplicaTopicState] = {}
        for index, partition in enumerate(topic.partitions):
            stopped = StopReplicaPartitionState(index, EPOCH_DURING_DELETE, delete_partition=True)
            for broker in partition.replicas:
                if broker not in left:
                    left[broker] = StopReplicaTopicState(topic.name, topic_id=topic.id)
                    self._stopped.setdefault(broker, []).append(left[broker])
                left[broker].partition_states.append(stopped)


def _deleted_state(topic: TopicImage) -> UpdateMetadataTopicState:
    states = [
        UpdateMetadataPartitionState(index, leader=LEADER_DURING_DELETE, leader_epoch=partition.leader_epoch)
        for index, partition in enumerate(topic.partitions)
    ]
    return UpdateMetadataTopicState(topic.name, topic.id, states)


def _metadata_state(changed: _Changed, image: ClusterImage) -> UpdateMetadataTopicState:
    epoch, brokers = image.controller_epoch, image.brokers
    states = [
        UpdateMetadataPartitionState(
            index,
            epoch,
            partition.leader,
            partition.leader_epoch,
            list(partition.isr),
            partition.partition_epoch,
            list(partition.replicas),
            [replica for replica in partition.replicas if replica not in brokers],
            list(partition.adding),
            list(partition.removing),
            partition.recovery,
            list(partition.elr),
            _born(partition),
        )
        for index, _, partition in changed.partitions
    ]
    return UpdateMetadataTopicState(changed.topic.name, changed.topic.id, states)


def _replica_state(
    index: int, partition: PartitionImage, broker: BrokerId, image: ClusterImage
) -> LeaderAndIsrPartitionState:
    known = image.brokers.get(broker)
    return LeaderAndIsrPartitionState(
        index,
        image.controller_epoch,
        partition.leader,
        partition.leader_epoch,
        list(partition.isr),
        partition.partition_epoch,
        list(partition.replicas),
        list(partition.adding),
        list(partition.removing),
        partition.may_lack_on(broker, NO_LIFE if known is None else known.epoch),
        partition.recovery,
        list(partition.elr),
        _born(partition),
    )


def _born(partition: PartitionImage) -> BrokerEpoch:
    """Told of a partition that may be new: for any other it makes no difference."""
    return partition.born if partition.partition_epoch <= 0 else NO_LIFE


def _broker_states(image: ClusterImage) -> list[UpdateMetadataBroker]:
    return [
        UpdateMetadataBroker(
            broker.id,
            [UpdateMetadataEndpoint(broker.port, broker.host, LISTENER)],
            broker.rack,
            broker.epoch,
            has_lost_its_tail=not broker.survived,
        )
        for _, broker in sorted(image.brokers.items())
    ]


def _live_leaders(
    topics: Iterable[LeaderAndIsrTopicState], image: ClusterImage
) -> list[LeaderAndIsrLiveLeader]:
    leaders = {BrokerId(state.leader) for topic in topics for state in topic.partition_states}
    live = [image.brokers[leader] for leader in sorted(leaders) if leader in image.brokers]
    return [LeaderAndIsrLiveLeader(broker.id, broker.host, broker.port) for broker in live]

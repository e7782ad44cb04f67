"""What a broker makes of the controller's announcements: its next image (`heard`) and its answer (`answered`). PURE.

Called by the handlers of UpdateMetadata, LeaderAndIsr and StopReplica. Always holds: what comes late, from a deposed
controller, or is for an earlier life of the broker, changes nothing. Of a partition the state with the larger leader
epoch counts, then that with the larger partition epoch; only a full announcement replaces whatever was known.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from barnabas.cluster.announcements import Announcement
from barnabas.cluster.image import (
    Announced,
    BrokerEpoch,
    BrokerImage,
    ClusterImage,
    ControllerEpoch,
    PartitionEpoch,
    PartitionImage,
    Recovery,
    TopicImage,
    Version,
)
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, LeaderEpoch, TopicPartition
from barnabas.wire.messages.controlling import (
    EPOCH_DURING_DELETE,
    FULL,
    LEADER_DURING_DELETE,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

Answer: TypeAlias = UpdateMetadataResponse | LeaderAndIsrResponse | StopReplicaResponse


def heard(image: ClusterImage, request: Announcement, broker: BrokerId, epoch: BrokerEpoch) -> ClusterImage:
    """The image that an announcement makes of what a broker knows; the same one where it says nothing new.

    `broker` hears it, in its life of this `epoch`.
    """
    told = Announced(ControllerEpoch(request.controller_epoch), Version(request.image_version))
    if request.controller_epoch < image.controller_epoch:
        raise Refused(Code.STALE_CONTROLLER_EPOCH)
    if 0 <= request.broker_epoch < epoch:
        raise Refused(Code.STALE_BROKER_EPOCH)
    if told < image.announced:
        return image
    is_full = isinstance(request, UpdateMetadataRequest) and request.type == FULL
    if told.epoch != image.announced.epoch and not is_full:
        raise Refused(
            Code.INVALID_UPDATE_VERSION, "The version is invalid: a controller begins with all there is."
        )
    match request:
        case UpdateMetadataRequest():
            return _after_metadata(image, request, told)
        case LeaderAndIsrRequest():
            return _with_topics(image, _led(image, request))
        case StopReplicaRequest():
            return _with_topics(image, _stopped(image, request, broker))


def answered(image: ClusterImage, request: Announcement, failed: Mapping[TopicPartition, Code]) -> Answer:
    """The answer to an announcement: `image` is what was known before it, `failed` what could not be carried out."""
    match request:
        case UpdateMetadataRequest():
            return UpdateMetadataResponse()
        case LeaderAndIsrRequest():
            topics = [
                LeaderAndIsrTopicError(
                    topic.topic_id,
                    [
                        LeaderAndIsrPartitionError(
                            topic.topic_name,
                            state.partition_index,
                            _outcome(image, topic, state, failed, Code.STALE_CONTROLLER_EPOCH),
                        )
                        for state in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ]
            return LeaderAndIsrResponse(topics=topics)
        case StopReplicaRequest():
            errors = [
                StopReplicaPartitionError(
                    topic.topic_name,
                    state.partition_index,
                    _outcome(image, topic, state, failed, Code.FENCED_LEADER_EPOCH),
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
            return StopReplicaResponse(partition_errors=errors)


def _outcome(
    image: ClusterImage,
    topic: LeaderAndIsrTopicState | StopReplicaTopicState,
    state: LeaderAndIsrPartitionState | StopReplicaPartitionState,
    failed: Mapping[TopicPartition, Code],
    late: Code,
) -> Code:
    tp = TopicPartition(topic.topic_name, state.partition_index)
    known = image.partition(tp) if _is_known(image, topic) else None
    is_late = known is not None and 0 <= state.leader_epoch < known.leader_epoch
    return late if is_late else failed.get(tp, Code.NONE)


def _is_known(image: ClusterImage, topic: LeaderAndIsrTopicState | StopReplicaTopicState) -> bool:
    known = image.topics.get(topic.topic_name)
    return known is not None and known.id == topic.topic_id


def _with_topics(image: ClusterImage, touched: Mapping[str, TopicImage | None]) -> ClusterImage:
    if not touched:
        return image
    return replace(image, topics=image.topics.updated(touched), version=Version(image.version + 1))


def _after_metadata(image: ClusterImage, request: UpdateMetadataRequest, told: Announced) -> ClusterImage:
    touched = _updated(image, request)
    if request.type == FULL:
        named = {topic.topic_name for topic in request.topic_states}
        touched |= dict.fromkeys(name for name in image.topics if name not in named)
    topics = image.topics.updated(touched) if touched else image.topics
    brokers = _heard_brokers(request) or image.brokers
    return replace(
        image,
        controller=BrokerId(request.controller_id),
        controller_epoch=told.epoch,
        brokers=image.brokers if brokers == image.brokers else brokers,
        topics=topics,
        version=Version(image.version + 1),
        announced=told,
    )


def _heard_brokers(request: UpdateMetadataRequest) -> dict[BrokerId, BrokerImage]:
    return {
        BrokerId(broker.id): BrokerImage(
            BrokerId(broker.id),
            broker.endpoints[0].host if broker.endpoints else "",
            broker.endpoints[0].port if broker.endpoints else 0,
            broker.rack,
            BrokerEpoch(broker.broker_epoch),
            not broker.has_lost_its_tail,
        )
        for broker in request.live_brokers
    }


def _updated(image: ClusterImage, request: UpdateMetadataRequest) -> dict[str, TopicImage | None]:
    """The topics that are different now. In a full announcement the controller's word counts, whatever was known."""
    touched: dict[str, TopicImage | None] = {}
    for state in request.topic_states:
        name = state.topic_name
        known = touched[name] if name in touched else image.topics.get(name)
        if any(each.leader == LEADER_DURING_DELETE for each in state.partition_states):
            if known is not None and known.id == state.topic_id:
                touched[name] = None
            continue
        partitions = {each.partition_index: _heard_partition(each) for each in state.partition_states}
        if known is None or known.id != state.topic_id:
            touched[name] = TopicImage(name, state.topic_id, _merged((), partitions))
            continue
        merged = _merged(() if request.type == FULL else known.partitions, partitions)
        if merged != known.partitions:
            touched[name] = replace(known, partitions=merged)
    return touched


def _merged(
    known: Iterable[PartitionImage], told: Mapping[int, PartitionImage]
) -> tuple[PartitionImage, ...]:
    """A topic's partitions with those that were told; of one that was known the newer state counts."""
    partitions = list(known)
    for index, partition in sorted(told.items()):
        if not 0 <= index <= len(partitions):
            raise Refused(
                Code.INVALID_REQUEST, f"The announcement is invalid: partitions before {index} are missing."
            )
        if index == len(partitions):
            partitions.append(partition)
        elif _newness(partition) > _newness(partitions[index]):
            partitions[index] = partition
    return tuple(partitions)


def _newness(partition: PartitionImage) -> tuple[int, int]:
    return partition.leader_epoch, partition.partition_epoch


def _led(image: ClusterImage, request: LeaderAndIsrRequest) -> dict[str, TopicImage | None]:
    touched: dict[str, TopicImage | None] = {}
    for state in request.topic_states:
        known = image.topics.get(state.topic_name)
        if known is None or known.id != state.topic_id:
            continue  # UpdateMetadata has told of all topics: this one has been deleted since
        partitions = {each.partition_index: _heard_partition(each) for each in state.partition_states}
        merged = _merged(known.partitions, partitions)
        if merged != known.partitions:
            touched[state.topic_name] = replace(known, partitions=merged)
    return touched


def _heard_partition(state: UpdateMetadataPartitionState | LeaderAndIsrPartitionState) -> PartitionImage:
    partition_epoch = (
        state.zk_version if isinstance(state, UpdateMetadataPartitionState) else state.partition_epoch
    )
    return PartitionImage(
        _ids(state.replicas),
        _ids(state.isr),
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        PartitionEpoch(partition_epoch),
        _ids(state.adding_replicas),
        _ids(state.removing_replicas),
        Recovery.RECOVERING if state.leader_recovery_state else Recovery.RECOVERED,
        _ids(state.eligible_leader_replicas),
        BrokerEpoch(state.born),
    )


def _stopped(
    image: ClusterImage, request: StopReplicaRequest, broker: BrokerId
) -> dict[str, TopicImage | None]:
    """Topics without the partitions that are to be stopped; as a rule UpdateMetadata has told that already."""
    touched: dict[str, TopicImage | None] = {}
    for state in request.topic_states:
        known = image.topics.get(state.topic_name)
        if known is None or known.id != state.topic_id:
            continue
        if any(each.leader_epoch == EPOCH_DURING_DELETE for each in state.partition_states):
            touched[state.topic_name] = None
            continue
        partitions = list(known.partitions)
        for each in _not_late(state.partition_states, known):
            partition = partitions[each.partition_index]
            partitions[each.partition_index] = _without(partition, broker)
        if tuple(partitions) != known.partitions:
            touched[state.topic_name] = replace(known, partitions=tuple(partitions))
    return touched


def _not_late(
    states: Iterable[StopReplicaPartitionState], topic: TopicImage
) -> Iterator[StopReplicaPartitionState]:
    for state in states:
        index = state.partition_index
        if (
            0 <= index < len(topic.partitions)
            and state.leader_epoch >= topic.partitions[index].leader_epoch
            and state.delete_partition
        ):
            yield state


def _without(partition: PartitionImage, broker: BrokerId) -> PartitionImage:
    if broker not in partition.replicas:
        return partition
    return replace(
        partition,
        replicas=tuple(replica for replica in partition.replicas if replica != broker),
        isr=tuple(replica for replica in partition.isr if replica != broker),
        elr=tuple(replica for replica in partition.elr if replica != broker),
    )


def _ids(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))

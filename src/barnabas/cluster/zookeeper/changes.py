"""What has to be written to ZooKeeper to get from one image to the next, as multis. PURE.

Called by `controllership`, which puts a check of the controller's epoch in front of each multi. A topic is there with
its settings or not at all. A change is one multi unless it is too large for one: then partitions go several hundred
at a time, a topic's node goes before its last partitions, and a deletion is written down first, so that the next
controller ends what this one began (`znodes.new_partition`, /admin/delete_topics).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from barnabas.cluster.image import ClusterImage, ControllerEpoch, PartitionEpoch, PartitionImage, TopicImage
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.client import Create, Delete, SetData, ZkOperation

MOST_OPERATIONS = 1000
MOST_BYTES = 512 * 1024
"""Half of what ZooKeeper takes in one request (jute.maxbuffer): what it logs is larger than what it is sent."""
_OVERHEAD_BYTES = 64


def multis_between(
    before: ClusterImage, after: ClusterImage, settings: Collection[str]
) -> list[list[ZkOperation]]:
    """The multis, in order. `settings` are the entities that have a node of settings already."""
    delta = after.since(before)
    steps: list[list[ZkOperation]] = []
    for name in sorted(delta.topics):
        old, new = before.topics.get(name), after.topics.get(name)
        has_settings = znodes.topic_entity(name) in settings
        if old is not None and (new is None or new.id != old.id):
            steps += topic_deletion(old, has_settings)
            old, has_settings = None, False
        if new is not None:
            steps.append(_topic_operations(old, new, after.controller_epoch, has_settings))
    for broker in sorted(delta.broker_configs):
        entity = znodes.broker_entity(broker)
        steps.append(_settings(entity, after.broker_configs.get(broker, {}), entity in settings))
    gone = [broker for broker in delta.brokers if broker not in after.brokers]
    steps.append([Delete(znodes.broker_path(broker)) for broker in sorted(gone)])
    if after.next_producer_id != before.next_producer_id:
        block = znodes.encode_producer_ids(after.controller, before.next_producer_id, after.next_producer_id)
        steps.append([SetData(znodes.PRODUCER_ID_BLOCK, block)])
    return list(packed(steps))


def with_epochs(before: ClusterImage, after: ClusterImage) -> ClusterImage:
    """The image with the partition epochs that ZooKeeper gives: one more than before, however often a partition was
    changed within one commit."""
    touched: dict[str, TopicImage | None] = {}
    for name in sorted(after.since(before).topics):
        old, new = before.topics.get(name), after.topics.get(name)
        if new is None:
            continue
        known = old.partitions if old is not None and old.id == new.id else ()
        epochs = [
            _epoch_after(known[i] if i < len(known) else None, one) for i, one in enumerate(new.partitions)
        ]
        if epochs != [one.partition_epoch for one in new.partitions]:
            partitions = zip(new.partitions, epochs, strict=True)
            touched[name] = replace(
                new, partitions=tuple(replace(one, partition_epoch=epoch) for one, epoch in partitions)
            )
    return replace(after, topics=after.topics.updated(touched)) if touched else after


def _epoch_after(before: PartitionImage | None, after: PartitionImage) -> PartitionEpoch:
    if before is None:
        return PartitionEpoch(0)
    return before.partition_epoch if before == after else PartitionEpoch(before.partition_epoch + 1)


def topic_deletion(topic: TopicImage, has_settings: bool) -> list[list[ZkOperation]]:
    """How a topic goes: at once, or else written down first and in pieces, leaves before branches."""
    name = topic.name
    leaves: list[ZkOperation] = []
    for index, partition in enumerate(topic.partitions):
        if partition.partition_epoch >= 0:
            leaves.append(Delete(znodes.state_path(name, index)))
        leaves.append(Delete(znodes.partition_path(name, index)))
    rest: list[ZkOperation] = [Delete(znodes.partitions_path(name)), Delete(znodes.topic_path(name))]
    if has_settings:
        rest.append(Delete(znodes.config_path(znodes.topic_entity(name))))
    if fits([*leaves, *rest]):
        return [[*leaves, *rest]]
    marker = znodes.delete_path(name)
    return [[Create(marker)], *cut(leaves), [*rest, Delete(marker)]]


def packed(steps: Iterable[list[ZkOperation]]) -> Iterator[list[ZkOperation]]:
    """Steps put together in multis that fit; only a step that is too large by itself is cut."""
    multi: list[ZkOperation] = []
    size = 0
    for step in filter(None, steps):
        step_size = sum(map(_size, step))
        if len(multi) + len(step) > MOST_OPERATIONS or size + step_size > MOST_BYTES:
            if multi:
                yield multi
            *full, step = cut(step)
            yield from full
            multi, size, step_size = [], 0, sum(map(_size, step))
        multi += step
        size += step_size
    if multi:
        yield multi


def fits(operations: Collection[ZkOperation]) -> bool:
    """Whether one multi takes them."""
    return len(operations) <= MOST_OPERATIONS and sum(map(_size, operations)) <= MOST_BYTES


def cut(operations: Iterable[ZkOperation]) -> Iterator[list[ZkOperation]]:
    """Operations that need no other of the same step to be done with them, in pieces that fit."""
    piece: list[ZkOperation] = []
    size = 0
    for operation in operations:
        if piece and (len(piece) == MOST_OPERATIONS or size + _size(operation) > MOST_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(operation)
        size += _size(operation)
    if piece:
        yield piece


def _size(operation: ZkOperation) -> int:
    return len(operation.path) + len(getattr(operation, "data", b"")) + _OVERHEAD_BYTES


def _topic_operations(
    old: TopicImage | None, new: TopicImage, epoch: ControllerEpoch, has_settings: bool
) -> list[ZkOperation]:
    operations: list[ZkOperation] = []
    path = znodes.topic_path(new.name)
    if old is None or old.configs != new.configs:
        settings = _settings(znodes.topic_entity(new.name), new.configs, has_settings)
        # Brokers read the settings of a topic that is new to them: no notice is needed.
        operations += settings if old is not None else settings[:1]
    known = old.partitions if old is not None else ()
    if old is None:
        operations.append(Create(path, znodes.encode_topic(new.id, new.partitions)))
        operations.append(Create(znodes.partitions_path(new.name)))
    elif _assignments(known) != _assignments(new.partitions):
        operations.append(SetData(path, znodes.encode_topic(new.id, new.partitions)))
    for index, partition in enumerate(new.partitions):
        before = known[index] if index < len(known) else None
        if before == partition:
            continue
        state, data = znodes.state_path(new.name, index), znodes.encode_state(partition, epoch)
        if before is None:
            operations.append(Create(znodes.partition_path(new.name, index)))
        if before is None or before.partition_epoch < 0:
            operations.append(Create(state, data))
        else:
            operations.append(SetData(state, data, before.partition_epoch))
    return operations


def _settings(entity: str, configs: Mapping[str, str], has_node: bool) -> list[ZkOperation]:
    data, path = znodes.encode_configs(configs), znodes.config_path(entity)
    change = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), is_sequential=True)
    return [SetData(path, data) if has_node else Create(path, data), change]


def _assignments(partitions: Iterable[PartitionImage]) -> list[tuple[object, ...]]:
    return [(partition.replicas, partition.adding, partition.removing) for partition in partitions]

"""What ZooKeeper holds, read into parts of an image. Called by `controllership`; holds nothing itself.

A node that is damaged is told of in the log and left out, or stays as it was known: one bad node costs itself only.
A topic whose partitions have no state yet, made by a tool or by a controller that ended half way, is read as new.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar
from uuid import UUID, uuid5

from barnabas.cluster.image import BrokerEpoch, BrokerImage, PartitionImage, TopicImage, Topics
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.client import Node, ZooKeeperClient
from barnabas.types import BrokerId, TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
_NO_ID = UUID("5a9b7c1e-0f0e-4a43-9a4e-6f1f0b6b5c11")

log = logging.getLogger("barnabas.zookeeper")


def read_brokers(client: ZooKeeperClient) -> dict[BrokerId, BrokerImage]:
    """The brokers that are there now; one that comes or goes later is told of."""
    names = client.children(znodes.BROKER_IDS, watched=True) or []
    ids = [BrokerId(int(name)) for name in names if name.isascii() and name.isdigit()]
    found: dict[BrokerId, BrokerImage] = {}
    for broker, node in zip(ids, client.read([znodes.broker_path(one) for one in ids]), strict=True):
        if node is not None:
            image = understood(znodes.parse_broker, broker, node.data, BrokerEpoch(node.created))
            if image is not None:
                found[broker] = image
    return found


def read_topics(
    client: ZooKeeperClient, names: Sequence[str], known: Mapping[str, TopicImage] | Topics
) -> dict[str, TopicImage | None]:
    """Topics as they are; None for one that is gone. A change of their nodes is told of."""
    nodes = client.read([znodes.topic_path(name) for name in names], watched=True)
    settings = read_configs(client, [znodes.topic_entity(name) for name in names])
    found: dict[str, TopicImage | None] = {}
    assigned: list[tuple[str, UUID, znodes.Assignment]] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            found[name] = None
        elif assignment := understood(znodes.parse_topic, name, node.data):
            # A topic of an older tool has no id: the number of its making is as good a one.
            assigned.append((name, assignment.id or uuid5(_NO_ID, f"{name}:{node.created}"), assignment))
        elif name in known:
            found[name] = known[name]
    paths = [
        znodes.state_path(name, index) for name, _, one in assigned for index in range(len(one.replicas))
    ]
    states = iter(client.read(paths))
    for name, topic_id, assignment in assigned:
        partitions = tuple(
            _partition(TopicPartition(name, index), next(states), assignment)
            for index in range(len(assignment.replicas))
        )
        configs = settings.get(znodes.topic_entity(name), {})
        found[name] = TopicImage(name, topic_id, partitions, configs)
    return found


def _partition(tp: TopicPartition, node: Node | None, assignment: znodes.Assignment) -> PartitionImage:
    if node is None:
        return znodes.new_partition(tp.partition, assignment)
    state = understood(znodes.parse_state, tp, node.data, node.version, assignment)
    if state is None:
        return znodes.unreadable_partition(tp.partition, node.version, assignment)
    # The numbers of changes grow over all nodes, and those of brokers' nodes are their epochs.
    return replace(state, born=BrokerEpoch(node.created))


def read_configs(client: ZooKeeperClient, entities: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of these, where they have any."""
    nodes = client.read([znodes.config_path(entity) for entity in entities])
    found: dict[str, dict[str, str]] = {}
    for entity, node in zip(entities, nodes, strict=True):
        if node is not None:
            found[entity] = understood(znodes.parse_configs, entity, node.data) or {}
    return found


def read_broker_configs(client: ZooKeeperClient) -> dict[str, dict[str, str]]:
    """The settings of brokers; the key is empty for those that all of them have."""
    names = client.children(znodes.BROKER_CONFIGS) or []
    found = read_configs(client, [f"brokers/{name}" for name in names])
    return {
        "" if name == znodes.ALL_BROKERS else name: found[f"brokers/{name}"]
        for name in names
        if f"brokers/{name}" in found
    }


def tree(client: ZooKeeperClient, path: str) -> list[str]:
    """A node and all below it, leaves first."""
    below = client.children(path)
    if below is None:
        return []
    return [*(found for name in below for found in tree(client, f"{path}/{name}")), path]


def understood(parse: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """What a node says; None, and a line in the log, where it is damaged."""
    try:
        return parse(*arguments, **named)
    except znodes.DamagedNode as damaged:
        log.error("%s", damaged)
        return None


def missing_parents(client: ZooKeeperClient, topics: Iterable[TopicImage | None]) -> list[str]:
    """The nodes that new partitions need to get a state, parents first."""
    wanted: list[str] = []
    for topic in topics:
        new = [i for i, p in enumerate(topic.partitions) if p.partition_epoch < 0] if topic else []
        if topic is not None and new:
            wanted.append(znodes.partitions_path(topic.name))
            wanted += [znodes.partition_path(topic.name, index) for index in new]
    return [path for path, node in zip(wanted, client.read(wanted), strict=True) if node is None]

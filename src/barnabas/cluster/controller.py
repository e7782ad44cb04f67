"""Decides what may become of topics. PURE: an image and a wish in, changes or a refusal out.

Called by the broker that is the controller, which has the changes stored and then applied.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from barnabas.cluster.image import (
    Change,
    ClusterImage,
    PartitionImage,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from barnabas.cluster.placement import spread
from barnabas.config import BrokerConfig, topic_config
from barnabas.errors import Code, Refused, counted
from barnabas.setting import ConfigError
from barnabas.types import BrokerId

MAX_NAME_LENGTH = 249
MAX_PARTITIONS_AT_ONCE = 10_000
"""As in Kafka: one careless request must not keep a broker busy for minutes."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic that a request asks for. -1 leaves a number to the broker's defaults."""

    name: str
    id: UUID
    partitions: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Refuse what Kafka refuses; a name is a folder's name too, so nothing else may slip through."""
    if not name:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, "A topic name cannot be empty: that is invalid.")
    if name in (".", ".."):
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"The topic name {name!r} is invalid: it means a folder.")
    if len(name) > MAX_NAME_LENGTH:
        raise Refused(
            Code.INVALID_TOPIC_EXCEPTION,
            f"A topic name of {len(name)} characters is invalid: it can have {MAX_NAME_LENGTH} at most.",
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise Refused(
            Code.INVALID_TOPIC_EXCEPTION,
            f"The topic name {name[:60]!r} is invalid: it has other characters than letters, digits, '.', '_' and '-'.",
        )


def create_topic(image: ClusterImage, wanted: WantedTopic, defaults: BrokerConfig) -> list[Change]:
    """The changes that make a topic."""
    check_name(wanted.name)
    if wanted.name in image.topics:
        raise Refused(Code.TOPIC_ALREADY_EXISTS, f"Topic {wanted.name!r} already exists.")
    _check_collision(image, wanted.name)
    configs = checked_configs(wanted.configs, defaults)
    partitions = _assigned(image, wanted) if wanted.assignment else _spread(image, wanted, defaults)
    return [TopicCreated(TopicImage(wanted.name, wanted.id, partitions, configs))]


def delete_topic(image: ClusterImage, name: str, defaults: BrokerConfig) -> list[Change]:
    """The changes that end a topic."""
    if not defaults.delete_topic_enable:
        raise Refused(Code.TOPIC_DELETION_DISABLED)
    if name not in image.topics:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
    return [TopicDeleted(name)]


def add_partitions(
    image: ClusterImage, name: str, count: int, assignments: Sequence[Sequence[int]] | None
) -> list[Change]:
    """The changes that give a topic more partitions, `count` in all."""
    topic = image.topics.get(name)
    if topic is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if count == present:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"Topic {name!r} already has {counted(present, 'partition')}: the number is invalid.",
        )
    if count < present:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"{count} is an invalid number of partitions: topic {name!r} has {present}, which can become more, "
            "not fewer.",
        )
    _check_count(count - present)
    if assignments is not None:
        if len(assignments) != count - present:
            raise Refused(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"The replica assignment is invalid: {counted(count - present, 'partition')} to be added, "
                f"replicas given for {len(assignments)}.",
            )
        added = tuple(_partition(image, replicas) for replicas in assignments)
    else:
        first = topic.partitions[0]
        factor = len(first.replicas) - len(first.adding)
        _check_factor(image, factor)
        added = _placed(image, range(present, count), factor, topic.id)
    return [PartitionsAdded(name, added)]


def configure_topic(
    image: ClusterImage, name: str, configs: Mapping[str, str], defaults: BrokerConfig
) -> list[Change]:
    """The changes that give a topic these settings, and no others."""
    if name not in image.topics:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
    return [TopicConfigured(name, checked_configs(configs, defaults))]


def checked_configs(configs: Mapping[str, str | None], defaults: BrokerConfig) -> dict[str, str]:
    """The same settings, or INVALID_CONFIG with a sentence."""
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise Refused(Code.INVALID_CONFIG, f"{name} has an invalid value: none.")
        checked[name] = value
    try:
        topic_config(defaults.topic_defaults, checked)
    except ConfigError as error:
        raise Refused(Code.INVALID_CONFIG, str(error)) from None
    return checked


def _check_collision(image: ClusterImage, name: str) -> None:
    other = image.topics.of_metric_name(name)
    if other is not None:
        raise Refused(
            Code.INVALID_TOPIC_EXCEPTION,
            f"The topic name {name!r} is invalid: {other!r} already exists, and '.' and '_' count as the same.",
        )


def _assigned(image: ClusterImage, wanted: WantedTopic) -> tuple[PartitionImage, ...]:
    if wanted.partitions != -1 or wanted.replication_factor != -1:
        raise Refused(
            Code.INVALID_REQUEST,
            "The request is invalid: give an assignment, or a number of partitions and a replication factor, not both.",
        )
    if sorted(wanted.assignment) != list(range(len(wanted.assignment))):
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "The replica assignment is invalid: its partitions must be numbered from 0 without a gap.",
        )
    return tuple(_partition(image, wanted.assignment[index]) for index in range(len(wanted.assignment)))


def _spread(image: ClusterImage, wanted: WantedTopic, defaults: BrokerConfig) -> tuple[PartitionImage, ...]:
    count = defaults.num_partitions if wanted.partitions == -1 else wanted.partitions
    factor = (
        defaults.default_replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    )
    if count < 1:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"{count} is an invalid number of partitions: a topic needs at least one.",
        )
    _check_count(count)
    if factor < 1:
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {factor} is invalid: a topic needs one replica at least.",
        )
    _check_factor(image, factor)
    return _placed(image, range(count), factor, wanted.id)


def _check_factor(image: ClusterImage, factor: int) -> None:
    if factor > len(image.brokers):
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {factor} is invalid here: it needs as many brokers, "
            f"and {len(image.brokers)} are alive.",
        )


def _check_count(count: int) -> None:
    if count > MAX_PARTITIONS_AT_ONCE:
        raise Refused(
            Code.POLICY_VIOLATION,
            f"{count} partitions are too many at once; {MAX_PARTITIONS_AT_ONCE} can be made.",
        )


def _placed(
    image: ClusterImage, indexes: Iterable[int], factor: int, topic_id: UUID
) -> tuple[PartitionImage, ...]:
    """Partitions on brokers that their topic does not name; the chance of the topic's id says where to begin."""
    placed = spread(image.brokers.values(), indexes, factor, topic_id.int)
    return tuple(_partition(image, replicas) for replicas in placed)


def _partition(image: ClusterImage, replicas: Sequence[int]) -> PartitionImage:
    if not replicas or len(set(replicas)) != len(replicas):
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "The replica assignment is invalid: a partition's replicas are one or more different brokers.",
        )
    strangers = [replica for replica in replicas if replica not in image.brokers]
    if strangers:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"The replica assignment is invalid: broker {strangers[0]} does not exist.",
        )
    ids = tuple(BrokerId(replica) for replica in replicas)
    # A life that begins from here on has a larger epoch than any there is.
    born = max(image.brokers[replica].epoch for replica in ids)
    return PartitionImage(replicas=ids, isr=ids, leader=ids[0], born=born)

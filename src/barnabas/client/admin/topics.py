"""Topics as Admin makes, shows, grows and deletes them. Every question goes to the controller or to the metadata.

Always holds: what the first try of a request has done is not asked for again by its second.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

from barnabas.client.network.failures import raise_first, refusal
from barnabas.client.network.metadata import Topic
from barnabas.client.network.routing import Cluster
from barnabas.client.settings import checked
from barnabas.errors import BarnabasError, Refused
from barnabas.setting import INT_MAX
from barnabas.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_SHORT_MAX = 2**15 - 1


@checked
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made; -1 leaves a number to the broker, an assignment (partition: brokers) gives both."""

    name: str
    partitions: Annotated[int, -1, INT_MAX] = -1
    replication_factor: Annotated[int, -1, _SHORT_MAX] = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What became of a wish for a topic; -1 where an old broker does not tell."""

    name: str
    id: UUID
    partitions: int
    replication_factor: int


def create_topics(
    cluster: Cluster, wishes: Iterable[NewTopic], *, validate_only: bool, timeout: float
) -> list[CreatedTopic]:
    """Make topics, in the order of the wishes. Raises for the first that is refused, after all were tried."""
    wanted: dict[str, CreatableTopic] = {}
    for wish in wishes:
        if wish.name in wanted:
            raise BarnabasError(f"create_topics: topic {wish.name!r} is wished for twice.")
        wanted[wish.name] = _creatable(wish)
    made: dict[str, CreatedTopic] = {}

    def ask() -> list[CreatedTopic]:
        missing = [wish for name, wish in wanted.items() if name not in made]
        request = CreateTopicsRequest(missing, _millis(timeout), validate_only=validate_only)
        failures: list[Refused] = []
        if missing:
            answer = cluster.controller().call(request, CreateTopicsResponse, wait=timeout)
            for each in answer.topics:
                if each.error_code:
                    failures.append(refusal(each.error_code, f"Topic {each.name!r}", each.error_message))
                else:
                    made[each.name] = CreatedTopic(
                        each.name, each.topic_id, each.num_partitions, each.replication_factor
                    )
        raise_first(failures)
        return [made[name] for name in wanted]

    return cluster.retry(ask, timeout=timeout)


def _creatable(wish: NewTopic) -> CreatableTopic:
    by_hand = bool(wish.assignment)
    return CreatableTopic(
        name=wish.name,
        num_partitions=-1 if by_hand else wish.partitions,
        replication_factor=-1 if by_hand else wish.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in wish.assignment.items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in wish.configs.items()],
    )


def list_topics(cluster: Cluster, *, timeout: float) -> list[Topic]:
    """All topics as they are now, in the order of their names."""
    return cluster.retry(cluster.topics, timeout=timeout)


def describe_topics(cluster: Cluster, names: Iterable[str], *, timeout: float) -> list[Topic]:
    """These topics as they are now. Raises for the first that there is not."""
    wanted = list(names)

    return cluster.retry(lambda: cluster.refresh(wanted), timeout=timeout)


def create_partitions(
    cluster: Cluster, totals: Mapping[str, int], *, validate_only: bool, timeout: float
) -> None:
    """Grow topics to these numbers of partitions. Raises for the first that is refused, after all were tried."""
    left = dict(totals)

    def ask() -> None:
        topics = [CreatePartitionsTopic(name=name, count=total) for name, total in left.items()]
        request = CreatePartitionsRequest(topics, _millis(timeout), validate_only)
        failures: list[Refused] = []
        for each in cluster.controller().call(request, CreatePartitionsResponse, wait=timeout).results:
            if each.error_code:
                failures.append(refusal(each.error_code, f"Topic {each.name!r}", each.error_message))
            else:
                left.pop(each.name, None)
        raise_first(failures)

    if left:
        cluster.retry(ask, timeout=timeout)
        cluster.forget()


def delete_topics(cluster: Cluster, names: Iterable[str], *, timeout: float) -> None:
    """Delete topics for good. Raises for the first that is refused, after all were tried."""
    left = dict.fromkeys(names)

    def ask() -> None:
        states = [DeleteTopicState(name=name) for name in left]
        request = DeleteTopicsRequest(states, list(left), _millis(timeout))
        failures: list[Refused] = []
        for each in cluster.controller().call(request, DeleteTopicsResponse, wait=timeout).responses:
            if each.error_code:
                failures.append(refusal(each.error_code, f"Topic {each.name!r}", each.error_message))
            else:
                left.pop(each.name or "", None)
        raise_first(failures)

    if left:
        cluster.retry(ask, timeout=timeout)
        cluster.forget()


def _millis(seconds: float) -> int:
    return int(seconds * 1000)

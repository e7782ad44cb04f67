"""A cluster as Admin asks it: each question to the broker that can answer it, and again where that has changed.

Always holds: a question that failed because what is known was stale is asked again with fresh metadata, until its
time is up; no question takes longer than its time.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from barnabas.client.network.failures import may_pass, no_partition
from barnabas.client.network.metadata import Address, Broker, Partition, Snapshot, Topic
from barnabas.client.network.network import CoordinatorKind, Network, Outcome
from barnabas.client.network.patience import Patience
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.codec import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_GRACE_S = 0.5
"""The network gives up first: it can say which broker did not answer."""


class Cluster:
    """Which broker can answer what. Not for several threads at once."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str,
        request_timeout_ms: int,
        retry_backoff_ms: int,
    ) -> None:
        self._network = Network(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            name=client_id,
        )
        self._deadline = 0.0
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[str, CoordinatorKind], BrokerId] = {}
        self._network.start()

    def close(self) -> None:
        self._network.close()

    # Which broker is asked

    def any(self) -> "Destination":
        """Whichever broker answers."""
        return Destination(self, None)

    def broker(self, broker: int) -> "Destination":
        return Destination(self, BrokerId(broker))

    def controller(self) -> "Destination":
        """The broker that changes topics."""
        found = self._network.metadata.snapshot
        if found.controller not in found.brokers:
            found = self._refresh([])
        # A cluster without a controller now forwards, or answers with an error that says to try again.
        return Destination(self, found.controller if found.controller in found.brokers else None)

    def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> "Destination":
        """The broker that looks after a group, or a transactional id."""
        node = self._coordinators.get((key, kind))
        if node is None:
            find = partial(self._network.find_coordinator, key, kind=kind)
            node = self._network.wait_for(find, self._left(), "FindCoordinator")
            self._coordinators[key, kind] = node
        return Destination(self, node)

    def leader_of(self, partition: TopicPartition) -> "Destination":
        """The broker that leads a partition."""
        leader = self._partition(partition).leader
        if leader < 0:
            raise Refused(
                Code.LEADER_NOT_AVAILABLE, f"Partition {partition}: {Code.LEADER_NOT_AVAILABLE.advice}"
            )
        return Destination(self, leader)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> "dict[Destination, list[TopicPartition]]":
        """Partitions grouped by the broker that leads them."""
        groups: dict[Destination, list[TopicPartition]] = {}
        for partition in map(TopicPartition._make, partitions):
            groups.setdefault(self.leader_of(partition), []).append(partition)
        return groups

    # What is known

    def brokers(self) -> list[Broker]:
        """The brokers of the cluster, fresh."""
        return sorted(self._refresh([]).brokers.values(), key=lambda broker: broker.id)

    def topics(self) -> list[Topic]:
        """All topics, fresh."""
        return sorted(self._refresh(None).topics.values(), key=lambda topic: topic.name)

    def refresh(self, names: Iterable[str]) -> list[Topic]:
        """These topics, fresh; raises for the first that there is not."""
        wanted = list(names)
        found = self._refresh(wanted)
        for name in wanted:
            if name not in found.topics:
                code = found.refused.get(name, Code.UNKNOWN_TOPIC_OR_PARTITION)
                raise Refused(code, f"Topic {name!r}: {code.advice}")
            self._topics[name] = found.topics[name]
        return [found.topics[name] for name in wanted]

    def leader_epoch_of(self, partition: TopicPartition) -> int:
        return self._partition(partition).leader_epoch

    def knows_leader_of(self, partition: TopicPartition) -> bool:
        topic = self._topics.get(partition.topic)
        is_there = topic is not None and 0 <= partition.partition < len(topic.partitions)
        return is_there and self._partition(partition).leader >= 0

    def forget(self) -> None:
        """What is known about topics and coordinators is stale."""
        self._topics.clear()
        self._coordinators.clear()

    def _partition(self, partition: TopicPartition) -> Partition:
        topic = self._topics.get(partition.topic) or self.refresh([partition.topic])[0]
        if not 0 <= partition.partition < len(topic.partitions):
            raise no_partition(topic.name, partition.partition, len(topic.partitions))
        return topic.partitions[partition.partition]

    def _refresh(self, topics: list[str] | None) -> Snapshot:
        refresh = partial(self._network.refresh, topics)
        found: Snapshot = self._network.wait_for(refresh, self._left(), "Metadata")
        return found

    # How it is asked

    def retry(self, action: Callable[[], T], *, timeout: float) -> T:
        """The action's result; what may pass by itself is tried again, until `timeout` seconds are over.

        What `may_pass` has no hope for is told of at once.
        """
        self.allow(timeout)
        return self.patience(timeout).ask(action)

    def patience(self, seconds: float, may_pass: Callable[[Refused], bool] = may_pass) -> Patience:
        """For a question that may take this long: what is known is forgotten where it was stale."""
        return Patience(self._network, seconds, may_pass=may_pass, when_stale=self.forget)

    def allow(self, seconds: float) -> None:
        """From now on, this much time for what is asked."""
        self._deadline = time.monotonic() + seconds

    def ask(self, node: BrokerId | None, request: Message, answer: type[M], wait: float) -> Outcome[M]:
        patience = self._network.request_timeout + wait + _GRACE_S
        outcome: Outcome[M] = Outcome(type(request).__name__, patience)
        self._network.post(lambda: self._network.ask(node, request, answer, outcome.put, wait=wait))
        return outcome

    def call(self, node: BrokerId | None, request: Message, answer: type[M], wait: float) -> M:
        return self._network.call(node, request, answer, timeout=self._left(), wait=wait)

    def address_of(self, node: BrokerId) -> Address:
        return self._network.metadata.snapshot.brokers[node].address

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.0) + _GRACE_S


@dataclass(frozen=True, slots=True)
class Destination:
    """The broker that a question goes to; None: any."""

    cluster: Cluster
    node: BrokerId | None

    def call(self, request: Message, answer: type[M], *, wait: float = 0.0) -> M:
        """One question and its answer; `wait` is what the broker may take on purpose. Raises Refused."""
        return self.cluster.call(self.node, request, answer, wait)

    def ask(self, request: Message, answer: type[M], *, wait: float = 0.0) -> Outcome[M]:
        """The same without waiting: the answer can be waited for later."""
        return self.cluster.ask(self.node, request, answer, wait)

    @property
    def address(self) -> str:
        assert self.node is not None
        return str(self.cluster.address_of(self.node))

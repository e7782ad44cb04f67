"""What a client knows of a cluster: its brokers, topics and leaders, and a connection to each broker in use.

Used by Admin, Producer and Consumer. Always holds: what is known is either fresh or marked stale; a request
that failed because it was stale is tried again with fresh metadata until its time is up.
"""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas.client.connection import Connection
from barnabas.client.failures import RETRIABLE, STALE, NoBroker, Unreachable, check
from barnabas.client.metadata import Address, Broker, Partition, Topic, addresses, topic_of
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.codec import Message
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

M = TypeVar("M", bound=Message)
T = TypeVar("T")

__all__ = ["Address", "Broker", "Cluster", "Partition", "Topic", "addresses"]


class Cluster:
    """Connections and metadata of one client. Not for several threads at once."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str,
        request_timeout_ms: int,
        retry_backoff_ms: int,
    ) -> None:
        self._bootstrap = addresses(bootstrap_servers)
        self._client_id = client_id
        self._timeout = request_timeout_ms / 1000
        self._backoff = retry_backoff_ms / 1000
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Broker] = {}
        self._controller = -1
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[str, Address] = {}
        self.id: str | None = None

    def known_topic(self, name: str) -> Topic | None:
        """A topic from memory."""
        return self._topics.get(name)

    def known_leader(self, partition: TopicPartition) -> int:
        """The leader from memory; -1 where nobody knows."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return -1
        return topic.partitions[partition.partition].leader

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic from memory, or freshly asked for; `create` lets the broker create it if it does so."""
        known = self._topics.get(name)
        if known is None:
            self.refresh([name], create=create)
            known = self._topics[name]
        return known

    def topics(self) -> list[Topic]:
        """All topics, fresh."""
        found = self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return sorted((topic_of(each) for each in found.topics), key=lambda topic: topic.name)

    def refresh(self, names: Iterable[str], *, create: bool = False) -> None:
        """Ask for these topics anew; raises for the first that there is not."""
        wanted = list(names)
        for name in wanted:
            self._topics.pop(name, None)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in wanted], allow_auto_topic_creation=create
        )
        answer = self._ask(request)
        for each in answer.topics:
            if not each.error_code:
                self._topics[each.name or ""] = topic_of(each)
        for each in answer.topics:
            check(each.error_code, f"Topic {each.name!r}")

    def forget(self) -> None:
        """Everything known about topics, coordinators and the controller is stale."""
        self._topics.clear()
        self._coordinators.clear()
        self._controller = -1

    def leader_of(self, partition: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition."""
        leader = self._partition(partition).leader
        if leader < 0:
            raise Refused(
                Code.LEADER_NOT_AVAILABLE, f"Partition {partition}: {Code.LEADER_NOT_AVAILABLE.advice}"
            )
        return self.connection(leader)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Connection, list[TopicPartition]]:
        """Partitions grouped by the connection to their leader."""
        groups: dict[Connection, list[TopicPartition]] = {}
        for partition in partitions:
            groups.setdefault(self.leader_of(partition), []).append(partition)
        return groups

    def leader_epoch_of(self, partition: TopicPartition) -> int:
        return self._partition(partition).leader_epoch

    def _partition(self, partition: TopicPartition) -> Partition:
        found = self.topic(partition.topic).partitions
        if not 0 <= partition.partition < len(found):
            raise Refused(
                Code.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic {partition.topic!r} has no partition {partition.partition}, only {len(found)}.",
            )
        return found[partition.partition]

    def connection(self, broker: int) -> Connection:
        """A connection to this broker."""
        node = self._brokers.get(broker)
        if node is None:
            raise Refused(Code.BROKER_NOT_AVAILABLE, f"There is no broker {broker} in the cluster now.")
        return self._open(Address(node.host, node.port))

    def controller(self) -> Connection:
        """A connection to the broker that changes topics."""
        if self._controller not in self._brokers:
            self._ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        # A cluster without a controller now forwards, or answers with an error that says to try again.
        return self.connection(self._controller) if self._controller in self._brokers else self.any()

    def coordinator(self, group: str, *, alone: bool = False) -> Connection:
        """A connection to the broker that looks after a group; `alone` for one that nobody else uses."""
        address = self._coordinators.get(group)
        if address is None:
            request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
            answer = self._call_any(request, FindCoordinatorResponse)
            found = answer.coordinators[0] if answer.coordinators else answer
            check(found.error_code, f"Group {group!r}", found.error_message)
            address = self._coordinators[group] = Address(found.host, found.port)
        return self._new(address) if alone else self._open(address)

    def brokers(self) -> list[Broker]:
        """The brokers of the cluster, fresh."""
        self._ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return sorted(self._brokers.values(), key=lambda broker: broker.id)

    def any(self) -> Connection:
        """A connection to whichever broker answers: in use, known, or given to start from."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        known = [Address(each.host, each.port) for each in self._brokers.values()]
        failure: Refused | None = None
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return self._open(address)
            except Refused as error:
                failure = error
        if len(self._bootstrap) == 1 and failure is not None:
            raise NoBroker(failure.message)
        raise NoBroker(f"No broker answers at any of {', '.join(map(str, self._bootstrap))}.")

    def retry(self, action: Callable[[], T], *, timeout: float, patient: bool = False) -> T:
        """The action's result; what may pass by itself is tried again, until `timeout` seconds are over.

        The patient wait for a broker to come back and for a topic to appear; others hear of it at once.
        """
        deadline = time.monotonic() + timeout
        pause = self._backoff
        while True:
            try:
                return action()
            except Refused as error:
                hopeless = error.code is Code.UNKNOWN_TOPIC_OR_PARTITION or isinstance(error, NoBroker)
                if error.code not in RETRIABLE or (hopeless and not patient):
                    raise
                if time.monotonic() + pause > deadline:
                    raise
                if error.code in STALE:
                    self.forget()
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _ask(self, request: MetadataRequest) -> MetadataResponse:
        answer = self._call_any(request, MetadataResponse)
        self._brokers = {
            each.node_id: Broker(BrokerId(each.node_id), each.host, each.port, each.rack)
            for each in answer.brokers
        }
        self._controller = answer.controller_id
        self.id = answer.cluster_id
        return answer

    def _call_any(self, request: Message, answer: type[M]) -> M:
        connection = self.any()
        try:
            return connection.call(request, answer)
        except Unreachable:
            # An idle connection may have been closed long ago: that is no reason to fail.
            return self.any().call(request, answer)

    def _open(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = self._new(address)
        return connection

    def _new(self, address: Address) -> Connection:
        return Connection(*address, client_id=self._client_id, timeout=self._timeout)

"""What is wrong with a cluster, in one line each: brokers that are gone, partitions without a leader or replicas.

Used by Admin, `barnabas cluster` and `barnabas topic describe`. Kafka's words: a partition is under-replicated while
its in-sync replicas are fewer than its replicas, and under min ISR while they are fewer than min.insync.replicas.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from barnabas.client.network.metadata import NO_BROKER, Broker, Partition, Topic, topic_of
from barnabas.client.network.routing import Cluster
from barnabas.errors import counted
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

_NAMED = 5
"""Partitions that a line names; of more it tells the number."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as one broker sees it: another may be a moment behind or ahead."""

    controller: BrokerId
    brokers: tuple[Broker, ...]
    topics: tuple[Topic, ...]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas of topics; those that are not named have 1."""
    adding: Mapping[TopicPartition, Collection[BrokerId]] = field(default_factory=dict)
    """Replicas that a reassignment brings: they are not missed yet."""

    def partitions(self) -> Iterable[tuple[TopicPartition, Partition]]:
        for topic in self.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.index), partition

    def is_offline(self, tp: TopicPartition, partition: Partition) -> bool:
        return partition.leader not in (broker.id for broker in self.brokers)

    def is_under_replicated(self, tp: TopicPartition, partition: Partition) -> bool:
        wanted = set(partition.replicas) - set(self.adding.get(tp, ()))
        return len(partition.isr) < len(wanted)

    def is_under_min_isr(self, tp: TopicPartition, partition: Partition) -> bool:
        return len(partition.isr) < self.min_isr.get(tp.topic, 1)

    def is_at_min_isr(self, tp: TopicPartition, partition: Partition) -> bool:
        return len(partition.isr) == self.min_isr.get(tp.topic, 1)

    def is_badly_led(self, tp: TopicPartition, partition: Partition) -> bool:
        """Whether another than its first replica leads a partition, though that one could."""
        preferred = partition.replicas[0] if partition.replicas else NO_BROKER
        return not self.is_offline(tp, partition) and partition.leader != preferred in partition.isr

    def troubles(self) -> list[str]:
        """A sentence for each thing that is wrong; none where all is well."""
        found = [] if self.controller != NO_BROKER else ["No broker is the controller."]
        found += self._gone()
        for is_so, what in (
            (self.is_offline, "without a leader, neither written nor read"),
            (
                self.is_under_min_isr,
                "with fewer in-sync replicas than min.insync.replicas, closed to acks=all",
            ),
            (self._is_only_under_replicated, "under-replicated"),
        ):
            found += _line([tp for tp, partition in self.partitions() if is_so(tp, partition)], what)
        return found

    def _is_only_under_replicated(self, tp: TopicPartition, partition: Partition) -> bool:
        is_worse = self.is_offline(tp, partition) or self.is_under_min_isr(tp, partition)
        return not is_worse and self.is_under_replicated(tp, partition)

    def _gone(self) -> Iterable[str]:
        alive = {broker.id for broker in self.brokers}
        lost: dict[BrokerId, int] = {}
        for _, partition in self.partitions():
            for replica in partition.replicas:
                if replica not in alive:
                    lost[replica] = lost.get(replica, 0) + 1
        for broker, count in sorted(lost.items()):
            yield f"Broker {broker} is gone: it has replicas of {counted(count, 'partition')}."


def _line(partitions: list[TopicPartition], what: str) -> Iterable[str]:
    if partitions:
        names = ", ".join(map(str, partitions[:_NAMED]))
        more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
        yield f"{counted(len(partitions), 'partition')} {what}: {names}{more}."


def view_of(cluster: Cluster, broker: int | None, *, timeout: float) -> ClusterView:
    """Brokers and topics as this broker sees them now, or any."""

    def ask() -> ClusterView:
        if broker is not None:
            cluster.brokers()
        to = cluster.any() if broker is None else cluster.broker(broker)
        found = to.call(MetadataRequest(topics=None), MetadataResponse)
        brokers = (Broker(BrokerId(b.node_id), b.host, b.port, b.rack) for b in found.brokers)
        topics = (topic_of(each) for each in found.topics)
        return ClusterView(
            BrokerId(found.controller_id),
            tuple(sorted(brokers, key=lambda each: each.id)),
            tuple(sorted(topics, key=lambda topic: topic.name)),
        )

    return cluster.retry(ask, timeout=timeout)

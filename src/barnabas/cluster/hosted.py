"""Owns the index of partitions by the brokers that have them, for the controller. PURE.

Kept from one image to the next at the cost of what is different, so that the death of a broker costs what it had, and
not what the cluster has.
"""

from collections.abc import Iterator, Sequence

from barnabas.cluster.image import ClusterImage, PartitionImage
from barnabas.types import BrokerId, TopicPartition


class HostedState:
    """Mutable: the partitions of each broker, as the image has them that was followed last."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._partitions: dict[BrokerId, dict[str, set[int]]] = {}

    def follow(self, image: ClusterImage) -> None:
        """Go on to another image."""
        before, self._image = self._image, image
        if before is image:
            return
        for name in image.since(before).topics:
            was = before.topics.get(name) if before is not None else None
            now = image.topics.get(name)
            self._compare(name, was.partitions if was else (), now.partitions if now else ())

    def of(self, broker: BrokerId) -> Iterator[TopicPartition]:
        """The partitions that a broker has a replica of, live or not; in an order that is always the same."""
        topics = self._partitions.get(broker, {})
        for name in sorted(topics):
            for index in sorted(topics[name]):
                yield TopicPartition(name, index)

    def _compare(self, name: str, was: Sequence[PartitionImage], now: Sequence[PartitionImage]) -> None:
        for index in range(max(len(was), len(now))):
            old = was[index] if index < len(was) else None
            new = now[index] if index < len(now) else None
            if old is new or (old is not None and new is not None and old.replicas == new.replicas):
                continue
            for broker in old.replicas if old is not None else ():
                self._drop(broker, name, index)
            for broker in new.replicas if new is not None else ():
                self._partitions.setdefault(broker, {}).setdefault(name, set()).add(index)

    def _drop(self, broker: BrokerId, name: str, index: int) -> None:
        topics = self._partitions[broker]
        topics[name].discard(index)
        if not topics[name]:
            del topics[name]

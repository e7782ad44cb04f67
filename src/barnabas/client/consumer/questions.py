"""What a consumer's user asks the cluster and waits for: partitions, offsets by time, what its group has committed.

Called in the user's thread. What may pass by itself is asked again until default.api.timeout.ms is over; what does
not exist is not waited for.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from barnabas.client.consumer.offset_lookup import ask_offsets
from barnabas.client.consumer.offsets import Found, OffsetAt
from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.client.network.patience import Patience
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition

T = TypeVar("T")


class Questions:
    """Asks, and asks again."""

    def __init__(self, network: Network, *, read_committed: bool, timeout: float) -> None:
        self._network = network
        self._read_committed = read_committed
        self._timeout = timeout

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        def ask() -> list[TopicPartition]:
            start = partial(self._network.refresh, [topic])
            snapshot: Snapshot = self._network.wait_for(start, self._timeout, "Asking for a topic")
            if topic not in snapshot.topics:
                code = snapshot.refused.get(topic, Code.UNKNOWN_TOPIC_OR_PARTITION)
                raise Refused(code, f"Topic {topic!r}: {code.advice}")
            return [TopicPartition(topic, each.index) for each in snapshot.topics[topic].partitions]

        return self.retry(ask)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after each time, or at an end."""
        known: dict[TopicPartition, OffsetAt] = {}

        def ask() -> dict[TopicPartition, OffsetAt]:
            left = {TopicPartition(*each): at for each, at in wanted.items() if each not in known}
            start = partial(ask_offsets, self._network, left, read_committed=self._read_committed)
            found: Found = self._network.wait_for(start, self._timeout, "Asking for offsets")
            known.update({each: at for each, at in found.items() if not isinstance(at, Refused)})
            for at in found.values():
                if isinstance(at, Refused):
                    raise at
            return known

        return self.retry(ask, {partition.topic for partition in map(TopicPartition._make, wanted)})

    def retry(self, ask: Callable[[], T], topics: Iterable[str] = ()) -> T:
        """What `ask` gives, as soon as it gives something; it depends on the leaders of these topics, read or not."""

        def refresh() -> None:
            if topics:
                self._network.post(lambda: self._network.refresh(topics))

        return Patience(self._network, self._timeout, when_stale=refresh).ask(ask)

"""Brings the ends of transactions to the partitions that were part of them. Called by `transactions`.

A partition that is led here gets its marker without a socket; other brokers are sent WriteTxnMarkers, one request at a
time, with all markers that have come up meanwhile. What a partition refuses for now goes again, to whichever broker
leads it then, for as long as the coordinator that wants it is in office.

Always holds: a partition counts as marked when its leader has said that the marker is below the high watermark, or when
there is no such partition any more.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from barnabas.broker.network.promise import Promise
from barnabas.broker.peers.peer import PeerLost
from barnabas.coordinator.transactions.requests import Marked, Markers
from barnabas.coordinator.transactions.transaction import TopicIndex
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId
from barnabas.wire.messages.txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.coordinators.host import CoordinatorHost

MARKING = "markers"
MARKER_TIMEOUT_MS = 30_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0
"""How long a marker that was refused waits before it goes again: each time twice as long."""

GONE_AFTER_S = 10.0
"""For how long a topic has to be unknown here until its partitions need no markers: news of it may be late."""

_OVER = frozenset({Code.TRANSACTION_COORDINATOR_FENCED})
"""A newer coordinator has been there: what this one still has to say does not count."""

_MARKED = frozenset({Code.NONE, Code.INVALID_PRODUCER_EPOCH})
"""The marker is there, or the producer has gone on since: then the transaction is not open there."""

log = logging.getLogger("barnabas.coordinators")


class Delivery:
    """Mutable: the markers of one transaction, on their way."""

    __slots__ = ("host", "markers", "pause_s", "unknown_since")

    def __init__(self, host: "CoordinatorHost[Any]", markers: Markers) -> None:
        self.host = host
        self.markers = markers
        self.pause_s = 0.0
        self.unknown_since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the coordinator that wanted it is gone: the next one sends them itself."""
        return self.host.is_closed

    def marker(self, partitions: Iterable[TopicIndex]) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        markers = self.markers
        return WritableTxnMarker(
            markers.producer.id,
            markers.producer.epoch,
            markers.commit,
            [WritableTxnMarkerTopic(topic, indexes) for topic, indexes in topics.items()],
            self.host.epoch,
            markers.version,
        )

    def tell(self, partitions: Iterable[TopicIndex]) -> None:
        self.host.tell(Marked(self.markers.transactional_id, self.markers.producer, frozenset(partitions)))


class MarkerSender:
    """Mutable: what waits for each broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[BrokerId, list[tuple[Delivery, list[TopicIndex]]]] = {}
        self._sending: dict[BrokerId, asyncio.Task[None]] = {}
        self._pauses: set[asyncio.TimerHandle] = set()

    def send(self, host: "CoordinatorHost[Any]", markers: Markers) -> None:
        """See to it that every partition of a transaction gets its marker."""
        # Sorted: under a seed everything happens in one order.
        self._deliver(Delivery(host, markers), sorted(markers.partitions))

    async def stop(self) -> None:
        for pause in self._pauses:
            pause.cancel()
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)

    def _deliver(self, delivery: Delivery, partitions: Iterable[TopicIndex]) -> None:
        if delivery.is_over:
            return
        places: dict[BrokerId, list[TopicIndex]] = {}
        unknown = []
        for each in partitions:
            leader = self._leader_of(each)
            if leader is None:
                unknown.append(each)
            else:
                places.setdefault(leader, []).append(each)
        if unknown:
            self._wait_for_news(delivery, unknown)
        for leader, there in places.items():
            if leader == self._broker.id:
                self._write_here(delivery, there)
            else:
                self._send_to(leader, delivery, there)

    def _leader_of(self, partition: TopicIndex) -> BrokerId | None:
        """The broker that leads it, -1 where none does for now; None where there is no such partition."""
        topic = self._broker.metadata.image.topics.get(partition[0])
        if topic is None or partition[1] >= len(topic.partitions):
            return None
        return topic.partitions[partition[1]].leader

    def _wait_for_news(self, delivery: Delivery, partitions: list[TopicIndex]) -> None:
        now = asyncio.get_running_loop().time()
        if delivery.unknown_since is None:
            delivery.unknown_since = now
        if now - delivery.unknown_since >= GONE_AFTER_S:
            log.warning("%s: no markers for partitions that are gone: %s", delivery.markers, partitions)
            delivery.tell(partitions)
        else:
            self._later(delivery, partitions)

    def _later(self, delivery: Delivery, partitions: list[TopicIndex]) -> None:
        delivery.pause_s = min(max(2 * delivery.pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)

        def again() -> None:
            self._pauses.discard(pause)
            self._deliver(delivery, partitions)

        pause = asyncio.get_running_loop().call_later(delivery.pause_s, again)
        self._pauses.add(pause)

    # Here

    def _write_here(self, delivery: Delivery, partitions: list[TopicIndex]) -> None:
        from barnabas.broker.handlers.txn_markers import write_markers

        outcome = write_markers(self._broker, WriteTxnMarkersRequest([delivery.marker(partitions)]))
        sent = [(delivery, partitions)]
        if isinstance(outcome, Promise):
            outcome.add_done_callback(lambda done: self._answered(sent, done.result()))
        else:
            self._answered(sent, outcome)

    # Elsewhere

    def _send_to(self, leader: BrokerId, delivery: Delivery, partitions: list[TopicIndex]) -> None:
        self._waiting.setdefault(leader, []).append((delivery, partitions))
        if leader not in self._sending:
            task = self._sending[leader] = asyncio.create_task(self._send_all(leader))
            task.add_done_callback(lambda done: self._sending.pop(leader, None))

    async def _send_all(self, leader: BrokerId) -> None:
        while waiting := self._waiting.pop(leader, []):
            sent = [(delivery, partitions) for delivery, partitions in waiting if not delivery.is_over]
            there = self._broker.metadata.image.brokers.get(leader)
            if there is None:
                self._again(sent)
                continue
            request = WriteTxnMarkersRequest([delivery.marker(partitions) for delivery, partitions in sent])
            try:
                answer = await self._broker.peers.get(there, MARKING).ask(request, MARKER_TIMEOUT_MS)
            except (PeerLost, Refused):
                self._again(sent)
                continue
            self._answered(sent, answer)

    def _again(self, sent: list[tuple[Delivery, list[TopicIndex]]]) -> None:
        for delivery, partitions in sent:
            self._later(delivery, partitions)

    # Answers

    def _answered(
        self, sent: list[tuple[Delivery, list[TopicIndex]]], answer: WriteTxnMarkersResponse
    ) -> None:
        """The answer has a row for each marker, in the order of the request."""
        for (delivery, partitions), result in zip(sent, answer.markers, strict=False):
            codes = {
                (topic.name, row.partition_index): Code.of(row.error_code)
                for topic in result.topics
                for row in topic.partitions
            }
            marked = [each for each in partitions if codes.get(each) in _MARKED]
            left = [each for each in partitions if codes.get(each) not in _MARKED | _OVER]
            if marked:
                delivery.tell(marked)
            if left:
                self._later(delivery, left)

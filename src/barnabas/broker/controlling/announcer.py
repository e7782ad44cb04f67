"""Tells the other brokers what the cluster is: a line to each of them, which knows what its broker was told last.

Owned by `controlling`. What is sent is the difference between that and the newest image (`cluster.announcements`), so a
broker that was slow or away is told of the outcome and not of each step. A broker that registers anew is told
everything. Nothing is forgotten: what could not be told is told again for as long as the broker is there.

A line also watches its broker's process. A connection that is refused proves that the process is dead, long before its
session ends: the line tells, and goes on trying. An answer proves the opposite.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from barnabas.broker.peers.peer import PeerLost
from barnabas.broker.peers.peers import Peers
from barnabas.cluster.announcements import Announcement, announce
from barnabas.cluster.image import BrokerEpoch, BrokerImage, ClusterImage
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.messages.controlling import LeaderAndIsrRequest, LeaderAndIsrResponse

PURPOSE = "controller"
TIMEOUT_MS = 30_000
"""For a broker to become leader of thousands of partitions, and no longer: then it is asked again."""
PAUSE_S = 0.1

log = logging.getLogger("barnabas.controller")

Proof = Callable[[BrokerImage, bool], None]
"""(broker, whether it lives): what a connection has shown."""
Loss = Callable[[BrokerId, Sequence[TopicPartition]], None]
"""(broker, partitions): what a broker says that it cannot serve."""


class Announcer:
    """Mutable: the lines, by broker and life."""

    def __init__(self, broker_id: BrokerId, peers: Peers, on_proof: Proof, on_loss: Loss) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._on_proof = on_proof
        self._on_loss = on_loss
        self._lines: dict[tuple[BrokerId, BrokerEpoch], _Line] = {}

    def announce(self, image: ClusterImage) -> None:
        """Let every other broker know of this image."""
        others = {(b.id, b.epoch): b for b in image.brokers.values() if b.id != self._broker_id}
        for gone in self._lines.keys() - others.keys():
            self._end(gone)
        for key, broker in others.items():
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line(broker, self._peers, self._on_proof, self._on_loss)
            line.tell(image)

    def tell_again(self, broker_id: BrokerId) -> None:
        """Tell a broker everything anew: it answers for each of its partitions."""
        for (known, _), line in self._lines.items():
            if known == broker_id:
                line.tell_again()

    def stop(self) -> None:
        """Say nothing any more: another broker is the controller, or this one stops."""
        for key in list(self._lines):
            self._end(key)

    async def finish(self, seconds: float) -> None:
        """Come back when all brokers that answer have been told, or the time is up."""
        lines = [line for line in self._lines.values() if not line.is_silent]
        waiting = [asyncio.create_task(line.is_quiet.wait()) for line in lines]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
            for task in waiting:
                task.cancel()

    def _end(self, key: tuple[BrokerId, BrokerEpoch]) -> None:
        self._lines.pop(key).close()
        if not any(broker_id == key[0] for broker_id, _ in self._lines):
            self._peers.drop(key[0], PURPOSE)


class _Line:
    """Mutable: what one life of a broker was told last, and what it is to be told."""

    def __init__(self, broker: BrokerImage, peers: Peers, on_proof: Proof, on_loss: Loss) -> None:
        self._broker = broker
        self._on_loss = on_loss
        self._peer = peers.get(broker, PURPOSE)
        self._on_proof = on_proof
        self._told: ClusterImage | None = None
        self._newest: ClusterImage | None = None
        self.is_silent = False
        """Whether the broker could not be told the last time; the log says so once."""
        self._news = asyncio.Event()
        self.is_quiet = asyncio.Event()
        """Whether the broker knows all there is to know."""
        self._task = asyncio.create_task(self._run())
        self._peer.watch(self._refused)

    def tell(self, image: ClusterImage) -> None:
        self._newest = image
        self._news.set()
        self.is_quiet.clear()

    def tell_again(self) -> None:
        self._told = None
        self._news.set()

    def close(self) -> None:
        self._task.cancel()
        self.is_quiet.set()

    def _refused(self) -> None:
        self._on_proof(self._broker, False)

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            image = self._newest
            assert image is not None
            try:
                for request in announce(self._told, image, self._broker.id):
                    await self._send(request)
            except (PeerLost, Refused) as error:
                # What it knows now is not known: it may have heard some of it, or all.
                log.log(
                    logging.DEBUG if self.is_silent else logging.INFO,
                    "broker %d was not told yet: %s",
                    self._broker.id,
                    error,
                )
                self.is_silent = True
                self._news.set()
                await asyncio.sleep(PAUSE_S)
                continue
            self._told, self.is_silent = image, False
            if not self._news.is_set():
                self.is_quiet.set()

    async def _send(self, request: Announcement) -> None:
        answer = await self._peer.ask(request, TIMEOUT_MS)
        self._on_proof(self._broker, True)
        code = Code.of(answer.error_code)
        if code is not Code.NONE:
            raise Refused(code)
        if isinstance(answer, LeaderAndIsrResponse):
            assert isinstance(request, LeaderAndIsrRequest)
            lost = list(_lost(request, answer))
            if lost:
                self._on_loss(self._broker.id, lost)


def _lost(request: LeaderAndIsrRequest, answer: LeaderAndIsrResponse) -> Iterator[TopicPartition]:
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    for topic in answer.topics:
        for row in topic.partition_errors:
            if row.error_code == Code.KAFKA_STORAGE_ERROR and topic.topic_id in names:
                yield TopicPartition(names[topic.topic_id], row.partition_index)

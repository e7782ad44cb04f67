"""Asks the controller for other in-sync replicas (AlterPartition), for all partitions led here, one request at a time.

Leaders say when their machine has a wish. Wishes that come while a request is under way share the next one. Without an
answer the same wishes go again, to the controller of the day: a wish may have been granted without a word of it.

Always holds: what a leader wishes for is asked until its outcome is known, or the leader has another epoch.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.partitions.leader import Leader
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.replication.leadership import OVERTAKEN, IsrWish
from barnabas.types import BrokerId, PartitionEpoch, TopicPartition
from barnabas.wire.messages.controlling import (
    AlterPartitionBrokerState,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

ALTERING = "controller"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
"""After a request without an answer the next one waits, each time twice as long."""

log = logging.getLogger("barnabas.replication")


class IsrChanges:
    """Mutable: the leaders with a wish, and the request under way."""

    def __init__(self, broker: "Broker") -> None:
        self.shrinks = self.expands = self.failed = 0
        """Counted when they are granted, or when a request for them failed."""
        self._broker = broker
        self._wishing: dict[TopicPartition, Leader] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def want(self, leader: Leader) -> None:
        """A leader has a wish: it goes with the next request."""
        if self._is_closed:
            return
        self._wishing[leader.tp] = leader
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while wishes := self._take():
                try:
                    answer = await self._ask(wishes)
                except BarnabasError as error:
                    log.info("the controller was not heard about in-sync replicas: %s", error)
                    self.failed += 1
                    self._tell_all(wishes, Code.NETWORK_EXCEPTION)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                    continue
                if self._tell(wishes, answer):
                    pause_s = _FIRST_PAUSE_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        finally:
            self._task = None

    def _take(self) -> list[tuple[Leader, IsrWish]]:
        wishing, self._wishing = self._wishing, {}
        found = self._broker.replicas.lookup_leader
        wishes = []
        for leader in wishing.values():
            wish = leader.leadership.take_wish() if leader.leadership is not None else None
            if wish is not None and found(leader.tp) is leader:
                wishes.append((leader, wish))
        return wishes

    async def _ask(self, wishes: list[tuple[Leader, IsrWish]]) -> AlterPartitionResponse:
        image = self._broker.metadata.image
        controller = image.brokers.get(image.controller)
        if controller is None:
            raise Refused(Code.NOT_CONTROLLER, "there is no controller now")
        topics: dict[UUID, AlterPartitionTopic] = {}
        for leader, wish in wishes:
            topic = topics.setdefault(leader.topic_id, AlterPartitionTopic(leader.topic_id))
            members = [AlterPartitionBrokerState(broker, epoch) for broker, epoch in wish.isr]
            topic.partitions.append(
                AlterPartitionData(
                    leader.tp.partition, wish.leader_epoch, members, partition_epoch=wish.partition_epoch
                )
            )
        request = AlterPartitionRequest(self._broker.id, self._broker.epoch, list(topics.values()))
        peer = self._broker.peers.get(controller, ALTERING)
        answer: AlterPartitionResponse = await peer.ask(request, self._broker.config.request_timeout_ms)
        if answer.error_code:
            raise Refused(Code.of(answer.error_code))
        return answer

    def _tell(self, wishes: list[tuple[Leader, IsrWish]], answer: AlterPartitionResponse) -> bool:
        """Give each leader its part of the answer; whether all of them were granted or need not be asked again."""
        now = self._broker.steady_clock.now()
        rows = {
            (topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions
        }
        for leader, wish in wishes:
            row = rows.get((leader.topic_id, leader.tp.partition))
            code = Code.UNKNOWN_SERVER_ERROR if row is None else Code.of(row.error_code)
            before = leader.leadership.isr if leader.leadership is not None else ()
            if row is not None and code is Code.NONE:
                isr = tuple(BrokerId(each) for each in row.isr)
                self._count(leader.tp, before, isr)
                leader.answered(wish, code, now, isr, PartitionEpoch(row.partition_epoch))
            else:
                self.failed += 1
                log.info("%s", why_kept(leader.tp, before, wish, code))
                leader.answered(wish, code, now)
        return not any(leader.tp in self._wishing for leader, _ in wishes)

    def _tell_all(self, wishes: list[tuple[Leader, IsrWish]], code: Code) -> None:
        for leader, wish in wishes:
            leader.answered(wish, code, self._broker.steady_clock.now())

    def _count(self, tp: TopicPartition, before: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]) -> None:
        if len(isr) < len(before):
            self.shrinks += 1
            log.warning("%s: in sync are %s, no more %s", tp, sorted(isr), sorted(set(before) - set(isr)))
        elif len(isr) > len(before):
            self.expands += 1
            log.info("%s: in sync are %s", tp, sorted(isr))


def why_kept(tp: TopicPartition, isr: tuple[BrokerId, ...], wish: IsrWish, code: Code) -> str:
    """Why a partition keeps the in-sync replicas that it has, and what comes next, for the log."""
    wanted = [broker for broker, _ in wish.isr]
    kept = f"{tp}: in sync stay {_listed(isr)} for now"
    if code in OVERTAKEN:
        return f"{kept}: the partition has changed meanwhile, and the controller is about to tell how it is"
    if code is not Code.INELIGIBLE_REPLICA:
        return f"{kept}: the controller could not make it {_listed(wanted)} ({code.name}), and is asked again"
    new = [broker for broker in wanted if broker not in isr]
    return (
        f"{kept}: broker {_listed(new or wanted)} was not taken, because it is stopping or gone, or has started anew "
        "since it caught up; the leader tries again when it has seen it fetch"
    )


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))

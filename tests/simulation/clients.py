"""The clients of a simulation: each works until it is done, and knows by itself what it was promised.

A client of another kind, a transactional producer for one, is another class here, listed in `Scenario.clients`: `work`
speaks to brokers and tells its own model what it was told (`Judge`, `CommittedOffset`), and the model raises Broken as
soon as an answer contradicts an earlier one. `has_gone_on` says whether it got what it wants after the faults were
over: the run waits for that. What can only be judged by the logs of all replicas is judged by `conclude`.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar

from barnabas.broker.peers.peer import PeerLost
from barnabas.errors import Code, Refused
from barnabas.testing.simulation.client import SimulatedClient, SimulatedGroup
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.machine import EPOCH_MS
from barnabas.types import Offset
from barnabas.wire.batch import Record, encode_batch, headers
from tests.replication.simulated.judge import Broken, Judge

C = TypeVar("C", bound=SimulatedClient)

TOPIC = "topic"
PAUSE_S = 0.01


class Client(Protocol):
    """What a scenario needs of a client."""

    async def work(self) -> None:
        """Go on until cancelled, or until it has gone on after the faults; raises Broken."""

    def insist(self) -> None:
        """The faults are over: what is asked from here on has to succeed."""

    @property
    def has_gone_on(self) -> bool:
        """Whether something has succeeded since then."""

    def conclude(self, logs: dict[int, bytes], watermark: Offset) -> None:
        """Judge the topic's log as each broker has it; raises Broken."""


class Producer:
    """Mutable: writes records of its own, most of them with acks=all."""

    def __init__(self, cluster: SimulatedCluster, judge: Judge) -> None:
        self._cluster, self._judge = cluster, judge
        self._random = Random(cluster.random.getrandbits(64))
        self._count = 0
        self._before: int | None = None

    @property
    def has_gone_on(self) -> bool:
        return self._before is not None and len(self._judge.acknowledged) > self._before

    def insist(self) -> None:
        self._before = len(self._judge.acknowledged)

    async def work(self) -> None:
        client = _client(SimulatedClient, self._cluster, "producer")
        every = 0.005 + self._random.random() * 0.05
        while not self.has_gone_on:
            self._count += 1
            try:
                if client.leader < 1:
                    await client.look_up(self._random.randint(1, len(self._cluster.machines)))
                    await asyncio.sleep(PAUSE_S)
                    continue
                await self._send(client, b"record %d" % self._count)
            except (PeerLost, Refused):
                client.leader = -1
            await asyncio.sleep(self._random.random() * 2 * every)

    async def _send(self, client: SimulatedClient, value: bytes) -> None:
        batch = encode_batch([Record(0, EPOCH_MS, None, value), Record(1, EPOCH_MS, None, b"more")])
        acks = 1 if self._before is None and self._random.random() < 0.2 else -1
        code, offset = await client.produce(batch, acks)
        if code is not Code.NONE:
            client.leader = -1
        elif acks < 0:
            self._judge.acknowledge(value, offset)
            self._cluster.note("acknowledged", offset)

    def conclude(self, logs: dict[int, bytes], watermark: Offset) -> None:
        self._judge.conclude(logs, watermark)


class Reader:
    """Mutable: reads from the leader, from the first record on."""

    has_gone_on = True

    def __init__(self, cluster: SimulatedCluster, judge: Judge) -> None:
        self._cluster, self._judge = cluster, judge
        self._random = Random(cluster.random.getrandbits(64))

    def insist(self) -> None:
        """It always does."""

    async def work(self) -> None:
        client, offset = _client(SimulatedClient, self._cluster, "consumer"), 0
        while True:
            try:
                if client.leader < 1:
                    await client.look_up(self._random.randint(1, len(self._cluster.machines)))
                    await asyncio.sleep(PAUSE_S)
                    continue
                answer = await client.fetch(offset)
            except (PeerLost, Refused):
                client.leader = -1
                continue
            code = Code(answer.error_code)
            if code is Code.OFFSET_OUT_OF_RANGE:
                raise Broken(f"a reader at {offset} was told that this is no place of the log")
            if code is not Code.NONE:
                client.leader = -1
                await asyncio.sleep(PAUSE_S)
                continue
            data = bytes(answer.records or b"")  # type: ignore[call-overload]
            self._judge.saw(client.leader, data, Offset(answer.high_watermark))
            for _, header in headers(data):
                offset = max(offset, header.next_offset)

    def conclude(self, logs: dict[int, bytes], watermark: Offset) -> None:
        """The producer's judge knows what was seen."""


class CommittedOffset:
    """Mutable: what a group was told of its offset, which it lets grow. It never goes back.

    A coordinator that has been replaced and does not know yet shows what it knew, as in Kafka: that may be older, but
    nothing that was never asked for. It commits nothing.
    """

    def __init__(self) -> None:
        self._least = -1
        self._most = -1
        self.acknowledged = 0

    def asked(self, offset: int) -> None:
        """A commit is on its way, and may be stored from here on."""
        self._most = offset

    def was_told(self, offset: int) -> None:
        self.acknowledged += 1
        self._least = offset

    def was_shown(self, offset: int, *, is_newest: bool) -> None:
        least = self._least if is_newest else -1
        if not least <= offset <= self._most:
            raise Broken(
                f"the group's offset is {offset}: it was {least}, and at most {self._most} was asked for"
            )
        self._least = max(self._least, offset)


class Committer:
    """Mutable: commits one offset after the other, and looks at what is committed whenever the coordinator moves."""

    def __init__(self, cluster: SimulatedCluster, epoch_of: Callable[[int], int | None]) -> None:
        """`epoch_of` a broker is the epoch in which it coordinates; None for one that does so no more, or not yet."""
        self._cluster = cluster
        self._epoch_of = epoch_of
        self._random = Random(cluster.random.getrandbits(64))
        self._offset = 0
        self.model = CommittedOffset()
        self._insists = False
        self._steps_since = 0

    @property
    def has_gone_on(self) -> bool:
        return self._steps_since > 1

    def insist(self) -> None:
        self._insists = True

    async def work(self) -> None:
        client = _client(SimulatedGroup, self._cluster, "group")
        every = 0.01 + self._random.random() * 0.05
        must_look = True
        while not self.has_gone_on:
            try:
                if client.coordinator < 1:
                    must_look = True
                    await client.find(self._random.randint(1, len(self._cluster.machines)))
                    await asyncio.sleep(PAUSE_S)
                    continue
                looks = must_look or self._random.random() < 0.1
                code = await (self._look(client) if looks else self._commit(client))
                if code is Code.NONE:
                    must_look = False
                    self._steps_since += self._insists
                elif code is not Code.COORDINATOR_LOAD_IN_PROGRESS:
                    client.coordinator = -1
            except (PeerLost, Refused):
                client.coordinator = -1
            await asyncio.sleep(self._random.random() * 2 * every)

    async def _commit(self, client: SimulatedGroup) -> Code:
        self._offset += 1
        self.model.asked(self._offset)
        code = await client.commit(self._offset)
        if code is Code.NONE:
            self.model.was_told(self._offset)
            self._cluster.note("committed", self._offset)
        return code

    async def _look(self, client: SimulatedGroup) -> Code:
        before = self._epoch_of(client.coordinator)
        code, offset = await client.committed()
        if code is Code.NONE:
            is_newest = before is not None and before == self._epoch_of(client.coordinator)
            self.model.was_shown(offset, is_newest=is_newest)
            self._cluster.note("shown", offset, is_newest)
        return code

    def conclude(self, logs: dict[int, bytes], watermark: Offset) -> None:
        """It has looked, after the last fault."""


def _client(kind: type[C], cluster: SimulatedCluster, name: str) -> C:
    return kind(cluster.network, len(cluster.machines), TOPIC, name)

"""A producer of transactions in a simulation of whole brokers, and what it judges when the faults are over: each
transaction was read whole or not at all, as it was told, once and in order; and no transaction stays open.

It speaks transaction.version 2 in a topic of its own, one request at a time. Where it is fenced it begins anew.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from barnabas.broker.peers.peer import PeerLost
from barnabas.errors import Code, Refused
from barnabas.testing.simulation.client import SimulatedClient
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.machine import EPOCH_MS
from barnabas.types import Offset
from barnabas.wire.batch import Record, decode_batch, encode_batch, headers
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from barnabas.wire.messages.producers import InitProducerIdRequest
from barnabas.wire.messages.transactions import EndTxnRequest
from tests.replication.simulated.judge import Broken

LEDGER = "ledger"
NAME = "payments"
TIMEOUT_MS = 1500
PAUSE_S = 0.02
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

COME_AGAIN = {
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.CONCURRENT_TRANSACTIONS,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.REQUEST_TIMED_OUT,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
    Code.KAFKA_STORAGE_ERROR,
    Code.NETWORK_EXCEPTION,
}


class Attempt:
    """Mutable: one transaction: its values, whether a commit was asked for, and what its producer was told."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.asked: bool | None = None
        self.told: bool | None = None


class Transactional:
    """Mutable: a producer, its transactions so far, and the brokers it knows of."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._random = Random(cluster.random.getrandbits(64))
        self._client = SimulatedClient(cluster.network, len(cluster.machines), LEDGER, "transactional")
        self._coordinator = -1
        self._producer: tuple[int, int] | None = None
        self._count = 0
        self.attempts: list[Attempt] = []
        self._left: int | None = None
        """How many transactions have yet to be committed after the faults."""
        self.has_gone_on = False

    def insist(self) -> None:
        self._left = 2

    async def work(self) -> None:
        await self._client.create(1, len(self._cluster.machines), {})
        while self._left != 0:
            if self._producer is None:
                answer = await self._ask(lambda: InitProducerIdRequest(NAME, TIMEOUT_MS))
                if answer.error_code:
                    raise Broken(f"a producer was refused: {Code(answer.error_code).name}")
                self._producer = answer.producer_id, answer.producer_epoch
            await self._transaction()
            await asyncio.sleep(self._random.random() * 0.05)
        self._judge(await self._read())
        self.has_gone_on = True

    async def _transaction(self) -> None:
        assert self._producer is not None
        must_succeed = self._left is not None
        attempt = Attempt([])
        self.attempts.append(attempt)
        for sequence in range(self._random.randint(1, 3)):
            self._count += 1
            value = b"%d" % self._count
            attempt.values.append(value)
            code = await self._send(value, sequence)
            if code is not Code.NONE:
                self._cluster.note("transaction broken", code.name)
                self._producer = None
                return
        if not must_succeed and self._random.random() < 0.05:
            await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        await self._end(attempt, commit=must_succeed or self._random.random() < 0.7)

    async def _end(self, attempt: Attempt, *, commit: bool) -> None:
        assert self._producer is not None
        producer = self._producer
        attempt.asked = commit
        answer = await self._ask(lambda: EndTxnRequest(NAME, *producer, commit))
        if answer.error_code == Code.TRANSACTION_ABORTABLE:
            commit = False
            answer = await self._ask(lambda: EndTxnRequest(NAME, *producer, False))
        if answer.error_code:
            self._cluster.note("transaction lost", Code(answer.error_code).name)
            self._producer = None
            return
        attempt.told = commit
        self._producer = answer.producer_id, answer.producer_epoch
        self._cluster.note("transaction", commit)
        if commit and self._left:
            self._left -= 1

    # Brokers

    async def _ask(self, make: Callable[[], Any]) -> Any:
        """The coordinator's answer, whatever it takes."""
        while True:
            try:
                if self._coordinator < 1:
                    asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME])
                    found: Any = await self._client.ask(self._anyone(), asked)
                    self._coordinator = found.coordinators[0].node_id
                else:
                    answer: Any = await self._client.ask(self._coordinator, make())
                    if Code(answer.error_code) not in COME_AGAIN:
                        return answer
                    self._coordinator = -1
            except (PeerLost, Refused):
                self._coordinator = -1
            await asyncio.sleep(PAUSE_S)

    async def _send(self, value: bytes, sequence: int) -> Code:
        """What the leader says of a record, once it says something that counts."""
        assert self._producer is not None
        producer_id, epoch = self._producer
        while True:
            batch = encode_batch(
                [Record(0, EPOCH_MS, None, value)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
            part = ProducePartition(0, memoryview(bytearray(batch)))
            request = ProduceRequest(NAME, -1, 1000, [ProduceTopic(LEDGER, [part])])
            answer = await self._ask_leader(request)
            if answer is not None:
                code = Code(answer.responses[0].partition_responses[0].error_code)
                if code not in COME_AGAIN:
                    return code
                self._client.leader = -1

    async def _ask_leader(self, request: Any) -> Any:
        try:
            if self._client.leader < 1:
                await self._client.look_up(self._anyone())
                await asyncio.sleep(PAUSE_S)
                return None
            return await self._client.ask(self._client.leader, request)
        except (PeerLost, Refused):
            self._client.leader = -1
            await asyncio.sleep(PAUSE_S)
            return None

    def _anyone(self) -> int:
        return self._random.randint(1, len(self._cluster.machines))

    # Reading and judging

    async def _read(self) -> list[bytes]:
        """All that is committed, once nothing is open any more."""
        offset, found = 0, list[bytes]()
        while True:
            part = FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                isolation_level=1,
                topics=[FetchTopic(LEDGER, partitions=[part])],
            )
            answer = await self._ask_leader(request)
            row = answer.responses[0].partitions[0] if answer is not None else None
            if row is None or row.error_code:
                self._client.leader = -1
                continue
            data = bytes(row.records or b"")
            found += _committed(data, offset, row.aborted_transactions or [])
            for _, header in headers(data):
                offset = max(offset, header.next_offset)
            if not data and offset == row.high_watermark == row.last_stable_offset:
                return found

    def _judge(self, read: list[bytes]) -> None:
        if len(read) != len(set(read)):
            raise Broken(f"a record was read twice: {read}")
        if read != sorted(read, key=int):
            raise Broken(f"records are out of order: {read}")
        for attempt in self.attempts:
            there = [value for value in attempt.values if value in set(read)]
            wanted: tuple[list[bytes], ...] = ([], attempt.values)
            if attempt.told is True:
                wanted = (attempt.values,)
            elif attempt.told is False or not attempt.asked:
                wanted = ([],)
            if there not in wanted:
                raise Broken(
                    f"of {attempt.values}, asked {attempt.asked}, told {attempt.told}, there are {there}"
                )

    def conclude(self, logs: dict[int, bytes], watermark: Offset) -> None:
        """It has read its own topic to the end."""


def _committed(data: bytes, offset: int, aborted: list[Any]) -> list[bytes]:
    """The values of these batches without those of aborted transactions."""
    starts = sorted((each.first_offset, each.producer_id) for each in aborted)
    skipped: set[int] = set()
    found = []
    for at, header in headers(data):
        while starts and starts[0][0] <= header.base_offset:
            skipped.add(starts.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped and header.next_offset > offset:
            found += [record.value or b"" for record in decode_batch(data, at)]
    return found

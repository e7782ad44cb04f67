"""Three whole brokers through one seed: clients that write and read, faults, then peace, then the judgement."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from barnabas.broker.peers.peer import PeerLost
from barnabas.cluster.image import PartitionImage
from barnabas.errors import Code, Refused
from barnabas.testing.disk import PowerCut, Survival
from barnabas.testing.simulation.client import SimulatedClient
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.lives import Life
from barnabas.testing.simulation.machine import EPOCH_MS, SimulatedMachine
from barnabas.types import Offset
from barnabas.wire.batch import Record, encode_batch, headers
from tests.replication.simulated.judge import Broken, Judge

BROKERS = 3
MIN_INSYNC = 2
FAULTS_S = 5.0
PEACE_S = 40.0
TOPIC = "topic"
SETTINGS = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "100",
    "min.insync.replicas": str(MIN_INSYNC),
    "controlled.shutdown.max.retries": "1",
    "replica.high.watermark.checkpoint.interval.ms": "300",
}


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    acknowledged: int
    seen: int
    epoch: int
    trace: tuple[tuple[object, ...], ...]
    fingerprint: str = ""


class Scenario:
    """Mutable: everything of one run."""

    def __init__(self, seed: int) -> None:
        self.cluster = SimulatedCluster(seed, brokers=BROKERS, settings=SETTINGS)
        self.random = self.cluster.random
        self.judge = Judge(sees_all=False)
        self._count = 0
        self._is_over = False
        self._is_done = False
        self._flushes = self.random.random() < 0.3
        self._without_tail: dict[SimulatedMachine, Life | None] = {}
        """Machines that lose records, or are about to, and the life in which."""
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3),
            (self._kill_all, 0.3),
            (self._cut_power, 2),
            (self._fail_sync, 1),
            (self._pause, 2),
            (self._cut_link, 2),
            (self._isolate, 2),
            (self._slow_down, 1),
            (self._lose_zookeeper, 2),
            (self._lose_answer, 1),
            (self._stop, 1),
        ]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight * self.random.random() ** 3 for _, weight in kinds]
        self._every = 0.05 + self.random.random() * 0.8

    def run(self) -> Outcome:
        try:
            outcome = self.cluster.run(self._run())
        finally:
            self.cluster.close()
        return replace(outcome, fingerprint=str(self.cluster.fingerprint))

    async def _run(self) -> Outcome:
        cluster, judge = self.cluster, self.judge
        for machine in cluster.machines:
            machine.start()
        maker = self._client("maker")
        configs = {"flush.messages": "1"} if self._flushes else {}
        await asyncio.wait_for(maker.create(1, BROKERS, configs), PEACE_S)
        cluster.note("created")
        workers = [
            asyncio.ensure_future(work) for work in (self._produce(), self._consume(), self._trouble())
        ]
        await asyncio.sleep(FAULTS_S)
        self._heal()
        before = len(judge.acknowledged)
        for _ in range(int(PEACE_S / 0.2)):
            await asyncio.sleep(0.2)
            self._start_all()
            self._is_done = len(judge.acknowledged) > before
            for worker in workers:
                if worker.done():
                    worker.result()
            if self._is_done and self._is_settled():
                break
        else:
            raise Broken(f"no progress after the faults were over: {self._partition()}")
        logs = {machine.number: _stored(machine, self._watermark()) for machine in cluster.machines}
        judge.conclude(logs, self._watermark())
        self._check_failures()
        for worker in workers:
            worker.cancel()
        partition = self._partition()
        assert partition is not None
        return Outcome(len(judge.acknowledged), len(judge.seen), partition.leader_epoch, tuple(cluster.trace))

    def _check_failures(self) -> None:
        """A broker has an answer to whatever happens: only what ends with it goes unanswered."""
        for failure in self.cluster.failures:
            is_of_disk = isinstance(failure, Refused) and failure.code is Code.KAFKA_STORAGE_ERROR
            if not is_of_disk and not isinstance(failure, PowerCut):
                raise Broken(f"nothing was prepared for {failure!r}") from failure

    def _client(self, name: str) -> SimulatedClient:
        return SimulatedClient(self.cluster.network, BROKERS, TOPIC, name)

    # Clients

    async def _produce(self) -> None:
        client = self._client("producer")
        every = 0.005 + self.random.random() * 0.05
        while not self._is_done:
            self._count += 1
            value = b"record %d" % self._count
            batch = encode_batch([Record(0, EPOCH_MS, None, value), Record(1, EPOCH_MS, None, b"more")])
            acks = 1 if not self._is_over and self.random.random() < 0.2 else -1
            try:
                if client.leader < 1:
                    await client.look_up(self.random.randint(1, BROKERS))
                    await asyncio.sleep(0.01)
                    continue
                code, offset = await client.produce(batch, acks)
                if code is Code.NONE and acks < 0:
                    self.judge.acknowledge(value, offset)
                    self.cluster.note("acknowledged", offset)
                elif code is not Code.NONE:
                    client.leader = -1
            except (PeerLost, Refused):
                client.leader = -1
            await asyncio.sleep(self.random.random() * 2 * every)

    async def _consume(self) -> None:
        client, offset = self._client("consumer"), 0
        while True:
            try:
                if client.leader < 1:
                    await client.look_up(self.random.randint(1, BROKERS))
                    await asyncio.sleep(0.01)
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
                await asyncio.sleep(0.01)
                continue
            data = bytes(answer.records or b"")  # type: ignore[call-overload]
            self.judge.saw(client.leader, data, Offset(answer.high_watermark))
            for _, header in headers(data):
                offset = max(offset, header.next_offset)

    # Faults

    async def _trouble(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 2 * self._every)
            if self._is_over:
                return
            for machine in self.cluster.machines:
                if not machine.is_up and self.random.random() < 0.4:
                    machine.start()
            [kind] = self.random.choices(self._kinds, self._weights)
            kind()

    def _any(self) -> SimulatedMachine:
        partition = self._partition()
        if partition is not None and partition.leader > 0 and self.random.random() < 0.4:
            return self.cluster.machines[partition.leader - 1]
        return self.random.choice(self.cluster.machines)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.cluster.loop.call_later(seconds, call)

    def _restart_later(self, machine: SimulatedMachine) -> None:
        self._later(self.random.random() * 1.5, lambda: None if machine.is_up else machine.start())

    def _kill(self) -> None:
        machine = self._any()
        machine.kill()
        self._restart_later(machine)

    def _kill_all(self) -> None:
        for machine in self.cluster.machines:
            machine.kill()
            self._restart_later(machine)

    def _may_lose_tail(self, machine: SimulatedMachine) -> bool:
        """Fewer than min.insync.replicas lose records at once, unless all that counts is flushed."""
        if self._flushes:
            return True
        partition = self._partition()
        isr = partition.isr if partition is not None else ()
        for lost, life in list(self._without_tail.items()):
            if lost.life is not life and lost.broker is not None and lost.number in isr:
                del self._without_tail[lost]
        if len(self._without_tail.keys() | {machine}) >= MIN_INSYNC:
            return False
        self._without_tail[machine] = machine.life
        return True

    def _cut_power(self) -> None:
        machine = self._any()
        if not machine.is_up or not self._may_lose_tail(machine):
            return
        if self.random.random() < 0.3:
            machine.disk.stop_at = machine.disk.operations + self.random.randint(1, 8)
            return
        machine.cut_power(self.random.choice(list(Survival)))
        self._restart_later(machine)

    def _fail_sync(self) -> None:
        machine = self._any()
        if machine.is_up and self._may_lose_tail(machine):
            machine.disk.fail_at = machine.disk.operations + self.random.randint(1, 10)

    def _pause(self) -> None:
        machine = self._any()
        machine.pause()
        self._later(self.random.random() * 2.5, machine.resume)

    def _cut(self, links: list[tuple[str, str]]) -> None:
        self.cluster.note("cut", links)
        self.cluster.network.cut.update(links)
        seconds = self.random.random() * 2
        self._later(seconds, lambda: self.cluster.network.cut.difference_update(links))

    def _cut_link(self) -> None:
        one, other = self.random.sample([machine.name for machine in self.cluster.machines] + ["client"], 2)
        self._cut([(one, other), (other, one)] if self.random.random() < 0.5 else [(one, other)])

    def _isolate(self) -> None:
        machine = self._any()
        others = [other.name for other in self.cluster.machines if other is not machine]
        self._cut([(machine.name, other) for other in others] + [(other, machine.name) for other in others])
        if self.random.random() < 0.5:
            self.cluster.cut_from_zookeeper(machine, self.random.random() * 2)

    def _slow_down(self) -> None:
        network = self.cluster.network
        network.slowness_s = self.random.random() * 0.3
        self._later(self.random.random(), self._speed_up)

    def _speed_up(self) -> None:
        self.cluster.network.slowness_s = 0.002

    def _lose_zookeeper(self) -> None:
        machine = self._any()
        if machine.is_up:
            self.cluster.cut_from_zookeeper(machine, self.random.random() * 2)

    def _lose_answer(self) -> None:
        session = self._any().session
        if session is not None:
            session.lose_next_answer()

    def _stop(self) -> None:
        self.cluster.loop.create_task(self._stop_cleanly(self._any()))

    async def _stop_cleanly(self, machine: SimulatedMachine) -> None:
        await machine.stop()
        self._restart_later(machine)

    def _heal(self) -> None:
        self._is_over = True
        self.cluster.note("healed")
        self.cluster.network.cut.clear()
        self._speed_up()
        for machine in self.cluster.machines:
            machine.disk.stop_at = machine.disk.fail_at = None
            machine.resume()
        self._start_all()

    def _start_all(self) -> None:
        for machine in self.cluster.machines:
            if not machine.is_up:
                machine.start()

    # Peace

    def _partition(self) -> PartitionImage | None:
        """The newest that any broker knows."""
        found = [
            topic.partitions[0]
            for machine in self.cluster.machines
            if machine.broker is not None
            and (topic := machine.broker.metadata.image.topics.get(TOPIC)) is not None
        ]
        return max(found, key=lambda each: (each.leader_epoch, each.partition_epoch), default=None)

    def _watermark(self) -> Offset:
        marks = [_watermark(machine) for machine in self.cluster.machines]
        return Offset(min(marks))

    def _is_settled(self) -> bool:
        partition = self._partition()
        all_up = all(machine.broker is not None for machine in self.cluster.machines)
        if partition is None or not all_up or len(partition.isr) < BROKERS:
            return False
        last = max([*self.judge.seen, *self.judge.acknowledged.values()], default=0)
        return self._watermark() > last


def _watermark(machine: SimulatedMachine) -> int:
    partition = machine.broker.replicas.find(TOPIC, 0) if machine.broker is not None else None
    return partition.high_watermark if partition is not None else -1


def _stored(machine: SimulatedMachine, below: Offset) -> bytes:
    """A replica's batches below an offset."""
    assert machine.broker is not None
    partition = machine.broker.replicas.find(TOPIC, 0)
    assert partition is not None
    log, found = partition.log, bytearray()
    offset = log.start
    while offset < below and (part := log.read(offset, 1 << 20, below)) is not None:
        data = part.read()
        found += data
        *_, (_, last) = headers(data)
        offset = last.next_offset
    return bytes(found)


def run(seed: int) -> Outcome:
    """Run a seed to its end; raises Broken."""
    return Scenario(seed).run()

"""Three whole brokers through one seed: clients that write, read and commit, faults, then peace, then the judgement.

`clients` says how a client of another kind moves in.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from barnabas.cluster.image import ClusterImage, PartitionImage
from barnabas.cluster.zookeeper.client import Create, SetData, ZkOperation
from barnabas.errors import Code, Refused
from barnabas.testing.disk import PowerCut
from barnabas.testing.simulation.client import SimulatedClient
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.machine import SimulatedMachine
from barnabas.types import Offset
from barnabas.wire.batch import headers
from tests.replication.simulated.judge import Broken, Judge
from tests.simulation.clients import TOPIC, Client, Committer, Producer, Reader
from tests.simulation.faults import Faults

BROKERS = 3
MIN_INSYNC = 2
FAULTS_S = 5.0
PEACE_S = 40.0
OFFSETS = "__consumer_offsets"
SETTINGS = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "100",
    "min.insync.replicas": str(MIN_INSYNC),
    "controlled.shutdown.max.retries": "1",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": str(BROKERS),
    "offsets.commit.timeout.ms": "1000",
}


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    acknowledged: int
    committed: int
    seen: int
    epoch: int
    trace: tuple[tuple[object, ...], ...]
    fingerprint: str = ""


class Scenario:
    """Mutable: everything of one run."""

    def __init__(self, seed: int, often: str = "") -> None:
        flushes = Random(seed).random() < 0.3
        settings = SETTINGS | ({"log.flush.interval.messages": "1"} if flushes else {})
        self.cluster = SimulatedCluster(seed, brokers=BROKERS, settings=settings)
        self.cluster.zookeeper.on_write = self._wrote
        self.judge = Judge(sees_all=False)
        self.committer = Committer(self.cluster, self._coordinates_in)
        self.clients: list[Client] = [
            Producer(self.cluster, self.judge),
            Reader(self.cluster, self.judge),
            self.committer,
        ]
        self.faults = Faults(
            self.cluster, self._partitions, flushes=flushes, min_insync=MIN_INSYNC, often=often
        )
        self._late_writes: list[str] = []

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
        maker = SimulatedClient(cluster.network, BROKERS, TOPIC, "maker")
        await asyncio.wait_for(maker.create(1, BROKERS, {}), PEACE_S)
        cluster.note("created")
        workers = [asyncio.ensure_future(client.work()) for client in self.clients]
        workers.append(asyncio.ensure_future(self.faults.work()))
        await asyncio.sleep(FAULTS_S)
        self.faults.heal()
        for client in self.clients:
            client.insist()
        for _ in range(int(PEACE_S / 0.2)):
            await asyncio.sleep(0.2)
            self.faults.start_all()
            for worker in workers:
                if worker.done():
                    worker.result()
            self._check()
            if all(client.has_gone_on for client in self.clients) and self._is_settled():
                break
        else:
            behind = [type(client).__name__ for client in self.clients if not client.has_gone_on]
            raise Broken(f"no progress after the faults were over: {behind} {self._partitions()}")
        logs = {machine.number: _stored(machine, self._watermark()) for machine in cluster.machines}
        for client in self.clients:
            client.conclude(logs, self._watermark())
        for worker in workers:
            worker.cancel()
        epoch = self._partition(TOPIC).leader_epoch
        committed = self.committer.model.acknowledged
        return Outcome(len(judge.acknowledged), committed, len(judge.seen), epoch, tuple(cluster.trace))

    # What must be true of brokers, whatever their clients see

    def _check(self) -> None:
        """A broker has an answer to whatever happens: only what ends with it goes unanswered."""
        for failure in self.cluster.failures:
            is_of_disk = isinstance(failure, Refused) and failure.code is Code.KAFKA_STORAGE_ERROR
            if not is_of_disk and not isinstance(failure, PowerCut):
                raise Broken(f"nothing was prepared for {failure!r}") from failure
        if self._late_writes:
            raise Broken(f"a controller that was deposed has written {self._late_writes[0]}")

    def _wrote(self, operations: Sequence[ZkOperation]) -> None:
        """What partitions are is written by the controller of the newest epoch, and by no other."""
        counted = self.cluster.zookeeper.find("/controller_epoch")
        for each in operations:
            if isinstance(each, Create | SetData) and each.path.endswith("/state"):
                epoch = json.loads(each.data)["controller_epoch"]
                if counted is not None and epoch != int(counted.data):
                    self._late_writes.append(f"{each.path} in epoch {epoch}: {counted.data!r} is the newest")

    def _coordinates_in(self, broker: int) -> int | None:
        """The epoch in which a broker leads the offsets of groups, if it is the newest that there is."""
        node = self.cluster.zookeeper.find(f"/brokers/topics/{OFFSETS}/partitions/0/state")
        running = self.cluster.machines[broker - 1].broker
        leader = running.replicas.find_leader(OFFSETS, 0) if running is not None else None
        if node is None or leader is None:
            return None
        state = json.loads(node.data)
        is_newest = (state["leader"], state["leader_epoch"]) == (broker, leader.epoch)
        return leader.epoch if is_newest else None

    # Peace

    def _partitions(self) -> list[PartitionImage]:
        """All there are, in the order of their topics' names."""
        topics = {name for image in self._images() for name in image.topics}
        return [self._partition(name) for name in sorted(topics)]

    def _partition(self, name: str) -> PartitionImage:
        """A topic's only partition, the newest that any broker knows."""
        found = (image.topics[name].partitions[0] for image in self._images() if name in image.topics)
        return max(found, key=lambda each: (each.leader_epoch, each.partition_epoch))

    def _images(self) -> list[ClusterImage]:
        return [machine.broker.metadata.image for machine in self.cluster.machines if machine.broker]

    def _watermark(self) -> Offset:
        marks = [_watermark(machine) for machine in self.cluster.machines]
        return Offset(min(marks))

    def _is_settled(self) -> bool:
        all_up = all(machine.broker is not None for machine in self.cluster.machines)
        partitions = self._partitions()
        if not partitions or not all_up or any(len(each.isr) < BROKERS for each in partitions):
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


def run(seed: int, often: str = "") -> Outcome:
    """Run a seed to its end, most of whose faults are of one kind where that is named; raises Broken."""
    return Scenario(seed, often).run()

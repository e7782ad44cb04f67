"""One partition with three replicas through one seed: faults, then peace, then the judgement."""

from dataclasses import dataclass, replace

from barnabas.config import TopicConfig
from barnabas.types import Offset
from barnabas.wire.batch import Record, encode_batch
from tests.replication.simulated.broker import SimulatedBroker
from tests.replication.simulated.controller import SimulatedController
from tests.replication.simulated.faults import Faults
from tests.replication.simulated.judge import Broken, Judge
from tests.replication.simulated.world import Network, World

BROKERS = 3
SETTINGS = TopicConfig(
    segment_bytes=1500, index_interval_bytes=200, max_message_bytes=1000, min_insync_replicas=2
)
FAULTS_MS = 2500
PEACE_MS = 6000


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    acknowledged: int
    seen: int
    elections: int
    trace: tuple[tuple[object, ...], ...]


class Producer:
    """Mutable: sends records of its own to the leader, as far as it knows one."""

    def __init__(self, world: World, controller: SimulatedController, brokers: list[SimulatedBroker]) -> None:
        self._world = world
        self._controller = controller
        self._brokers = brokers
        self._count = 0
        self._every = world.between(4, 30)
        self._weak = world.random.random() ** 3
        """How many are sent with acks=1: these make tails that are never committed."""
        self.is_done = False

    def insist(self) -> None:
        """Send with acks=all and nothing else."""
        self._weak = 0.0

    def send(self) -> None:
        world = self._world
        if self.is_done:
            return
        self._count += 1
        value = b"record %d" % self._count
        records = [Record(0, world.now, None, value)]
        records += [Record(n + 1, world.now, None, b"more %d" % n) for n in range(world.between(0, 2))]
        batch = memoryview(bytearray(encode_batch(records)))
        leader = self._controller.partition.leader
        broker = (
            self._brokers[leader - 1]
            if leader > 0 and world.chance(0.8)
            else world.random.choice(self._brokers)
        )
        acks = 1 if world.chance(self._weak) else -1
        broker.deliver(broker.produce, (batch, value, acks))
        world.after(world.between(1, 2 * self._every), self.send)


class Simulation:
    """Mutable: everything of one run."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        flushes = world.chance(0.35)
        settings = replace(SETTINGS, flush_messages=1) if flushes else SETTINGS
        self.judge = Judge()
        network = Network(world)
        self.controller = SimulatedController(world, network, settings)
        self.brokers = [
            SimulatedBroker(number, world, network, self.controller, self.judge, settings)
            for number in range(1, BROKERS + 1)
        ]
        by_number = {broker.number: broker for broker in self.brokers}
        for broker in self.brokers:
            broker.peers = by_number
        self.controller.begin(by_number)
        self.faults = Faults(world, network, self.controller, self.brokers, settings)
        self.producer = Producer(world, self.controller, self.brokers)

    def run(self) -> Outcome:
        world, judge = self.world, self.judge
        for broker in self.brokers:
            broker.start()
        world.after(30, self.producer.send)
        self.faults.begin()
        world.run(FAULTS_MS)
        self.faults.end()
        self.producer.insist()
        before = len(judge.acknowledged)
        for _ in range(PEACE_MS // 50):
            world.run(50)
            self.producer.is_done = len(judge.acknowledged) > before
            if self.producer.is_done and self._is_settled():
                break
        else:
            raise Broken(f"no progress after the faults were over: {self._describe()}")
        watermark = min(broker.high_watermark for broker in self.brokers)
        judge.conclude(
            {broker.number: broker.stored(Offset(0), watermark) for broker in self.brokers}, watermark
        )
        partition = self.controller.partition
        return Outcome(len(judge.acknowledged), len(judge.seen), partition.leader_epoch, tuple(world.trace))

    def _is_settled(self) -> bool:
        """Whether every replica is in sync and shows what was seen anywhere."""
        last = max(self.judge.seen, default=0)
        all_up = all(broker.is_up and broker.high_watermark > last for broker in self.brokers)
        return all_up and len(self.controller.partition.isr) == BROKERS

    def _describe(self) -> str:
        brokers = [
            (broker.number, broker.high_watermark, broker.log.end, broker.role) for broker in self.brokers
        ]
        return f"{self.controller.partition} {brokers}"


def run(seed: int) -> Outcome:
    """Run a seed to its end; raises Broken."""
    return Simulation(seed).run()

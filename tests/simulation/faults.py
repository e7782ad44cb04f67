"""What goes wrong in a simulation of whole brokers, and when: each seed prefers some kinds of faults to others.

Messages between processes are delayed and held up, and lost with their connection; that a request is repeated comes of
answers that are lost.
"""

import asyncio
from collections.abc import Callable, Sequence

from barnabas.cluster.image import PartitionImage
from barnabas.testing.disk import Survival
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.lives import Life
from barnabas.testing.simulation.machine import SimulatedMachine

OFTEN = 5.0
"""The weight of the faults that there are most of."""


class Faults:
    """Mutable: what is broken, and which machines have lost records."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        partitions: Callable[[], Sequence[PartitionImage]],
        *,
        flushes: bool,
        min_insync: int,
        often: str = "",
    ) -> None:
        """`partitions` are all there are, as they are known last. `flushes`: what counts is on disks. `often` is the
        kind of fault that there are most of."""
        self._cluster = cluster
        self._random = cluster.random
        self._partitions = partitions
        self._flushes = flushes
        self._min_insync = min_insync
        self._is_over = False
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
            (self._reset, 1),
            (self._lose_zookeeper, 2),
            (self._lose_answer, 1),
            (self._expire, 1),
            (self._elect_fast, 1),
            (self._depose, 2),
            (self._stop, 1),
        ]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight * self._random.random() ** 3 for _, weight in kinds]
        if often:
            self._weights[[kind.__name__ for kind in self._kinds].index(f"_{often}")] = OFTEN
        self._every = 0.05 + self._random.random() * 0.8

    async def work(self) -> None:
        while True:
            await asyncio.sleep(self._random.random() * 2 * self._every)
            if self._is_over:
                return
            for machine in self._cluster.machines:
                if not machine.is_up and self._random.random() < 0.4:
                    machine.start()
            [kind] = self._random.choices(self._kinds, self._weights)
            kind()

    def heal(self) -> None:
        """No fault any more; what runs already may still end badly."""
        self._is_over = True
        self._cluster.note("healed")
        self._cluster.network.cut.clear()
        self._speed_up()
        for machine in self._cluster.machines:
            machine.disk.stop_at = machine.disk.fail_at = None
            machine.resume()
        self.start_all()

    def start_all(self) -> None:
        for machine in self._cluster.machines:
            if not machine.is_up:
                machine.start()

    def _any(self) -> SimulatedMachine:
        """A machine; rather one that leads."""
        leaders = [partition.leader for partition in self._partitions() if partition.leader > 0]
        if leaders and self._random.random() < 0.4:
            return self._cluster.machines[self._random.choice(leaders) - 1]
        return self._random.choice(self._cluster.machines)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._cluster.loop.call_later(seconds, call)

    # Processes

    def _restart_later(self, machine: SimulatedMachine) -> None:
        self._later(self._random.random() * 1.5, lambda: None if machine.is_up else machine.start())

    def _kill(self) -> None:
        machine = self._any()
        machine.kill()
        self._restart_later(machine)

    def _kill_all(self) -> None:
        for machine in self._cluster.machines:
            machine.kill()
            self._restart_later(machine)

    def _pause(self) -> None:
        machine = self._any()
        machine.pause()
        self._later(self._random.random() * 2.5, machine.resume)

    def _stop(self) -> None:
        self._cluster.loop.create_task(self._stop_cleanly(self._any()))

    async def _stop_cleanly(self, machine: SimulatedMachine) -> None:
        await machine.stop()
        self._restart_later(machine)

    # Disks

    def _may_lose_tail(self, machine: SimulatedMachine) -> bool:
        """Fewer than min.insync.replicas lose records at once, unless all that counts is flushed."""
        if self._flushes:
            return True
        partitions = self._partitions()
        for lost, life in list(self._without_tail.items()):
            is_back = lost.life is not life and lost.broker is not None
            if is_back and all(lost.number in partition.isr for partition in partitions):
                del self._without_tail[lost]
        if len(self._without_tail.keys() | {machine}) >= self._min_insync:
            return False
        self._without_tail[machine] = machine.life
        return True

    def _cut_power(self) -> None:
        machine = self._any()
        if not machine.is_up or not self._may_lose_tail(machine):
            return
        if self._random.random() < 0.3:
            machine.disk.stop_at = machine.disk.operations + self._random.randint(1, 8)
            return
        machine.cut_power(self._random.choice(list(Survival)))
        self._restart_later(machine)

    def _fail_sync(self) -> None:
        machine = self._any()
        if machine.is_up and self._may_lose_tail(machine):
            machine.disk.fail_at = machine.disk.operations + self._random.randint(1, 10)

    # Links

    def _cut(self, links: list[tuple[str, str]]) -> None:
        self._cluster.note("cut", links)
        self._cluster.network.cut.update(links)
        seconds = self._random.random() * 2
        self._later(seconds, lambda: self._cluster.network.cut.difference_update(links))

    def _cut_link(self) -> None:
        names = [machine.name for machine in self._cluster.machines]
        one, other = self._random.sample([*names, "client"], 2)
        self._cut([(one, other), (other, one)] if self._random.random() < 0.5 else [(one, other)])

    def _isolate(self) -> None:
        machine = self._any()
        others = [other.name for other in self._cluster.machines if other is not machine]
        self._cut([(machine.name, other) for other in others] + [(other, machine.name) for other in others])
        if self._random.random() < 0.5:
            self._cluster.cut_from_zookeeper(machine, self._random.random() * 2)

    def _slow_down(self) -> None:
        self._cluster.network.slowness_s = self._random.random() * 0.3
        self._later(self._random.random(), self._speed_up)

    def _speed_up(self) -> None:
        self._cluster.network.slowness_s = 0.002

    def _reset(self) -> None:
        """Lose what is on its way to a machine, with the connections that carry it."""
        name = self._any().name
        self._cluster.note("reset", name)
        self._cluster.network.reset(name)

    # ZooKeeper

    def _lose_zookeeper(self) -> None:
        machine = self._any()
        if machine.is_up:
            self._cluster.cut_from_zookeeper(machine, self._random.random() * 2)

    def _lose_answer(self) -> None:
        session = self._any().session
        if session is not None:
            session.lose_next_answer()

    def _expire(self) -> None:
        """End a session at once: its broker registers anew, and leads nothing until it is told to."""
        machine = self._any()
        if machine.is_up and not machine.is_paused and machine.session is not None:
            self._cluster.note("expires", machine.name)
            machine.session.expire()

    def _depose(self) -> None:
        """Take the chair from the controller while there is something to decide, and its news are slow to come."""
        self._slow_down()
        self._cluster.depose()
        self._later(self._random.random() * 0.1, self._random.choice([self._kill, self._expire]))

    def _elect_fast(self) -> None:
        """Leaders that follow one another faster than brokers hear of them."""
        for _ in range(self._random.randint(2, 5)):
            self._later(self._random.random() * 0.03, self._expire)

"""What goes wrong in a simulation, one after another and at once, as the seed says."""

from collections.abc import Callable

from barnabas.config import TopicConfig
from barnabas.testing.disk import Survival
from tests.replication.simulated.broker import SimulatedBroker
from tests.replication.simulated.controller import CONTROLLER, SimulatedController
from tests.replication.simulated.world import Network, World


class Faults:
    """Mutable: what is broken now."""

    def __init__(
        self,
        world: World,
        network: Network,
        controller: SimulatedController,
        brokers: list[SimulatedBroker],
        settings: TopicConfig,
    ) -> None:
        self._world = world
        self._network = network
        self._controller = controller
        self._brokers = brokers
        self._min_insync = settings.min_insync_replicas
        self._forgetful = settings.flush_messages > 1
        """Whether a power cut takes records that counted."""
        self._over = False
        self._without_tail: dict[int, int] = {}
        """Brokers that may have lost the end of their log, and the life in which: until they are in sync again."""
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3),
            (self._kill_all, 0.3),
            (self._cut_power, 2),
            (self._fail_sync, 1),
            (self._pause, 2),
            (self._cut_link, 3),
            (self._isolate, 2),
            (self._disturb, 2),
            (self._elect, 3),
            (self._elect_fast, 1),
            (controller.fail_over, 1),
        ]
        # Each seed has its own mixture: rare faults are common in some.
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight * world.random.random() ** 4 for _, weight in kinds]
        self._every = world.between(30, 300)

    def begin(self) -> None:
        self._world.after(self._world.between(20, 2 * self._every), self._next)

    def end(self) -> None:
        """Mend everything; nothing goes wrong any more."""
        self._over = True
        self._network.heal()
        self._world.note("healed")
        for broker in self._brokers:
            broker.disk.stop_at = broker.disk.fail_at = None
            if broker.is_paused:
                broker.resume()
            if not broker.is_up:
                broker.start()

    def _next(self) -> None:
        if self._over:
            return
        self._revive_halted()
        [kind] = self._world.random.choices(self._kinds, self._weights)
        kind()
        self._world.after(self._world.between(5, 2 * self._every), self._next)

    def _any(self) -> SimulatedBroker:
        """The leader more often than not: it is where things go wrong."""
        leader = self._controller.partition.leader
        if leader > 0 and self._world.chance(0.4):
            return self._brokers[leader - 1]
        return self._world.random.choice(self._brokers)

    def _kill(self) -> None:
        broker = self._any()
        if broker.is_up:
            broker.kill()
            self._ended(broker)

    def _kill_all(self) -> None:
        for broker in self._brokers:
            if broker.is_up:
                broker.kill()
                self._ended(broker)

    def _ended(self, broker: SimulatedBroker) -> None:
        if self._world.chance(0.5):
            self._world.after(self._world.between(0, 10), self._proven_dead, broker, broker.life)
        self._world.after(self._world.between(1, 400), self._restart, broker)

    def _proven_dead(self, broker: SimulatedBroker, life: int) -> None:
        if broker.life == life:
            self._controller.gone(broker.id)

    def _restart(self, broker: SimulatedBroker) -> None:
        if not broker.is_up and not self._over:
            broker.start()

    def _revive_halted(self) -> None:
        """One that halted by itself is started by hand some time."""
        for broker in self._brokers:
            if not broker.is_up and self._world.chance(0.5):
                self._restart(broker)

    def _may_lose_tail(self, broker: SimulatedBroker) -> bool:
        """Fewer than min.insync.replicas lose records at once, unless all that counts is flushed."""
        if not self._forgetful:
            return True
        isr = self._controller.partition.isr
        for number, life in list(self._without_tail.items()):
            back = self._brokers[number - 1]
            if number in isr and back.is_up and back.life > life and back.survived:
                del self._without_tail[number]
        if len(self._without_tail.keys() | {broker.number}) >= self._min_insync:
            return False
        self._without_tail[broker.number] = broker.life
        return True

    def _cut_power(self) -> None:
        broker = self._any()
        if not broker.is_up or not self._may_lose_tail(broker):
            return
        if self._world.chance(0.3):
            # In the middle of what it does next.
            broker.disk.stop_at = broker.disk.operations + self._world.between(1, 8)
            return
        broker.cut_power(self._world.random.choice(list(Survival)))
        self._ended(broker)

    def _fail_sync(self) -> None:
        broker = self._any()
        if broker.is_up and self._may_lose_tail(broker):
            broker.disk.fail_at = broker.disk.operations + self._world.between(1, 10)

    def _pause(self) -> None:
        broker = self._any()
        if broker.is_up and not broker.is_paused:
            broker.pause()
            self._world.after(self._world.between(20, 500), self._resume, broker, broker.life)

    def _resume(self, broker: SimulatedBroker, life: int) -> None:
        if broker.life == life and broker.is_paused:
            broker.resume()

    def _cut(self, links: list[tuple[int, int]]) -> None:
        self._world.note("cut", links)
        self._network.cut.update(links)
        self._world.after(self._world.between(20, 500), self._mend, links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        self._network.cut.difference_update(links)

    def _cut_link(self) -> None:
        one, other = self._world.random.sample([CONTROLLER, *(b.number for b in self._brokers)], 2)
        both = self._world.chance(0.5)
        self._cut([(one, other), (other, one)] if both else [(one, other)])

    def _isolate(self) -> None:
        """Cut a broker from the others, and perhaps from the controller; perhaps it hears but is not heard."""
        broker = self._any().number
        others = [other.number for other in self._brokers if other.number != broker]
        if self._world.chance(0.6):
            others.append(CONTROLLER)
        links = [(broker, other) for other in others]
        if self._world.chance(0.6):
            links += [(other, broker) for other in others]
        self._cut(links)

    def _disturb(self) -> None:
        network, chance = self._network, self._world.random.random
        network.lost, network.repeated, network.late = chance() * 0.3, chance() * 0.3, chance() * 0.3
        self._world.note("disturb", network.lost, network.repeated, network.late)
        self._world.after(self._world.between(50, 500), self._calm)

    def _calm(self) -> None:
        self._network.lost = self._network.repeated = self._network.late = 0.0

    def _elect(self) -> None:
        self._controller.elect(self._world.random.choice(self._brokers).id)

    def _elect_fast(self) -> None:
        """Leaders that follow one another faster than brokers hear of them."""
        for _ in range(self._world.between(2, 5)):
            self._world.after(self._world.between(0, 25), self._elect)

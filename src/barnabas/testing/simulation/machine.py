"""A machine with one broker on it, through all of its lives: processes come and go, the disk stays."""

import asyncio
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from barnabas.broker.broker import Broker
from barnabas.cluster.zookeeper.client import SessionState
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.config import broker_config
from barnabas.errors import BarnabasError
from barnabas.log.directory import owner_in
from barnabas.testing.disk import SimulatedDisk, Survival
from barnabas.testing.simulation.lives import CURRENT, Life
from barnabas.testing.zookeeper import FakeSession, FakeZooKeeper, Work
from barnabas.types import Millis

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.testing.simulation.cluster import SimulatedCluster

DATA = "data"
PORT = 9092
EPOCH_MS = 1_700_000_000_000
LONGEST_STOP_S = 5.0


class VirtualClock:
    """The time of day of a simulation."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> Millis:
        return Millis(EPOCH_MS + int(self._loop.time() * 1000))


class LivingSession(FakeSession):
    """A session with the fake ZooKeeper whose callbacks run in the life that has opened it.

    What ZooKeeper tells is on its way for some time, and comes in order; what it is asked is done at once. So a broker
    can write after something has changed and before it hears of that.
    """

    def __init__(
        self,
        ensemble: FakeZooKeeper,
        name: str,
        loop: asyncio.AbstractEventLoop,
        delay: "Callable[[], float]",
    ) -> None:
        super().__init__(ensemble, name)
        self._loop = loop
        self._delay = delay
        self._told_at = 0.0

    def start(self, on_state: "Callable[[SessionState], None]", on_change: "Callable[[str], None]") -> None:
        context, call_soon = copy_context(), self._loop.call_soon
        super().start(
            lambda state: _nothing(call_soon(on_state, state, context=context)),
            lambda path: self._tell(lambda: on_change(path), context),
        )

    def dispatch(self, work: Work) -> None:
        context = copy_context()
        super().dispatch(lambda: self._tell(work, context))

    def _tell(self, work: Work, context: Context) -> None:
        self._told_at = max(self._told_at, self._loop.time() + self._delay())
        self._loop.call_at(self._told_at, work, context=context)


def _nothing(_: object) -> None:
    """What was called has no answer."""


class SimulatedMachine:
    """Mutable: a disk, and the process on it while there is one."""

    def __init__(self, cluster: "SimulatedCluster", number: int, settings: dict[str, str]) -> None:
        self.number = number
        self.name = f"b{number}"
        self.disk = SimulatedDisk()
        self.life: Life | None = None
        self.broker: Broker | None = None
        """The broker, once it serves."""
        self.session: LivingSession | None = None
        self._stopping: Life | None = None
        self._cluster = cluster
        self._settings = settings

    @property
    def is_up(self) -> bool:
        return self.life is not None

    @property
    def is_paused(self) -> bool:
        return self.life is not None and self.life.is_paused

    def start(self) -> None:
        """Begin a life."""
        cluster = self._cluster
        cluster.note("start", self.name)
        self.life = Life(cluster.loop, self.name, self._after_step)
        context = copy_context()
        context.run(CURRENT.set, self.life)
        cluster.loop.create_task(self._run(self.life), context=context)

    async def _run(self, life: Life) -> None:
        cluster = self._cluster
        config, unknown = broker_config(
            {
                "broker.id": str(self.number),
                "listeners": f"PLAINTEXT://{self.name}:{PORT}",
                "log.dirs": DATA,
                **self._settings,
            }
        )
        assert not unknown
        clock = VirtualClock(cluster.loop)
        try:
            store = self._open_store(clock)
            broker = Broker(
                config,
                disk=self.disk,
                clock=clock,
                store=store,
                dialer=cluster.network,
                listen=cluster.network.listen,
            )
            await broker.start()
            cluster.note("serves", self.name)
            self.broker = broker
            reason = await broker.halted
        except (BarnabasError, OSError) as error:
            reason = error if isinstance(error, BarnabasError) else BarnabasError(str(error))
        cluster.note("halts", self.name, str(reason))
        cluster.loop.call_soon(self._halted, life, context=cluster.outside)

    def _open_store(self, clock: VirtualClock) -> ZooKeeperStore:
        cluster = self._cluster
        self.session = session = cluster.open_session(self.name)
        owner = owner_in(self.disk, DATA)
        return ZooKeeperStore(
            session,
            owner.cluster_id if owner else None,
            "simulated-cluster-id-22",
            directory=f"{self.name}:{DATA}",
            session_timeout_ms=cluster.session_ms,
            clock=clock,
            monotonic=cluster.loop.time,
        )

    # Ends

    def _halted(self, life: Life) -> None:
        """A broker that gave up: after a failed fsync what its page cache shows is not on the disk."""
        if self.life is life:
            self.cut_power(Survival.NOTHING)

    async def stop(self) -> None:
        """Stop the broker cleanly, as far as it comes in bounded time."""
        life, broker = self.life, self.broker
        if life is None or broker is None or life.is_paused or self._stopping is life:
            return
        self._stopping = life
        self._cluster.note("stop", self.name)
        context = copy_context()
        context.run(CURRENT.set, life)
        stopping = self._cluster.loop.create_task(broker.stop(), context=context)
        await asyncio.wait([stopping], timeout=LONGEST_STOP_S)
        if self.life is life:
            self.kill()

    def kill(self) -> None:
        """End the process; what it has written stays in the page cache."""
        life, self.life, self.broker = self.life, None, None
        if life is None:
            return
        self._cluster.note("kill", self.name)
        life.end()
        self._cluster.network.drop(life, self.name)
        self._cluster.end_session_later(self.session)
        self._cluster.fingerprint.add(self.disk.history)
        self.disk = self.disk.reopened()

    def cut_power(self, survival: Survival) -> None:
        """End the machine; what was not synced is lost, in part or whole."""
        self._cluster.note("power cut", self.name, survival.value)
        self.kill()
        self.disk = self.disk.crash(survival, self._cluster.random.getrandbits(32))

    def pause(self) -> None:
        if self.life is not None and not self.life.is_paused:
            self._cluster.note("pause", self.name)
            self.life.is_paused = True
            self._cluster.expire_later(self)

    def resume(self) -> None:
        if self.life is not None and self.life.is_paused:
            self._cluster.note("resume", self.name)
            self.life.resume()

    def _after_step(self) -> None:
        """The power may have gone in the middle of what was done."""
        disk = self.disk
        if disk.stop_at is not None and disk.operations >= disk.stop_at:
            disk.stop_at = None
            survival = self._cluster.random.choice(list(Survival))
            self._cluster.loop.call_soon(self._power_went, self.life, survival, context=self._cluster.outside)
            if self.life is not None:
                self.life.is_over = True

    def _power_went(self, life: Life | None, survival: Survival) -> None:
        if self.life is life and life is not None:
            self.cut_power(survival)

"""Brokers, their ZooKeeper and their network, on one loop of virtual time: everything of a run, given by its seed.

Tests drive it: `run(work)` lets virtual time pass until `work` is done. `note` keeps what happened.
"""

import asyncio
import gc
import logging
import os
import random
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from random import Random
from typing import Any, TypeVar

from barnabas.broker.network import connection, rounds
from barnabas.cluster.zookeeper.client import Delete
from barnabas.cluster.zookeeper.znodes import CONTROLLER
from barnabas.testing.simulation.fingerprint import Fingerprint
from barnabas.testing.simulation.loop import VirtualLoop
from barnabas.testing.simulation.machine import LivingSession, SimulatedMachine
from barnabas.testing.simulation.network import SimulatedNetwork
from barnabas.testing.zookeeper import FakeZooKeeper

T = TypeVar("T")

WATCH_S = 0.001
"""How long ZooKeeper takes to tell of a change."""


BROKERS_LOG = logging.getLogger("barnabas")


class _Unforeseen(logging.Handler):
    """Keeps the failures that a broker has logged with a traceback: it does so with none that it knows."""

    def __init__(self, failures: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._failures.append(error)


class SimulatedCluster:
    """Mutable: the whole of a simulation."""

    def __init__(
        self, seed: int, *, brokers: int = 3, session_ms: int = 1000, settings: dict[str, str] | None = None
    ) -> None:
        self.random = Random(seed)
        self.session_ms = session_ms
        self.loop = VirtualLoop(Random(seed + 1))
        self.loop.set_exception_handler(self._failed)
        self.outside = copy_context()
        """A context that belongs to no life."""
        self.fingerprint = Fingerprint()
        self.network = SimulatedNetwork(self.loop, Random(seed + 2), self.fingerprint)
        self.zookeeper = FakeZooKeeper(self._tell_later, lambda: int(self.loop.time() * 1000))
        self.machines = [SimulatedMachine(self, number, settings or {}) for number in range(1, brokers + 1)]
        self.trace: list[tuple[object, ...]] = []
        self.failures: list[BaseException] = []
        """What went wrong in a task or a callback that nothing was waiting for, or what a broker had not foreseen."""
        self._ids = Random(seed + 3)

    def note(self, *what: object) -> None:
        self.trace.append((round(self.loop.time(), 4), *what))
        self.fingerprint.add(self.loop.time(), *what)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let time pass until this is done."""
        with self._made_up():
            return self.loop.run_until_complete(work)

    def close(self) -> None:
        for machine in self.machines:
            machine.kill()
        self.network.close()
        self.loop.bury()
        self.loop.close()

    @contextmanager
    def _made_up(self) -> Iterator[None]:
        """What would be given by chance comes from the seed; nothing spins, and no file is sent by its number. Nor is
        garbage looked for: what ends with it would end when this process, and not this run, has made enough of it."""
        made, urandom, chance, collects = uuid.uuid4, os.urandom, random.getstate(), gc.isenabled()
        spin, flat = rounds.SPIN_SECONDS, connection.FLAT
        uuid.uuid4 = lambda: uuid.UUID(int=self._ids.getrandbits(128), version=4)
        os.urandom = self._ids.randbytes
        random.seed(self._ids.getrandbits(64))
        rounds.SPIN_SECONDS, connection.FLAT = -1.0, 1 << 40
        gc.disable()
        unforeseen = _Unforeseen(self.failures)
        BROKERS_LOG.addHandler(unforeseen)
        try:
            yield
        finally:
            BROKERS_LOG.removeHandler(unforeseen)
            uuid.uuid4, os.urandom = made, urandom
            rounds.SPIN_SECONDS, connection.FLAT = spin, flat
            random.setstate(chance)
            if collects:
                gc.enable()

    # Sessions with ZooKeeper

    def open_session(self, name: str) -> LivingSession:
        session = LivingSession(self.zookeeper, name, self.loop, self.network.delay)
        self.zookeeper.join(session)
        return session

    def end_session_later(self, session: LivingSession | None) -> None:
        """A process is dead: ZooKeeper finds out when its session has been silent for too long."""
        if session is not None:
            session.is_connected = False
            self._later(self.session_ms / 1000, session.expire)

    def expire_later(self, machine: SimulatedMachine) -> None:
        """A process is paused: should it still be when its session's time is up, that is over."""
        life, session = machine.life, machine.session

        def expire() -> None:
            if life is not None and machine.life is life and life.is_paused and session is not None:
                self.note("expires", machine.name)
                session.expire()

        self._later(self.session_ms / 1000, expire)

    def cut_from_zookeeper(self, machine: SimulatedMachine, seconds: float) -> None:
        """Take a broker's connection to ZooKeeper away for a while; its session may end meanwhile."""
        session = machine.session
        if session is None or not session.is_connected:
            return
        self.note("without zookeeper", machine.name, round(seconds, 3))
        session.cut()
        if seconds * 1000 > self.session_ms:
            self._later(self.session_ms / 1000, session.expire)
        self._later(seconds, session.heal)

    def depose(self) -> None:
        """Take the controller's node away, as an administrator may: there is another claim, and a late one or two."""
        if self.zookeeper.find(CONTROLLER) is not None:
            self.note("depose")
            self.zookeeper.apply([Delete(CONTROLLER)], 0)
            self.zookeeper.deliver()

    def _tell_later(self, work: Any) -> None:
        self._later(WATCH_S, work)

    def _later(self, seconds: float, call: Any) -> None:
        self.loop.call_later(seconds, call, context=self.outside)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Without the message: the addresses of objects in it are others in each run.
        self.note("failure", repr(error))
        if error is not None:
            self.failures.append(error)

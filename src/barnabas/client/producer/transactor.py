"""Drives a producer's transactions over the network: asks the coordinators what `transaction` wants to know.

Owned by Producer; the sender calls it in each of its turns. `lock`, the producer's, is held whenever the machine is
touched. Always holds: a transaction that is broken has no record waiting to be sent, and its end is not asked for
before all that was sent has come back; a thread that waits hears of every end.
"""

import time
from _thread import LockType, allocate_lock
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, Protocol

from barnabas.client.network.coordinator_link import CoordinatorLink
from barnabas.client.network.failures import TimedOut
from barnabas.client.network.network import CoordinatorKind, Network
from barnabas.client.network.timer import Timer
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.batches import Batch
from barnabas.client.producer.transaction import Phase, Transactions
from barnabas.client.producer.transaction_questions import Question
from barnabas.errors import BarnabasError, Code, Refused, TransactionAborted

_BUSY = frozenset({Phase.STARTING, Phase.OPEN, Phase.PREPARING, Phase.COMMITTING, Phase.ABORTING})
_FEATURE = "transaction.version"


class RecordsUnderWay(Protocol):
    """The sender, as transactions see it."""

    def wake(self) -> None:
        """Any thread: take a turn soon."""

    def run(self) -> None:
        """Take a turn now."""

    def give_up(self, failure: BarnabasError) -> None:
        """With the lock: nothing that is on its way is sent any more, or again."""

    def forget_failures(self) -> None:
        """Any thread: what has failed so far is nothing to tell of any more."""


class Transactor:
    """The transactions of one producer, and the threads that wait for them."""

    def __init__(
        self, network: Network, machine: Transactions, accumulator: Accumulator, lock: RLock
    ) -> None:
        self.machine = machine
        self.sender: RecordsUnderWay | None = None
        self._network = network
        self._accumulator = accumulator
        self._lock = lock
        self._coordinator = CoordinatorLink(network, machine.id, CoordinatorKind.TRANSACTION)
        self._groups: dict[str, CoordinatorLink] = {}
        self._waiting: list[tuple[Callable[[], bool], LockType]] = []
        self._timer: Timer | None = None
        accumulator.admits = machine.admits

    @property
    def version(self) -> int:
        """Which way transactions go in this cluster now: the older, 1, or that of KIP-890, 2."""
        return 2 if self._network.features.levels.get(_FEATURE, 0) >= 2 else 1

    @property
    def produce_versions(self) -> tuple[int, int]:
        """From version 12 on a leader adds partitions to the transaction by itself."""
        return (3, 11) if self.machine.version == 1 else (12, 12)

    # The network's thread

    def note(self, settled: Iterable[Batch]) -> None:
        """With the lock, before anything is sent: a record that failed breaks its transaction."""
        for batch in settled:
            if batch.failure is not None and not isinstance(batch.failure, TransactionAborted):
                self._watch(lambda why=batch.failure: self.machine.record_failed(why))  # type: ignore[misc]

    def step(self) -> None:
        """Ask what is to be asked now, and tell those that wait."""
        now = time.monotonic()
        with self._lock:
            question = self.machine.next_question(now, is_drained=self._accumulator.is_drained)
            due = self.machine.due
            is_late = self.machine.phase in _BUSY and now < due
            self._tell()
        if question is not None:
            self._ask(question)
        elif is_late and self._timer is None:
            self._timer = self._network.later(due - now, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._run()

    def _ask(self, question: Question) -> None:
        link = self._coordinator
        if question.group is not None:
            link = self._groups.setdefault(question.group, CoordinatorLink(self._network, question.group))

        def told(answer: Any) -> None:
            now = time.monotonic()
            with self._lock:
                if isinstance(answer, Refused):
                    self._watch(lambda: self.machine.lost(answer, now))
                else:
                    self._watch(lambda: link.doubt(self.machine.take(answer, now)))
                self._accumulator.numbers.producer = self.machine.identity
            self._run()

        link.ask(question.request, question.answer, told, versions=question.versions)

    def _watch(self, change: Callable[[], object]) -> None:
        """With the lock: of a transaction that breaks nothing more is sent."""
        before = self.machine.phase
        change()
        phase, why = self.machine.phase, self.machine.failure
        if phase is not before and phase in (Phase.BROKEN, Phase.OVER) and why is not None:
            assert self.sender is not None
            text = f"The transaction can only be aborted: {why.message}"
            failure = Refused(Code.TRANSACTION_ABORTABLE, text) if phase is Phase.BROKEN else why
            self.sender.give_up(failure)

    def _run(self) -> None:
        assert self.sender is not None
        self.sender.run()

    def _tell(self) -> None:
        """With the lock."""
        for each in list(self._waiting):
            is_over, gate = each
            if is_over():
                self._waiting.remove(each)
                gate.release()

    # Any other thread

    def wait_until(self, is_over: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until the machine says so; TimedOut after these seconds: then it may be waited for again."""
        assert self.sender is not None
        gate = allocate_lock()
        gate.acquire()
        waiting = (is_over, gate)
        with self._lock:
            if is_over():
                return
            self._waiting.append(waiting)
        self.sender.wake()
        if not self._network.wait(gate, seconds):
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
            trouble = self._network.trouble
            raise TimedOut(
                f"{what} took longer than {seconds:g} s." + (f" {trouble.message}" if trouble else "")
            )

    def close(self) -> None:
        """Any thread: nothing comes any more of what is waited for."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, gate in waiting:
            gate.release()

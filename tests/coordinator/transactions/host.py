"""Hosts a transaction coordinator as the broker does, without one: a list for a log, a number for a clock.

What is appended goes through Kafka's bytes. `crash` loses all but the log.
"""

import itertools
from typing import Any

from barnabas.config import BrokerConfig
from barnabas.coordinator.effects import Context
from barnabas.coordinator.transactions.coordinator import (
    TransactionCoordinator,
    TransactionEffects,
    decode,
    encode,
)
from barnabas.coordinator.transactions.requests import (
    NEEDS_PRODUCER_ID,
    Add,
    End,
    Init,
    Marked,
    Markers,
    Verify,
)
from barnabas.coordinator.transactions.transaction import (
    Producer,
    TopicIndex,
    Transaction,
    TransactionState,
)
from barnabas.errors import Code, Refused
from tests.coordinator.shell import config

CONTEXT = Context(0)
ID = "payments"
ORDERS: TopicIndex = ("orders", 0)
PARCELS: TopicIndex = ("parcels", 1)


class Host:
    """One coordinator, its log, what it has answered and what it wants to be sent."""

    def __init__(self, settings: BrokerConfig | None = None) -> None:
        self.config = settings or config()
        self.now = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Any] = {}
        self.sends: list[Markers] = []
        self.refusing = False
        """Whether the log takes nothing."""
        self._tokens = itertools.count(1)
        self.ids = itertools.count(100)
        self.coordinator = TransactionCoordinator(self.config, {})
        self.coordinator.loaded(self.now)

    # Requests

    def send(self, request: Any) -> int:
        """The number of a request that was handed over; its answer may come later."""
        token = next(self._tokens)
        self._carry_out(self.coordinator.handle(request, CONTEXT, self.now, token))
        self.tick()
        if self.answers.get(token) is NEEDS_PRODUCER_ID:
            del self.answers[token]
            return self.send(request._replace(fresh_id=next(self.ids)))
        return token

    def ask(self, request: Any) -> Any:
        """The answer, which must be there at once. Raises what was refused."""
        answer = self.answers[self.send(request)]
        if isinstance(answer, Refused):
            raise answer
        return answer

    def code(self, request: Any) -> Code:
        """The code of the answer."""
        answer = self.answers[self.send(request)]
        return answer.code if isinstance(answer, Refused) else Code.NONE

    def init(self, expected: Producer | None = None, **more: Any) -> Producer:
        answer = self.ask(Init(ID, 60_000, expected, **more))
        producer: Producer = answer.producer
        return producer

    def begin(self, producer: Producer, *partitions: TopicIndex, version: int = 2, name: str = ID) -> None:
        self.ask(Add(name, producer, frozenset(partitions or (ORDERS,)), version))

    def verify(self, producer: Producer, *partitions: TopicIndex) -> frozenset[TopicIndex]:
        missing: frozenset[TopicIndex] = self.ask(Verify(ID, producer, frozenset(partitions)))
        return missing

    def end(self, producer: Producer, *, commit: bool = True, version: int = 2) -> Producer:
        following: Producer = self.ask(End(ID, producer, commit, version))
        return following

    def mark(self, *partitions: TopicIndex, of: Markers | None = None) -> None:
        """Partitions, or all of them, have the marker that was sent last."""
        markers = of or self.sends[-1]
        told = Marked(markers.transactional_id, markers.producer, frozenset(partitions or markers.partitions))
        self._carry_out(self.coordinator.handle(told, CONTEXT, self.now, None))
        self.tick()

    # Time and crashes

    def tick(self) -> None:
        for _ in range(100):
            if self.coordinator.deadline > self.now or not self._carry_out(self.coordinator.tick(self.now)):
                return
        raise AssertionError("there is always something due")

    def sleep(self, ms: int) -> None:
        self.now += ms
        self.tick()

    def crash(self) -> None:
        """Another coordinator takes over what is in the log."""
        self.coordinator = TransactionCoordinator(self.config, {})
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.coordinator.apply(record)
        self._carry_out(self.coordinator.loaded(self.now))
        self.tick()

    def _carry_out(self, effects: TransactionEffects) -> bool:
        if effects.records:
            if self.refusing:
                for token, _ in effects.replies:
                    self.answers[token] = Refused(Code.COORDINATOR_NOT_AVAILABLE)
                return False
            for record in effects.records:
                written = encode(record)
                self.log.append(written)
                read = decode(*written)
                assert read == record
                self.coordinator.apply(record)
        for token, answer in effects.replies:
            assert token not in self.answers, "answered twice"
            self.answers[token] = answer
        self.sends += effects.sends
        return True

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.transactions[ID]

    def state(self) -> TransactionState:
        return self.transaction.state

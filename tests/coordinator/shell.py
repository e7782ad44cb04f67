"""Hosts a coordinator as the broker does, without one: a list for a log, a number for a clock, a dict of answers.

What is appended goes through Kafka's bytes, as in the broker. `crash` loses all but the log.
"""

import itertools
from typing import Any
from uuid import UUID

from barnabas.broker.coordinators.host import append_code
from barnabas.broker.router import refusal_of
from barnabas.config import BrokerConfig, broker_config
from barnabas.coordinator.classic.group import ClassicGroup, State
from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Context, Effects, TopicFacts
from barnabas.coordinator.records import decode, encode
from barnabas.errors import Code, Refused

TOPICS = {"orders": TopicFacts(UUID(int=1), 4), "parcels": TopicFacts(UUID(int=2), 1)}


def config(**settings: object) -> BrokerConfig:
    """A broker's settings (underscores for dots); groups do not wait for more members."""
    given = {"group.initial.rebalance.delay.ms": "0"}
    given |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    made, unknown = broker_config(given)
    assert not unknown
    return made


class Shell:
    """One coordinator, its log, and who waits for it."""

    def __init__(
        self, settings: BrokerConfig | None = None, topics: dict[str, TopicFacts] | None = None
    ) -> None:
        self.config = settings or config()
        self.topics = dict(TOPICS if topics is None else topics)
        self.now = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.batches: list[int] = []
        """How many records were appended at a time."""
        self.answers: dict[int, Any] = {}
        self.waiting: dict[int, tuple[Any, int]] = {}
        self.refusing: Code | None = None
        """Appends are refused with this code."""
        self._tokens = itertools.count(1)
        self._names = itertools.count(1)
        self.coordinator = GroupCoordinator(self.config, self.topics)
        self.coordinator.loaded(self.now)

    def send(self, request: Any, version: int = 9, client: str = "client") -> int:
        """The number of a request that was handed over; its answer may come later."""
        token = next(self._tokens)
        self.waiting[token] = request, version
        context = Context(version, client, "/127.0.0.1", f"{next(self._names):04}")
        self.carry_out(self.coordinator.handle(request, context, self.now, token))
        self.tick()
        return token

    def ask(self, request: Any, version: int = 9, client: str = "client") -> Any:
        """The answer to a request that need not wait."""
        token = self.send(request, version, client)
        assert token in self.answers, f"{type(request).__name__} still waits"
        return self.answers.pop(token)

    def carry_out(self, effects: Effects) -> None:
        if effects.records:
            if self.refusing is not None:
                code = append_code(self.refusing)
                for token, _ in effects.replies:
                    self.answer(token, Refused(code))
                return
            self.batches.append(len(effects.records))
            self.log += [encode(record) for record in effects.records]
            for record in effects.records:
                self.coordinator.apply(record)
        for token, response in effects.replies:
            self.answer(token, response)

    def answer(self, token: int, response: Any) -> None:
        assert token in self.waiting, "a request was answered twice, or nobody asked"
        request, version = self.waiting.pop(token)
        self.answers[token] = told(request, version, response)

    def tick(self) -> None:
        """Do all that is due by now."""
        while self.coordinator.deadline <= self.now:
            self.carry_out(self.coordinator.tick(self.now))

    def wait(self, ms: int) -> None:
        """Let time pass, stopping wherever something is due."""
        until = self.now + ms
        while (at := self.coordinator.deadline) <= until:
            self.now = max(self.now, at)
            self.carry_out(self.coordinator.tick(self.now))
        self.now = until

    def change_topics_before_a_crash(self, **counts: int) -> None:
        """The store has the change, and the coordinator dies before it hears of it."""
        self.topics = self._changed(counts)
        self.crash()
        self.tick()

    def change_topics(self, **counts: int) -> None:
        """Give topics this many partitions; 0 deletes one."""
        self.topics = topics = self._changed(counts)
        self.carry_out(self.coordinator.topics_changed(topics, self.now))
        self.tick()

    def _changed(self, counts: dict[str, int]) -> dict[str, TopicFacts]:
        topics = dict(self.topics)
        for name, count in counts.items():
            if count:
                known = topics.get(name)
                topics[name] = TopicFacts(known.id if known else UUID(int=100 + len(topics)), count)
            else:
                del topics[name]
        return topics

    def replayed(self) -> GroupCoordinator:
        """A coordinator that knows the log and nothing else."""
        fresh = GroupCoordinator(self.config, self.topics)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            fresh.apply(record)
        return fresh

    def crash(self) -> None:
        """All who wait wait in vain; a new coordinator goes on from the log."""
        self.waiting.clear()
        self.coordinator = self.replayed()
        self.carry_out(self.coordinator.loaded(self.now))


def told(request: Any, version: int, answer: Any) -> Any:
    """What a client hears: a coordinator's refusal is turned into a response as the broker does it."""
    return refusal_of(request, version, answer) if isinstance(answer, Refused) else answer


def lasting(coordinator: GroupCoordinator) -> tuple[Any, ...]:
    """What of a coordinator a replay of its log must give again: groups at rest, and all offsets."""
    at_rest = {
        group.id: group.recording
        for group in coordinator.groups.values()
        if isinstance(group, ClassicGroup) and group.recorded and group.state in (State.EMPTY, State.STABLE)
    }
    return at_rest, coordinator.offsets._by_group

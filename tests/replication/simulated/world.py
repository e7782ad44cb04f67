"""Owns time, chance and the network of a simulation. Everything in it happens in one order, given by the seed."""

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any, Protocol

from barnabas.types import Millis

BEGINNING = Millis(1_700_000_000_000)


class Node(Protocol):
    """Something that messages are sent to."""

    number: int

    def deliver(self, call: Callable[..., None], args: tuple[Any, ...]) -> None: ...


class World:
    """Mutable: what happens next."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = BEGINNING
        self._numbers: Iterator[int] = count()
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.trace: list[tuple[Any, ...]] = []
        """What happened, for people that look for a reason, and to hold two runs against one another."""

    def note(self, *what: Any) -> None:
        self.trace.append((self.now - BEGINNING, *what))

    def after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (self.now + int(delay), next(self._numbers), call, args))

    def between(self, least: int, most: int) -> int:
        return least + int(self.random.random() * (most - least + 1))

    def chance(self, likely: float) -> bool:
        return self.random.random() < likely

    def run(self, span: int) -> None:
        """Let time pass."""
        until = self.now + span
        events = self._events
        while events and events[0][0] <= until:
            at, _, call, args = heapq.heappop(events)
            self.now = Millis(at)
            call(*args)
        self.now = Millis(until)


class Network:
    """Mutable: messages on their way, some of which come late, twice or never, and the links that are cut."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut: set[tuple[int, int]] = set()
        """Links by sender and receiver: one way, or both."""
        self.lost = 0.0
        self.repeated = 0.0
        self.late = 0.0
        self.fixed_delay = 0

    def send(self, source: int, target: Node, call: Callable[..., None], *args: Any) -> None:
        world = self._world
        if (source, target.number) in self.cut or (self.lost and world.chance(self.lost)):
            return
        self._carry(source, target, call, args)
        if self.repeated and world.chance(self.repeated):
            self._carry(source, target, call, args)

    def _carry(self, source: int, target: Node, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        world = self._world
        delay = world.between(20, 400) if self.late and world.chance(self.late) else world.between(0, 4)
        world.after(delay, self._arrive, source, target, call, args)

    def _arrive(self, source: int, target: Node, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if (source, target.number) not in self.cut:
            target.deliver(call, args)

    def heal(self) -> None:
        self.cut.clear()
        self.lost = self.repeated = self.late = 0.0

"""Interleaves the two brokers and keeps what was read: every round measures one side, then the other, at
once.

Called by bench.__main__. Readings of one round belong together: ratios are made round by round, so that
what slowed the machine for a minute slows both sides of a ratio. The order of the sides changes with every
round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from bench.server import BrokerFailedError, Server

KAFKA, OURS = "kafka", "barnabas"
Start = Callable[[Path], Server]


class Size(Enum):
    """How much of everything is measured: five minutes, twenty-five, or the full grid."""

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that a workload reads. `more_is_better` decides what a good ratio is."""

    key: str
    label: str
    unit: str
    more_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One setting of a workload. `seconds` is about how long one side takes, for the progress bar."""

    name: str
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    series: str = ""
    """Cases of one series are compared with its first: what each broker keeps of its own smallest."""
    most_rounds: int = 50
    """For a case that says all in one long round."""


@dataclass(frozen=True, slots=True)
class Measured:
    values: Mapping[str, float]
    limits: Mapping[str, str] = field(default_factory=dict)
    """For a metric: who was the limit (client, broker, machine, waiting)."""
    others: float = 0.0
    """The share of the machine that other processes used meanwhile."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The ratio to Kafka that was asked for. `within_spread`: it is enough if some round reached it.

    `of_ours`: asked of our own number, whatever the other side reads.
    """

    bound: float
    at_least: bool
    within_spread: bool = False
    of_ours: bool = False

    def met(self, ratio: Spread) -> bool:
        best = ratio.high if self.at_least else ratio.low
        reached = best if self.within_spread else ratio.median
        return reached >= self.bound if self.at_least else reached <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        end = " within the spread" if self.within_spread else " of ours" if self.of_ours else ""
        return f"{sign} {self.bound:.3g}{end}"


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float


class SideState:
    """One of the two brokers: starts the shared server when first asked for it, fresh ones on demand."""

    def __init__(self, name: str, start: Start, directory: Path) -> None:
        self.name = name
        self._start = start
        self.directory = directory
        self._server: Server | None = None
        self._started = 0
        self.on_start: Callable[[Server], None] = lambda _: None

    @property
    def server(self) -> Server:
        """The broker that most workloads share; a new one when the last has died."""
        if self._server is None or not self._server.is_running:
            new = self.fresh()
            try:
                self.on_start(new)
            except BaseException:
                # A broker that was not warmed up must not be measured: Kafka would look slower than it is.
                new.stop()
                raise
            self._server = new
        return self._server

    def fresh(self) -> Server:
        """A broker on an empty folder, for whoever measures starts and memory. The caller stops it."""
        self._started += 1
        return self._start(self.directory / f"{self._started}")

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


class SharedSide(SideState):
    """A side that uses another side's broker: for workloads that compare what talks to it."""

    def __init__(self, name: str, of: SideState) -> None:
        self.name = name
        self._of = of

    @property
    def server(self) -> Server:
        return self._of.server

    def fresh(self) -> Server:
        return self._of.fresh()

    def stop(self) -> None:
        """The broker is the other side's to stop."""


class Workload(Protocol):
    """What a module in bench/workloads offers.

    One that does not compare brokers offers `sides(brokers)` too, and says what stands beside us: THEIRS names it
    in tables, PICTURE is the file its ratios are drawn into.
    """

    NAME: str
    TITLE: str
    ABOUT: str
    METRICS: Sequence[Metric]
    FRESH: bool
    """It starts brokers of its own: then there is nothing to warm up."""

    def rounds(self, size: Size) -> int: ...
    def cases(self, size: Size) -> Sequence[Case]: ...
    def run(self, side: SideState, case: Case) -> Measured: ...
    def wanted(self, metric: str, case: Case, limits: Sequence[str]) -> Wanted | None: ...


@dataclass(slots=True)
class Readings:
    """All that one case read: for each side, one Measured a round, or None where that round failed."""

    workload: str
    case: Case
    by_side: dict[str, list[Measured | None]] = field(default_factory=lambda: {KAFKA: [], OURS: []})

    def paired(self, metric: str) -> list[tuple[float, float]]:
        """(Kafka's, ours) of the rounds in which both sides came through."""
        both = zip(self.by_side[KAFKA], self.by_side[OURS], strict=True)
        return [
            (theirs.values[metric], ours.values[metric])
            for theirs, ours in both
            if theirs is not None and ours is not None and metric in theirs.values and metric in ours.values
        ]

    def limits(self, side: str, metric: str) -> list[str]:
        return [m.limits[metric] for m in self.by_side[side] if m is not None and metric in m.limits]


def sides_of(workload: Workload, brokers: Mapping[str, SideState]) -> Mapping[str, SideState]:
    """What a workload compares: the two brokers, unless it says otherwise."""
    own: Callable[[Mapping[str, SideState]], Mapping[str, SideState]] | None
    own = getattr(workload, "sides", None)
    return brokers if own is None else own(brokers)


def compares_brokers(workload: Workload) -> bool:
    """Whether one side is Apache Kafka: always, but for workloads with sides of their own that name something else."""
    return not hasattr(workload, "sides") or not hasattr(workload, "THEIRS")


def interleave(
    workload: Workload,
    cases: Sequence[Case],
    sides: Mapping[str, SideState],
    rounds: int,
    *,
    before: Callable[[], None],
    on_step: Callable[[str, Case], None],
    on_failure: Callable[[str, Case, Exception], None],
) -> list[Readings]:
    """Every case in every round on one side, then at once on the other. The first case warms up, unread.

    `before` is called before each.
    """
    order = [sides[KAFKA], sides[OURS]]

    def once(side: SideState, case: Case) -> Measured | None:
        try:
            before()
            return workload.run(side, case)
        except (BrokerFailedError, RuntimeError, OSError) as error:
            on_failure(side.name, case, error)
            return None
        finally:
            on_step(side.name, case)

    readings = [Readings(workload.NAME, case) for case in cases]
    names = {id(side): name for name, side in sides.items()}
    for side in () if workload.FRESH else order:
        once(side, cases[0])
    for number in range(rounds):
        for reading in readings:
            if number >= reading.case.most_rounds:
                continue
            for side in order if number % 2 == 0 else reversed(order):
                reading.by_side[names[id(side)]].append(once(side, reading.case))
    return readings


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Ours to Kafka's, round by round. Where Kafka read zero there is no ratio."""
    return [ours / theirs if theirs else float("inf") for theirs, ours in pairs]


def kept(
    pairs: Sequence[tuple[float, float]], smallest: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What each side keeps of its own smallest case, round by round: (Kafka's share, ours)."""
    return [
        (theirs / first_theirs, ours / first_ours)
        for (theirs, ours), (first_theirs, first_ours) in zip(pairs, smallest, strict=False)
        if first_theirs and first_ours
    ]

"""Turns readings into rows, and rows into the Markdown record of a run. Pure.

Called by bench.__main__ after the last measurement. What failed is named at the top, never left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from bench.measure import KAFKA, OURS, Case, Metric, Readings, Spread, Wanted, Workload, kept, ratios, spread

GOOD, BAD = "yes", "**no**"
DISTURBED = 0.10
PREAMBLE = (
    "Written by `make bench`. Both brokers ran in one run on one machine with the same neutral clients; "
    "every round measured one and then the other, and ratios were made round by round: the median, and "
    "the lowest and highest round in brackets. Above 1 is more than Kafka, below 1 less."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One number of one case, beside Kafka's."""

    workload: str
    case: str
    metric: Metric
    kafka: Spread
    ours: Spread
    ratio: Spread
    wanted: Wanted | None
    limit: str
    growth: bool = False
    """The numbers are shares of each broker's own smallest case."""
    picture: str = ""
    """The file its ratio is drawn into; empty for the brokers' own."""

    @property
    def met(self) -> bool | None:
        if self.wanted is None:
            return None
        if self.growth and self._lost_nothing:
            return True
        return self.wanted.met(self.ours if self.wanted.of_ours else self.ratio)

    @property
    def _lost_nothing(self) -> bool:
        """Asked of growth is to lose no more than Kafka; where it gained, there was nothing to lose."""
        return self.ours.median >= 1 if self.metric.more_is_better else self.ours.median <= 1


def rows(workload: Workload, readings: Sequence[Readings]) -> list[Row]:
    """Absolute numbers of every case; of a series' later cases also what was kept of its first."""
    first: dict[str, Readings] = {}
    found: list[Row] = []
    for reading in readings:
        series = reading.case.series
        smallest = first.setdefault(series, reading) if series else None
        for metric in workload.METRICS:
            pairs = reading.paired(metric.key)
            if not pairs:
                continue
            # In a growth workload the wanted bound is on what is kept, not on the absolute numbers.
            bound = None if series else _bound(workload, metric, reading)
            found.append(_row(workload, reading, metric, pairs, bound))
        if smallest is not None and smallest is not reading:
            found += _kept_rows(workload, reading, smallest)
    return found


def _kept_rows(workload: Workload, reading: Readings, smallest: Readings) -> list[Row]:
    found = []
    for metric in workload.METRICS:
        shares = kept(reading.paired(metric.key), smallest.paired(metric.key))
        if shares:
            bound = _bound(workload, metric, reading)
            found.append(_row(workload, reading, metric, shares, bound, growth=True))
    return found


def _bound(workload: Workload, metric: Metric, reading: Readings) -> Wanted | None:
    return workload.wanted(metric.key, reading.case, reading.limits(OURS, metric.key))


def _row(
    workload: Workload,
    reading: Readings,
    metric: Metric,
    pairs: Sequence[tuple[float, float]],
    bound: Wanted | None,
    *,
    growth: bool = False,
) -> Row:
    return Row(
        workload=workload.NAME,
        case=reading.case.name,
        metric=metric,
        kafka=spread([theirs for theirs, _ in pairs]),
        ours=spread([ours for _, ours in pairs]),
        ratio=spread(ratios(pairs)),
        wanted=bound,
        limit="" if growth else limit_of(reading, metric.key),
        growth=growth,
        picture=getattr(workload, "PICTURE", ""),
    )


def limit_of(reading: Readings, metric: str) -> str:
    """Who was the limit in most rounds, for Kafka / for us; one word when it is the same."""
    words = [Counter(reading.limits(side, metric)).most_common(1) for side in (KAFKA, OURS)]
    if not all(words):
        return ""
    theirs, ours = words[0][0][0], words[1][0][0]
    return theirs if theirs == ours else f"{theirs} / {ours}"


def number(value: float) -> str:
    """Three figures that mean something, thousands with commas."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def ranged(of: Spread) -> str:
    return f"{number(of.median)} ({number(of.low)} to {number(of.high)})"


def table(shown: Iterable[Row], ours: str, theirs: str = "Kafka") -> str:
    lines = [
        f"| case | what | {theirs} | {ours} | ratio (min to max) | wanted | met | limit ({theirs} / {ours}) |",
        "|---|---|---:|---:|---:|---|---|---|",
    ]
    for row in shown:
        unit = "" if row.growth else f" {row.metric.unit}"
        what = f"{row.metric.label}, of its smallest" if row.growth else row.metric.label
        met = "" if row.met is None else GOOD if row.met else BAD
        cells = (
            row.case,
            what,
            number(row.kafka.median) + unit,
            number(row.ours.median) + unit,
            ranged(row.ratio),
            str(row.wanted or ""),
            met,
            row.limit,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def markdown(
    facts: Sequence[tuple[str, str]],
    sections: Sequence[tuple[Workload, Sequence[Readings]]],
    failures: Sequence[str],
    plots: Sequence[str],
    ours: str = "Barnabas",
) -> str:
    everything = [(workload, readings, rows(workload, readings)) for workload, readings in sections]
    asked = [row for _, _, found in everything for row in found if row.wanted is not None]
    parts = [
        "# Barnabas beside Apache Kafka",
        PREAMBLE,
        "\n".join(f"- {name}: {value}" for name, value in facts),
        f"{sum(bool(row.met) for row in asked)} of {len(asked)} wanted ratios met.",
    ]
    if failures:
        parts.append("Failed measurements:\n\n" + "\n".join(f"- {failure}" for failure in failures))
    parts += [f"![{PurePath(plot).stem}]({plot})" for plot in plots]
    for workload, readings, found in everything:
        parts.append(f"## {workload.TITLE}")
        parts.append(f"{workload.ABOUT} {rounds_and_noise(readings)}")
        theirs = getattr(workload, "THEIRS", "Kafka")
        parts.append(table(found, ours, theirs) if found else "Nothing was measured on both sides.")
    return "\n\n".join(parts) + "\n"


def rounds_and_noise(readings: Sequence[Readings]) -> str:
    rounds = max((len(reading.by_side[KAFKA]) for reading in readings), default=0)
    others = [
        m.others for reading in readings for side in reading.by_side.values() for m in side if m is not None
    ]
    said = f"{rounds} round{'s' if rounds != 1 else ''}."
    if others and spread(others).median > DISTURBED:
        said += (
            f" Other processes used {spread(others).median:.0%} of the machine (median): take it with care."
        )
    return said


def failed(workload: Workload, case: Case, side: str, error: Exception) -> str:
    return f"{workload.TITLE}, {case.name}, {side}: {error}"

"""Draws the pictures of a run: every wanted ratio with its spread, and what growth costs each broker.

Called by bench.__main__; needs matplotlib (the extra `bench`). No dates: equal rows give equal files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import Row

RATIOS, GROWTH = "bench-ratios.svg", "bench-growth.svg"
OURS_COLOUR, KAFKA_COLOUR, MISSED_COLOUR = "#2a7f62", "#8a8a8a", "#c0392b"


def draw(rows: Sequence[Row], directory: Path) -> list[str]:
    """The names of the files written; none when matplotlib is missing or there is nothing to draw."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "barnabas"
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    plain = [row for row in rows if not row.growth and row.wanted is not None]
    for picture in dict.fromkeys(row.picture for row in plain):
        name, others = (picture, "the other library") if picture else (RATIOS, "Apache Kafka")
        _ratios([row for row in plain if row.picture == picture], directory / name, others)
        written.append(name)
    growing = [row for row in rows if row.growth]
    if growing:
        _growth(growing, directory / GROWTH)
        written.append(GROWTH)
    return written


def _ratios(rows: Sequence[Row], path: Path, others: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.26 * len(rows) + 1.4), layout="constrained")
    for place, row in enumerate(rows):
        colour = OURS_COLOUR if row.met else MISSED_COLOUR
        axes.plot((row.ratio.low, row.ratio.high), (place, place), color=colour, linewidth=3, alpha=0.4)
        axes.plot(row.ratio.median, place, "o", color=colour, markersize=5)
        if row.wanted is not None:
            axes.plot(row.wanted.bound, place, "|", color="black", markersize=9)
    axes.axvline(1, color=KAFKA_COLOUR, linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [f"{row.metric.label} ({row.case})" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_title(f"Barnabas / {others}: median, lowest to highest round; black: wanted", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    _save(figure, path)


def _growth(rows: Sequence[Row], path: Path) -> None:
    from matplotlib import pyplot

    names = list(dict.fromkeys((row.workload, row.metric.label) for row in rows))
    across = 3
    down = -(-len(names) // across)
    figure, grid = pyplot.subplots(down, across, figsize=(9, 2.2 * down), squeeze=False, layout="constrained")
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, (workload, label) in zip(grid.flat, names, strict=False):
        chosen = [row for row in rows if (row.workload, row.metric.label) == (workload, label)]
        ticks = ["smallest"] + [row.case for row in chosen]
        axes.plot(
            ticks, [1.0] + [row.kafka.median for row in chosen], "o-", color=KAFKA_COLOUR, label="Kafka"
        )
        axes.plot(
            ticks, [1.0] + [row.ours.median for row in chosen], "o-", color=OURS_COLOUR, label="Barnabas"
        )
        axes.set_ylim(bottom=0)
        axes.set_title(f"{label} (x its smallest)", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    grid.flat[0].legend(fontsize=7)
    _save(figure, path)


def _save(figure: object, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})  # type: ignore[attr-defined]
    pyplot.close(figure)

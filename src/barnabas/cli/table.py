"""Prints rows as columns."""

from collections.abc import Sequence

import typer


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

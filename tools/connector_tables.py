"""Writes the tables of docs/CONNECT.md, made from what the connectors declare.

`python tools/connector_tables.py` puts them below the marker in the page; all above it is written by hand.
"""

import sys
from pathlib import Path

from barnabas.connect.connector import Connector, sinks, sources
from barnabas.connect.declaration import FileOptions, FlowOptions
from barnabas.connect.option import options_of
from barnabas.connect.sketch import shown_default

PAGE = Path(__file__).resolve().parent.parent / "docs" / "CONNECT.md"
MARKER = "<!-- Below: written by tools/connector_tables.py from the declarations. -->\n"


def tables() -> str:
    parts = ["", "## Options\n", "At the top of the file:\n", *_rows(FileOptions)]
    parts += ["\nOf a flow, `[flow.NAME]`:\n", *_rows(FlowOptions)]
    kinds: tuple[tuple[str, dict[str, type[Connector]]], ...] = (
        ("source", dict(sources())),
        ("sink", dict(sinks())),
    )
    for kind, found in kinds:
        for name, connector in found.items():
            parts.append(f"\n### {kind} `{name}`\n")
            parts.append(" ".join((connector.__doc__ or "").split()) + "\n")
            parts += _rows(connector)
    return "\n".join(parts) + "\n"


def page(text: str) -> str:
    """The page with its tables as they should be."""
    above, marker, _ = text.partition(MARKER)
    if not marker:
        raise SystemExit(f"{PAGE} has lost its marker: {MARKER}")
    return above + MARKER + tables()


def _rows(connector: type) -> list[str]:
    rows = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for each in options_of(connector).values():
        default = shown_default(each)
        shown = default if default in ("required", "none") else f"`{default}`"
        rows.append(f"| `{each.name}` | {each.kind} | {shown} | {each.doc} {each.limits}".rstrip() + " |")
    return rows


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    sys.stdout.write(f"Wrote {PAGE}\n")

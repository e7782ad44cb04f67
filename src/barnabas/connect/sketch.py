"""Writes the file that `barnabas connect new` begins with, from what the connectors declare."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.connect.connector import sink_named, source_named
from barnabas.connect.declaration import FileOptions, FlowOptions
from barnabas.connect.option import Option, options_of

_HEAD = """# Run it with: barnabas connect run FILE --once
# Check it with: barnabas connect check FILE
# Every option of a connector: barnabas connect describe NAME
"""


def sketch(source: str, sink: str) -> str:
    """A file from a source to a sink: what has to be given with examples, the rest as comments with its defaults."""
    from_class, to_class = source_named(source, "connect new"), sink_named(sink, "connect new")
    flow = {"source": "from", "sinks": ["to"]}
    parts = [
        _HEAD,
        *_lines(FileOptions, {}),
        "",
        "[source.from]",
        f"connector = {json.dumps(source)}",
        *_lines(from_class, {}),
        "",
        "[sink.to]",
        f"connector = {json.dumps(sink)}",
        *_lines(to_class, {}),
        "",
        "[flow.main]",
        *_lines(FlowOptions, flow),
    ]
    return "\n".join(parts) + "\n"


def _lines(connector: type, given: Mapping[str, Any]) -> Iterator[str]:
    known = options_of(connector).values()
    for each in sorted(known, key=lambda each: not each.required):
        yield f"# {each.doc}{' ' + each.limits if each.limits else ''}"
        if each.required:
            yield f"{each.name} = {as_toml(given.get(each.name, each.example))}"
        else:
            yield f"# {each.name} = {as_toml(each.default)}"


def as_toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {as_toml(each)}" for key, each in value.items())
        return "{ " + inner + " }" if inner else "{}"
    return json.dumps(value)


def shown_default(each: Option) -> str:
    """A default for people: what it is, or that there is none."""
    if each.required:
        return "required"
    return "none" if each.default in ("", (), {}) else as_toml(each.default)

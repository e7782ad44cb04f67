"""Reads the TOML file that declares sources, sinks and flows. Used by every `barnabas connect` command.

Everything in the file is checked before Spark is started; an error says where in the file it is.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.connect.connector import Sink, Source, sink_named, source_named
from barnabas.connect.option import ConnectError, build, no_such, option, options_of

DEFAULT_BOOTSTRAP = "localhost:9092"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_EVERY = re.compile(r"\d+ (second|minute|hour|day)s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOptions:
    """From one source to one or more sinks."""

    source: str = option("The source's name in this file.", example="shop")
    sinks: tuple[str, ...] = option("The sinks' names; a row goes to each.", example=["orders"])
    where: str = option("Only the rows for which this SQL condition is true.", "")
    select: tuple[str, ...] = option(
        "SQL expressions that make the columns, such as `upper(name) as name`.", ()
    )
    every: str = option("How often to look for new rows.", "5 seconds")
    dead_letters: str = option(
        "The sink for rows that do not fit the source's schema, or that a sink refuses; without it they make "
        "the flow fail. It gets the columns value, reason and flow.",
        "",
    )


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow with its ends."""

    name: str
    source: Source
    sinks: Mapping[str, Sink]
    options: FlowOptions
    dead_letters: Sink | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """What stands at the top of the file."""

    bootstrap: str = option("The broker for topics that name none.", DEFAULT_BOOTSTRAP)
    checkpoint: str = option("The folder that knows how far each flow came; --checkpoint goes before it.", "")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A whole file."""

    path: Path
    options: FileOptions
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    flows: Mapping[str, Flow]


def read_declaration(path: Path) -> Declaration:
    """The file, checked; or a ConnectError that says what is wrong in it and where."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConnectError(f"There is no file {path}; `barnabas connect new {path}` makes one.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConnectError(f"{path} is no TOML: {error}.") from error
    tables = {kind: _tables(given, kind, path) for kind in ("source", "sink", "flow")}
    for name in given:
        if isinstance(given[name], dict) and name not in tables:
            raise ConnectError(f"{path}: {no_such('table', name, list(tables))}")
    top = {name: value for name, value in given.items() if name not in tables}
    options = build(FileOptions, top, str(path))

    made_sources: dict[str, Source] = {}
    made_sinks: dict[str, Sink] = {}
    for name, table in tables["source"].items():
        where = f"{path}: source {name}"
        source = source_named(_connector_name(table, where), where)
        made_sources[name] = build(source, _with_bootstrap(source, table, options), where)
    for name, table in tables["sink"].items():
        where = f"{path}: sink {name}"
        sink = sink_named(_connector_name(table, where), where)
        made_sinks[name] = build(sink, _with_bootstrap(sink, table, options), where)

    flow_tables = tables["flow"] or _only_flow(made_sources, made_sinks, path)
    flows = {
        name: _flow(name, table, made_sources, made_sinks, f"{path}: flow {name}")
        for name, table in flow_tables.items()
    }
    return Declaration(path, options, made_sources, made_sinks, flows)


def _tables(given: Mapping[str, Any], kind: str, path: Path) -> dict[str, dict[str, Any]]:
    found = given.get(kind, {})
    if not isinstance(found, dict) or not all(isinstance(table, dict) for table in found.values()):
        raise ConnectError(f"{path}: a {kind} is declared as [{kind}.NAME], with its options below.")
    for name in found:
        if not _NAME.fullmatch(name):
            raise ConnectError(f"{path}: {kind} {name!r}: names are letters, digits, dots, - and _.")
    return found


def _connector_name(table: Mapping[str, Any], where: str) -> str:
    name = table.get("connector")
    if not isinstance(name, str):
        raise ConnectError(f'{where}: connector is missing: which kind it is, such as connector = "csv".')
    return name


def _with_bootstrap(
    connector: type[Source] | type[Sink], table: Mapping[str, Any], options: FileOptions
) -> dict[str, Any]:
    given = {name: value for name, value in table.items() if name != "connector"}
    if "bootstrap" in options_of(connector):
        given.setdefault("bootstrap", options.bootstrap)
    return given


def _only_flow(
    made_sources: Mapping[str, Source], made_sinks: Mapping[str, Sink], path: Path
) -> dict[str, dict[str, Any]]:
    """One source and one sink need not be told that they belong together."""
    if len(made_sources) != 1 or len(made_sinks) != 1:
        raise ConnectError(
            f"{path}: there are {len(made_sources)} sources and {len(made_sinks)} sinks; say what goes where with "
            "[flow.NAME], source and sinks."
        )
    (source,), (sink,) = made_sources, made_sinks
    return {source: {"source": source, "sinks": [sink]}}


def _flow(
    name: str,
    table: Mapping[str, Any],
    made_sources: Mapping[str, Source],
    made_sinks: Mapping[str, Sink],
    where: str,
) -> Flow:
    options = build(FlowOptions, table, where)
    if options.source not in made_sources:
        raise ConnectError(f"{where}: {no_such('source', options.source, list(made_sources))}")
    for sink in (*options.sinks, *filter(None, [options.dead_letters])):
        if sink not in made_sinks:
            raise ConnectError(f"{where}: {no_such('sink', sink, list(made_sinks))}")
    if options.dead_letters in options.sinks:
        raise ConnectError(
            f"{where}: {options.dead_letters} cannot take both the good rows and the bad ones."
        )
    if not _EVERY.fullmatch(options.every):
        raise ConnectError(
            f"{where}: every is a pace such as '5 seconds' or '1 minute', not {options.every!r}."
        )
    chosen = {sink: made_sinks[sink] for sink in options.sinks}
    dead_letters = made_sinks[options.dead_letters] if options.dead_letters else None
    return Flow(name, made_sources[options.source], chosen, options, dead_letters)

"""One option of a connector: declared once as a field; from there come its checks, its errors and its docs.

Used by every connector, by `declaration` (which reads the TOML file), by `connect describe` and by the docs table.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

from barnabas.errors import BarnabasError

T = TypeVar("T")

_KINDS: Mapping[Any, tuple[str, str]] = {
    str: ("string", "a string in quotes"),
    int: ("integer", "a whole number"),
    float: ("number", "a number"),
    bool: ("boolean", "true or false"),
    tuple[str, ...]: ("list", 'a list of strings such as ["a", "b"]'),
    Mapping[str, str]: ("table", 'a table of strings such as { name = "value" }'),
}
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class ConnectError(BarnabasError):
    """A declaration that cannot be, or a flow that failed."""


@dataclass(frozen=True, slots=True)
class Option:
    """What is declared of one option."""

    name: str
    type: Any
    doc: str
    default: Any
    required: bool
    least: float | None
    among: tuple[str, ...]
    example: Any

    @property
    def kind(self) -> str:
        return _KINDS[self.type][0]

    @property
    def limits(self) -> str:
        """What a value is held to, as a sentence; empty where it is not."""
        if self.among:
            return f"One of {', '.join(self.among)}."
        return f"At least {self.least:g}." if self.least is not None else ""

    def read(self, given: Any, where: str) -> Any:
        """The value that something in a TOML file means, or a ConnectError that says what would have been right."""
        value = self._typed(given, where)
        if self.among and value not in self.among:
            near = get_close_matches(str(value), self.among, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConnectError(
                f"{where}: {self.name} is one of {', '.join(self.among)}, not {_shown(given)}{hint}."
            )
        if self.least is not None and value < self.least:
            raise ConnectError(f"{where}: {self.name} is at least {self.least:g}, not {_shown(given)}.")
        if value in ("", ()) and self.required:
            raise ConnectError(f"{where}: {self.name} is empty.")
        return value

    def _typed(self, given: Any, where: str) -> Any:
        is_bool = isinstance(given, bool)
        if self.type is str and isinstance(given, str):
            return _filled(given, self.name, where)
        if self.type is bool and is_bool:
            return given
        if self.type is int and isinstance(given, int) and not is_bool:
            return given
        if self.type is float and isinstance(given, int | float) and not is_bool:
            return float(given)
        if self.type == tuple[str, ...]:
            items = [given] if isinstance(given, str) else given
            if isinstance(items, list) and all(isinstance(item, str) for item in items):
                return tuple(_filled(item, self.name, where) for item in items)
        is_table = self.type == Mapping[str, str] and isinstance(given, dict)
        if is_table and all(isinstance(value, str) for value in given.values()):
            return {key: _filled(value, self.name, where) for key, value in given.items()}
        raise ConnectError(f"{where}: {self.name} is {_KINDS[self.type][1]}, not {_shown(given)}.")


_REQUIRED: Any = object()


def option(
    doc: str,
    default: Any = _REQUIRED,
    *,
    least: float | None = None,
    among: tuple[str, ...] = (),
    example: Any = None,
) -> Any:
    """Declares a field of a connector as an option of it. Without a default it has to be given."""
    facts = {"doc": doc, "least": least, "among": among, "example": example}
    if default is _REQUIRED:
        return dataclasses.field(metadata=facts)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


def options_of(connector: Any) -> Mapping[str, Option]:
    """All options of a connector, in the order of their declaration."""
    types = get_type_hints(connector)
    found = {}
    for field in dataclasses.fields(connector):
        if "doc" not in field.metadata:
            continue
        is_table = field.default_factory is not dataclasses.MISSING
        required = field.default is dataclasses.MISSING and not is_table
        default = None if required else {} if is_table else field.default
        found[field.name] = Option(
            name=field.name, type=types[field.name], default=default, required=required, **field.metadata
        )
    return found


def build(connector: type[T], given: Mapping[str, Any], where: str) -> T:
    """The connector that a table of the TOML file declares."""
    known = options_of(connector)
    for name in given:
        if name not in known:
            raise ConnectError(f"{where}: {no_such('option', name, list(known))}")
    for name, each in known.items():
        if each.required and name not in given:
            raise ConnectError(f"{where}: {name} is missing: {each.doc}")
    return connector(**{name: known[name].read(value, where) for name, value in given.items()})


def no_such(what: str, name: str, there: list[str]) -> str:
    """That there is no such thing, and what was meant, or what there is."""
    near = get_close_matches(name, there, n=1)
    if near:
        return f"there is no {what} {name}; did you mean {near[0]}?"
    return (
        f"there is no {what} {name}; there is {', '.join(there)}." if there else f"there is no {what} {name}."
    )


def _filled(text: str, name: str, where: str) -> str:
    """${NAME} is taken from the environment: secrets need not stand in the file."""

    def value(variable: re.Match[str]) -> str:
        found = os.environ.get(variable[1])
        if found is None:
            raise ConnectError(
                f"{where}: {name} wants the environment variable {variable[1]}, which is not set."
            )
        return found

    return _VARIABLE.sub(value, text)


def _shown(given: Any) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    return repr(given)

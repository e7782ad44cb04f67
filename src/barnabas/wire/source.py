"""A function's source while it is being written: what decoding.py and encoding.py have in common.

For each (class, version) a straight-line Python function is written as source and compiled with `exec` when
it is first needed (1 to 2 ms), then kept: what `dataclasses` does for `__init__`, and for the same reason.
Code in which "is it in this version, may it be null, is it compact?" is already answered encodes a small
produce response in 1.0 us; kio, which calls a writer for each field, takes 11. Runs of fixed-size fields
become one `struct` call, and the length that follows a run travels with it. Nothing from the wire ever gets
into a source: it is made of our own field names and numbers only.
"""

import struct
from typing import Any

from barnabas.wire.apis import APIS, NO_VERSION, Api, Versions
from barnabas.wire.schema import Field, Malformed, String, fields_of


class Source:
    """The source of one function while it is being written."""

    def __init__(self, cls: type[Any], version: int) -> None:
        known: Api | Versions = APIS[cls.api] if hasattr(cls, "api") else cls.versions
        if not known.speaks(version):
            raise Malformed(f"{cls.__name__} has versions {known.lowest} to {known.highest}, not {version}")
        self.cls = cls
        self.version = version
        self.is_flexible = version >= known.flexible
        self.lines: list[str] = []
        self.count = 0
        self.depth = 1
        self.names: dict[str, Any] = {"Malformed": Malformed, "new": object.__new__}
        self.run: list[tuple[str, str]] = []
        """Fixed-size values, as (struct letter, name or expression), that will go through one struct call."""

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        """A variable that is used nowhere else: nested structs are written inline."""
        self.count += 1
        return f"{stem}_{self.count}"

    def bound(self, stem: str, value: object) -> str:
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def fields(self, cls: type[Any]) -> list[Field]:
        return [f for f in fields_of(cls) if f.is_in(self.version)]

    def length_code(self, f: Field) -> str:
        if self.is_flexible:
            return "B"
        return "h" if f.kind is String and not f.is_array else "i"

    def is_nullable(self, f: Field) -> bool:
        return self.version >= f.nullable_since

    def function(self, signature: str) -> Any:
        """The finished function. Whatever goes wrong in it becomes Malformed: a `try` is free until then."""
        self.names |= {"StructError": struct.error, "failed": _failed}
        name = f"{self.cls.__name__} v{self.version}"
        body = ["    try:", *(f"    {line}" for line in self.lines)]
        problems = "(StructError, IndexError, UnicodeError)"
        body += [f"    except {problems} as problem: raise failed({name!r}, problem) from problem"]
        source = "\n".join([f"def {signature}:", *body])
        exec(compile(source, f"<{name}>", "exec"), self.names)
        return self.names[signature.partition("(")[0]]


def element_of(f: Field) -> Field:
    """An array's element, seen as a field of its own."""
    return f._replace(is_array=False, is_tuple=False, nullable_since=NO_VERSION)


def _failed(name: str, problem: Exception) -> Malformed:
    if isinstance(problem, UnicodeError):
        return Malformed(f"{name} has a string that is not UTF-8")
    return Malformed(f"{name} is cut short, or has a number that does not fit: {problem}")

"""One setting: its name, type, bounds and doc, and how its value is read from text and written back.

Used by `config`, where all of them are declared.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from barnabas.errors import BarnabasError

Value: TypeAlias = bool | int | float | str | frozenset[str] | tuple[str, ...]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# Python would also take 1_000, digits of other scripts, nan and inf; and it fails on thousands of digits.
_WHOLE = re.compile(r"[+-]?[0-9]{1,99}")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ConfigError(BarnabasError):
    """A setting that does not exist, or a value it cannot take."""


class Kind(IntEnum):
    """A setting's type, numbered as DescribeConfigs does."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ItemShape(NamedTuple):
    """What each item of a list must look like, unless the list is `every` alone; and that in words."""

    item: re.Pattern[str]
    every: str
    words: str

    def fits(self, items: tuple[str, ...]) -> bool:
        return items == (self.every,) or all(self.item.fullmatch(each) for each in items)


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting."""

    name: str
    kind: Kind
    default: Value | None
    """None where another spelling of the setting has the default."""
    doc: str
    least: float | None
    most: float | None
    among: tuple[str, ...]
    synonyms: tuple[tuple[str, int], ...]
    """For a topic's setting: the broker's settings it falls back to, and what to multiply those by."""
    dynamic: bool
    """For a broker's setting: may be changed while the broker runs."""
    shape: ItemShape | None = None

    def parse(self, text: str) -> Value:
        """The value a text means, or a ConfigError that says what would have been accepted."""
        text = text.strip()
        match self.kind:
            case Kind.BOOLEAN:
                allowed = self.among or ("true", "false")
                if text.lower() not in allowed:
                    raise self._refuse(text, " or ".join(allowed))
                return text.lower() == "true"
            case Kind.INT | Kind.LONG | Kind.DOUBLE:
                return self._parse_number(text)
            case Kind.LIST:
                items = tuple(item.strip() for item in text.split(",") if item.strip())
                # A set may be empty: a topic whose records are neither deleted nor compacted.
                is_set = isinstance(self.default, frozenset)
                has_gaps = bool(text.strip()) and len(items) < text.count(",") + 1
                if self.among and (has_gaps or not (items or is_set) or not set(items) <= set(self.among)):
                    amount = "any or none" if is_set else "one or more"
                    raise self._refuse(text, f"{amount} of {', '.join(self.among)}")
                if self.shape is not None and not self.shape.fits(items):
                    raise self._refuse(text, self.shape.words)
                return frozenset(items) if is_set else items
            case Kind.STRING:
                if self.among and text not in self.among:
                    raise self._refuse(text, "one of " + ", ".join(self.among))
                return text

    def _parse_number(self, text: str) -> int | float:
        whole = self.kind is not Kind.DOUBLE
        if not (_WHOLE if whole else _REAL).fullmatch(text):
            raise self._refuse(text, "a whole number" if whole else "a number")
        if self.among and text not in self.among:
            raise self._refuse(text, "one of " + ", ".join(self.among))
        number = int(text) if whole else float(text)
        least = self.least if self.least is not None else -(2**63)
        most = self.most if self.most is not None else (INT_MAX if self.kind is Kind.INT else LONG_MAX)
        if not least <= number <= most:
            bounds = (
                f"at least {least}" if number < least and self.most is None else f"between {least} and {most}"
            )
            raise self._refuse(text, bounds)
        return number

    def _refuse(self, text: str, wanted: str) -> ConfigError:
        return ConfigError(f"{self.name} has an invalid value, {text!r}: it must be {wanted}.")


def render(value: Value) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)

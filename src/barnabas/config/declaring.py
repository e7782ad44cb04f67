"""How a setting is declared: a field of a dataclass, whose name is Kafka's with underscores for dots.

Used by the other modules of this package, which say what there is to be set.
"""

from dataclasses import Field, field
from typing import Any

from barnabas.setting import ItemShape, Kind, Setting, Value

DAY_MS = 24 * 60 * 60 * 1000


def declare(
    default: Value,
    doc: str,
    *,
    kind: Kind | None = None,
    least: float | None = None,
    most: float | None = None,
    among: tuple[str, ...] = (),
    synonyms: tuple[str | tuple[str, int], ...] = (),
    dynamic: bool = False,
    shape: ItemShape | None = None,
) -> Any:
    if kind is None:
        kind = {bool: Kind.BOOLEAN, int: Kind.LONG, float: Kind.DOUBLE, str: Kind.STRING}.get(
            type(default), Kind.LIST
        )
    pairs = tuple((name, 1) if isinstance(name, str) else name for name in synonyms)
    facts = {
        "kind": kind,
        "doc": doc,
        "least": least,
        "most": most,
        "among": among,
        "synonyms": pairs,
        "dynamic": dynamic,
        "shape": shape,
    }
    return field(default=default, metadata=facts)


def declare_int(default: int, doc: str, **facts: Any) -> Any:
    return declare(default, doc, kind=Kind.INT, **facts)


def declared(declaration: Field[Any]) -> Setting:
    facts = declaration.metadata or dict.fromkeys(("kind", "least", "most"), None) | {
        "doc": "",
        "among": (),
        "synonyms": (),
        "dynamic": False,
    }
    default: Any = declaration.default
    return Setting(name=declaration.name.replace("_", "."), default=default, **facts)

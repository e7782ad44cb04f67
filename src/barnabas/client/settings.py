"""Checks of what people give as settings. Used by Producer and whoever takes settings by name."""

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.errors import BarnabasError


def refuse_unknown(given: Mapping[str, Any], known: Iterable[str], who: str) -> None:
    """An error that names the first setting there is not, and the one that was meant."""
    if not given:
        return
    from difflib import get_close_matches

    first = next(iter(given))
    meant = get_close_matches(first.replace(".", "_"), list(known), n=1, cutoff=0.5)
    hint = f": did you mean {meant[0]!r}?" if meant else "."
    raise BarnabasError(f"{who} has no setting {first!r}{hint}")


def refuse_small(least: Mapping[str, tuple[Any, float]]) -> None:
    """An error for the first setting whose value is no number or less than it may be: name: (value, least)."""
    for name, (value, smallest) in least.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < smallest:
            raise BarnabasError(f"{name} cannot be {value!r}: it must be a number, {smallest:g} or more.")

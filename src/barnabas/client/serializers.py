"""How keys, values and headers become bytes: as they are, as UTF-8, as JSON, by any callable. Used by Producer."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from barnabas.client.settings import can_be_written
from barnabas.errors import BarnabasError
from barnabas.wire.records import Headers

GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]
Serializer: TypeAlias = Callable[[Any], bytes | None]
Deserializer: TypeAlias = Callable[[bytes], Any]


def as_text(value: Any) -> bytes | None:
    """Text as UTF-8."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"text is wanted, not {type(value).__name__}")
    return value.encode()


def as_json(value: Any) -> bytes | None:
    """Whatever JSON can say; None stays None, which deletes a key of a compacted topic."""
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


SERIALIZERS: dict[str, Serializer | None] = {"bytes": None, "str": as_text, "json": as_json}


def serializer(given: str | Serializer | None, setting: str) -> Serializer | None:
    """The serializer a setting names; None where bytes are sent as they are."""
    if given is None or callable(given):
        return given
    if given not in SERIALIZERS:
        raise BarnabasError(f"{setting} cannot be {given!r}: say bytes, str, json, or give a callable.")
    return SERIALIZERS[given]


def serialize(run: Serializer, value: Any, what: str) -> bytes | None:
    """What a serializer makes of a key or value; its failure is told as one sentence."""
    try:
        found = run(value)
    except Exception as error:
        raise BarnabasError(f"The {what} cannot be serialized: {error}.") from error
    return as_bytes(found, what)


def as_bytes(value: Any, what: str) -> bytes | None:
    """A key or value that may be sent as it is."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BarnabasError(
        f"A {what} is bytes or None, not {type(value).__name__}: give the producer a {what}_serializer, such as 'json'."
    )


def header_pairs(headers: GivenHeaders) -> Headers:
    """Headers as the wire has them: names and values, of which there may be several of one name."""
    try:
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
    except TypeError:
        raise BarnabasError(
            f"Headers are a mapping, or pairs, of names and bytes, not {headers!r}."
        ) from None
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise BarnabasError(f"A header is a name and bytes or None, not {pair!r}.")
        name, value = pair
        if type(name) is not str or not (value is None or type(value) is bytes) or not can_be_written(name):
            raise BarnabasError(f"A header is a name and bytes or None, not {pair!r}.")
    return pairs

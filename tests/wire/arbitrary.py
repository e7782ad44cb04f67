"""Makes messages out of their annotations: arbitrary ones, and a full one that never changes."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from barnabas.wire.apis import APIS, request_class, response_class
from barnabas.wire.schema import (
    Bool,
    Bytes,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    WireType,
    fields_of,
)

EVERY_MESSAGE = [
    (cls, version)
    for key, api in APIS.items()
    for cls in (request_class(key), response_class(key))
    for version in range(api.lowest, api.highest + 1)
]
"""Every request and response in every version that we speak."""


def name_of(message: object) -> str:
    """For pytest's ids."""
    return message.__name__ if isinstance(message, type) else f"v{message}"


# 126, 127 and 200 bytes: around where a compact length begins to need a second byte.
TEXTS = st.text(max_size=8) | st.sampled_from(["", "a" * 126, "b" * 127, "ü" * 100])
PRIMITIVES: dict[WireType, st.SearchStrategy[Any]] = {
    Bool: st.booleans(),
    Int8: st.integers(-(2**7), 2**7 - 1),
    Int16: st.integers(-(2**15), 2**15 - 1),
    Int32: st.integers(-(2**31), 2**31 - 1),
    Int64: st.integers(-(2**63), 2**63 - 1),
    Uuid: st.integers(0, 2**128 - 1).map(lambda n: UUID(int=n)),
    String: TEXTS,
    Bytes: st.binary(max_size=8),
    Records: st.binary(max_size=8) | st.just(b"r" * 300),
}
Narrow = Mapping[str, st.SearchStrategy[Any]]


def messages(cls: type[Any], version: int, narrow: Narrow | None = None) -> st.SearchStrategy[Any]:
    """Arbitrary values in the fields that `version` has. `narrow` gives other values to fields by name."""
    present = [f for f in fields_of(cls) if f.is_in(version)]
    return st.builds(cls, **{f.name: _values(f, version, narrow or {}) for f in present})


def _values(f: Field, version: int, narrow: Narrow) -> st.SearchStrategy[Any]:
    if f.name in narrow:
        return narrow[f.name]
    if f.struct is None:
        assert f.kind is not None
        each = PRIMITIVES[f.kind]
    else:
        each = messages(f.struct, version, narrow)
    if f.is_array:
        each = st.lists(each, max_size=2)
    elif f.struct is not None:
        blank = f.struct()
        each = each.filter(lambda value: value != blank)  # Such a one is left out, and comes back as None.
    may_be_left_out = f.tag is not None and f.struct is not None and not f.is_array
    return st.none() | each if version >= f.nullable_since or may_be_left_out else each


FULL: dict[WireType, Any] = {
    Bool: True,
    Int8: 11,
    Int16: 22,
    Int32: 33,
    Int64: 44,
    Uuid: UUID(int=55),
    String: "füll",
    Bytes: b"bytes",
    Records: b"records",
}


def full(cls: type[Any], version: int) -> Any:
    """A message with every field of the version set to something, and two elements in every array."""
    return cls(**{f.name: _full_value(f, version) for f in fields_of(cls) if f.is_in(version)})


def _full_value(f: Field, version: int) -> Any:
    def one() -> Any:
        return full(f.struct, version) if f.struct else FULL[f.kind]  # type: ignore[index]

    return [one(), one()] if f.is_array else one()

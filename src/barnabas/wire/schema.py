"""The words in which a message describes itself: what a field is on the wire, and in which versions.

Message modules annotate their fields with these; the codec reads them. One dataclass covers every version:

    acks: Annotated[int, Int16] = 0
    timestamp: Annotated[int, Int64, Since(2)] = -1
    name: Annotated[str | None, String, NullableSince(12)] = ""
    topics: list[ProduceTopic]                                  # an array of structs needs no word at all
    replicas: Annotated[list[int], Int32]                       # an array of a primitive
    records: Annotated[memoryview | None, Records] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, Tag(0), Since(10)] = None

`| None` in the type means that the wire has a null for it. A tagged struct is None where it is left out, and has a
null on the wire only where `NullableSince` says so.
Every field has a default: it is what a version without the field decodes to.
A frozen dataclass has tuples in place of lists.
"""

import types
from collections.abc import Sized
from dataclasses import MISSING, fields
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from barnabas.errors import BarnabasError
from barnabas.types import Buffer
from barnabas.wire.apis import NO_VERSION, ApiKey, Versions

Chunk: TypeAlias = Buffer | Sized
"""A piece of a message on its way out: bytes, or whatever the sender knows to send and has a length."""

NO_ID = UUID(int=0)
"""Stands where a topic has no id."""


class Malformed(BarnabasError):
    """Bytes that are not the message they claim to be, or a message that its version cannot carry."""


class Message(Protocol):
    """A request or a response as a whole, as opposed to a struct inside one."""

    api: ClassVar[ApiKey]


class Stored(Protocol):
    """Something in the same encoding that belongs to no API, such as the value of a record of an internal topic."""

    versions: ClassVar[Versions]
    # `open_ended: ClassVar[bool] = True` lets newer versions add fields at the end that are not looked at.


class WireType:
    """A primitive of the wire. `code` is its letter for the struct module, where its size is fixed."""

    __slots__ = ("code", "name", "size")

    def __init__(self, name: str, code: str = "", size: int = 0) -> None:
        self.name = name
        self.code = code
        self.size = size


class Since:
    """The first version that has the field."""

    __slots__ = ("version",)

    def __init__(self, version: int) -> None:
        self.version = version


class Until(Since):
    """The last version that has the field."""


class NullableSince(Since):
    """The first version in which null is allowed."""


class Tag(Since):
    """The field is tagged: it travels behind the others, and only where it differs from its default."""


Bool = WireType("bool", "?", 1)
Int8 = WireType("int8", "b", 1)
Int16 = WireType("int16", "h", 2)
Int32 = WireType("int32", "i", 4)
Int64 = WireType("int64", "q", 8)
Uuid = WireType("uuid", "16s", 16)
String = WireType("string")
Bytes = WireType("bytes")
Records = WireType("records")


class Field(NamedTuple):
    """What the codec knows about one field."""

    name: str
    kind: WireType | None
    """None where it is a struct or an array of structs."""
    struct: type[Any] | None
    is_array: bool
    is_tuple: bool
    nullable_since: int
    since: int
    until: int
    tag: int | None
    default: object
    """A value, or a class to be called for a new one: `list`, or a struct."""

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until


def fields_of(cls: type[Any]) -> list[Field]:
    """The fields of a message or struct, in the order they travel in."""
    hints = get_type_hints(cls, include_extras=True)
    return [_field(f.name, hints[f.name], _default(cls, f)) for f in fields(cls)]


def _default(cls: type[Any], field: Any) -> object:
    if field.default is not MISSING:
        return field.default
    if isinstance(field.default_factory, type):
        return field.default_factory
    raise TypeError(f"{cls.__name__}.{field.name} needs a plain default, an empty list, or a class")


def _field(name: str, hint: Any, default: object) -> Field:
    kind: WireType | None = None
    since, until, tag = 0, NO_VERSION, None
    nullable_since: int | None = None
    if get_origin(hint) is Annotated:
        hint, *words = get_args(hint)
        for word in words:
            match word:
                case WireType():
                    kind = word
                case Until():
                    until = word.version
                case NullableSince():
                    nullable_since = word.version
                case Tag():
                    tag = word.version
                case Since():
                    since = word.version
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    (plain,) = (o for o in options if o is not type(None)) if kind is not Records else (object,)
    is_tuple = get_origin(plain) is tuple
    is_array = is_tuple or get_origin(plain) is list
    struct = None if kind else get_args(plain)[0] if is_array else plain
    if type(None) not in options:
        nullable_since = NO_VERSION
    elif nullable_since is None:
        nullable_since = NO_VERSION if tag is not None and struct and not is_array else 0
    return Field(name, kind, struct, is_array, is_tuple, nullable_since, since, until, tag, default)

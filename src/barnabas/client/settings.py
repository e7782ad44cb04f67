"""Checks of what people give, by the types that are declared for it: settings and arguments alike.

Used by Producer, Consumer and Admin. Always holds: what passes is of the type that the signature says; what does not is
one sentence that says what was wrong and what is wanted, before anything is done.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial, wraps
from inspect import Parameter, Signature, signature
from math import inf
from numbers import Integral, Real
from reprlib import Repr
from types import FunctionType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
)

from barnabas.errors import BarnabasError
from barnabas.setting import INT_MAX, LONG_MAX
from barnabas.types import TopicPartition

T = TypeVar("T")

Int: TypeAlias = Annotated[int, 0, INT_MAX]
"""With their bounds: the numbers that Kafka calls int and long, and those that need not be whole."""
PositiveInt: TypeAlias = Annotated[int, 1, INT_MAX]
Long: TypeAlias = Annotated[int, 0, LONG_MAX]
PositiveLong: TypeAlias = Annotated[int, 1, LONG_MAX]
Float: TypeAlias = Annotated[float, 0, inf]

_short = Repr()
_short.maxother = _short.maxstring = 100
_short.maxdict = _short.maxlist = _short.maxtuple = 3


def checked(given: T) -> T:
    """A function, or a class with all its public methods, that refuses what is not of the types it declares.

    A microsecond a call: what is called for every few records is `hot`, and looks at its arguments itself.
    """
    if isinstance(given, FunctionType):
        return _checking(given)  # type: ignore[return-value]
    for name, method in list(vars(given).items()):
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and isinstance(method, FunctionType) and method not in _hot:
            setattr(given, name, _checking(method))
    return given


_hot: set[Any] = set()


def hot(method: T) -> T:
    """A method that `checked` leaves alone."""
    _hot.add(method)
    return method


class Facts(NamedTuple):
    """What is declared of a setting besides its type: see `declared`."""

    default: Any
    doc: str
    among: tuple[str, ...] = ()
    is_shared: bool = False
    """Whether several clients have it: told of after their own."""


class SettingsSignature:
    """The signature of a class with all its settings, made when it is asked for."""

    def __get__(self, instance: object, owner: type) -> Signature:
        _, *own = signature(owner.__init__).parameters.values()  # type: ignore[misc]
        return Signature([each for given in own for each in _expanded(given)])


class Unique:
    """Whose objects have connections and threads of their own: none can be copied, or be sent to another process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        name = type(self).__name__
        raise BarnabasError(
            f"A {name} cannot be copied or pickled: it has connections of its own. Make one where it is needed, "
            f"inside the function that Spark or another process calls."
        )


def sound(where: str, declared: Any, value: Any) -> Any:
    """One value that is of a type, or the sentence that says why not."""
    return _sound(where, _kind(declared), "", value)


def can_be_written(text: str) -> bool:
    """Whether it is UTF-8: half of a surrogate pair would only be found where it costs others something."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def no_topic(given: Any) -> BarnabasError:
    return BarnabasError(f"A topic is a name, not {given!r}.")


def _checking(method: Callable[..., Any]) -> Callable[..., Any]:
    declared: _Declared | None = None

    @wraps(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        nonlocal declared
        if declared is None:
            declared = _Declared(method)  # not before: signatures take their time, and few are ever needed
        in_order, by_name = declared.in_order, declared.by_name
        sound = [check(value) for check, value in zip(in_order, args, strict=False)]
        if len(args) > len(in_order):
            sound += map(declared.rest, args[len(in_order) :])
        for name, value in named.items():
            if name in by_name:
                named[name] = by_name[name](value)
            elif declared.is_constructor:
                raise _no_setting(name, by_name, type(self).__name__)
        if declared.defaults:
            named = {**declared.defaults, **named}
        return method(self, *sound, **named)

    return call


class _Declared:
    """What a method wants: for each argument a check that gives it back, or raises."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.is_constructor = method.__name__ == "__init__"
        self.in_order: list[Callable[[Any], Any]] = []
        self.by_name: dict[str, Callable[[Any], Any]] = {}
        self.rest: Callable[[Any], Any] = lambda value: value
        self.defaults: dict[str, Any] = {}
        """Of the settings that are declared in `declared`: a constructor gets them all."""
        _, *parameters = signature(method).parameters.values()
        owner = method.__qualname__.rpartition(".")[0] if self.is_constructor else method.__name__
        for given in parameters:
            for each in _expanded(given):
                self._add(each, owner)
            if given.kind is Parameter.VAR_KEYWORD:
                self.defaults = {each.name: each.default for each in _expanded(given)}

    def _add(self, each: Parameter, owner: str) -> None:
        where = each.name if self.is_constructor else f"{owner}: {each.name}"
        kind = _kind(each.annotation)
        if each.kind is Parameter.VAR_POSITIONAL:
            self.rest = partial(_sound, where, kind, f", given by itself: {owner}(*{each.name})")
            return
        default = each.default
        is_telling = isinstance(default, str | int) and default not in (0, 1) and not kind.is_choice
        advice = f", such as {default!r}" if is_telling else ""
        check = self.by_name[each.name] = partial(_sound, where, kind, advice)
        if each.kind is Parameter.POSITIONAL_OR_KEYWORD:
            self.in_order.append(check)


def _expanded(parameter: Parameter) -> Iterator[Parameter]:
    """A parameter; of `**settings: Unpack[...]` all that are declared there."""
    if get_origin(parameter.annotation) is not Unpack:
        yield parameter
        return
    settings = get_args(parameter.annotation)[0].__annotations__
    for name in sorted(settings, key=lambda name: facts_of(settings[name]).is_shared):
        default = facts_of(settings[name]).default
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=settings[name])


def facts_of(declared: Any) -> Facts:
    """What is declared of a setting besides its type."""
    (facts,) = (each for each in declared.__metadata__ if isinstance(each, Facts))
    return facts


def plain_types(declared: Any) -> set[Any]:
    """The types that a declared one may be, without bounds."""
    if get_origin(declared) is Annotated:
        return plain_types(get_args(declared)[0])
    if get_origin(declared) in (Union, UnionType):
        return {plain for part in get_args(declared) for plain in plain_types(part)}
    return {declared}


def _sound(where: str, kind: "_Kind", advice: str, value: Any) -> Any:
    if kind.fits(value):
        return value.item() if _is_of_numpy(value) else value
    if isinstance(value, Iterator):  # what is looked at must still be there afterwards
        return _sound(where, kind, advice, list(value))
    raise BarnabasError(f"{where} cannot be {_short.repr(value)}: it must be {kind.words}{advice}.")


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]
    is_choice: bool = False
    """Whether the words name all that there is."""


def _is_whole(value: Any) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _is_number(value: Any) -> bool:
    return (isinstance(value, float) or _is_whole(value) or _is_of_numpy(value)) and value == value


def _is_of_numpy(value: Any) -> bool:
    return hasattr(value, "item") and isinstance(value, Real)


def _is_partition(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_whole(value[1])


_PLAIN: dict[Any, _Kind] = {
    Any: _Kind("anything", lambda value: True),
    NoneType: _Kind("None", lambda value: value is None),
    bool: _Kind("True or False", lambda value: isinstance(value, bool)),
    int: _Kind("a whole number", _is_whole),
    float: _Kind("a number", _is_number),
    str: _Kind("text", lambda value: isinstance(value, str) and can_be_written(value)),
    TopicPartition: _Kind("a partition, as TopicPartition('orders', 0)", _is_partition),
    Callable: _Kind("a function", callable),
}


@cache
def _kind(declared: Any) -> _Kind:
    """What an annotation stands for."""
    origin, parts = get_origin(declared), get_args(declared)
    found = origin or declared
    if found is Annotated:
        plain, *bounds = _kind(parts[0]), *(part for part in parts[1:] if not isinstance(part, Facts))
        among = next((part.among for part in parts[1:] if isinstance(part, Facts)), ())
        if among:
            *others, last = among
            return _Kind(f"{', '.join(others)} or {last}", lambda value: value in among, is_choice=True)
        if not bounds:
            return plain
        least, most = bounds
        words = plain.words + (" of 32 bits" if most == INT_MAX else "") + f", {least} or more"
        return _Kind(words, lambda value: plain.fits(value) and least <= value <= most)
    if found in (Union, UnionType):
        kinds = [_kind(part) for part in parts]
        words = " or ".join(kind.words for kind in kinds)
        return _Kind(words, lambda value: any(kind.fits(value) for kind in kinds))
    if found in _PLAIN:
        return _PLAIN[found]
    if not parts or not issubclass(found, Iterable):
        return _Kind(f"a {found.__name__}", lambda value: isinstance(value, found))
    if issubclass(found, Mapping):
        key, item = map(_kind, parts)
        return _Kind(
            f"a mapping (each key {key.words}, each value {item.words})",
            lambda value: (
                isinstance(value, Mapping)
                and all(key.fits(each) and item.fits(value[each]) for each in value)
            ),
        )
    each_one = _kind(parts[0])
    return _Kind(
        f"a list (each {each_one.words})",
        lambda value: (
            isinstance(value, found)
            and not isinstance(value, str | bytes | Mapping | Iterator)
            and all(map(each_one.fits, value))
        ),
    )


def _no_setting(name: str, known: Iterable[str], owner: str) -> BarnabasError:
    """Names the setting that there is not, and the one that was meant."""
    from difflib import get_close_matches

    meant = get_close_matches(name.replace(".", "_"), list(known), n=1, cutoff=0.5)
    return BarnabasError(
        f"{owner} has no setting {name!r}" + (f": did you mean {meant[0]!r}?" if meant else ".")
    )

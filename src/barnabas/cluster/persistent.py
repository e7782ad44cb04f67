"""A mapping that never changes and whose successors share with it all but what is different. PURE.

The cluster's image keeps its topics in one: a change copies a few small nodes, however many topics there are, and the
difference between two images is found without looking at what they share. Safe to read from any thread.

A node is a dict of few entries, or a tuple of 32 nodes, chosen by five bits of the key's hash. Strings are hashed
by CRC-32 and not by Python: the order of iteration is then the same in every process.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, Generic, TypeVar, cast
from zlib import crc32

LEAF = 32
"""Entries that a leaf has at most, but for the deepest."""
_BITS = 5
_MASK = (1 << _BITS) - 1
_DEEPEST = 6 * _BITS
_REBUILD = 4
"""From a quarter of the entries on, to make the whole anew takes less time than to change one after the other."""

K = TypeVar("K")
V = TypeVar("V")

_Node = Any
"""dict[K, V], or a tuple of nodes: mypy cannot say that of a recursive generic type."""


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping; `updated` makes the next one."""

    __slots__ = ("_root", "_size")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        found = dict(entries)
        self._size = len(found)
        self._root: _Node = _built(found, 0)

    def updated(self, entries: Mapping[K, V], gone: Iterable[K] = ()) -> "PersistentMap[K, V]":
        """The same with these entries, and without these keys."""
        removed = dict.fromkeys(key for key in gone if key in self)
        if (len(entries) + len(removed)) * _REBUILD > self._size:
            whole = {key: value for key, value in self.items() if key not in removed} | dict(entries)
            return PersistentMap(whole)
        root, size = self._root, self._size - len(removed)
        for key in removed:
            root = _without(root, key, _hash(key), 0)
        for key, value in entries.items():
            size += key not in self
            root = _with(root, key, value, _hash(key), 0)
        after: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        after._root, after._size = root, size
        return after

    def changed_since(self, before: "PersistentMap[K, V]") -> Iterator[K]:
        """The keys that are new, gone, or have another object for their value."""
        return _changed(before._root, self._root)

    def get(self, key: Any, default: Any = None) -> Any:
        node = self._root
        if node.__class__ is tuple:
            bits = _hash(key)
            while node.__class__ is tuple:
                node = node[bits & _MASK]
                bits >>= _BITS
        return node.get(key, default)

    def __getitem__(self, key: K) -> V:
        found = self.get(key, _MISSING)
        if found is _MISSING:
            raise KeyError(key)
        return cast("V", found)

    def __contains__(self, key: object) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(_leaves(self._root))

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"


class _Items(ItemsView[K, V]):
    """Entries leaf by leaf, without a look-up for each."""

    _mapping: PersistentMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(map(dict.items, _leaves(self._mapping._root)))


class _Values(ValuesView[V]):
    """Values leaf by leaf, without a look-up for each."""

    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, _leaves(self._mapping._root)))


_MISSING: Any = object()


def _hash(key: Any) -> int:
    return crc32(key.encode("utf-8", "surrogatepass")) if key.__class__ is str else hash(key)


def _built(entries: dict[Any, Any], shift: int) -> _Node:
    if len(entries) <= LEAF or shift >= _DEEPEST:
        return entries
    parts: list[dict[Any, Any]] = [{} for _ in range(_MASK + 1)]
    for key, value in entries.items():
        parts[(_hash(key) >> shift) & _MASK][key] = value
    return tuple(_built(part, shift + _BITS) for part in parts)


def _with(node: _Node, key: Any, value: Any, bits: int, shift: int) -> _Node:
    if node.__class__ is dict:
        return _built({**node, key: value}, shift)
    at = bits & _MASK
    return (*node[:at], _with(node[at], key, value, bits >> _BITS, shift + _BITS), *node[at + 1 :])


def _without(node: _Node, key: Any, bits: int, shift: int) -> _Node:
    if node.__class__ is dict:
        return {other: value for other, value in node.items() if other != key}
    at = bits & _MASK
    return (*node[:at], _without(node[at], key, bits >> _BITS, shift + _BITS), *node[at + 1 :])


def _leaves(node: _Node) -> Iterator[dict[Any, Any]]:
    if node.__class__ is dict:
        return iter((node,))
    return chain.from_iterable(map(_leaves, node))


def _changed(old: _Node, new: _Node) -> Iterator[Any]:
    if old is new:
        return
    if old.__class__ is tuple and new.__class__ is tuple:
        for before, after in zip(old, new, strict=True):
            if before is not after:
                yield from _changed(before, after)
        return
    # One side was split or made anew: both hold the keys of the same bits.
    was = {key: value for leaf in _leaves(old) for key, value in leaf.items()}
    now = {key: value for leaf in _leaves(new) for key, value in leaf.items()}
    for key, value in now.items():
        if was.pop(key, _MISSING) is not value:
            yield key
    yield from was

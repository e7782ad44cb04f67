"""The map that images share: it is a dict to its readers, and a change copies a few small nodes of it."""

import random
from typing import Any

import pytest

from barnabas.cluster.persistent import LEAF, PersistentMap

LARGE = 100_000


def nodes(node: Any) -> dict[int, Any]:
    found = {id(node): node}
    if isinstance(node, tuple):
        for child in node:
            found |= nodes(child)
    return found


def copied(before: PersistentMap[Any, Any], after: PersistentMap[Any, Any]) -> int:
    """Entries and references that were copied to get from one map to the other."""
    old = nodes(before._root)
    return sum(len(node) for key, node in nodes(after._root).items() if key not in old)


@pytest.mark.parametrize("seed", range(20))
def test_it_holds_what_a_dict_holds(seed: int) -> None:
    chance = random.Random(seed)
    model: dict[str, int] = {}
    tried: PersistentMap[str, int] = PersistentMap()
    held: list[tuple[dict[str, int], PersistentMap[str, int]]] = []
    for step in range(300):
        entries = {f"k{chance.randrange(400)}": step for _ in range(chance.choice((0, 1, 1, 1, 50)))}
        gone = {f"k{chance.randrange(400)}" for _ in range(chance.choice((0, 1, 20)))} - entries.keys()
        before, model = model, {key: value for key, value in model.items() if key not in gone} | entries
        old, tried = tried, tried.updated(entries, gone)
        assert dict(tried) == model == dict(tried.items())
        assert len(tried) == len(model)
        assert sorted(tried.values()) == sorted(model.values())
        changed = {key for key in model.keys() | before.keys() if model.get(key) is not before.get(key)}
        assert set(tried.changed_since(old)) == changed
        held.append((before, old))
    for before, old in held:
        assert dict(old) == before  # what came later has changed nothing of it


def test_what_is_not_there_is_missing_as_in_a_dict() -> None:
    for size in (0, 5, 500):
        tried = PersistentMap({str(number): number for number in range(size)})
        assert tried.get("x") is None
        assert "x" not in tried
        with pytest.raises(KeyError):
            tried["x"]
        assert tried.updated({}, ["x"]) == tried


def test_a_change_copies_as_little_of_a_large_map_as_of_a_small_one() -> None:
    for size in (10, LARGE):
        before = PersistentMap({f"topic-{number}": number for number in range(size)})
        assert copied(before, before.updated({"topic-7": -1})) <= 5 * LEAF
        assert copied(before, before.updated({"new": -1})) <= 5 * LEAF
        assert copied(before, before.updated({}, ["topic-7"])) <= 5 * LEAF


def test_keys_that_collide_in_every_bit_are_told_apart() -> None:
    class Same(int):
        def __hash__(self) -> int:
            return 12345

    keys = [Same(number) for number in range(3 * LEAF)]
    tried = PersistentMap((key, key) for key in keys)
    assert [tried[key] for key in keys] == keys
    assert len(tried.updated({}, keys[:5])) == 3 * LEAF - 5


def test_two_maps_made_apart_are_equal_and_differ_in_nothing() -> None:
    facts = {f"k{number}": object() for number in range(500)}
    one, other = PersistentMap(facts), PersistentMap(reversed(facts.items()))
    assert one == other == facts
    assert list(one.changed_since(other)) == []

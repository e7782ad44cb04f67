"""The server-side assignors: who gets what, and what stays where it was."""

import random
from collections.abc import Mapping
from uuid import UUID

import pytest

from barnabas.coordinator.consumer.assignors import (
    ASSIGNORS,
    Subscriber,
    Target,
    range_assignor,
    uniform_assignor,
)

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def everyone(
    members: str, *topics: UUID, former: Mapping[str, Target] | None = None
) -> dict[str, Subscriber]:
    former = former or {}
    return {m: Subscriber(frozenset(topics), None, former.get(m, {})) for m in members}


def partitions(target: Target) -> set[tuple[int, int]]:
    return {(topic.int, index) for topic, indexes in target.items() for index in indexes}


def sizes(targets: Mapping[str, Target]) -> list[int]:
    return sorted(len(partitions(target)) for target in targets.values())


def moved(before: Mapping[str, Target], after: Mapping[str, Target]) -> int:
    """Partitions that had an owner and have another one."""
    return sum(
        len(partitions(before[one]) & partitions(after[other]))
        for one in before
        for other in after
        if one != other
    )


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    targets = range_assignor(everyone("xyz", A), {A: 8})
    assert targets == {"x": {A: {0, 1, 2}}, "y": {A: {3, 4, 5}}, "z": {A: {6, 7}}}


def test_range_gives_the_same_numbers_of_topics_of_the_same_size() -> None:
    targets = range_assignor(everyone("xy", A, B), {A: 3, B: 3})
    assert targets == {"x": {A: {0, 1}, B: {0, 1}}, "y": {A: {2}, B: {2}}}


def test_range_leaves_members_without_where_there_are_too_few() -> None:
    assert range_assignor(everyone("xyz", A), {A: 2}) == {"x": {A: {0}}, "y": {A: {1}}, "z": {}}


def test_range_looks_at_each_topics_subscribers_alone() -> None:
    members = {
        "x": Subscriber(frozenset((A,))),
        "y": Subscriber(frozenset((A, B))),
        "z": Subscriber(frozenset((B,))),
    }
    targets = range_assignor(members, {A: 3, B: 3})
    assert targets == {"x": {A: {0, 1}}, "y": {A: {2}, B: {0, 1}}, "z": {B: {2}}}


def test_range_keeps_a_static_members_place_when_its_id_changes() -> None:
    def group(first: str, second: str) -> dict[str, Subscriber]:
        return {
            first: Subscriber(frozenset((A,)), "instance-1"),
            second: Subscriber(frozenset((A,)), "instance-2"),
            "0-dynamic": Subscriber(frozenset((A,))),
        }

    before = range_assignor(group("a", "b"), {A: 6})
    after = range_assignor(group("z", "y"), {A: 6})
    assert (after["z"], after["y"], after["0-dynamic"]) == (before["a"], before["b"], before["0-dynamic"])
    assert before["a"] == {A: {0, 1}}, "static members come first"


def test_uniform_spreads_over_all_topics_at_once() -> None:
    assert sizes(uniform_assignor(everyone("xyz", A, B, C), {A: 1, B: 2, C: 5})) == [2, 3, 3]


def test_uniform_moves_nothing_when_nothing_has_changed() -> None:
    before = uniform_assignor(everyone("xyz", A, B), {A: 5, B: 5})
    assert uniform_assignor(everyone("xyz", A, B, former=before), {A: 5, B: 5}) == before


def test_uniform_gives_only_what_a_leaver_had_to_others() -> None:
    before = uniform_assignor(everyone("wxyz", A, B), {A: 8, B: 4})
    after = uniform_assignor(everyone("xyz", A, B, former=before), {A: 8, B: 4})
    assert all(partitions(before[member]) <= partitions(after[member]) for member in "xyz")
    assert sizes(after) == [4, 4, 4]


def test_uniform_takes_no_more_from_the_others_than_a_newcomer_gets() -> None:
    before = uniform_assignor(everyone("xyz", A), {A: 16})
    after = uniform_assignor(everyone("wxyz", A, former=before), {A: 16})
    assert sizes(after) == [4, 4, 4, 4]
    assert moved(before, after) == 4


def test_uniform_gives_new_partitions_to_those_who_have_least() -> None:
    before = uniform_assignor(everyone("xyz", A), {A: 4})
    after = uniform_assignor(everyone("xyz", A, former=before), {A: 6})
    assert sizes(after) == [2, 2, 2]
    assert moved(before, after) == 0


def test_uniform_forgets_topics_that_are_gone() -> None:
    before = uniform_assignor(everyone("xy", A, B), {A: 4, B: 4})
    after = uniform_assignor(everyone("xy", A, former=before), {A: 4})
    assert sizes(after) == [2, 2]
    assert all(target.keys() == {A} for target in after.values())


def test_uniform_lets_members_with_more_topics_do_less_of_the_shared_one() -> None:
    members = {
        "x": Subscriber(frozenset((A,))),
        "y": Subscriber(frozenset((A, B))),
    }
    targets = uniform_assignor(members, {A: 4, B: 2})
    assert targets["y"][B] == {0, 1}
    assert sizes(targets) == [3, 3]


def test_uniform_balances_what_was_out_of_balance() -> None:
    former: dict[str, Target] = {"x": {A: frozenset(range(6))}, "y": {B: frozenset((0,))}, "z": {}}
    members = {
        "x": Subscriber(frozenset((A,)), None, former["x"]),
        "y": Subscriber(frozenset((A, B)), None, former["y"]),
        "z": Subscriber(frozenset((A,)), None, former["z"]),
    }
    after = uniform_assignor(members, {A: 6, B: 1})
    assert sizes(after) == [2, 2, 3]
    assert after["y"][B] == {0}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_gets_anything_where_there_is_nothing(name: str) -> None:
    assert ASSIGNORS[name]({}, {A: 3}) == {}
    assert ASSIGNORS[name](everyone("xy"), {A: 3}) == {"x": {}, "y": {}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(150))
def test_each_partition_has_one_subscriber_through_all_changes(name: str, seed: int) -> None:
    """And it does not matter in which order members are named."""
    rng = random.Random(seed)
    topics = {UUID(int=number): rng.randint(0, 9) for number in range(1, 6)}
    alike = rng.random() < 0.5
    former: dict[str, Target] = {}
    for _ in range(6):
        shared = frozenset(rng.sample(sorted(topics), rng.randint(1, 5)))
        names = rng.sample("abcdefgh", rng.randint(1, 8))
        members = {
            m: Subscriber(
                shared if alike else frozenset(rng.sample(sorted(topics), rng.randint(1, 5))),
                f"i-{m}" if rng.random() < 0.3 else None,
                former.get(m, {}),
            )
            for m in names
        }
        targets = ASSIGNORS[name](members, topics)
        reordered = dict(rng.sample(list(members.items()), len(members)))
        assert ASSIGNORS[name](reordered, topics) == targets
        assert targets.keys() == members.keys()
        assigned = [p for target in targets.values() for p in partitions(target)]
        wanted = {topic for member in members.values() for topic in member.topics}
        assert sorted(assigned) == sorted((t.int, index) for t in wanted for index in range(topics[t]))
        assert all(targets[m].keys() <= members[m].topics for m in members)
        assert all(target[topic] for target in targets.values() for topic in target)
        if name == "uniform" and alike:
            assert sizes(targets)[-1] - sizes(targets)[0] <= 1
        former = targets
        grown = rng.choice(sorted(topics))
        topics = {**topics, grown: topics[grown] + 1}


@pytest.mark.parametrize("seed", range(100))
def test_uniform_moves_as_few_as_balance_allows(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 40)
    names = "abcdefghij"[: rng.randint(2, 10)]
    before = uniform_assignor(everyone(names, A), {A: count})
    left = "".join(rng.sample(names, rng.randint(1, len(names)))) + "z" * rng.randint(0, 1)
    after = uniform_assignor(everyone(left, A, former=before), {A: count})
    least, extra = divmod(count, len(set(left)))
    loads = sorted((len(partitions(before.get(m, {}))) for m in set(left)), reverse=True)
    kept = sum(min(load, least + (index < extra)) for index, load in enumerate(loads))
    assert count - kept == sum(
        len(partitions(after[member]) - partitions(before.get(member, {}))) for member in after
    )

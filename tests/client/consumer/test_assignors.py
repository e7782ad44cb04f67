"""Promises of client/consumer/assignors.py: the textbook's shares, and what holds for any members and topics."""

import random
from itertools import combinations, product

import pytest

from barnabas.client.consumer.assignors import (
    ASSIGNORS,
    Candidate,
    Shares,
    assign_cooperative,
    assign_range,
    assign_round_robin,
    assign_sticky,
    assignors_of,
)
from barnabas.errors import BarnabasError
from barnabas.types import TopicPartition


def wanting(*topics: str, had: dict[str, list[int]] | None = None, generation: int = -1) -> Candidate:
    owned = tuple(TopicPartition(topic, n) for topic, numbers in (had or {}).items() for n in numbers)
    return Candidate(frozenset(topics), None, owned, generation)


def numbers(shares: Shares) -> dict[str, list[int]]:
    return {member: [each.partition for each in share] for member, share in shares.items()}


def after(
    shares: Shares, gone: tuple[str, ...] = (), topics: tuple[str, ...] = ("t",)
) -> dict[str, Candidate]:
    """The members as they meet again, with what they had."""
    return {
        member: Candidate(frozenset(topics), None, tuple(share), 1)
        for member, share in shares.items()
        if member not in gone
    }


THREE = {"a": wanting("t"), "b": wanting("t"), "c": wanting("t")}


def test_ten_partitions_over_three_members_by_range() -> None:
    assert numbers(assign_range(THREE, {"t": 10})) == {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}


def test_ten_partitions_over_three_members_by_round_robin() -> None:
    found = numbers(assign_round_robin(THREE, {"t": 10}))
    assert found == {"a": [0, 3, 6, 9], "b": [1, 4, 7], "c": [2, 5, 8]}


def test_round_robin_goes_on_from_topic_to_topic_and_passes_over_members_that_do_not_subscribe() -> None:
    members = {"a": wanting("t", "u"), "b": wanting("t"), "c": wanting("t", "u")}
    found = assign_round_robin(members, {"t": 2, "u": 3})
    assert found == {
        "a": [TopicPartition("t", 0), TopicPartition("u", 1)],
        "b": [TopicPartition("t", 1)],
        "c": [TopicPartition("u", 0), TopicPartition("u", 2)],
    }


def test_static_members_come_first_by_the_name_that_stays() -> None:
    members = {each: wanting("t") for each in ("b", "a")} | {"z": Candidate(frozenset("t"), "instance")}
    assert numbers(assign_range(members, {"t": 4})) == {"z": [0, 1], "a": [2], "b": [3]}
    assert numbers(assign_round_robin(members, {"t": 4})) == {"z": [0, 3], "a": [1], "b": [2]}


def test_sticky_members_keep_what_they_had_when_one_leaves() -> None:
    before = assign_sticky(THREE, {"t": 10})
    assert sorted(map(len, before.values())) == [3, 3, 4]
    left = assign_sticky(after(before, gone=("b",)), {"t": 10})
    assert [len(left["a"]), len(left["c"])] == [5, 5]
    assert set(before["a"]) <= set(left["a"])
    assert set(before["c"]) <= set(left["c"])


def test_sticky_members_give_up_only_what_a_new_one_needs() -> None:
    before = assign_sticky({"a": wanting("t"), "b": wanting("t")}, {"t": 10})
    grown = assign_sticky(after(before) | {"c": wanting("t")}, {"t": 10})
    assert sorted(map(len, grown.values())) == [3, 3, 4]
    assert set(grown["a"]) < set(before["a"])
    assert set(grown["b"]) < set(before["b"])


def test_balance_comes_before_stickiness() -> None:
    members = {"a": wanting("t", had={"t": [0, 1, 2, 3]}, generation=3), "b": wanting("t")}
    assert sorted(map(len, assign_sticky(members, {"t": 4}).values())) == [2, 2]


def test_a_chain_of_members_passes_partitions_on_where_two_have_no_topic_in_common() -> None:
    members = {
        "a": wanting("t", had={"t": [0, 1, 2]}, generation=1),
        "b": wanting("t", "u", had={"u": [0, 1]}, generation=1),
        "c": wanting("u", had={"u": [2]}, generation=1),
    }
    found = assign_sticky(members, {"t": 3, "u": 3})
    assert [len(found[each]) for each in "abc"] == [2, 2, 2]


def test_of_two_claims_on_a_partition_the_later_generation_counts() -> None:
    members = {
        "a": wanting("t", had={"t": [0, 1]}, generation=4),
        "b": wanting("t", had={"t": [1, 2, 3]}, generation=5),
    }
    assert numbers(assign_sticky(members, {"t": 4}))["a"][0] == 0
    assert set(numbers(assign_sticky(members, {"t": 4}))["b"]) <= {1, 2, 3}


def test_what_moves_is_held_back_until_it_is_given_up() -> None:
    had = {"t": [0, 1, 2, 3]}
    members = {"a": wanting("t", had=had, generation=1), "b": wanting("t")}
    first = assign_cooperative(members, {"t": 4})
    assert numbers(first) == {"a": [0, 1], "b": []}
    second = assign_cooperative(after(first), {"t": 4})
    assert numbers(second) == {"a": [0, 1], "b": [2, 3]}


def world(chance: random.Random, *, alike: bool) -> tuple[dict[str, Candidate], dict[str, int]]:
    """Members that subscribe to some topics, and say that they had this and that."""
    topics = {f"t{n}": chance.randrange(7) for n in range(chance.randint(1, 4))}
    choice = [*topics, "absent"]
    common = chance.sample(choice, chance.randint(1, len(choice)))
    members = {}
    for place in range(chance.randint(1, 6)):
        wanted = common if alike else chance.sample(choice, chance.randint(0, len(choice)))
        had = [TopicPartition(t, n) for t in choice for n in range(8) if chance.random() < 0.3]
        instance = f"i{chance.random()}" if chance.random() < 0.3 else None
        members[f"m{place}"] = Candidate(frozenset(wanted), instance, tuple(had), chance.randint(-1, 2))
    return members, topics


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_partition_has_one_owner_that_subscribes_to_it(name: str) -> None:
    chance = random.Random(name)
    for _ in range(400):
        members, topics = world(chance, alike=chance.random() < 0.5)
        shares = ASSIGNORS[name].assign(members, topics)
        given = [each for share in shares.values() for each in share]
        wanted = {topic for each in members.values() for topic in each.topics}
        all_of_them = {TopicPartition(t, n) for t in wanted for n in range(topics.get(t, 0))}
        assert len(given) == len(set(given))
        held_back = all_of_them - set(given)
        assert set(given) <= all_of_them
        if name == "cooperative-sticky":
            assert all(any(each in m.owned for m in members.values()) for each in held_back)
        else:
            assert not held_back
        assert all(each.topic in members[m].topics for m, share in shares.items() for each in share)


def test_no_shares_are_more_even_than_the_sticky_ones() -> None:
    chance = random.Random(5)
    for _ in range(300):
        members, topics = world(chance, alike=False)
        topics = {topic: min(count, 2) for topic, count in topics.items()}
        places = [TopicPartition(t, n) for t, count in topics.items() for n in range(count)][:6]
        topics = {t: sum(p.topic == t for p in places) for t in topics}
        owners = [[m for m in members if t in members[m].topics] for t, _ in places]
        ways = product(*[each for each in owners if each])
        best = min(sum(way.count(m) ** 2 for m in members) for way in ways)
        found = assign_sticky(members, topics)
        assert sum(len(share) ** 2 for share in found.values()) == best


def test_nothing_moves_that_need_not() -> None:
    """Where all want the same: each keeps what it had, up to its fair share."""
    chance = random.Random(6)
    for _ in range(300):
        members, topics = world(chance, alike=True)
        before = assign_sticky(members, topics)
        wanted = tuple(next(iter(members.values())).topics)
        again = after(before, topics=wanted)
        assert assign_sticky(again, topics) == before
        gone = chance.choice(sorted(members))
        if len(members) > 1:
            later = assign_sticky(after(before, (gone,), wanted), topics)
            assert all(set(before[each]) <= set(later[each]) for each in later)
        grown = {topic: count + chance.randrange(3) for topic, count in topics.items()}
        later = assign_sticky(again, grown)
        fair = sum(grown.get(topic, 0) for topic in wanted) // len(members)
        for each in members:
            assert len(set(before[each]) & set(later[each])) >= min(len(before[each]), fair)


def test_cooperative_groups_come_to_rest_with_everything_shared() -> None:
    chance = random.Random(7)
    for _ in range(200):
        members, topics = world(chance, alike=False)
        members = {m: Candidate(each.topics, each.instance_id) for m, each in members.items()}
        for generation in range(6):
            shares = assign_cooperative(members, topics)
            for one, other in combinations(members, 2):
                kept = set(shares[one]) | set(members[one].owned) & set(shares[one])
                assert not kept & set(shares[other])
            rest = all(tuple(shares[m]) == members[m].owned for m in members)
            members = {
                m: Candidate(each.topics, each.instance_id, tuple(shares[m]), generation)
                for m, each in members.items()
            }
            if rest:
                break
            if generation == 0:
                late = Candidate(frozenset(topics))
                members |= {"late": late}
        assert rest
        wanted = {topic for each in members.values() for topic in each.topics}
        assert sum(map(len, shares.values())) == sum(topics.get(topic, 0) for topic in wanted)


# --- the bytes


def test_what_a_member_of_the_sticky_assignor_had_is_told_in_java_s_bytes() -> None:
    sticky = ASSIGNORS["sticky"]
    data = sticky.metadata(["t"], had=[TopicPartition("t", 1), TopicPartition("t", 2)], generation=7)
    found = sticky.candidate(data, "i")
    assert found == Candidate(frozenset("t"), "i", (TopicPartition("t", 1), TopicPartition("t", 2)), 7)
    user_data = "00000001" + "000174" + "00000002" + "00000001" + "00000002" + "00000007"
    assert user_data in data.hex()


def test_what_members_of_kafka_python_say_they_had_is_understood() -> None:
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.structs import TopicPartition as TheirPartition

    had = [TopicPartition("t", 3), TopicPartition("u", 0)]
    for name, kind in (
        ("sticky", StickyPartitionAssignor),
        ("cooperative-sticky", CooperativeStickyAssignor),
    ):
        theirs = kind()
        theirs.member_assignment = [TheirPartition(*each) for each in had]
        theirs.generation = 5
        found = ASSIGNORS[name].candidate(theirs.metadata(["t", "u"]).encode(), None)
        assert sorted(found.owned) == had
        assert found.topics == {"t", "u"}


def test_strategies_are_names_that_can_go_together() -> None:
    assert [each.name for each in assignors_of("range, sticky")] == ["range", "sticky"]
    for wrong, why in (
        ("ranges", "but no 'ranges'"),
        ((), "at least one"),
        (("range", "cooperative-sticky"), "mix"),
    ):
        with pytest.raises(BarnabasError, match=why):
            assignors_of(wrong)

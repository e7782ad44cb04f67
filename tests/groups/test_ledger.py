"""Proves that the judge of these tests sees what it is there to see: a fault of each sort, in a short story."""

import itertools
from typing import Any

import pytest

from tests.groups.ledger import Ledger

Line = tuple[str, dict[str, Any]]


def got(member: str, generation: int = 1) -> Line:
    return member, {"event": "assigned", "partitions": [0], "generation": generation}


def gave(member: str) -> Line:
    return member, {"event": "revoked", "partitions": [0]}


def read(member: str, first: int, end: int) -> Line:
    return member, {"event": "records", "rows": [[0, offset] for offset in range(first, end)]}


def commit(member: str, offset: int, *, answer: str = "committed") -> list[Line]:
    asked = (member, {"event": "committing", "offsets": [[0, offset]]})
    return [asked, (member, {"event": answer, "offsets": [[0, offset]]})] if answer else [asked]


def killed(member: str) -> Line:
    return member, {"event": "silenced", "for_good": True}


def stumbled(member: str) -> Line:
    return member, {"event": "stumbled", "why": "a race of its own"}


def judge(*lines: Line, end: int = 10, leader_changes: int = 0) -> None:
    ledger, clock = Ledger(1, 3000), itertools.count(1)
    ledger.leader_changes = leader_changes
    for member, told in lines:
        ledger.note(member, {"at": next(clock), **told})
    ledger.judge([end])


FIRST = [got("a"), read("a", 0, 6), *commit("a", 4)]


def test_a_clean_handover_is_no_fault() -> None:
    judge(*FIRST, gave("a"), got("b", 2), read("b", 4, 10), *commit("b", 10))


def test_a_commit_that_was_refused_may_be_read_again() -> None:
    refused = commit("a", 6, answer="refused")
    judge(*FIRST, *refused, gave("a"), got("b", 2), read("b", 4, 10), *commit("b", 10))


@pytest.mark.parametrize("start", [4, 6])
def test_a_commit_whose_answer_was_lost_may_count_or_not(start: int) -> None:
    unheard = commit("a", 6, answer="")
    judge(*FIRST, *unheard, killed("a"), got("b", 2), read("b", start, 10), *commit("b", 10))


def test_a_member_may_stumble_once_for_each_change_of_leaders() -> None:
    story = [got("a"), read("a", 0, 6), stumbled("a"), read("a", 6, 10), *commit("a", 10)]
    judge(*story, leader_changes=1)
    with pytest.raises(AssertionError, match="a stumbled 1 times over 0 changes"):
        judge(*story)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ([*FIRST, gave("a"), got("b", 2), read("b", 6, 10), *commit("b", 10)], "was skipped"),
        ([*FIRST, gave("a"), got("b", 2), read("b", 3, 10), *commit("b", 10)], "read again"),
        ([*FIRST, gave("a"), got("b", 2), read("b", 3, 6), gave("b"), got("a", 3)], "taken inside"),
        ([*FIRST, read("a", 8, 10), *commit("a", 10)], "after 5"),
        ([*FIRST, got("b", 2), gave("a"), read("b", 4, 10), *commit("b", 10)], "got 0, which a had"),
        ([*FIRST, gave("a"), got("b"), read("b", 4, 10), *commit("b", 10)], "in generation 1"),
        ([*FIRST, gave("a"), read("b", 4, 10), *commit("b", 10)], "did not own"),
        ([*FIRST], "committed up to 4"),
    ],
)
def test_each_fault_is_seen(lines: list[Line], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        judge(*lines)

"""The bench's raw group members, without a broker: their frames as our own codec reads them, and what they answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.wire.frames import decode_request, encode_response, read_request_header
from barnabas.wire.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
)

# The bench is a package at the repository's root and is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measure import Case, Size
from bench.members import MemberFailedError, MemberState, Phase
from bench.workloads import ALL, groups

from bench import barnabas_server, group_wire

LOADING, UNKNOWN_MEMBER_ID = 14, 25


def read(frame: bytes | None) -> Any:
    """A frame as the broker reads it: strict about lengths and about what is left over."""
    assert frame is not None
    view = memoryview(frame)[4:]
    assert int.from_bytes(frame[:4], "big") == len(view)
    return decode_request(read_request_header(view), view)


def answer(message: Any, version: int) -> bytes:
    """What a member sees: the frame behind its length."""
    (frame,) = encode_response(message, version, 1)
    assert isinstance(frame, bytearray)
    return bytes(frame[4:])


def joined(member: str, leader: str = "a", members: tuple[str, ...] = (), error: int = 0) -> bytes:
    told = [JoinGroupMember(name, None, b"subscription") for name in members]
    return answer(JoinGroupResponse(0, error, 7, "consumer", "range", leader, False, member, told), 9)


def synced(error: int = 0) -> bytes:
    return answer(SyncGroupResponse(0, error, "consumer", "range", b""), 5)


def beaten(error: int = 0) -> bytes:
    return answer(HeartbeatResponse(0, error), 4)


def stable(member: str = "a") -> MemberState:
    state = MemberState("g", "t")
    state.join()
    state.answered(joined(member))
    state.answered(synced())
    assert state.phase is Phase.STABLE
    return state


def test_a_commit_is_read_as_one_of_a_consumer_without_a_group() -> None:
    expected = OffsetCommitRequest(
        "g", -1, "", topics=[OffsetCommitTopic("t", [OffsetCommitPartition(3, 1 << 40)])]
    )
    assert read(group_wire.commit("g", "t", 3, 1 << 40)) == expected


@pytest.mark.parametrize("topic", ["t", "t" * 200])
def test_the_error_of_a_commit_is_found_where_the_generator_looks(topic: str) -> None:
    result = OffsetCommitTopicResult(topic, [OffsetCommitPartitionResult(3, UNKNOWN_MEMBER_ID)])
    frame = bytes(4) + answer(OffsetCommitResponse(0, [result]), 9)
    assert group_wire.error_at(frame, group_wire.commit_error_offset(topic)) == UNKNOWN_MEMBER_ID


def test_a_coordinator_is_asked_for_until_there_is_one() -> None:
    assert read(group_wire.find_coordinator("g")) == FindCoordinatorRequest(key="g", key_type=0)
    assert group_wire.found(answer(FindCoordinatorResponse(error_code=0), 2))
    assert not group_wire.found(answer(FindCoordinatorResponse(error_code=15), 2))


def test_a_member_takes_the_id_it_is_given_and_joins_with_it() -> None:
    state = MemberState("g", "t")
    first = read(state.join())
    assert isinstance(first, JoinGroupRequest)
    assert (first.group_id, first.member_id, first.protocols[0].name) == ("g", "", "range")
    assert read(state.answered(joined("m", "", error=group_wire.MEMBER_ID_REQUIRED))).member_id == "m"
    assert state.phase is Phase.JOINING


def test_the_leader_assigns_every_member_something_and_the_others_nothing() -> None:
    leader, follower = MemberState("g", "t"), MemberState("g", "t")
    leader.join()
    follower.join()
    many = tuple(f"member-{number}" for number in range(200))
    given = read(leader.answered(joined(many[0], many[0], many)))
    assert isinstance(given, SyncGroupRequest)
    assert (given.generation_id, given.protocol_name) == (7, "range")
    assert [one.member_id for one in given.assignments] == list(many)
    assert len({one.assignment for one in given.assignments}) == len(many)
    assert read(follower.answered(joined(many[1], many[0]))).assignments == []


def test_a_member_that_hears_of_a_rebalance_joins_at_once() -> None:
    beating = stable()
    assert read(beating.beat()) == HeartbeatRequest("g", 7, "a")
    assert beating.answered(beaten()) is None
    assert read(beating.answered(beaten(group_wire.REBALANCE_IN_PROGRESS))).member_id == "a"
    beating.answered(joined("a"))
    assert isinstance(read(beating.answered(synced(group_wire.REBALANCE_IN_PROGRESS))), JoinGroupRequest)


def test_a_member_asks_again_with_its_next_heartbeat_while_the_coordinator_loads() -> None:
    state = MemberState("g", "t")
    state.join()
    assert state.answered(joined("", "", error=LOADING)) is None
    assert isinstance(read(state.beat()), JoinGroupRequest)


def test_a_member_that_left_is_out_and_comes_back_as_a_new_one() -> None:
    state = stable()
    left = read(state.leave())
    assert isinstance(left, LeaveGroupRequest)
    assert [one.member_id for one in left.members] == ["a"]
    assert state.answered(answer(LeaveGroupResponse(), 5)) is None
    assert state.phase is Phase.OUT
    assert read(state.join()).member_id == ""


def test_a_member_commits_as_one_of_its_generation() -> None:
    state = stable()
    asked = read(state.commit(2, 10))
    assert (asked.generation_id_or_member_epoch, asked.member_id) == (7, "a")
    result = OffsetCommitTopicResult("t", [OffsetCommitPartitionResult(2, 0)])
    assert state.answered(answer(OffsetCommitResponse(0, [result]), 9)) is None
    assert state.phase is Phase.STABLE


def test_an_error_that_ends_a_measurement_is_named() -> None:
    state = stable()
    with pytest.raises(MemberFailedError, match="a member of g got error 25"):
        state.answered(beaten(UNKNOWN_MEMBER_ID))


@pytest.mark.parametrize("size", [Size.QUICK, Size.DEFAULT])
def test_groups_are_measured_by_default_and_when_quick(size: Size) -> None:
    assert "groups" in [workload.NAME for workload in ALL]
    names = [case.name for case in groups.cases(size)]
    assert names[:4] == ["1 client", "16 clients", "3 members", "50 members"]
    assert names[4] == ("250 groups of 3" if size is Size.QUICK else "1,000 groups of 3")


def test_every_number_that_is_asked_for_may_not_be_worse_than_kafkas() -> None:
    asked = {key: groups.wanted(key, Case("any", 1.0), ()) for key in ("per_s", "rebalance_ms", "rss_mb")}
    assert {key: str(bound) for key, bound in asked.items()} == {
        "per_s": "≥ 1",
        "rebalance_ms": "≤ 1",
        "rss_mb": "≤ 1",
    }


def test_another_command_may_stand_for_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_COMMAND", "python -m 'a b'")
    assert barnabas_server.command() == ("python", "-m", "a b")

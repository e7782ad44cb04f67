"""The classic group protocol: who may join, who leads, what starts a rebalance, who is put out, what the log keeps."""

from typing import Any

import pytest

from barnabas.coordinator.classic.group import ClassicGroup, State
from barnabas.errors import Code
from barnabas.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    SyncGroupRequest,
)
from tests.coordinator.classic.members import (
    GROUP,
    ORDERS,
    REBALANCE_MS,
    SESSION_MS,
    Member,
    beat,
    commit,
    join_request,
    leave,
    stable,
    subscription,
    sync_request,
)
from tests.coordinator.shell import Shell, config, lasting


@pytest.fixture
def shell() -> Shell:
    return Shell()


def group_of(shell: Shell, group_id: str = GROUP) -> ClassicGroup:
    group = shell.coordinator.groups[group_id]
    assert isinstance(group, ClassicGroup)
    return group


def state(shell: Shell) -> State:
    return group_of(shell).state


# Joining


def test_the_first_to_join_leads_and_is_told_of_all(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    first.joins()
    told, other = first.hears(), second.hears()
    assert told.leader == other.leader == first.id
    assert [member.member_id for member in told.members] == [first.id, second.id]
    assert [member.metadata for member in told.members] == [ORDERS, ORDERS]
    assert other.members == []
    assert told.generation_id == other.generation_id == 2


def test_a_member_without_an_id_is_given_one_and_must_come_again(shell: Shell) -> None:
    answer = shell.ask(join_request(), 4)
    assert answer.error_code == Code.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-")
    assert shell.ask(join_request(answer.member_id), 4).error_code == Code.NONE


@pytest.mark.parametrize("version", [0, 1, 3])
def test_old_clients_join_without_an_id(shell: Shell, version: int) -> None:
    answer = shell.ask(join_request(), version)
    assert (answer.error_code, answer.leader) == (Code.NONE, answer.member_id)


def test_an_id_that_is_never_used_is_forgotten(shell: Shell) -> None:
    answer = shell.ask(join_request(), 4)
    shell.wait(SESSION_MS)
    assert GROUP not in shell.coordinator.groups
    assert shell.ask(join_request(answer.member_id), 4).error_code == Code.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_member_that_was_just_given_an_id(shell: Shell) -> None:
    first = Member(shell)
    stable(shell, first)
    given = shell.ask(join_request(), 9)
    Member(shell).joins()
    first.joins()
    assert first.waits
    shell.send(join_request(given.member_id))
    assert not first.waits


def test_an_empty_group_gives_more_members_time_to_come() -> None:
    shell = Shell(config(group_initial_rebalance_delay_ms=3000))
    first, second = Member(shell).joins(), Member(shell)
    shell.wait(2999)
    assert first.waits
    second.joins()
    shell.wait(1)
    assert first.waits, "somebody came, so the delay begins anew"
    shell.wait(2999)
    assert second.waits
    shell.wait(1)
    assert [first.hears().generation_id, second.hears().generation_id] == [1, 1]


def test_the_delay_ends_with_the_rebalance_timeout_whoever_comes() -> None:
    shell = Shell(config(group_initial_rebalance_delay_ms=3000))
    members = [Member(shell, rebalance_ms=7000).joins()]
    for _ in range(3):
        shell.wait(2000)
        members.append(Member(shell, rebalance_ms=7000).joins())
    shell.wait(1000)
    assert {member.hears().generation_id for member in members} == {1}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"group": ""}, Code.INVALID_GROUP_ID),
        ({"session_ms": 5999}, Code.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, Code.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, Code.UNKNOWN_MEMBER_ID),
        ({"kind": ""}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(shell: Shell, facts: dict[str, Any], code: Code) -> None:
    assert shell.ask(join_request(**facts)).error_code == code
    assert not shell.coordinator.groups
    assert not shell.log


@pytest.mark.parametrize(
    "facts", [{"kind": "connect"}, {"protocols": {"other": b""}}, {"kind": "", "protocols": {"range": b""}}]
)
def test_members_must_have_a_protocol_in_common(shell: Shell, facts: dict[str, Any]) -> None:
    stable(shell, Member(shell))
    assert shell.ask(join_request(**facts)).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert state(shell) is State.STABLE


def test_the_protocol_most_members_prefer_is_chosen_among_the_common_ones(shell: Shell) -> None:
    wishes: list[tuple[str, ...]] = [("a", "b", "c"), ("c", "b"), ("b", "c", "z")]
    members = [Member(shell, protocols={name: name.encode() for name in names}) for names in wishes]
    stable(shell, *members[:1])
    assert members[0].joined.protocol_name == "a"
    for member in (*members[1:], members[0]):
        member.joins()
    told = [member.hears() for member in members]
    assert {answer.protocol_name for answer in told} == {"b"}
    assert [row.metadata for row in told[0].members] == [b"b", b"b", b"b"]


def test_a_group_takes_no_more_members_than_its_limit() -> None:
    shell = Shell(config(group_max_size=2))
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    first.joins()
    assert shell.ask(join_request()).error_code == Code.GROUP_MAX_SIZE_REACHED
    assert second.hears().error_code == first.hears().error_code == Code.NONE
    assert shell.ask(join_request()).error_code == Code.GROUP_MAX_SIZE_REACHED


# Syncing


def test_followers_wait_for_the_leader_and_get_what_it_assigned(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    first.joins()
    first.hears(), second.hears()
    second.syncs()
    assert second.waits
    first.syncs({first.id: b"one", second.id: b"two"})
    assert (first.learns().assignment, second.learns().assignment) == (b"one", b"two")
    assert (second.synced.protocol_type, second.synced.protocol_name) == ("consumer", "range")


def test_a_member_the_leader_forgot_is_assigned_nothing(shell: Shell) -> None:
    member = Member(shell).joins()
    member.hears()
    assert member.syncs({"somebody else": b"x"}).learns().assignment == b""


def test_a_late_sync_gets_the_same_assignment(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    again = shell.ask(sync_request(member.joined), 5)
    assert again.assignment == member.synced.assignment


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"member_id": "stranger"}, Code.UNKNOWN_MEMBER_ID),
        ({"group_id": "other"}, Code.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, Code.INVALID_GROUP_ID),
        ({"generation_id": 0}, Code.ILLEGAL_GENERATION),
        ({"generation_id": 2}, Code.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "nobody"}, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(shell: Shell, change: dict[str, Any], code: Code) -> None:
    (member,) = stable(shell, Member(shell))
    request = SyncGroupRequest(GROUP, 1, member.id, None, "consumer", "range")
    for name, value in change.items():
        setattr(request, name, value)
    assert shell.ask(request, 5).error_code == code


def test_a_sync_in_a_rebalance_is_told_to_join_again(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    assert shell.ask(sync_request(first.joined), 5).error_code == Code.REBALANCE_IN_PROGRESS


def test_those_who_wait_for_an_assignment_are_told_of_the_next_rebalance(shell: Shell) -> None:
    first, second, third = Member(shell), Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    first.joins()
    first.hears(), second.hears()
    second.syncs()
    third.joins()
    assert second.learns().error_code == Code.REBALANCE_IN_PROGRESS
    assert state(shell) is State.PREPARING


# What starts a rebalance


def test_a_rebalance_starts_when_a_member_comes_leaves_or_dies(shell: Shell) -> None:
    first, second, third = Member(shell), Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    assert first.beats() == Code.REBALANCE_IN_PROGRESS
    first.joins()
    first.hears(), second.hears()
    first.syncs({}), second.syncs()
    assert leave(shell, second.id) == [Code.NONE]
    assert first.beats() == Code.REBALANCE_IN_PROGRESS
    stable(shell, first, third)
    generation = first.joined.generation_id
    for _ in range(3):
        shell.wait(SESSION_MS // 2)
        first.beats()
    assert third.beats() == Code.UNKNOWN_MEMBER_ID
    assert first.beats() == Code.REBALANCE_IN_PROGRESS
    first.joins()
    assert first.hears().generation_id == generation + 1


def test_a_rebalance_starts_when_a_member_changes_its_subscription(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first, second)
    follower = second if first.leads else first
    leader = first if first.leads else second
    # The same again is answered with the same generation.
    follower.joins()
    assert follower.hears().generation_id == leader.joined.generation_id
    follower.facts = {"protocols": {"range": subscription("parcels")}}
    follower.joins()
    assert follower.waits
    assert leader.beats() == Code.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_again_starts_a_rebalance(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first, second)
    leader = first if first.leads else second
    leader.joins()
    assert leader.waits
    assert state(shell) is State.PREPARING


def test_a_rebalance_starts_when_a_subscribed_topic_gets_partitions(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    shell.change_topics(parcels=7, strangers=1)
    assert member.beats() == Code.NONE
    shell.change_topics(orders=5)
    assert member.beats() == Code.REBALANCE_IN_PROGRESS


def test_a_group_whose_metadata_cannot_be_read_is_left_alone(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell, kind="connect", protocols={"v1": b"whatever"}))
    shell.change_topics(orders=9)
    assert member.beats() == Code.NONE


# Who is put out


def test_a_silent_member_is_put_out_after_its_session(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    shell.wait(SESSION_MS - 1)
    assert member.beats() == Code.NONE
    shell.wait(SESSION_MS)
    assert state(shell) is State.EMPTY
    assert member.beats() == Code.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_a_member_alive(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    for offset in range(4):
        shell.wait(SESSION_MS - 1)
        assert commit(shell, offset, member=member.id, generation=1) == Code.NONE


def test_who_does_not_join_again_in_time_is_put_out(shell: Shell) -> None:
    slow, fast = Member(shell, session_ms=120_000), Member(shell, session_ms=120_000)
    stable(shell, slow)
    fast.joins()
    shell.wait(REBALANCE_MS - 1)
    assert fast.waits
    shell.wait(1)
    assert fast.hears().leader == fast.id
    assert [member.id for member in group_of(shell).members] == [fast.id]


def test_who_waits_to_join_is_not_put_out_for_sending_no_heartbeats(shell: Shell) -> None:
    slow, fast = Member(shell, session_ms=120_000), Member(shell)
    stable(shell, slow, fast)
    fast.facts = {"protocols": {"range": subscription("parcels")}}
    fast.joins()
    shell.wait(SESSION_MS * 3)
    assert fast.waits
    slow.joins()
    assert fast.hears().error_code == Code.NONE


def test_who_never_syncs_is_put_out(shell: Shell) -> None:
    first, second = Member(shell, session_ms=120_000), Member(shell, session_ms=120_000)
    stable(shell, first)
    second.joins()
    first.joins()
    first.hears(), second.hears()
    first.syncs({})
    shell.wait(REBALANCE_MS)
    assert state(shell) is State.PREPARING
    assert [member.id for member in group_of(shell).members] == [first.id]


def test_a_new_member_whose_client_is_gone_does_not_wait_for_ever(shell: Shell) -> None:
    (slow,) = stable(shell, Member(shell, session_ms=1_000_000, rebalance_ms=1_000_000))
    waiting = shell.send(join_request(rebalance_ms=1_000_000), 3)
    shell.wait(300_000)
    assert shell.answers[waiting].error_code == Code.UNKNOWN_MEMBER_ID
    assert slow.beats() == Code.REBALANCE_IN_PROGRESS


def test_several_members_leave_at_once_each_with_an_answer(shell: Shell) -> None:
    first, second = Member(shell), Member(shell, instance="two")
    stable(shell, first, second)
    given = shell.ask(join_request()).member_id
    leaving = [
        LeavingMember(first.id),
        LeavingMember("stranger"),
        LeavingMember("", "two"),
        LeavingMember("", "nobody"),
        LeavingMember(given),
        LeavingMember("", None),
    ]
    answer = shell.ask(LeaveGroupRequest(GROUP, members=leaving), 5)
    gone, unknown = Code.NONE, Code.UNKNOWN_MEMBER_ID
    assert [row.error_code for row in answer.members] == [gone, unknown, gone, unknown, gone, unknown]
    assert state(shell) is State.EMPTY


def test_leaving_a_group_that_does_not_exist_tells_each_member(shell: Shell) -> None:
    assert leave(shell, "a", "b") == [Code.UNKNOWN_MEMBER_ID] * 2


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (HeartbeatRequest("", 1, "m"), Code.INVALID_GROUP_ID),
        (HeartbeatRequest("other", 1, "m"), Code.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest(GROUP, 1, "m"), Code.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest(GROUP, 1, "m", "instance"), Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeats_of_strangers_are_refused(shell: Shell, request_: HeartbeatRequest, code: Code) -> None:
    stable(shell, Member(shell))
    assert shell.ask(request_, 4).error_code == code


def test_heartbeats_of_another_generation_are_refused(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    assert beat(shell, member.id, 0) == beat(shell, member.id, 2) == Code.ILLEGAL_GENERATION


# Static members


def test_a_static_member_comes_back_without_a_rebalance(shell: Shell) -> None:
    first, second = Member(shell, instance="one"), Member(shell, instance="two")
    stable(shell, first, second)
    follower = second if first.leads else first
    generation = follower.joined.generation_id
    old, before = follower.id, follower.synced.assignment
    follower.id = ""
    joined = follower.joins().hears()
    assert (joined.error_code, joined.generation_id) == (Code.NONE, generation)
    assert joined.member_id != old
    assert follower.syncs().learns().assignment == before
    assert beat(shell, old, generation, follower.instance) == Code.FENCED_INSTANCE_ID
    assert first.beats() == second.beats() == Code.NONE


def test_a_static_leader_comes_back_and_is_told_not_to_assign(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell, instance="one"))
    old = member.id
    answer = shell.ask(join_request(instance="one"), 9)
    assert answer.skip_assignment
    assert (answer.leader, [row.member_id for row in answer.members]) == (
        answer.member_id,
        [answer.member_id],
    )
    # A client that knows nothing of that is told that somebody else leads.
    again = shell.ask(join_request(instance="one"), 8)
    assert again.leader == answer.member_id != again.member_id != old
    assert again.members == []


def test_a_static_member_that_changes_the_choice_of_protocol_starts_a_rebalance(shell: Shell) -> None:
    wishes = {"a": b"", "b": b""}
    first = Member(shell, instance="one", protocols=wishes)
    second = Member(shell, instance="two", protocols=wishes)
    stable(shell, first, second)
    assert first.joined.protocol_name == "a"
    shell.send(join_request(instance="one", protocols={"b": b""}))
    assert second.beats() == Code.REBALANCE_IN_PROGRESS


def test_a_static_member_that_waits_is_fenced_by_its_successor(shell: Shell) -> None:
    first, second = Member(shell, instance="one"), Member(shell)
    stable(shell, first, second)
    other = Member(shell).joins()
    waiting = shell.send(join_request(first.id, instance="one"))
    successor = shell.send(join_request(instance="one"))
    assert shell.answers[waiting].error_code == Code.FENCED_INSTANCE_ID
    second.joins()
    assert shell.answers[successor].error_code == other.hears().error_code == Code.NONE
    stale = shell.ask(join_request(first.id, instance="one"))
    assert stale.error_code == Code.FENCED_INSTANCE_ID


def test_a_static_member_stays_through_a_rebalance_it_misses(shell: Shell) -> None:
    away = Member(shell, instance="one", session_ms=600_000)
    here = Member(shell)
    stable(shell, away)
    here.joins()
    shell.wait(REBALANCE_MS)
    told = here.hears()
    assert told.leader == here.id
    assert {row.group_instance_id for row in told.members} == {"one", None}


# The log


def test_a_group_is_written_when_it_becomes_stable_and_when_it_becomes_empty(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    assert len(shell.log) == 1
    member.joins()
    member.hears()
    assert len(shell.log) == 1, "a rebalance that is not over is nobody's business"
    member.syncs({})
    assert len(shell.log) == 2
    leave(shell, member.id)
    assert len(shell.log) == 3
    assert group_of(shell).generation == 3
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


def test_members_go_on_after_a_crash_as_if_nothing_had_happened(shell: Shell) -> None:
    first, second = Member(shell), Member(shell, instance="two")
    stable(shell, first, second)
    shell.crash()
    assert first.beats() == second.beats() == Code.NONE
    assert shell.ask(sync_request(first.joined), 5).assignment == first.synced.assignment
    shell.wait(SESSION_MS)
    assert state(shell) is State.EMPTY, "those who do not show up are put out after one session"


def test_a_crash_in_a_rebalance_leads_back_to_the_last_generation(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    first.joins()
    assert first.hears().generation_id == 2
    shell.crash()
    assert first.beats() == Code.ILLEGAL_GENERATION
    assert beat(shell, first.id, 1) == Code.NONE


def test_an_assignment_that_cannot_be_written_is_not_given_out(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    first.joins()
    first.hears(), second.hears()
    second.syncs()
    shell.refusing = Code.NOT_ENOUGH_REPLICAS
    first.syncs({first.id: b"one", second.id: b"two"})
    assert first.learns().error_code == second.learns().error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert (first.synced.assignment, second.synced.assignment) == (b"", b"")
    shell.refusing = None
    # Who comes again gets the same generation, and the leader's second try counts.
    second.joins()
    second.hears()
    first.joins()
    assert first.hears().generation_id == second.joined.generation_id == 2
    second.syncs()
    first.syncs({second.id: b"two"})
    assert second.learns().assignment == b"two"


def test_a_group_whose_assignment_was_refused_does_not_hang(shell: Shell) -> None:
    member = Member(shell, session_ms=1_000_000).joins()
    member.hears()
    shell.refusing = Code.KAFKA_STORAGE_ERROR
    assert member.syncs({}).learns().error_code == Code.NOT_COORDINATOR
    shell.refusing = None
    shell.wait(REBALANCE_MS)
    assert member.beats() == Code.REBALANCE_IN_PROGRESS


def test_a_group_that_cannot_be_written_empty_tries_again(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    shell.refusing = Code.KAFKA_STORAGE_ERROR
    answer = shell.ask(LeaveGroupRequest(GROUP, members=[LeavingMember(member.id)]), 5)
    assert answer.error_code == Code.NOT_COORDINATOR
    shell.wait(5000)
    assert len(shell.log) == 1
    shell.refusing = None
    shell.wait(1000)
    assert len(shell.log) == 2
    assert state(shell) is State.EMPTY


def test_a_static_member_keeps_its_old_id_when_the_new_one_cannot_be_written(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell, instance="one"))
    shell.refusing = Code.KAFKA_STORAGE_ERROR
    assert shell.ask(join_request(instance="one")).error_code == Code.NOT_COORDINATOR
    shell.refusing = None
    assert member.beats() == Code.NONE
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


def test_a_repeated_request_is_answered_once_for_good(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first, second)
    other = Member(shell).joins()
    early = shell.send(join_request(first.id))
    late = shell.send(join_request(first.id))
    assert shell.answers[early].error_code == Code.REBALANCE_IN_PROGRESS
    second.joins()
    assert shell.answers[late].error_code == other.hears().error_code == Code.NONE


def test_a_group_above_a_lowered_limit_is_called_together_after_a_load(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first, second)
    shell.config = config(group_max_size=1)
    shell.crash()
    assert first.beats() == second.beats() == Code.REBALANCE_IN_PROGRESS
    first.joins()
    second.joins()
    codes = {member.id: member.hears().error_code for member in (first, second) if not member.waits}
    shell.tick()
    assert sorted(
        [*codes.values()] + [m.hears().error_code for m in (first, second) if m.id not in codes]
    ) == [
        Code.NONE,
        Code.GROUP_MAX_SIZE_REACHED,
    ]


def test_who_waits_is_sent_elsewhere_when_the_coordinator_resigns(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    effects = shell.coordinator.resign(Code.NOT_COORDINATOR)
    assert [type(answer) for _, answer in effects.replies] == [JoinGroupResponse]
    assert effects.replies[0][1].error_code == Code.NOT_COORDINATOR


# Looking after groups


def test_groups_are_listed_by_state_and_type(shell: Shell) -> None:
    stable(shell, Member(shell))
    commit(shell, 1, group="alone")

    def listed(states: tuple[str, ...] = (), kinds: tuple[str, ...] = ()) -> list[str]:
        answer = shell.ask(ListGroupsRequest(list(states), list(kinds)), 5)
        return sorted(row.group_id for row in answer.groups)

    assert listed() == ["alone", GROUP]
    assert listed(("Stable",)) == listed(("stable", "dead")) == [GROUP]
    assert listed(("EMPTY",)) == ["alone"]
    assert listed((), ("Classic",)) == ["alone", GROUP]
    assert listed((), ("consumer",)) == listed(("Stable",), ("share",)) == []


def test_a_stable_group_is_described_with_its_members(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell, instance="one"))
    known, unknown = shell.ask(DescribeGroupsRequest([GROUP, "other"]), 5).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
    (row,) = known.members
    assert (row.member_id, row.group_instance_id, row.client_host) == (member.id, "one", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (ORDERS, member.synced.assignment)
    assert (unknown.group_state, unknown.members) == ("Dead", [])
    Member(shell).joins()
    (moving,) = shell.ask(DescribeGroupsRequest([GROUP]), 5).groups
    assert (moving.group_state, moving.protocol_data) == ("PreparingRebalance", "")
    assert moving.members[0].member_metadata == b""


def test_only_a_group_without_members_can_be_deleted(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    commit(shell, 3, member=member.id, generation=1)

    def delete() -> list[int]:
        answer = shell.ask(DeleteGroupsRequest([GROUP, "other"]), 2)
        return [row.error_code for row in answer.results]

    assert delete() == [Code.NON_EMPTY_GROUP, Code.GROUP_ID_NOT_FOUND]
    leave(shell, member.id)
    assert delete() == [Code.NONE, Code.GROUP_ID_NOT_FOUND]
    assert delete() == [Code.GROUP_ID_NOT_FOUND] * 2
    assert lasting(shell.coordinator) == lasting(shell.replayed()) == ({}, {})
    assert commit(shell, 4, member=member.id, generation=1) == Code.GROUP_ID_NOT_FOUND

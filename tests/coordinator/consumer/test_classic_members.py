"""Members of the classic protocol in a KIP-848 group: what their requests are answered with."""

import pytest

from barnabas.errors import Code
from barnabas.wire.messages.consumer_protocol import assignment_of
from barnabas.wire.messages.groups import LeavingMember
from tests.coordinator.consumer.consumers import ORDERS, Story, told

PROTOCOL = "cooperative-sticky"


def partitions(assignment: bytes) -> list[tuple[str, int]]:
    return [(row.topic, p) for row in assignment_of(assignment).assigned_partitions for p in row.partitions]


def mixed() -> Story:
    """`new` has half, and the classic `old` the other half, in epoch 2."""
    story = Story()
    story.join("new")
    story.classic_join("old")
    story.settle("new")
    joined = story.classic_join("old")
    assert joined.generation_id == 2
    assert partitions(story.classic_sync("old", 2)) == [("orders", 2), ("orders", 3)]
    assert story.group.state.phase == "Stable"
    return story


def test_a_new_member_is_given_an_id_first() -> None:
    story = Story()
    story.join("new")
    joined = story.classic_join("", fresh="7")
    assert (joined.error_code, joined.member_id) == (Code.MEMBER_ID_REQUIRED, "client-7")
    assert story.classic_join("client-7").error_code == Code.NONE
    assert story.classic_join("", version=3, fresh="8").member_id == "client-8"


def test_nobody_leads_and_the_generation_is_the_epoch() -> None:
    story = Story()
    story.join("new")
    joined = story.classic_join("old", protocols=("range", PROTOCOL))
    assert (joined.leader, joined.members, joined.protocol_name) == ("", [], "range")
    assert (joined.protocol_type, joined.generation_id) == ("consumer", 2)


def test_a_member_is_called_whenever_its_assignment_can_take_a_step() -> None:
    story = Story()
    story.join("new")
    story.classic_join("old")
    assert partitions(story.classic_sync("old", 2)) == []
    story.classic_beat("old", 2)
    story.settle("new")
    story.refused(Code.REBALANCE_IN_PROGRESS, story.classic_beat, "old", 2)
    story.classic_join("old")
    assert len(partitions(story.classic_sync("old", 2))) == 2
    story.classic_beat("old", 2)


def test_a_member_learns_by_sync_what_it_has_to_give_back() -> None:
    story = mixed()
    story.join("third")
    story.refused(Code.REBALANCE_IN_PROGRESS, story.classic_beat, "old", 2)
    story.refused(Code.REBALANCE_IN_PROGRESS, story.classic_sync, "old", 2)
    joined = story.classic_join("old", owned=[("orders", 2), ("orders", 3)])
    kept = partitions(story.classic_sync("old", joined.generation_id))
    if joined.generation_id == 2:
        assert len(kept) == 1
        story.refused(Code.REBALANCE_IN_PROGRESS, story.classic_beat, "old", 2)
        assert story.classic_join("old", owned=kept).generation_id == 3
    story.settle("new", "third")
    assert sum(len(story.owned(member).get(ORDERS, [])) for member in story.members) == 4


def test_wrong_generations_and_protocols_are_refused() -> None:
    story = mixed()
    story.refused(Code.ILLEGAL_GENERATION, story.classic_beat, "old", 1)
    story.refused(Code.ILLEGAL_GENERATION, story.classic_sync, "old", 3)
    story.refused(Code.INCONSISTENT_GROUP_PROTOCOL, story.classic_sync, "old", 2, "range")
    story.refused(Code.INCONSISTENT_GROUP_PROTOCOL, story.classic_join, "x", protocols=("range",))
    story.refused(Code.INCONSISTENT_GROUP_PROTOCOL, story.classic_join, "x", protocol_type="connect")
    story.refused(Code.INCONSISTENT_GROUP_PROTOCOL, story.classic_join, "x", protocols=())


def test_a_stranger_and_a_member_of_the_other_protocol_are_unknown() -> None:
    story = mixed()
    for member in ("stranger", "new"):
        story.refused(Code.UNKNOWN_MEMBER_ID, story.classic_beat, member, 2)
        story.refused(Code.UNKNOWN_MEMBER_ID, story.classic_sync, member, 2)


def test_a_member_that_was_put_out_cannot_come_back_with_its_partitions() -> None:
    story = mixed()
    story.pass_time(6000)
    assert "old" not in story.members
    story.refused(Code.UNKNOWN_MEMBER_ID, story.classic_join, "old", owned=[("orders", 2)])
    assert story.classic_join("old").error_code == Code.NONE


def test_its_session_is_the_one_it_asked_for() -> None:
    story = mixed()
    story.pass_time(5000)
    story.classic_beat("old", 2)
    story.pass_time(5999)
    assert "old" in story.members
    story.pass_time(1)
    assert story.members.keys() == {"new"}


@pytest.mark.parametrize("beats", [True, False])
def test_a_member_that_was_called_has_its_rebalance_timeout_to_join(beats: bool) -> None:
    story = mixed()
    story.join("third")
    story.refused(Code.REBALANCE_IN_PROGRESS, story.classic_beat, "old", 2)
    story.pass_time(4000)
    if beats:
        story.refused(Code.REBALANCE_IN_PROGRESS, story.classic_beat, "old", 2)
    story.pass_time(1000)
    assert "old" not in story.members


def test_a_member_that_joined_has_its_rebalance_timeout_to_sync() -> None:
    story = mixed()
    story.classic_join("old", owned=[("orders", 2), ("orders", 3)])
    story.pass_time(4000)
    story.classic_beat("old", 2)
    story.pass_time(1000)
    assert "old" not in story.members


def test_members_leave_each_for_itself() -> None:
    story = mixed()
    story.classic_join("", instance="one", fresh="9")
    answer = story.classic_leave(
        LeavingMember("old"),
        LeavingMember("old"),
        LeavingMember("new"),
        LeavingMember("other", "one"),
        LeavingMember("", "one"),
        LeavingMember("", "two"),
    )
    assert [row.error_code for row in answer.members] == [
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
        Code.UNKNOWN_MEMBER_ID,
        Code.FENCED_INSTANCE_ID,
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
    ]
    assert answer.members[4].member_id == "one-9"
    assert story.members.keys() == {"new"}
    assert told(story.beat("new", 2)) == {ORDERS: [0, 1, 2, 3]}


def test_a_static_member_keeps_its_partitions_under_a_new_id() -> None:
    story = Story()
    story.join("new")
    first = story.classic_join("", instance="one", fresh="1")
    story.settle("new")
    story.classic_join(first.member_id, instance="one")
    before = story.owned(first.member_id)
    second = story.classic_join("", instance="one", fresh="2")
    assert second.member_id == "one-2"
    assert story.owned("one-2") == before
    assert first.member_id not in story.members
    story.refused(Code.FENCED_INSTANCE_ID, story.classic_join, first.member_id, instance="one")
    story.refused(Code.UNKNOWN_MEMBER_ID, story.classic_join, "x", instance="two")


def test_a_member_may_change_to_the_new_protocol_and_keep_its_place() -> None:
    story = Story()
    story.join("new")
    first = story.classic_join("", instance="one", fresh="1")
    story.settle("new")
    story.classic_join(first.member_id, instance="one")
    before = story.owned(first.member_id)
    answer = story.join("modern", instance_id="one")
    assert told(answer) == before
    assert story.members["modern"].classic is None


def test_a_full_group_takes_no_classic_members_either() -> None:
    story = Story(group_consumer_max_size=1)
    story.join("new")
    story.refused(Code.GROUP_MAX_SIZE_REACHED, story.classic_join, "")
    story.refused(Code.GROUP_MAX_SIZE_REACHED, story.classic_join, "old")


def test_commits_of_a_classic_member_go_by_its_generation() -> None:
    story = mixed()
    story.commit("old", 2, 2, version=8)
    story.refused(Code.ILLEGAL_GENERATION, story.commit, "old", 1, 2)
    story.refused(Code.ILLEGAL_GENERATION, story.group.check_fetch, "old", 1)

"""Promises of client/group_member.py: a member of a group, without a broker, by what it sends and what it is told."""

import random

import pytest

from barnabas.client.group_member import GroupMember, Phase, assign_range
from barnabas.errors import Code, Refused
from barnabas.types import TopicPartition
from barnabas.wire.messages.consumer_protocol import (
    AssignedPartitions,
    PartitionsOfTopic,
    Subscription,
    assignment_of,
    subscription_of,
    to_bytes,
)
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

INTERVAL = 3.0


def new_member(instance_id: str | None = None) -> GroupMember:
    return GroupMember("g", ["t"], instance_id=instance_id, heartbeat_interval_ms=int(INTERVAL * 1000))


def subscribed(*topics: str) -> bytes:
    return to_bytes(Subscription(list(topics)), 1)


def assigned(topic: str, *partitions: int) -> bytes:
    return to_bytes(AssignedPartitions([PartitionsOfTopic(topic, list(partitions))]), 1)


def settled(now: float = 0.0) -> GroupMember:
    """A member that follows in generation 4, with the partitions 1 and 2."""
    member = new_member()
    member.next_request(now, {})
    member.take(JoinGroupResponse(generation_id=4, leader="other", member_id="me"), now)
    member.next_request(now, {})
    member.take(SyncGroupResponse(assignment=assigned("t", 1, 2)), now)
    assert member.phase is Phase.STABLE
    return member


def test_a_member_joins_with_the_id_it_is_given() -> None:
    member = new_member()
    first = member.next_request(0.0, {})
    assert isinstance(first, JoinGroupRequest)
    assert (first.member_id, first.protocol_type, first.protocols[0].name) == ("", "consumer", "range")
    assert subscription_of(first.protocols[0].metadata).topics == ["t"]
    assert member.next_request(0.0, {}) is None  # one at a time

    member.take(JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id="me"), 0.0)
    second = member.next_request(0.0, {})
    assert isinstance(second, JoinGroupRequest)
    assert second.member_id == "me"


def test_a_follower_takes_what_the_leader_gives() -> None:
    member = new_member()
    member.next_request(0.0, {})
    member.take(JoinGroupResponse(generation_id=4, leader="other", member_id="me"), 0.0)
    assert member.topics_to_assign == set()
    sync = member.next_request(0.0, {})
    assert isinstance(sync, SyncGroupRequest)
    assert (sync.generation_id, sync.member_id, sync.assignments) == (4, "me", [])
    member.take(SyncGroupResponse(assignment=assigned("t", 1, 2)), 0.0)
    assert member.assignment == (TopicPartition("t", 1), TopicPartition("t", 2))


def test_a_leader_assigns_to_all() -> None:
    member = new_member()
    member.next_request(0.0, {})
    members = [
        JoinGroupMember("me", None, subscribed("t")),
        JoinGroupMember("other", None, subscribed("t", "u")),
    ]
    member.take(JoinGroupResponse(generation_id=1, leader="me", member_id="me", members=members), 0.0)
    assert member.topics_to_assign == {"t", "u"}
    sync = member.next_request(0.0, {"t": 3, "u": 1})
    assert isinstance(sync, SyncGroupRequest)
    shares = {each.member_id: assignment_of(each.assignment).assigned_partitions for each in sync.assignments}
    assert shares == {
        "me": [PartitionsOfTopic("t", [0, 1])],
        "other": [PartitionsOfTopic("t", [2]), PartitionsOfTopic("u", [0])],
    }


def test_a_leader_that_is_told_not_to_assign_does_not() -> None:
    member = new_member("static")
    member.next_request(0.0, {})
    members = [JoinGroupMember("me", "static", subscribed("t"))]
    answer = JoinGroupResponse(
        generation_id=1, leader="me", member_id="me", members=members, skip_assignment=True
    )
    member.take(answer, 0.0)
    sync = member.next_request(0.0, {"t": 3})
    assert isinstance(sync, SyncGroupRequest)
    assert sync.assignments == []


def test_heartbeats_keep_their_interval() -> None:
    member = settled(10.0)
    assert member.due == 10.0 + INTERVAL
    assert member.next_request(10.0 + INTERVAL - 0.1, {}) is None
    beat = member.next_request(10.0 + INTERVAL, {})
    assert beat == HeartbeatRequest("g", 4, "me", None)
    member.take(HeartbeatResponse(), 14.0)
    assert member.due == 14.0 + INTERVAL


def test_in_a_rebalance_partitions_are_given_back_before_the_member_joins_again() -> None:
    member = settled()
    member.next_request(INTERVAL, {})
    member.take(HeartbeatResponse(error_code=Code.REBALANCE_IN_PROGRESS), INTERVAL)
    assert member.phase is Phase.REVOKING
    assert member.assignment  # what was read can still be committed
    assert member.next_request(INTERVAL, {}) is None
    member.given_back()
    assert not member.assignment
    join = member.next_request(INTERVAL, {})
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == "me"


@pytest.mark.parametrize(
    ("code", "member_id"), [(Code.UNKNOWN_MEMBER_ID, ""), (Code.ILLEGAL_GENERATION, "me")]
)
def test_a_member_that_was_left_behind_loses_its_partitions_at_once(code: Code, member_id: str) -> None:
    member = settled()
    member.next_request(INTERVAL, {})
    member.take(HeartbeatResponse(error_code=code), INTERVAL)
    assert member.assignment is None
    join = member.next_request(INTERVAL, {})
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == member_id


def test_a_commit_that_hears_of_a_rebalance_counts_as_much_as_a_heartbeat() -> None:
    member = settled()
    beat = member.next_request(INTERVAL, {})
    assert isinstance(beat, HeartbeatRequest)
    assert member.refused(Code.REBALANCE_IN_PROGRESS, INTERVAL)
    member.given_back()
    member.take(HeartbeatResponse(), INTERVAL)  # sent before the rebalance, answered after
    assert isinstance(member.next_request(INTERVAL, {}), JoinGroupRequest)


@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR])
def test_what_passes_by_itself_is_tried_again_after_a_while(code: Code) -> None:
    member = new_member()
    member.next_request(0.0, {})
    member.take(JoinGroupResponse(error_code=code), 0.0)
    assert member.next_request(0.0, {}) is None
    assert isinstance(member.next_request(member.due, {}), JoinGroupRequest)


def test_a_lost_request_is_sent_again() -> None:
    member = settled()
    member.next_request(INTERVAL, {})
    member.fail(INTERVAL)
    assert isinstance(member.next_request(member.due, {}), HeartbeatRequest)
    assert member.assignment is not None


@pytest.mark.parametrize(
    "code",
    [
        Code.FENCED_INSTANCE_ID,
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.GROUP_MAX_SIZE_REACHED,
        Code.INVALID_GROUP_ID,
        Code.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_no_other_try_can_help_is_raised(code: Code) -> None:
    member = new_member()
    member.next_request(0.0, {})
    with pytest.raises(Refused, match="Group 'g'") as caught:
        member.take(JoinGroupResponse(error_code=code), 0.0)
    assert caught.value.code is code


def test_a_member_says_goodbye_unless_its_name_stays() -> None:
    goodbye = settled().leave_request()
    assert goodbye is not None
    assert (goodbye.group_id, goodbye.member_id, goodbye.members[0].member_id) == ("g", "me", "me")
    assert new_member().leave_request() is None
    static = new_member("name")
    static.next_request(0.0, {})
    static.take(JoinGroupResponse(generation_id=1, leader="x", member_id="me"), 0.0)
    assert static.leave_request() is None


# --- the assignor


def test_ranges_go_to_static_members_first_and_then_by_id() -> None:
    members = {each: Subscription(["t"]) for each in ("b", "a", "z")}
    shares = assign_range(members, {"t": 4}, {"z": "instance"})
    assert shares == {
        "z": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "a": [TopicPartition("t", 2)],
        "b": [TopicPartition("t", 3)],
    }


def test_every_partition_of_a_topic_with_subscribers_has_one_owner_who_subscribes() -> None:
    chance = random.Random(1)
    for _ in range(500):
        topics = {f"t{i}": chance.randrange(8) for i in range(chance.randint(1, 4))}
        members = {
            f"m{i}": Subscription(chance.sample([*topics, "absent"], chance.randint(0, len(topics))))
            for i in range(chance.randint(1, 6))
        }
        shares = assign_range(members, topics, {})
        given = [partition for share in shares.values() for partition in share]
        wanted = {topic for each in members.values() for topic in each.topics}
        assert sorted(given) == sorted(TopicPartition(t, p) for t in wanted for p in range(topics.get(t, 0)))
        assert all(p.topic in members[each].topics for each, share in shares.items() for p in share)
        for topic in wanted:
            sizes = [
                sum(p.topic == topic for p in shares[each])
                for each in members
                if topic in members[each].topics
            ]
            assert max(sizes) - min(sizes) <= 1


# --- the bytes that consumers exchange


def test_metadata_of_newer_versions_is_read_as_far_as_it_is_known() -> None:
    newest = to_bytes(Subscription(["t"], b"u", [PartitionsOfTopic("t", [1])], 7, "rack"), 3)
    newer = b"\x00\x09" + newest[2:] + b"more"
    assert subscription_of(newer) == subscription_of(newest)
    assert subscription_of(newest).generation_id == 7


def test_metadata_is_the_bytes_that_java_writes() -> None:
    assert to_bytes(Subscription(["ab"]), 0).hex() == "0000" + "00000001" + "00026162" + "ffffffff"
    assert assigned("ab", 3).hex() == (
        "0001" + "00000001" + "00026162" + "00000001" + "00000003" + "ffffffff"
    )
    assert assignment_of(b"") == AssignedPartitions()

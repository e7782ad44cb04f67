"""Promises of client/consumer/classic_member.py: a member without a broker, by what it sends and is told."""

import pytest

from barnabas.client.consumer.assignors import ASSIGNORS, assignors_of
from barnabas.client.consumer.classic_member import GroupMember
from barnabas.client.consumer.member import Handover
from barnabas.errors import Code
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
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

INTERVAL = 3.0
MAX_POLL = 60.0


def new_member(
    instance_id: str | None = None, strategy: str = "range", topics: tuple[str, ...] = ("t",)
) -> GroupMember:
    return GroupMember(
        "g",
        topics,
        assignors=assignors_of(strategy),
        instance_id=instance_id,
        heartbeat_interval_ms=int(INTERVAL * 1000),
        max_poll_interval_ms=int(MAX_POLL * 1000),
    )


def subscribed(*topics: str) -> bytes:
    return to_bytes(Subscription(list(topics)), 1)


def assigned(topic: str, *partitions: int) -> bytes:
    return to_bytes(AssignedPartitions([PartitionsOfTopic(topic, list(partitions))]), 1)


def of(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", each) for each in partitions)


def joins(member: GroupMember, generation: int, now: float = 0.0, leader: str = "other") -> JoinGroupRequest:
    """The member joins this generation as a follower; what it said."""
    request = member.next_request(now, {})
    assert isinstance(request, JoinGroupRequest)
    protocol = request.protocols[0].name
    member.take(
        JoinGroupResponse(generation_id=generation, leader=leader, member_id="me", protocol_name=protocol),
        now,
    )
    return request


def syncs(member: GroupMember, *partitions: int, now: float = 0.0) -> None:
    assert isinstance(member.next_request(now, {}), SyncGroupRequest)
    member.take(SyncGroupResponse(assignment=assigned("t", *partitions)), now)


def settled(now: float = 0.0, instance_id: str | None = None, strategy: str = "range") -> GroupMember:
    """A member that follows in generation 4, with the partitions 1 and 2 in its user's hands."""
    member = new_member(instance_id, strategy)
    joins(member, 4, now)
    syncs(member, 1, 2, now=now)
    assert member.handover == Handover(assigned=of(1, 2))
    member.took_over(0.0)
    assert member.is_settled
    return member


def hears(member: GroupMember, code: Code, now: float = INTERVAL) -> None:
    """The next heartbeat is answered like this."""
    assert isinstance(member.next_request(now, {}), HeartbeatRequest)
    member.take(HeartbeatResponse(error_code=code), now)


def test_a_member_joins_with_the_id_it_is_given() -> None:
    member = new_member(strategy="range,roundrobin")
    first = member.next_request(0.0, {})
    assert isinstance(first, JoinGroupRequest)
    assert (first.member_id, first.protocol_type) == ("", "consumer")
    assert [each.name for each in first.protocols] == ["range", "roundrobin"]
    assert subscription_of(first.protocols[0].metadata).topics == ["t"]
    assert member.next_request(0.0, {}) is None  # one at a time

    member.take(JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id="me"), 0.0)
    second = member.next_request(0.0, {})
    assert isinstance(second, JoinGroupRequest)
    assert second.member_id == "me"


def test_a_follower_takes_what_the_leader_gives() -> None:
    member = new_member()
    joins(member, 4)
    assert member.topics_to_assign == set()
    sync = member.next_request(0.0, {})
    assert isinstance(sync, SyncGroupRequest)
    assert (sync.generation_id, sync.member_id, sync.assignments) == (4, "me", [])
    member.take(SyncGroupResponse(assignment=assigned("t", 1, 2)), 0.0)
    assert member.assignment == of(1, 2)
    assert member.given == (), "only poll gives it to the user"


def leading(member: GroupMember, members: list[JoinGroupMember], skip: bool = False) -> None:
    member.next_request(0.0, {})
    answer = JoinGroupResponse(
        generation_id=1,
        leader="me",
        member_id="me",
        members=members,
        skip_assignment=skip,
        protocol_name="range",
    )
    member.take(answer, 0.0)


def test_a_leader_assigns_to_all() -> None:
    member = new_member()
    leading(
        member,
        [
            JoinGroupMember("me", None, subscribed("t")),
            JoinGroupMember("other", None, subscribed("t", "u")),
            JoinGroupMember("strange", None, b"?"),
        ],
    )
    assert member.topics_to_assign == {"t", "u"}
    sync = member.next_request(0.0, {"t": 3, "u": 1})
    assert isinstance(sync, SyncGroupRequest)
    shares = {each.member_id: assignment_of(each.assignment).assigned_partitions for each in sync.assignments}
    assert shares == {
        "me": [PartitionsOfTopic("t", [0, 1])],
        "other": [PartitionsOfTopic("t", [2]), PartitionsOfTopic("u", [0])],
        "strange": [],
    }


def test_a_leader_that_is_told_not_to_assign_does_not() -> None:
    member = new_member("static")
    leading(member, [JoinGroupMember("me", "static", subscribed("t"))], skip=True)
    sync = member.next_request(0.0, {"t": 3})
    assert isinstance(sync, SyncGroupRequest)
    assert sync.assignments == []
    assert member.topics_to_assign == {"t"}, "it has to notice when they grow"


def test_heartbeats_keep_their_interval() -> None:
    member = settled(10.0)
    assert member.due == 10.0 + INTERVAL
    assert member.next_request(10.0 + INTERVAL - 0.1, {}) is None
    beat = member.next_request(10.0 + INTERVAL, {})
    assert beat == HeartbeatRequest("g", 4, "me", None)
    member.take(HeartbeatResponse(), 14.0)
    assert member.due == 14.0 + INTERVAL


# --- rebalances


def test_an_eager_member_gives_everything_back_before_it_joins_again() -> None:
    member = settled()
    hears(member, Code.REBALANCE_IN_PROGRESS)
    assert member.handover == Handover(revoked=of(1, 2))
    assert member.may_commit  # what was read can still be committed
    assert isinstance(member.next_request(2 * INTERVAL, {}), HeartbeatRequest), "it is not to be missed"
    member.take(HeartbeatResponse(error_code=Code.REBALANCE_IN_PROGRESS), 2 * INTERVAL)
    member.gave_back(of(1, 2), 2 * INTERVAL)
    join = joins(member, 5, 2 * INTERVAL)
    assert join.member_id == "me"
    assert subscription_of(join.protocols[0].metadata).owned_partitions == []
    syncs(member, 2, 3, now=2 * INTERVAL)
    assert member.handover == Handover(assigned=of(2, 3))


def test_a_sticky_member_says_what_it_had() -> None:
    member = settled(strategy="sticky")
    hears(member, Code.REBALANCE_IN_PROGRESS)
    member.gave_back(of(1, 2), INTERVAL)
    metadata = joins(member, 5, INTERVAL).protocols[0].metadata
    candidate = ASSIGNORS["sticky"].candidate(metadata, None)
    assert (candidate.owned, candidate.generation) == (of(1, 2), 4)


def test_a_cooperative_member_keeps_what_it_has_and_gives_up_only_what_is_taken() -> None:
    member = settled(strategy="cooperative-sticky")
    hears(member, Code.REBALANCE_IN_PROGRESS)
    assert member.given == of(1, 2)
    join = joins(member, 5, INTERVAL)
    said = subscription_of(join.protocols[0].metadata)
    assert said.owned_partitions == [PartitionsOfTopic("t", [1, 2])]
    assert said.generation_id == 4
    syncs(member, 2, now=INTERVAL)
    assert member.handover == Handover(revoked=of(1))
    member.gave_back(of(1), INTERVAL)
    member.took_over(0.0)
    assert isinstance(member.next_request(INTERVAL, {}), JoinGroupRequest), "another member waits for it"
    assert member.given == of(2)


def test_a_cooperative_member_that_gives_up_nothing_rests() -> None:
    member = settled(strategy="cooperative-sticky")
    hears(member, Code.REBALANCE_IN_PROGRESS)
    joins(member, 5, INTERVAL)
    syncs(member, 1, 2, 3, now=INTERVAL)
    assert member.handover == Handover(assigned=of(3))
    member.took_over(0.0)
    assert member.is_settled


def test_a_member_that_missed_a_generation_has_lost_what_it_had() -> None:
    member = settled(strategy="cooperative-sticky", instance_id="name")
    hears(member, Code.REBALANCE_IN_PROGRESS)
    joins(member, 6, INTERVAL)
    assert not member.may_commit
    assert member.handover == Handover(lost=of(1, 2))


def test_what_the_user_never_got_is_not_taken_from_it() -> None:
    member = new_member()
    joins(member, 4)
    syncs(member, 1)
    hears(member, Code.REBALANCE_IN_PROGRESS)
    assert member.handover is None
    assert isinstance(member.next_request(INTERVAL, {}), JoinGroupRequest)


@pytest.mark.parametrize(
    ("code", "member_id"), [(Code.UNKNOWN_MEMBER_ID, ""), (Code.ILLEGAL_GENERATION, "me")]
)
def test_a_member_that_was_left_behind_has_lost_its_partitions(code: Code, member_id: str) -> None:
    member = settled()
    hears(member, code)
    assert member.handover == Handover(lost=of(1, 2))
    assert not member.may_commit
    assert member.next_request(INTERVAL, {}) is None, "the user has to know first"
    member.gave_back(of(1, 2), INTERVAL)
    join = member.next_request(INTERVAL, {})
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == member_id


def test_a_commit_that_hears_of_a_rebalance_counts_as_much_as_a_heartbeat() -> None:
    member = settled()
    beat = member.next_request(INTERVAL, {})
    assert isinstance(beat, HeartbeatRequest)
    member.commit_refused(Code.REBALANCE_IN_PROGRESS, 3, INTERVAL)
    assert member.handover is None, "a commit of an old generation tells nothing"
    member.commit_refused(Code.REBALANCE_IN_PROGRESS, 4, INTERVAL)
    member.gave_back(of(1, 2), INTERVAL)
    member.take(HeartbeatResponse(), INTERVAL)  # sent before the rebalance, answered after
    assert isinstance(member.next_request(INTERVAL, {}), JoinGroupRequest)


def test_other_topics_are_asked_for_by_joining_again() -> None:
    member = settled(strategy="cooperative-sticky")
    member.subscribe(["t"], 1.0)
    assert member.is_settled, "nothing has changed"
    member.subscribe(["t", "u"], 1.0)
    join = joins(member, 5, 1.0)
    assert subscription_of(join.protocols[0].metadata).topics == ["t", "u"]
    member.subscribe(["u"], 1.0)  # too late for this generation
    syncs(member, 1, 2, now=1.0)
    assert isinstance(member.next_request(1.0, {}), JoinGroupRequest)


# --- users that do not poll


def test_a_user_that_does_not_poll_in_time_loses_its_place() -> None:
    member = settled()
    member.polls(0.0)
    assert isinstance(member.next_request(MAX_POLL * 2, {}), HeartbeatRequest), "a long poll is a poll"
    member.take(HeartbeatResponse(), MAX_POLL * 2)
    member.works(MAX_POLL * 2)
    goodbye = member.next_request(MAX_POLL * 3, {})
    assert isinstance(goodbye, LeaveGroupRequest)
    assert goodbye.members[0].member_id == "me"
    assert member.handover == Handover(lost=of(1, 2))
    assert member.due == float("inf")
    member.polls(MAX_POLL * 4)
    member.gave_back(of(1, 2), MAX_POLL * 4)
    join = member.next_request(MAX_POLL * 4, {})
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == ""


def test_a_static_member_whose_user_does_not_poll_falls_silent() -> None:
    member = settled(instance_id="name")
    member.works(0.0)
    assert member.next_request(MAX_POLL, {}) is None
    assert member.handover == Handover(lost=of(1, 2))


# --- trouble


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
    assert member.given == of(1, 2)


@pytest.mark.parametrize(
    "code",
    [
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.GROUP_MAX_SIZE_REACHED,
        Code.INVALID_GROUP_ID,
        Code.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_what_no_other_try_can_help_is_told_once_and_tried_with_the_next_poll(code: Code) -> None:
    member = new_member()
    member.next_request(0.0, {})
    member.take(JoinGroupResponse(error_code=code), 0.0)
    member.polls(0.0)
    assert member.next_request(0.0, {}) is None
    failure = member.failure()
    assert failure is not None
    assert failure.code is code
    assert "Group 'g'" in failure.message
    assert member.failure() is None
    member.polls(1.0)
    assert isinstance(member.next_request(1.0, {}), JoinGroupRequest)


def test_a_member_whose_name_was_taken_stays_out() -> None:
    member = settled(instance_id="name")
    hears(member, Code.FENCED_INSTANCE_ID)
    assert member.handover == Handover(lost=of(1, 2))
    member.gave_back(of(1, 2), INTERVAL)
    for now in (INTERVAL, 2 * INTERVAL):
        member.polls(now)
        failure = member.failure()
        assert failure is not None
        assert failure.code is Code.FENCED_INSTANCE_ID
        assert member.next_request(now, {}) is None


def test_a_member_says_goodbye_unless_its_name_stays() -> None:
    goodbye = settled().leave_request()
    assert goodbye is not None
    assert (goodbye.group_id, goodbye.member_id, goodbye.members[0].member_id) == ("g", "me", "me")
    assert new_member().leave_request() is None
    assert settled(instance_id="name").leave_request() is None


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

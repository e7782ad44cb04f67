"""Promises of client/consumer/consumer_member.py: a member of a KIP-848 group by what it says and what it is told."""

from uuid import UUID

import pytest

from barnabas.client.consumer.consumer_member import ConsumerGroupMember
from barnabas.client.consumer.member import Handover, Phase
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.messages.consumer_groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = UUID(int=1)
NAMES = {TOPIC: "t"}
INTERVAL = 5.0
MAX_POLL = 60.0


def new_member(instance_id: str | None = None) -> ConsumerGroupMember:
    member = ConsumerGroupMember(
        "g",
        ["t"],
        member_id="me",
        assignor="uniform",
        instance_id=instance_id,
        max_poll_interval_ms=int(MAX_POLL * 1000),
    )
    member.know(NAMES)
    return member


def of(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", each) for each in partitions)


def rows(*partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(TOPIC, list(partitions))]


def beats(member: ConsumerGroupMember, now: float = 0.0) -> ConsumerGroupHeartbeatRequest:
    request = member.next_request(now, {})
    assert request is not None
    return request


def hears(
    member: ConsumerGroupMember,
    epoch: int,
    *partitions: int,
    now: float = 0.0,
    assigns: bool = True,
    code: Code = Code.NONE,
) -> None:
    assignment = Assignment(rows(*partitions) if partitions else []) if assigns else None
    answer = ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=int(INTERVAL * 1000),
        assignment=assignment,
    )
    member.take(answer, now)


def settled(instance_id: str | None = None) -> ConsumerGroupMember:
    """A member in epoch 3 whose user has the partitions 1 and 2, and whose coordinator knows that."""
    member = new_member(instance_id)
    beats(member)
    hears(member, 3, 1, 2)
    assert member.handover == Handover(assigned=of(1, 2))
    member.took_over(0.0)
    assert beats(member).topic_partitions == rows(1, 2)
    hears(member, 3, assigns=False)
    return member


def test_a_member_joins_with_all_there_is_to_say() -> None:
    request = beats(new_member("name"))
    assert request == ConsumerGroupHeartbeatRequest(
        "g",
        "me",
        0,
        "name",
        rebalance_timeout_ms=int(MAX_POLL * 1000),
        subscribed_topic_names=["t"],
        server_assignor="uniform",
        topic_partitions=[],
    )


def test_then_it_says_only_what_has_changed() -> None:
    member = settled()
    assert member.due == INTERVAL
    assert member.next_request(INTERVAL - 0.1, {}) is None
    assert beats(member, INTERVAL) == ConsumerGroupHeartbeatRequest("g", "me", 3)
    hears(member, 3, assigns=False, now=INTERVAL)
    member.subscribe(["t", "u"], INTERVAL)
    request = beats(member, INTERVAL)
    assert request.subscribed_topic_names == ["t", "u"]
    assert request.topic_partitions is None


def test_what_is_taken_is_given_back_before_that_is_said_and_what_is_new_is_taken_after() -> None:
    member = settled()
    beats(member, INTERVAL)
    hears(member, 3, 2, now=INTERVAL)
    assert member.handover == Handover(revoked=of(1))
    assert member.may_commit
    assert member.next_request(INTERVAL, {}) is None, "there is nothing to say yet"
    member.gave_back(of(1), INTERVAL)
    assert beats(member, INTERVAL).topic_partitions == rows(2)
    hears(member, 4, 2, 5, now=INTERVAL)
    assert member.handover == Handover(assigned=of(5))
    member.took_over(INTERVAL)
    assert beats(member, INTERVAL).topic_partitions == rows(2, 5)


def test_after_a_lost_answer_everything_is_said_again() -> None:
    member = settled()
    beats(member, INTERVAL)
    member.fail(INTERVAL)
    request = beats(member, member.due)
    assert (request.member_epoch, request.subscribed_topic_names) == (3, ["t"])
    assert request.topic_partitions == rows(1, 2)


@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH])
def test_a_member_that_was_thrown_out_has_lost_everything_and_joins_anew(code: Code) -> None:
    member = settled()
    beats(member, INTERVAL)
    hears(member, 0, code=code, now=INTERVAL)
    assert member.handover == Handover(lost=of(1, 2))
    assert not member.may_commit
    assert member.next_request(INTERVAL, {}) is None
    member.gave_back(of(1, 2), INTERVAL)
    request = beats(member, INTERVAL)
    assert (request.member_id, request.member_epoch, request.topic_partitions) == ("me", 0, [])


def test_a_topic_whose_name_is_not_known_yet_is_waited_for() -> None:
    member = new_member()
    member.know({})
    beats(member)
    hears(member, 1, 4)
    assert not member.know({})
    assert member.assignment == ()
    assert member.know(NAMES)
    assert member.handover == Handover(assigned=of(4))


def test_a_commit_of_an_old_epoch_makes_it_ask_how_things_are() -> None:
    member = settled()
    member.commit_refused(Code.STALE_MEMBER_EPOCH, 2, 1.0)
    assert member.due == 1.0
    assert member.may_commit
    member.commit_refused(Code.UNKNOWN_MEMBER_ID, 3, 1.0)
    assert member.handover == Handover(lost=of(1, 2))


def test_a_user_that_does_not_poll_in_time_loses_its_place() -> None:
    member = settled()
    member.works(0.0)
    assert beats(member, MAX_POLL).member_epoch == -1
    assert member.phase is Phase.AWAY
    assert member.handover == Handover(lost=of(1, 2))
    member.gave_back(of(1, 2), MAX_POLL)
    member.polls(MAX_POLL)
    assert beats(member, MAX_POLL).member_epoch == 0


def test_a_static_member_leaves_for_now() -> None:
    goodbye = settled("name").leave_request()
    assert goodbye is not None
    assert (goodbye.member_epoch, goodbye.instance_id) == (-2, "name")
    assert new_member().leave_request() is None


def test_what_no_other_try_can_help_is_told() -> None:
    member = new_member()
    beats(member)
    hears(member, 0, code=Code.UNSUPPORTED_ASSIGNOR)
    failure = member.failure()
    assert failure is not None
    assert failure.code is Code.UNSUPPORTED_ASSIGNOR
    member.polls(1.0)
    assert beats(member, 1.0).member_epoch == 0

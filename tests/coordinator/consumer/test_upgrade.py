"""A classic group becomes a KIP-848 group while its members work, and a classic one again; both live in between."""

from typing import Any

import pytest

from barnabas.coordinator.classic.group import ClassicGroup, State
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.consumer.member import LEFT
from barnabas.errors import Code
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.wire.messages.consumer_protocol import assignment_of
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from tests.coordinator.metadata import assigned_bytes, subscription_bytes
from tests.coordinator.shell import TOPICS, Shell, config

GROUP = "readers"
ORDERS = TOPICS["orders"].id
ALL = [("orders", index) for index in range(4)]


def join_request(
    member: str = "",
    owned: list[tuple[str, int]] | None = None,
    *,
    protocols: tuple[str, ...] = ("range",),
    instance: str | None = None,
    kind: str = "consumer",
) -> JoinGroupRequest:
    metadata = subscription_bytes(["orders"], owned or ())
    rows = [JoinGroupProtocol(name, metadata) for name in protocols]
    return JoinGroupRequest(GROUP, 10_000, 20_000, member, instance, kind, rows)


def beat(
    shell: Shell, member: str, epoch: int, owned: list[int] | None = None, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(GROUP, member, epoch, **fields)
    if owned is not None:
        request.topic_partitions = [TopicPartitions(ORDERS, owned)] if owned else []
    answer: ConsumerGroupHeartbeatResponse = shell.ask(request, version=1)
    return answer


def consumer_join(shell: Shell, member: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    given = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["orders"]} | fields
    return beat(shell, member, 0, [], **given)


def told(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    assert answer.error_code == Code.NONE, answer
    if answer.assignment is None:
        return None
    return [index for row in answer.assignment.topic_partitions for index in row.partitions]


def code_of_beat(shell: Shell, member: JoinGroupResponse) -> Code:
    return Code.of(shell.ask(HeartbeatRequest(GROUP, member.generation_id, member.member_id)).error_code)


def rejoin(
    shell: Shell, member: JoinGroupResponse, owned: list[tuple[str, int]], protocol: str = "range"
) -> tuple[JoinGroupResponse, list[tuple[str, int]]]:
    """Join the consumer group again and ask for the assignment."""
    joined = shell.ask(join_request(member.member_id, owned, protocols=(protocol,)))
    assert joined.error_code == Code.NONE
    synced = shell.ask(
        SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, None, "consumer", protocol)
    )
    assert synced.error_code == Code.NONE
    rows = assignment_of(synced.assignment).assigned_partitions
    return joined, [(row.topic, index) for row in rows for index in row.partitions]


def classic_group(
    shell: Shell, *shares: list[tuple[str, int]], user_data: bytes | None = None, **fields: Any
) -> list[JoinGroupResponse]:
    """A stable classic group whose members have these."""
    tokens = [shell.send(join_request(**fields), version=3) for _ in shares]
    known = [shell.answers.pop(token) for token in tokens if token in shell.answers]
    tokens = [token for token in tokens if token in shell.waiting]
    # The first one made a generation alone; it joins again for that of all.
    tokens += [
        shell.send(join_request(member.member_id, **fields)) for member in known[:1] if len(shares) > 1
    ]
    joined = [shell.answers.pop(token) for token in tokens] or known
    leader = next(member for member in joined if member.members)
    rows = [
        SyncGroupAssignment(member.member_id, assigned_bytes(share, user_data=user_data))
        for member, share in zip(joined, shares, strict=True)
    ]
    followers = [member for member in joined if member is not leader]
    syncs = [
        shell.send(SyncGroupRequest(GROUP, member.generation_id, member.member_id)) for member in followers
    ]
    shell.ask(SyncGroupRequest(GROUP, leader.generation_id, leader.member_id, assignments=rows))
    for token in syncs:
        assert shell.answers.pop(token).error_code == Code.NONE
    assert group_of(shell, ClassicGroup).state is State.STABLE
    return joined


def group_of(shell: Shell, kind: type[Any]) -> Any:
    group = shell.coordinator.groups[GROUP]
    assert isinstance(group, kind)
    return group


def phase(shell: Shell) -> str:
    return str(group_of(shell, ConsumerGroup).state.phase)


# Up


def test_a_member_of_the_new_protocol_turns_the_group_into_one_of_its_own() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    answer = consumer_join(shell, "new")
    assert (answer.member_epoch, told(answer)) == (old.generation_id + 1, []), "the other one has all"
    group = group_of(shell, ConsumerGroup)
    assert group.state.members.keys() == {old.member_id, "new"}
    assert group.state.members[old.member_id].assigned == {ORDERS: dict.fromkeys(range(4), old.generation_id)}
    described = group.described_consumer(shell.topics)
    assert {member.member_id: member.member_type for member in described.members} == {
        old.member_id: 0,
        "new": 1,
    }


def test_a_member_that_cooperates_gives_back_and_goes_on() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    consumer_join(shell, "new")
    assert code_of_beat(shell, old) is Code.REBALANCE_IN_PROGRESS
    joined, kept = rejoin(shell, old, ALL)
    assert (joined.generation_id, kept) == (old.generation_id, ALL[:2]), (
        "it stays where it was until it gave back"
    )
    assert told(beat(shell, "new", 2)) is None
    assert code_of_beat(shell, joined) is Code.REBALANCE_IN_PROGRESS
    joined, kept = rejoin(shell, joined, kept)
    assert (joined.generation_id, kept) == (old.generation_id + 1, ALL[:2])
    assert told(beat(shell, "new", 2)) == [2, 3]
    assert code_of_beat(shell, joined) is Code.NONE
    assert phase(shell) == "Stable"


def test_a_member_that_gives_everything_back_first_needs_one_round() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    consumer_join(shell, "new")
    joined, kept = rejoin(shell, old, [])
    assert (joined.generation_id, kept) == (old.generation_id + 1, ALL[:2])
    assert told(beat(shell, "new", 2)) == [2, 3]
    assert phase(shell) == "Stable"


def test_those_who_wait_in_the_classic_group_are_told_to_join_again() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    waiting = shell.send(join_request(), version=3)
    assert waiting in shell.waiting
    consumer_join(shell, "new")
    assert shell.answers[waiting].error_code == Code.REBALANCE_IN_PROGRESS
    assert code_of_beat(shell, old) is Code.REBALANCE_IN_PROGRESS


def test_an_empty_classic_group_simply_ends() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    shell.ask(LeaveGroupRequest(GROUP, members=[LeavingMember(old.member_id)]))
    answer = consumer_join(shell, "new")
    assert told(answer) == [0, 1, 2, 3]
    assert phase(shell) == "Stable"


def test_an_empty_consumer_group_makes_room_for_a_classic_one() -> None:
    shell = Shell()
    consumer_join(shell, "new")
    beat(shell, "new", LEFT)
    assert phase(shell) == "Empty"
    classic_group(shell, ALL)
    assert isinstance(shell.replayed().groups[GROUP], ClassicGroup)


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"group_consumer_migration_policy": "disabled"}, {}),
        ({"group_consumer_migration_policy": "downgrade"}, {}),
        ({}, {"kind": "connect"}),
        ({}, {"user_data": b"what only an assignor of its own can read", "protocols": ("our-own",)}),
        ({"group_consumer_max_size": 1}, {}),
    ],
)
def test_a_group_that_cannot_become_one_stays_as_it_is(
    settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    shell = Shell(config(**settings))
    members = classic_group(shell, ALL[:2], ALL[2:], **fields)
    assert consumer_join(shell, "new").error_code == Code.GROUP_ID_NOT_FOUND
    assert group_of(shell, ClassicGroup).state is State.STABLE
    assert code_of_beat(shell, members[0]) is Code.NONE


def test_what_a_sticky_assignor_remembers_is_no_obstacle() -> None:
    shell = Shell()
    classic_group(shell, ALL, user_data=b"what librdkafka says to itself", protocols=("cooperative-sticky",))
    assert consumer_join(shell, "new").error_code == Code.NONE


def test_a_partition_that_was_assigned_twice_has_one_holder() -> None:
    shell = Shell()
    classic_group(shell, ALL[:3], ALL[2:])
    consumer_join(shell, "new")
    members = group_of(shell, ConsumerGroup).state.members.values()
    held = sorted(index for member in members for index in member.assigned.get(ORDERS, ()))
    assert held == [0, 1, 2, 3]


def test_an_upgrade_that_the_log_refuses_leaves_the_classic_group() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    shell.refusing = Code.NOT_ENOUGH_REPLICAS
    assert consumer_join(shell, "new").error_code == Code.COORDINATOR_NOT_AVAILABLE
    shell.refusing = None
    group_of(shell, ClassicGroup)
    assert code_of_beat(shell, old) is Code.NONE


# Down


def upgraded(shell: Shell) -> JoinGroupResponse:
    """A consumer group in which a classic member has 0 and 1, and `new` the others."""
    (old,) = classic_group(shell, ALL)
    consumer_join(shell, "new")
    joined, _ = rejoin(shell, old, [])
    assert told(beat(shell, "new", 2)) == [2, 3]
    assert phase(shell) == "Stable"
    return joined


def check_downgraded(shell: Shell, member: JoinGroupResponse) -> None:
    """The classic member is called together with itself, and gets everything."""
    group = group_of(shell, ClassicGroup)
    assert group.generation >= member.generation_id
    assert code_of_beat(shell, member) in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION)
    joined = shell.ask(join_request(member.member_id))
    assert (joined.error_code, joined.leader) == (Code.NONE, member.member_id)
    assert joined.generation_id > member.generation_id
    rows = [SyncGroupAssignment(member.member_id, assigned_bytes(ALL))]
    synced = shell.ask(SyncGroupRequest(GROUP, joined.generation_id, member.member_id, assignments=rows))
    assert assignment_of(synced.assignment).assigned_partitions[0].partitions == [0, 1, 2, 3]
    assert isinstance(shell.replayed().groups[GROUP], ClassicGroup)


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_leaves() -> None:
    shell = Shell()
    old = upgraded(shell)
    assert beat(shell, "new", LEFT).member_epoch == LEFT
    check_downgraded(shell, old)


def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_dies() -> None:
    shell = Shell()
    old = upgraded(shell)
    for _ in range(10):
        shell.wait(5000)
        if not isinstance(shell.coordinator.groups[GROUP], ConsumerGroup):
            break
        assert code_of_beat(shell, old) is Code.NONE
    check_downgraded(shell, old)


def test_a_coordinator_that_crashes_after_a_downgrade_calls_the_members_together() -> None:
    shell = Shell()
    old = upgraded(shell)
    beat(shell, "new", LEFT)
    shell.crash()
    check_downgraded(shell, old)


def test_what_is_left_of_an_upgraded_group_survives_a_crash() -> None:
    shell = Shell()
    old = upgraded(shell)
    shell.crash()
    assert phase(shell) == "Stable"
    assert code_of_beat(shell, old) is Code.NONE
    assert told(beat(shell, "new", 2)) is None
    shell.wait(9000)
    assert code_of_beat(shell, old) is Code.NONE
    shell.wait(10_000)
    assert group_of(shell, ConsumerGroup).state.members.keys() == {"new"}, "the classic session is its own"


def test_the_group_stays_if_the_settings_say_so() -> None:
    shell = Shell(config(group_consumer_migration_policy="upgrade"))
    old = upgraded(shell)
    beat(shell, "new", LEFT)
    assert phase(shell) == "Assigning"
    assert code_of_beat(shell, old) is Code.REBALANCE_IN_PROGRESS
    assert rejoin(shell, old, ALL[:2])[1] == ALL


def test_a_classic_member_that_takes_the_last_ones_instance_brings_the_group_back() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)
    consumer_join(shell, "new", instance_id="one")
    joined, _ = rejoin(shell, old, [])
    beat(shell, "new", 2, instance_id="one")
    answer = shell.ask(join_request(instance="one"))
    assert answer.error_code == Code.NONE
    group = group_of(shell, ClassicGroup)
    assert {member.instance_id for member in group.members} == {None, "one"}
    assert code_of_beat(shell, joined) is Code.REBALANCE_IN_PROGRESS
    assert isinstance(shell.replayed().groups[GROUP], ClassicGroup)


def test_offsets_stay_through_both() -> None:
    shell = Shell()
    (old,) = classic_group(shell, ALL)

    def commit(offset: int, member: str, epoch: int) -> Code:
        row = OffsetCommitTopic("orders", [OffsetCommitPartition(0, offset)])
        answer = shell.ask(OffsetCommitRequest(GROUP, epoch, member, topics=[row]))
        return Code.of(answer.topics[0].partitions[0].error_code)

    def committed() -> int:
        group = OffsetFetchGroup(GROUP, topics=[OffsetFetchTopic("orders", [0])])
        answer = shell.ask(OffsetFetchRequest(groups=[group]))
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    assert commit(1, old.member_id, old.generation_id) is Code.NONE
    consumer_join(shell, "new")
    assert committed() == 1
    assert commit(2, old.member_id, old.generation_id) is Code.NONE
    beat(shell, "new", LEFT)
    shell.crash()
    assert committed() == 2
    assert commit(3, old.member_id, 0) is Code.ILLEGAL_GENERATION

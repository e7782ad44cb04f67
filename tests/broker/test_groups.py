"""Groups over the wire: finding the coordinator, every version's own form, restarts, timers that run by themselves."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.coordinators import java_hash
from barnabas.errors import Code
from barnabas.testing import Broker
from barnabas.wire.apis import response_class
from barnabas.wire.frames import decode_response
from barnabas.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.coordinator import FindCoordinatorRequest
from barnabas.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from barnabas.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.speaking import batch, connect, create, produce
from tests.coordinator.classic.members import subscription
from tests.deadline import eventually
from tests.process import BrokerProcess
from tests.raw import RawConnection, frame_of

SESSION_MS = 120_000
"""Longer than anything takes between two heartbeats of these tests, which come by hand."""


@pytest.fixture
def group(connection: RawConnection, topic: str) -> str:
    """A group that nobody has used yet, its coordinator found."""
    name = f"group-of-{topic}"
    create(connection, topic, 2)
    assert find(connection, name) == Code.NONE
    return name


def find(connection: RawConnection, group: str) -> int:
    code: int = connection.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code
    return code


def ask_later(connection: RawConnection, request: Any, version: int) -> Callable[[], Any]:
    """Send a request whose answer will take a while; call what comes back for the answer."""
    connection.send(frame_of(request, version))
    return lambda: decode_response(response_class(request.api), version, connection.receive())[1]


def join_request(
    group: str, member: str = "", topic: str = "t", session_ms: int = SESSION_MS
) -> JoinGroupRequest:
    protocols = [JoinGroupProtocol("range", subscription(topic))]
    return JoinGroupRequest(group, session_ms, 60_000, member, None, "consumer", protocols)


def join(connection: RawConnection, group: str, topic: str = "t", session_ms: int = SESSION_MS) -> Any:
    """A member alone in its group, with an assignment."""
    given = connection.ask(join_request(group, "", topic, session_ms), 9)
    assert given.error_code == Code.MEMBER_ID_REQUIRED
    joined = connection.ask(join_request(group, given.member_id, topic, session_ms), 9)
    assert joined.error_code == Code.NONE
    rows = [SyncGroupAssignment(joined.member_id, b"all of it")]
    synced = connection.ask(
        SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=rows), 5
    )
    assert (synced.error_code, synced.assignment) == (Code.NONE, b"all of it")
    return joined


def beat(connection: RawConnection, group: str, joined: Any) -> int:
    code: int = connection.ask(HeartbeatRequest(group, joined.generation_id, joined.member_id), 4).error_code
    return code


def commit(connection: RawConnection, group: str, topic: str, offset: int, partition: int = 0) -> int:
    topics = [OffsetCommitTopic(topic, [OffsetCommitPartition(partition, offset, -1, "note")])]
    answer = connection.ask(OffsetCommitRequest(group, topics=topics), 9)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def committed(connection: RawConnection, group: str, topic: str) -> int:
    wanted = OffsetFetchGroup(group, topics=[OffsetFetchTopic(topic, [0])])
    answer = connection.ask(OffsetFetchRequest(groups=[wanted]), 9)
    assert answer.groups[0].error_code == Code.NONE
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


# Finding the coordinator


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_a_groups_partition_is_javas_hash_of_its_name(text: str, code: int) -> None:
    assert java_hash(text) == code


@pytest.mark.parametrize("version", range(5))
def test_a_coordinator_is_found_in_every_version(
    connection: RawConnection, broker: Broker, version: int
) -> None:
    request = FindCoordinatorRequest("some-group", coordinator_keys=["some-group", "other"])
    answer = connection.ask(request, version)
    rows = answer.coordinators if version >= 4 else [answer]
    assert len(rows) == (2 if version >= 4 else 1)
    for row in rows:
        assert (row.error_code, row.node_id) == (Code.NONE, 1)
        assert f"{row.host}:{row.port}" == broker.bootstrap


def test_a_coordinator_of_an_unknown_kind_is_refused(connection: RawConnection) -> None:
    (row,) = connection.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4).coordinators
    assert (row.error_code, row.node_id) == (Code.NONE, 1)
    (row,) = connection.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]), 4).coordinators
    assert row.error_code == Code.INVALID_REQUEST


def test_the_offsets_topic_is_made_on_first_use_and_only_the_broker_writes_to_it() -> None:
    settings = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "3"}
    with Broker(settings) as broker, connect(broker) as connection:
        name = "__consumer_offsets"
        asked = MetadataRequest([MetadataRequestTopic(name=name)], True)
        assert connection.ask(asked, 12).topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert connection.ask(ListGroupsRequest(), 4).groups == []
        assert commit(connection, "early", "t", 1) == Code.NOT_COORDINATOR
        assert find(connection, "g") == Code.NONE
        (topic,) = connection.ask(asked, 12).topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (Code.NONE, True, 3)
        assert produce(connection, name, batch(b"forged")).error_code == Code.INVALID_TOPIC_EXCEPTION


# The classic protocol


def test_members_meet_over_the_wire(broker: Broker, connection: RawConnection, group: str) -> None:
    first = join(connection, group)
    with connect(broker) as other:
        given = other.ask(join_request(group), 9)
        waiting = ask_later(other, join_request(group, given.member_id), 9)
        eventually(lambda: beat(connection, group, first) == Code.REBALANCE_IN_PROGRESS, "a rebalance")
        again = connection.ask(join_request(group, first.member_id), 9)
        second = waiting()
        assert again.leader == second.leader == first.member_id
        assert {row.member_id for row in again.members} == {first.member_id, second.member_id}
        waiting = ask_later(other, SyncGroupRequest(group, 2, second.member_id), 5)
        rows = [SyncGroupAssignment(second.member_id, b"half")]
        connection.ask(SyncGroupRequest(group, 2, first.member_id, assignments=rows), 5)
        assert waiting().assignment == b"half"
        described = connection.ask(DescribeGroupsRequest([group, "nobody"]), 5).groups
        assert [row.group_state for row in described] == ["Stable", "Dead"]
        assert {member.client_host for member in described[0].members} == {"/127.0.0.1"}
        leaving = [LeavingMember(first.member_id), LeavingMember(second.member_id), LeavingMember("x")]
        left = connection.ask(LeaveGroupRequest(group, members=leaving), 5)
        assert [row.error_code for row in left.members] == [0, 0, Code.UNKNOWN_MEMBER_ID]


def test_a_client_that_disconnects_while_it_waits_harms_no_other(
    broker: Broker, connection: RawConnection, group: str
) -> None:
    first = join(connection, group)
    with connect(broker) as other:
        given = other.ask(join_request(group), 9)
        ask_later(other, join_request(group, given.member_id), 9)
        eventually(lambda: beat(connection, group, first) == Code.REBALANCE_IN_PROGRESS, "a rebalance")
    again = connection.ask(join_request(group, first.member_id), 9)
    assert (again.error_code, again.generation_id) == (Code.NONE, 2)


@pytest.mark.parametrize("version", range(10))
def test_join_group_in_every_version(connection: RawConnection, group: str, version: int) -> None:
    answer = connection.ask(join_request(group), version)
    if version >= 4:
        assert answer.error_code == Code.MEMBER_ID_REQUIRED
        answer = connection.ask(join_request(group, answer.member_id), version)
    assert (answer.error_code, answer.leader) == (Code.NONE, answer.member_id)
    refused = connection.ask(join_request(group, "stranger"), version)
    assert refused.error_code == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leave_group_in_every_version(connection: RawConnection, group: str, version: int) -> None:
    member = join(connection, group).member_id
    request = LeaveGroupRequest(group, member, [LeavingMember(member)])
    for code in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
        answer = connection.ask(request, version)
        told = answer.members[0].error_code if version >= 3 else answer.error_code
        assert told == code


def test_a_silent_member_is_put_out_by_the_clock() -> None:
    with Broker({"group.min.session.timeout.ms": "100"}) as broker, connect(broker) as connection:
        find(connection, "g")
        join(connection, "g", session_ms=3000)

        def group_state() -> str:
            state: str = connection.ask(DescribeGroupsRequest(["g"]), 5).groups[0].group_state
            return state

        assert group_state() == "Stable"
        eventually(lambda: group_state() == "Empty", "the member to be put out")


def test_new_partitions_of_a_subscribed_topic_start_a_rebalance(
    connection: RawConnection, group: str, topic: str
) -> None:
    member = join(connection, group, topic)
    assert beat(connection, group, member) == Code.NONE
    connection.ask(CreatePartitionsRequest([CreatePartitionsTopic(topic, 5)]), 3)
    assert beat(connection, group, member) == Code.REBALANCE_IN_PROGRESS


# Offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_offset_commit_in_every_version(
    connection: RawConnection, group: str, topic: str, version: int
) -> None:
    parts = [OffsetCommitPartition(0, 40 + version), OffsetCommitPartition(9, 1)]
    answer = connection.ask(OffsetCommitRequest(group, topics=[OffsetCommitTopic(topic, parts)]), version)
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(connection, group, topic) == 40 + version


@pytest.mark.parametrize("version", range(1, 10))
def test_offset_fetch_in_every_version(
    connection: RawConnection, group: str, topic: str, version: int
) -> None:
    commit(connection, group, topic, 7)
    wanted = [OffsetFetchTopic(topic, [0, 1])]
    groups = [OffsetFetchGroup(group, topics=wanted), OffsetFetchGroup("nobody", topics=wanted)]
    answer = connection.ask(OffsetFetchRequest(group, wanted, groups, True), version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert [(row.committed_offset, row.metadata) for row in topics[0].partitions] == [(7, "note"), (-1, "")]
    if version >= 8:
        assert [row.committed_offset for row in answer.groups[1].topics[0].partitions] == [-1, -1]
    if version >= 2:
        answer = connection.ask(
            OffsetFetchRequest(group, None, [OffsetFetchGroup(group, topics=None)]), version
        )
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        assert [row.partition_index for row in topics[0].partitions] == [0]


@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_offset_fetch_where_there_is_no_coordinator(version: int) -> None:
    with Broker() as broker, connect(broker) as connection:
        wanted = [OffsetFetchTopic("t", [0])]
        request = OffsetFetchRequest("g", wanted, [OffsetFetchGroup("g", topics=wanted)])
        answer = connection.ask(request, version)
        row = answer.topics[0].partitions[0] if version == 1 else answer.groups[0] if version == 8 else answer
        assert row.error_code == Code.NOT_COORDINATOR


def test_groups_and_offsets_are_deleted(connection: RawConnection, group: str, topic: str) -> None:
    commit(connection, group, topic, 7)
    commit(connection, group, topic, 7, partition=1)
    rows = [OffsetDeletePartition(0), OffsetDeletePartition(5)]
    answer = connection.ask(OffsetDeleteRequest(group, [OffsetDeleteTopic(topic, rows)]), 0)
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert committed(connection, group, topic) == -1
    assert group in {
        row.group_id for row in connection.ask(ListGroupsRequest(["empty"], ["classic"]), 5).groups
    }
    results = connection.ask(DeleteGroupsRequest([group, "nobody"]), 2).results
    assert [row.error_code for row in results] == [Code.NONE, Code.GROUP_ID_NOT_FOUND]
    assert group not in {row.group_id for row in connection.ask(ListGroupsRequest(), 5).groups}


# KIP-848


def test_a_consumer_group_over_the_wire(connection: RawConnection, group: str, topic: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group, "member-1", 0, None, None, 60_000, [topic], None, None, topic_partitions=[]
    )
    joined = connection.ask(request, 1)
    assert (joined.error_code, joined.member_epoch) == (Code.NONE, 1)
    assert joined.assignment is not None
    assert [row.partitions for row in joined.assignment.topic_partitions] == [[0, 1]]
    known, classic = connection.ask(ConsumerGroupDescribeRequest([group, "nobody"]), 1).groups
    assert (known.group_state, known.members[0].member_id) == ("Stable", "member-1")
    assert classic.error_code == Code.GROUP_ID_NOT_FOUND
    stale = connection.ask(ConsumerGroupHeartbeatRequest(group, "member-1", 7), 1)
    assert stale.error_code == Code.FENCED_MEMBER_EPOCH
    assert stale.error_message


# Restarts


def test_a_group_goes_on_after_a_restart(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t", 2)
        find(connection, "g")
        member = join(connection, "g")
        for offset in range(2000):
            commit(connection, f"g{offset % 7}", "t", offset)
    with Broker(data=tmp_path) as broker, connect(broker) as connection:
        # A heartbeat that comes before the groups are loaded is let pass: sessions begin with the coordinator.
        assert beat(connection, "g", member) == Code.NONE

        def loaded() -> bool:
            code: int = connection.ask(ListGroupsRequest(), 5).error_code
            assert code in (Code.NONE, Code.COORDINATOR_LOAD_IN_PROGRESS)
            return code == Code.NONE

        eventually(loaded, "the groups to be loaded")
        assert beat(connection, "g", member) == Code.NONE
        (known,) = connection.ask(DescribeGroupsRequest(["g"]), 5).groups
        assert (known.group_state, known.members[0].member_assignment) == ("Stable", b"all of it")
        assert [committed(connection, f"g{n}", "t") for n in range(7)] == [
            max(offset for offset in range(2000) if offset % 7 == n) for n in range(7)
        ]


def test_requests_are_told_to_come_again_while_groups_are_loaded(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:
        create(connection, "t", 500)
        find(connection, "g")
        for _ in range(160):
            parts = [OffsetCommitPartition(index, 7) for index in range(500)]
            connection.ask(OffsetCommitRequest("g", topics=[OffsetCommitTopic("t", parts)]), 9)

    def codes_after_a_start() -> list[int]:
        codes: list[int] = []
        with Broker(settings, data=tmp_path) as broker, connect(broker) as connection:

            def served() -> bool:
                codes.append(commit(connection, "g", "t", 8))
                return codes[-1] == Code.NONE

            eventually(served, "the group to be loaded")
            assert committed(connection, "g", "t") == 8
        return codes

    # Where this thread has to wait for its turn, the group may be loaded before it asks: then once more.
    for _ in range(20):
        codes = codes_after_a_start()
        assert set(codes) <= {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NONE}
        if codes[0] == Code.COORDINATOR_LOAD_IN_PROGRESS:
            return
    raise AssertionError("nobody was ever told to come again")


def test_what_was_committed_before_kill_nine_is_there_after(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("group.initial.rebalance.delay.ms=0")
    with RawConnection(broker.port) as connection:
        create(connection, "t")
        find(connection, "g")
        member = join(connection, "g")
        topics = [OffsetCommitTopic("t", [OffsetCommitPartition(0, 77)])]
        request = OffsetCommitRequest("g", member.generation_id, member.member_id, topics=topics)
        assert connection.ask(request, 9).topics[0].partitions[0].error_code == Code.NONE
    broker.kill()
    broker.start()
    with RawConnection(broker.port) as connection:
        eventually(lambda: connection.ask(ListGroupsRequest(), 5).error_code == Code.NONE, "the load")
        assert beat(connection, "g", member) == Code.NONE
        assert committed(connection, "g", "t") == 77
        assert connection.ask(request, 9).topics[0].partitions[0].error_code == Code.NONE


@pytest.mark.slow
def test_a_broker_that_was_stopped_hears_its_members_before_it_puts_them_out(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker("group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=100")
    with RawConnection(broker.port) as connection:
        find(connection, "g")
        member = join(connection, "g", session_ms=4000)
        os.kill(broker.pid, signal.SIGSTOP)
        waiting = ask_later(connection, HeartbeatRequest("g", member.generation_id, member.member_id), 4)
        resumed_at = time.monotonic() + 6
        eventually(lambda: time.monotonic() > resumed_at, "a session to be over")
        os.kill(broker.pid, signal.SIGCONT)
        assert waiting().error_code == Code.NONE
        assert beat(connection, "g", member) == Code.NONE


def test_a_commit_that_the_log_refuses_is_not_taken(
    connection: RawConnection, group: str, topic: str
) -> None:
    def limit(value: str) -> None:
        config = IncrementalAlterableConfig("max.message.bytes", 0, value)
        resource = IncrementalAlterConfigsResource(2, "__consumer_offsets", [config])
        assert connection.ask(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == 0

    assert commit(connection, group, topic, 1) == Code.NONE
    limit("10")
    try:
        assert commit(connection, group, topic, 2) == Code.UNKNOWN_SERVER_ERROR
        assert committed(connection, group, topic) == 1
    finally:
        limit("1048588")
    assert commit(connection, group, topic, 3) == Code.NONE
    assert committed(connection, group, topic) == 3


def test_offsets_go_with_their_topic(connection: RawConnection, group: str, topic: str) -> None:
    commit(connection, group, topic, 5)
    connection.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic)]), 6)
    assert committed(connection, group, topic) == -1
    create(connection, topic, 2)
    assert committed(connection, group, topic) == -1


def test_commits_wait_for_the_disk_where_the_topic_wants_them_there() -> None:
    with Broker({"log.flush.interval.messages": "1"}) as broker, connect(broker) as connection:
        create(connection, "t")
        find(connection, "g")
        assert commit(connection, "g", "t", 5) == Code.NONE
        assert committed(connection, "g", "t") == 5


def test_commits_that_wait_for_the_disk_are_answered_when_their_coordinator_goes() -> None:
    with (
        Broker({"log.flush.interval.messages": "1"}) as broker,
        connect(broker) as connection,
        connect(broker) as other,
    ):
        create(connection, "t")
        find(connection, "g")
        topics = [OffsetCommitTopic("t", [OffsetCommitPartition(0, 7)])]
        commits = [frame_of(OffsetCommitRequest("g", topics=topics), 9, number) for number in range(500)]
        connection.send(b"".join(commits))
        gone = other.ask(DeleteTopicsRequest(topics=[DeleteTopicState("__consumer_offsets")]), 6)
        assert gone.responses[0].error_code == Code.NONE
        answers = [decode_response(OffsetCommitResponse, 9, connection.receive()) for _ in commits]
        assert [number for number, _ in answers] == list(range(500))
        codes = {answer.topics[0].partitions[0].error_code for _, answer in answers}
        assert codes <= {Code.NONE, Code.NOT_COORDINATOR}


def test_a_group_whose_name_the_log_cannot_hold_is_told_so(connection: RawConnection, topic: str) -> None:
    """A compact string of the request may be longer than the short one of the record."""
    create(connection, topic)
    find = connection.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
    assert find.coordinators[0].error_code == 0
    part = OffsetCommitPartition(0, committed_offset=1)
    request = OffsetCommitRequest("g" * 40_000, topics=[OffsetCommitTopic(topic, [part])])
    answer = connection.ask(request, 9)
    assert answer.topics[0].partitions[0].error_code == Code.INVALID_REQUEST

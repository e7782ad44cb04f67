"""Committed offsets: who may commit, what is answered, what goes and when, and that the log tells it all."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.coordinator.coordinator import EXPIRY_BATCH
from barnabas.coordinator.effects import TopicFacts
from barnabas.coordinator.records import OffsetCommitKey, OffsetCommitValue, Record, encode
from barnabas.errors import Code
from barnabas.wire.messages.offsets import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from tests.coordinator.classic.members import (
    GROUP,
    Member,
    commit,
    commit_request,
    committed,
    join_request,
    leave,
    stable,
)
from tests.coordinator.shell import Shell, config, lasting

MINUTE = 60_000


@pytest.fixture
def shell() -> Shell:
    return Shell()


def delete(shell: Shell, topic: str = "orders", *partitions: int, group: str = GROUP) -> Any:
    rows = [OffsetDeletePartition(partition) for partition in partitions or (0,)]
    return shell.ask(OffsetDeleteRequest(group, [OffsetDeleteTopic(topic, rows)]), 0)


# Committing


def test_what_is_committed_is_fetched_with_its_epoch_and_metadata(shell: Shell) -> None:
    request = commit_request(7, metadata="half way")
    request.topics[0].partitions[0].committed_leader_epoch = 3
    shell.ask(request)
    wanted = OffsetFetchGroup(GROUP, topics=[OffsetFetchTopic("orders", [0, 1]), OffsetFetchTopic("x", [0])])
    (group,) = shell.ask(OffsetFetchRequest(groups=[wanted]), 8).groups
    orders, nothing = group.topics
    rows = [
        (r.committed_offset, r.committed_leader_epoch, r.metadata, r.error_code) for r in orders.partitions
    ]
    assert rows == [(7, 3, "half way", 0), (-1, -1, "", 0)]
    assert [(r.committed_offset, r.error_code) for r in nothing.partitions] == [(-1, 0)]


def test_all_of_a_group_is_fetched_when_no_topic_is_named(shell: Shell) -> None:
    for topic, partition in (("orders", 0), ("orders", 3), ("parcels", 0)):
        commit(shell, 5, topic=topic, partition=partition)
    both = [OffsetFetchGroup(GROUP, topics=None), OffsetFetchGroup("nobody", topics=None)]
    mine, none = shell.ask(OffsetFetchRequest(groups=both), 8).groups
    found = {(topic.name, row.partition_index) for topic in mine.topics for row in topic.partitions}
    assert found == {("orders", 0), ("orders", 3), ("parcels", 0)}
    assert (none.topics, none.error_code) == ([], 0)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"topic": "nowhere"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 4}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 4097}, Code.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "x" * 4096}, Code.NONE),
        ({"member": "m", "generation": 1}, Code.GROUP_ID_NOT_FOUND),
        ({"generation": 0}, Code.GROUP_ID_NOT_FOUND),
        ({"group": ""}, Code.NONE),
    ],
)
def test_a_commit_without_a_group(shell: Shell, facts: dict[str, Any], code: Code) -> None:
    assert commit(shell, 1, **facts) == code
    assert bool(shell.log) == (code is Code.NONE)


def test_old_clients_are_told_of_a_generation_where_there_is_no_group(shell: Shell) -> None:
    assert commit(shell, 1, 8, generation=0) == Code.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"generation": 1}, Code.NONE),
        ({"generation": 0}, Code.ILLEGAL_GENERATION),
        ({"generation": 2}, Code.ILLEGAL_GENERATION),
        ({"generation": -1}, Code.ILLEGAL_GENERATION),
        ({"generation": 1, "member": "stranger"}, Code.UNKNOWN_MEMBER_ID),
        ({"generation": -1, "member": ""}, Code.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "instance": "nobody"}, Code.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "metadata": "x" * 5000}, Code.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_only_members_of_the_generation_commit_to_a_group_at_work(
    shell: Shell, facts: dict[str, Any], code: Code
) -> None:
    (member,) = stable(shell, Member(shell))
    assert commit(shell, 1, **{"member": member.id, **facts}) == code
    assert committed(shell) == (1 if code is Code.NONE else -1)


def test_a_fenced_static_member_cannot_commit(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell, instance="one"))
    shell.ask(join_request(instance="one"))
    code = commit(shell, 1, member=member.id, generation=1, instance="one")
    assert code == Code.FENCED_INSTANCE_ID


def test_members_may_commit_until_the_next_generation_begins(shell: Shell) -> None:
    first, second = Member(shell), Member(shell)
    stable(shell, first)
    second.joins()
    assert commit(shell, 1, member=first.id, generation=1) == Code.NONE
    first.joins()
    first.hears()
    assert commit(shell, 2, member=first.id, generation=2) == Code.REBALANCE_IN_PROGRESS
    assert commit(shell, 2, member=first.id, generation=1) == Code.ILLEGAL_GENERATION
    assert committed(shell) == 1


def test_an_administrator_commits_where_nobody_is_in_the_group(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    commit(shell, 9, member=member.id, generation=1)
    leave(shell, member.id)
    assert commit(shell, 2) == Code.NONE
    assert committed(shell) == 2


def test_a_refused_append_leaves_what_was_committed(shell: Shell) -> None:
    commit(shell, 5)
    for code, told in (
        (Code.NOT_ENOUGH_REPLICAS, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.KAFKA_STORAGE_ERROR, Code.NOT_COORDINATOR),
        (Code.MESSAGE_TOO_LARGE, Code.UNKNOWN_SERVER_ERROR),
    ):
        shell.refusing = code
        assert commit(shell, 6) == told
    assert committed(shell) == 5
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


# Deleting


def test_offsets_of_a_topic_that_is_read_are_not_deleted(shell: Shell) -> None:
    (member,) = stable(shell, Member(shell))
    commit(shell, 1, member=member.id, generation=1)
    commit(shell, 2, member=member.id, generation=1, topic="parcels")
    assert delete(shell).topics[0].partitions[0].error_code == Code.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(shell, "parcels").topics[0].partitions[0].error_code == Code.NONE
    assert (committed(shell), committed(shell, "parcels")) == (1, -1)
    leave(shell, member.id)
    assert (
        delete(shell, "orders", 0, 1, 7).topics[0].partitions[2].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert committed(shell) == -1
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


def test_offsets_of_members_whose_topics_nobody_knows_are_not_deleted(shell: Shell) -> None:
    stable(shell, Member(shell, kind="connect", protocols={"v1": b""}))
    assert delete(shell).error_code == Code.NON_EMPTY_GROUP


def test_deleting_from_a_group_that_does_not_exist(shell: Shell) -> None:
    assert delete(shell).error_code == Code.GROUP_ID_NOT_FOUND
    assert delete(shell, group="").error_code == Code.INVALID_GROUP_ID


def test_offsets_go_with_their_topic(shell: Shell) -> None:
    commit(shell, 1)
    commit(shell, 2, topic="parcels")
    shell.change_topics(orders=0)
    assert (committed(shell), committed(shell, "parcels")) == (-1, 2)
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


def test_a_group_of_nobody_goes_with_its_last_offset(shell: Shell) -> None:
    commit(shell, 1)
    delete(shell)
    assert not shell.coordinator.groups
    assert not shell.replayed().groups


# Expiry


@pytest.fixture
def forgetful() -> Shell:
    return Shell(config(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE))


def test_offsets_of_a_consumer_that_is_alone_expire_after_its_last_commit(forgetful: Shell) -> None:
    commit(forgetful, 1)
    commit(forgetful, 1, partition=1)
    forgetful.wait(9 * MINUTE)
    commit(forgetful, 2, partition=1)
    forgetful.wait(2 * MINUTE)
    assert (committed(forgetful), committed(forgetful, partition=1)) == (-1, 2)
    forgetful.wait(9 * MINUTE)
    assert not forgetful.coordinator.groups
    assert lasting(forgetful.replayed()) == lasting(forgetful.coordinator) == ({}, {})


def test_expiry_never_touches_an_active_group(forgetful: Shell) -> None:
    (member,) = stable(forgetful, Member(forgetful, session_ms=1_800_000))
    commit(forgetful, 1, member=member.id, generation=1)
    commit(forgetful, 2, member=member.id, generation=1, topic="parcels")
    for _ in range(3):
        forgetful.wait(20 * MINUTE)
        assert member.beats() == Code.NONE
    assert (committed(forgetful), committed(forgetful, "parcels")) == (1, 2)


def test_offsets_of_a_group_are_kept_from_when_its_last_member_left(forgetful: Shell) -> None:
    (member,) = stable(forgetful, Member(forgetful, session_ms=1_800_000))
    commit(forgetful, 1, member=member.id, generation=1)
    forgetful.wait(25 * MINUTE)
    leave(forgetful, member.id)
    forgetful.wait(9 * MINUTE)
    assert committed(forgetful) == 1
    # A restart does not give them more time, nor less.
    forgetful.crash()
    forgetful.wait(2 * MINUTE)
    assert committed(forgetful) == -1
    assert not forgetful.coordinator.groups


def test_an_old_client_may_say_how_long_its_offsets_are_kept(forgetful: Shell) -> None:
    commit(forgetful, 1, 4, retention_ms=30 * MINUTE)
    forgetful.wait(29 * MINUTE)
    assert committed(forgetful) == 1
    forgetful.wait(2 * MINUTE)
    assert committed(forgetful) == -1


def test_offsets_may_be_kept_for_as_long_as_a_number_can_say(forgetful: Shell) -> None:
    commit(forgetful, 1, 4, retention_ms=2**63 - 1)
    forgetful.wait(1000 * MINUTE)
    assert committed(forgetful) == 1


def test_very_many_offsets_expire_in_batches(forgetful: Shell) -> None:
    forgetful.change_topics(orders=400)
    for number in range(8):
        for partition in range(400):
            forgetful.send(commit_request(1, group=f"group-{number}", partition=partition))
    written = len(forgetful.log)
    forgetful.wait(12 * MINUTE)
    assert not forgetful.coordinator.groups
    assert len(forgetful.log) == 2 * written
    assert max(forgetful.batches) < EXPIRY_BATCH + 400


# Topics that are deleted


def test_offsets_of_a_topic_whose_deletion_the_broker_did_not_survive_do_not_come_back(shell: Shell) -> None:
    commit(shell, 5)
    commit(shell, 7, topic="parcels")
    shell.change_topics_before_a_crash(orders=0)
    shell.change_topics(orders=4)
    assert committed(shell) == -1
    assert committed(shell, topic="parcels") == 7
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


def test_offsets_of_a_topic_that_was_made_anew_meanwhile_do_not_come_back(shell: Shell) -> None:
    commit(shell, 5)
    del shell.topics["orders"]
    shell.change_topics_before_a_crash(orders=4)
    assert committed(shell) == -1


def test_offsets_of_partitions_that_are_there_stay_when_a_coordinator_is_loaded(shell: Shell) -> None:
    commit(shell, 5)
    commit(shell, 6, partition=3)
    length = len(shell.log)
    shell.crash()
    shell.tick()
    assert (committed(shell), committed(shell, partition=3)) == (5, 6)
    assert len(shell.log) == length


def test_commits_of_older_brokers_which_name_no_topic_id_count_for_the_topic_of_that_name(
    shell: Shell,
) -> None:
    shell.log.append(encode(Record(OffsetCommitKey(GROUP, "orders", 1), OffsetCommitValue(42))))
    shell.log.append(encode(Record(OffsetCommitKey(GROUP, "orders", 4), OffsetCommitValue(42))))
    shell.crash()
    shell.tick()
    assert committed(shell, partition=1) == 42
    assert committed(shell, partition=4) == -1


def test_a_log_that_refuses_tombstones_is_asked_again_and_new_commits_stay(shell: Shell) -> None:
    commit(shell, 5)
    commit(shell, 6, partition=1)
    shell.refusing = Code.KAFKA_STORAGE_ERROR
    topics = dict(shell.topics)
    del topics["orders"]
    shell.carry_out(shell.coordinator.topics_changed(topics, shell.now))
    shell.carry_out(shell.coordinator.topics_changed(shell.topics, shell.now))
    assert shell.coordinator.deadline <= shell.now
    shell.refusing = None
    assert commit(shell, 1) == Code.NONE
    assert (committed(shell), committed(shell, partition=1)) == (1, -1)
    assert lasting(shell.replayed()) == lasting(shell.coordinator)


def test_the_tombstones_of_very_many_offsets_are_written_bit_by_bit() -> None:
    shell = Shell(topics={"orders": TopicFacts(UUID(int=1), 2 * EXPIRY_BATCH)})
    for partition in range(2 * EXPIRY_BATCH):
        commit(shell, 1, partition=partition)
    del shell.batches[:]
    shell.change_topics(orders=0)
    assert shell.batches == [EXPIRY_BATCH, EXPIRY_BATCH]
    assert not list(shell.coordinator.offsets)

"""One KIP-848 group: joining, reconciling, fencing, static members, time, and what others are told of it."""

from typing import Any
from uuid import UUID

import pytest

from barnabas.config import BrokerConfig
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.consumer.member import AWAY, LEFT, Progress
from barnabas.coordinator.effects import Effects, TopicFacts
from barnabas.coordinator.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    Record,
    decode,
    encode,
)
from barnabas.errors import Code
from tests.coordinator.consumer.consumers import GROUP, ORDERS, PAYMENTS, Story, told

ALL = {ORDERS: [0, 1, 2, 3]}


def stable(*members: str, **settings: Any) -> Story:
    """A group in which these have shared out `orders`."""
    story = Story(**settings)
    for member in members:
        story.join(member)
    story.settle(*members)
    assert story.group.state.phase == "Stable"
    return story


# Joining


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    story = Story()
    answer = story.join("a")
    assert (answer.member_id, answer.member_epoch, told(answer)) == ("a", 1, ALL)
    assert answer.heartbeat_interval_ms == story.config.group_consumer_heartbeat_interval_ms
    assert story.group.state.phase == "Stable"


def test_version_0_may_ask_for_an_id_and_version_1_may_not() -> None:
    story = Story()
    assert story.join("", version=0, fresh="from-us").member_id == "from-us"
    story.refused(Code.INVALID_REQUEST, story.join, "", version=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"topic_partitions": None},
        {"instance_id": ""},
        {"rack_id": ""},
    ],
)
def test_a_member_that_joins_says_everything(fields: dict[str, object]) -> None:
    story = Story()
    story.refused(Code.INVALID_REQUEST, story.join, "a", **fields)


def test_a_member_that_joins_owns_nothing() -> None:
    story = Story()
    fields = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ["orders"]}
    story.refused(Code.INVALID_REQUEST, story.beat, "a", 0, ALL, **fields)


@pytest.mark.parametrize("epoch", [-3, -100])
def test_an_epoch_that_means_nothing_is_refused(epoch: int) -> None:
    story = stable("a")
    story.refused(Code.INVALID_REQUEST, story.beat, "a", epoch)


def test_an_assignor_nobody_has_is_refused() -> None:
    story = Story()
    refused = story.refused(Code.UNSUPPORTED_ASSIGNOR, story.join, "a", server_assignor="magic")
    assert "uniform, range" in refused.message


def test_a_full_group_takes_no_more_but_keeps_its_own() -> None:
    story = stable("a", "b", group_consumer_max_size=2)
    story.refused(Code.GROUP_MAX_SIZE_REACHED, story.join, "c")
    story.join("a")


def test_a_member_nobody_knows_must_join() -> None:
    story = stable("a")
    story.refused(Code.UNKNOWN_MEMBER_ID, story.beat, "b", 1)
    story.refused(Code.UNKNOWN_MEMBER_ID, story.beat, "b", LEFT)


# Reconciliation


def test_a_partition_goes_over_only_when_its_owner_has_given_it_back() -> None:
    story = Story()
    story.join("a")
    answer = story.join("b")
    assert (answer.member_epoch, told(answer)) == (2, {}), "its share is still held by a"
    answer = story.beat("a", 1)
    assert (answer.member_epoch, told(answer)) == (1, {ORDERS: [0, 1]}), "a is to keep two"
    assert told(story.beat("b", 2)) is None
    assert told(story.beat("a", 1, ALL)) is None, "not yet"
    assert story.members["a"].progress is Progress.UNREVOKED
    assert told(story.beat("b", 2)) is None
    assert story.beat("a", 1, {ORDERS: [0, 1]}).member_epoch == 2
    assert told(story.beat("b", 2)) == {ORDERS: [2, 3]}
    assert story.group.state.phase == "Stable"


def test_a_member_may_take_some_while_it_waits_for_others() -> None:
    story = stable("a", "b")
    story.topics["payments"] = TopicFacts(PAYMENTS, 3)
    answer = story.join("c", "orders", "payments")
    assert told(answer) == {PAYMENTS: [0, 1, 2]}
    assert story.members["c"].progress in (Progress.STABLE, Progress.UNRELEASED)


def test_a_member_that_is_told_nothing_new_is_told_nothing() -> None:
    story = stable("a")
    assert told(story.beat("a", 1)) is None
    assert story.last == []


def test_a_full_request_is_answered_in_full() -> None:
    story = stable("a")
    answer = story.beat("a", 1, ALL, rebalance_timeout_ms=5000, subscribed_topic_names=["orders"])
    assert told(answer) == ALL


def test_an_old_revocation_ends_in_the_next_epoch_and_a_new_target_is_taken_up() -> None:
    story = stable("a")
    story.join("b")
    story.beat("a", 1)
    story.join("c")
    answer = story.beat("a", 1, {ORDERS: [0, 1]})
    assert answer.member_epoch == 3, "b and c have two between them: nothing more is to be given back"
    story.settle("a", "b", "c")
    assert sorted(len(story.owned(member)[ORDERS]) for member in "abc") == [1, 1, 2]


def test_what_a_leaver_had_goes_to_those_who_stay() -> None:
    story = stable("a", "b")
    assert story.beat("b", LEFT).member_epoch == LEFT
    assert story.group.state.phase == "Assigning"
    answer = story.beat("a", 2)
    assert (answer.member_epoch, told(answer)) == (3, ALL)


def test_a_member_that_rejoins_gets_back_what_it_had() -> None:
    story = stable("a", "b")
    before = story.owned("a")
    epoch = story.group.state.epoch
    answer = story.join("a")
    assert told(answer) == before
    assert story.group.state.epoch == epoch, "nothing has changed for the others"


# Epochs


def test_an_epoch_that_is_not_the_members_is_fenced() -> None:
    story = stable("a", "b", "c")
    for epoch in (1, 7):
        story.refused(Code.FENCED_MEMBER_EPOCH, story.beat, "a", epoch)


def test_a_member_that_missed_its_last_answer_may_come_with_the_epoch_before() -> None:
    story = stable("a", "b")
    epoch = story.members["a"].epoch
    story.join("c")
    kept = {ORDERS: [story.owned("a")[ORDERS][0]]}
    story.beat("a", epoch)
    story.beat("a", epoch, kept)
    assert story.members["a"].epoch > epoch
    answer = story.beat("a", epoch, kept)
    assert answer.member_epoch == story.members["a"].epoch
    story.refused(Code.FENCED_MEMBER_EPOCH, story.beat, "a", epoch)
    story.refused(Code.FENCED_MEMBER_EPOCH, story.beat, "a", epoch, {PAYMENTS: [0]})


def test_a_fenced_member_may_join_again_under_its_id() -> None:
    story = stable("a", "b")
    story.refused(Code.FENCED_MEMBER_EPOCH, story.beat, "a", 77)
    assert story.join("a").member_epoch == story.group.state.epoch


def test_a_changed_subscription_lets_the_epoch_rise_and_another_name_for_the_client_does_not() -> None:
    story = stable("a")
    assert story.beat("a", 1, subscribed_topic_names=["payments"]).member_epoch == 1
    assert story.group.state.epoch == 2
    assert told(story.beat("a", 1, {})) == {PAYMENTS: [0, 1]}
    assert story.beat("a", 2, client="renamed").member_epoch == 2
    assert story.group.state.epoch == 2
    assert story.members["a"].client_id == "renamed"


def test_a_topic_that_grows_is_shared_out_with_the_next_heartbeat() -> None:
    story = stable("a")
    story.topics = {**story.topics, "orders": TopicFacts(ORDERS, 5)}
    assert told(story.beat("a", 1)) == {ORDERS: [0, 1, 2, 3, 4]}


def test_a_topic_nobody_reads_may_do_as_it_likes() -> None:
    story = stable("a")
    story.topics = {**story.topics, "payments": TopicFacts(PAYMENTS, 50)}
    assert story.beat("a", 1).member_epoch == 1


def test_a_topic_that_is_made_anew_is_another_topic() -> None:
    story = stable("a")
    story.topics = {**story.topics, "orders": TopicFacts(UUID(int=9), 4)}
    story.beat("a", 1)
    assert told(story.beat("a", 1, {})) == {UUID(int=9): [0, 1, 2, 3]}


def test_a_topic_may_come_after_its_subscribers() -> None:
    story = Story()
    assert told(story.join("a", "later")) == {}
    story.topics = {**story.topics, "later": TopicFacts(PAYMENTS, 1)}
    assert told(story.beat("a", 1)) == {PAYMENTS: [0]}


def test_topics_that_changed_are_noticed_without_a_heartbeat_too() -> None:
    story = stable("a")
    story.topics = {**story.topics, "orders": TopicFacts(ORDERS, 5)}
    out = Effects()
    story.group.topics_changed(story.now, story.topics, out)
    story.apply(out)
    assert story.group.state.phase == "Assigning"
    out = Effects()
    story.group.topics_changed(story.now, story.topics, out)
    assert out.records == []


def test_the_assignor_most_members_want_is_used() -> None:
    story = Story()
    story.join("a", "orders", "payments", server_assignor="range")
    story.join("b", "orders", "payments", server_assignor="range")
    story.join("c", "orders", "payments", server_assignor="uniform")
    assert story.group.described_consumer(story.topics).assignor_name == "range"
    assert story.group.state.targets["a"] == {ORDERS: {0, 1}, PAYMENTS: {0}}
    assert story.group.state.targets["c"] == {ORDERS: {3}}


# Regular expressions


def test_a_regular_expression_follows_the_topics() -> None:
    story = Story()
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": "pay.*|later"}
    answer = story.join("a", **fields)
    assert told(answer) == {PAYMENTS: [0, 1]}
    story.topics = {**story.topics, "later": TopicFacts(ORDERS, 1)}
    assert told(story.beat("a", 1)) == {PAYMENTS: [0, 1], ORDERS: [0]}
    assert story.group.state.regexes == {"pay.*|later": {"payments", "later"}}


def test_names_and_a_regular_expression_add_up() -> None:
    story = Story()
    assert told(story.join("a", "orders", subscribed_topic_regex="pay.*")) == {
        ORDERS: [0, 1, 2, 3],
        PAYMENTS: [0, 1],
    }
    story.beat("a", 1, subscribed_topic_regex="")
    assert story.members["a"].regex is None
    assert Record(ConsumerGroupRegularExpressionKey(GROUP, "pay.*")) in story.log
    story.beat("a", 1, ALL)
    assert story.owned("a") == ALL


def test_the_last_one_to_leave_takes_its_expression_along() -> None:
    story = Story()
    for member in "ab":
        story.join(member, subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    story.beat("a", LEFT)
    assert story.group.state.regexes
    story.beat("b", LEFT)
    assert not story.group.state.regexes


@pytest.mark.parametrize("regex", ["(", "a**", "(?=a)", r"(a)\1", "x" * 2000, "(a{900}){900}"])
def test_what_is_no_regular_expression_is_refused(regex: str) -> None:
    story = Story()
    story.refused(Code.INVALID_REGULAR_EXPRESSION, story.join, "a", subscribed_topic_regex=regex)


# Static members


def test_a_static_member_that_is_back_soon_finds_its_partitions() -> None:
    story = Story()
    story.join("a", instance_id="one")
    story.join("b", instance_id="two")
    story.settle("a", "b")
    before, epoch = story.owned("a"), story.group.state.epoch
    assert story.beat("a", AWAY, instance_id="one").member_epoch == AWAY
    assert story.members["a"].epoch == AWAY
    answer = story.join("a2", instance_id="one")
    assert (answer.member_epoch, told(answer)) == (epoch, before)
    assert story.members.keys() == {"a2", "b"}
    assert story.group.state.epoch == epoch, "nobody else has noticed"
    story.refused(Code.FENCED_INSTANCE_ID, story.beat, "a", epoch, instance_id="one")


def test_a_static_member_may_come_back_under_the_id_it_had() -> None:
    story = Story()
    story.join("a", instance_id="one")
    story.beat("a", AWAY, instance_id="one")
    assert told(story.join("a", instance_id="one")) == ALL
    assert told(story.join("a", instance_id="one")) == ALL, "and say so twice"


def test_a_static_member_that_comes_back_with_other_topics_is_a_change() -> None:
    story = Story()
    story.join("a", instance_id="one")
    story.beat("a", AWAY, instance_id="one")
    assert told(story.join("a2", "payments", instance_id="one")) == {PAYMENTS: [0, 1]}
    assert story.group.state.epoch == 2


def test_an_instance_that_is_in_use_is_not_given_away() -> None:
    story = Story()
    story.join("a", instance_id="one")
    story.refused(Code.UNRELEASED_INSTANCE_ID, story.join, "b", instance_id="one")


def test_an_instance_nobody_has_cannot_heartbeat_or_leave() -> None:
    story = stable("a")
    for epoch in (1, LEFT, AWAY):
        story.refused(Code.UNKNOWN_MEMBER_ID, story.beat, "a", epoch, instance_id="one")


def test_only_its_holder_can_let_an_instance_go() -> None:
    story = Story()
    story.join("a", instance_id="one")
    for epoch in (LEFT, AWAY):
        story.refused(Code.FENCED_INSTANCE_ID, story.beat, "b", epoch, instance_id="one")
    story.refused(Code.INVALID_REQUEST, story.beat, "a", AWAY)


def test_a_static_member_that_leaves_for_good_is_gone() -> None:
    story = Story()
    story.join("a", instance_id="one")
    story.beat("a", LEFT, instance_id="one")
    assert not story.members
    assert not story.group.state.static


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    story = Story()
    story.join("a", instance_id="one")
    story.join("b")
    story.settle("a", "b")
    story.beat("a", AWAY, instance_id="one")
    story.pass_time(30_000)
    story.beat("b", 2)
    assert "a" in story.members
    story.pass_time(20_000)
    assert story.members.keys() == {"b"}
    assert told(story.beat("b", 2)) == ALL


# Time


def test_a_silent_member_is_put_out_after_its_session() -> None:
    story = stable("a", "b")
    story.pass_time(44_999)
    story.beat("b", 2)
    story.pass_time(1)
    assert story.members.keys() == {"b"}
    story.refused(Code.UNKNOWN_MEMBER_ID, story.beat, "a", 2)


def test_a_member_that_does_not_give_back_in_time_is_put_out() -> None:
    story = stable("a")
    story.join("b")
    story.beat("a", 1)
    story.pass_time(4999)
    story.beat("a", 1, ALL)
    story.pass_time(1)
    assert story.members.keys() == {"b"}
    assert told(story.beat("b", 2)) == ALL


def test_a_member_that_gave_back_in_time_stays() -> None:
    story = stable("a")
    story.join("b")
    story.beat("a", 1)
    story.beat("a", 1, {ORDERS: [0, 1]})
    story.pass_time(20_000)
    assert story.members.keys() == {"a", "b"}


def test_the_deadline_is_never_later_than_what_is_due() -> None:
    story = stable("a")
    assert story.group.deadline == 45_000
    story.pass_time(10_000)
    story.beat("a", 1)
    assert story.group.deadline <= 55_000
    story.join("b")
    story.beat("a", 1)
    assert story.group.deadline <= 15_000
    story.pass_time(45_000)
    assert story.group.state.phase == "Empty"
    story.pass_time(1)
    assert story.group.deadline > 1 << 60


def test_a_member_whose_end_was_refused_by_the_log_is_put_out_later() -> None:
    story = stable("a")
    story.log_works = False
    story.pass_time(45_000)
    assert "a" in story.members
    story.log_works = True
    assert story.group.deadline <= 47_000
    story.pass_time(2000)
    assert not story.members


# The log


def test_a_replay_gives_the_same_group_and_its_members_a_new_session() -> None:
    story = stable("a", "b")
    story.join("c", subscribed_topic_names=None, subscribed_topic_regex="ord.*", instance_id="one")
    for member in "ab":
        story.beat(member, 2)
    replayed = ConsumerGroup(GROUP, BrokerConfig())
    for record in story.log:
        again = decode(*encode(record))
        assert again == record
        replayed.apply(again)
    for name in ("epoch", "target_epoch", "metadata_hash", "targets", "members", "static", "regexes"):
        assert getattr(replayed.state, name) == getattr(story.group.state, name)
    assert replayed.deadline == 0, "somebody has to start their timers"
    replayed.loaded(1_000_000, Effects())
    assert replayed.deadline == 1_005_000, "somebody has a partition to give back"


def test_records_that_were_refused_have_not_happened() -> None:
    story = Story()
    story.log_works = False
    story.join("a")
    assert story.group.is_forgotten
    story.log_works = True
    assert told(story.join("a")) == ALL
    story.topics = {**story.topics, "orders": TopicFacts(ORDERS, 5)}
    story.log_works = False
    assert story.beat("a", 1).member_epoch == 2
    story.log_works = True
    assert told(story.beat("a", 1)) == {ORDERS: [0, 1, 2, 3, 4]}


def test_the_tombstones_of_a_group_leave_nothing() -> None:
    story = stable("a", "b")
    story.beat("a", 2, subscribed_topic_regex="x")
    for record in story.group.tombstones():
        story.group.apply(record)
    state = story.group.state
    assert story.group.is_forgotten
    left = (state.targets, state.static, state.regexes, state.target_epoch, state.metadata_hash)
    assert not any(left)
    assert not state.is_held(ORDERS, 0)
    assert Record(ConsumerGroupMetadataKey(GROUP)) in story.group.tombstones()


# Offsets


def test_a_member_commits_in_its_epoch_and_nobody_else_does() -> None:
    story = stable("a", "b")
    story.commit("a", 2)
    story.refused(Code.UNKNOWN_MEMBER_ID, story.commit, "c", 2)
    story.refused(Code.UNKNOWN_MEMBER_ID, story.commit, "", -1)
    story.refused(Code.STALE_MEMBER_EPOCH, story.commit, "a", 3)
    story.refused(Code.UNSUPPORTED_VERSION, story.commit, "a", 2, version=8)


def test_what_a_member_still_has_it_may_commit_in_an_epoch_it_has_left() -> None:
    story = stable("a")
    story.join("b")
    story.beat("a", 1)
    story.beat("a", 1, {ORDERS: [0, 1]})
    assert story.members["a"].epoch == 2
    story.commit("a", 1, 0, 1)
    story.refused(Code.STALE_MEMBER_EPOCH, story.commit, "a", 1, 0, 2)
    story.beat("b", 2)
    story.refused(Code.STALE_MEMBER_EPOCH, story.commit, "b", 1, 2)


def test_anybody_may_commit_to_an_empty_group() -> None:
    story = stable("a")
    story.beat("a", LEFT)
    story.commit("", -1)
    story.refused(Code.UNKNOWN_MEMBER_ID, story.commit, "a", 1)


def test_a_member_asks_for_offsets_in_its_epoch_and_others_without_one() -> None:
    story = stable("a", "b")
    story.group.check_fetch(None, -1)
    story.group.check_fetch("a", 2)
    story.refused(Code.STALE_MEMBER_EPOCH, story.group.check_fetch, "a", 1)
    story.refused(Code.UNKNOWN_MEMBER_ID, story.group.check_fetch, "c", 2)


# What others are told


def test_a_group_can_be_described() -> None:
    story = Story()
    story.join("a", rack_id="r", instance_id="one")
    story.join("b", subscribed_topic_regex="pay.*")
    described = story.group.described_consumer(story.topics)
    assert (described.group_id, described.group_state) == (GROUP, "Reconciling")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    a, b = described.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.member_type) == ("a", "one", "r", 1, 1)
    assert (b.subscribed_topic_names, b.subscribed_topic_regex) == (["orders"], "pay.*")
    (held,) = a.assignment.topic_partitions
    assert (held.topic_id, held.topic_name, held.partitions) == (ORDERS, "orders", [0, 1, 2, 3])
    assert {row.topic_name for row in b.target_assignment.topic_partitions} == {"orders", "payments"}


def test_a_group_says_what_state_it_is_in() -> None:
    story = stable("a")
    assert story.group.listed().group_state == "Stable"
    assert story.group.listed().group_type == "consumer"
    story.beat("a", LEFT)
    assert story.group.listed().group_state == "Empty"
    assert not story.group.is_subscribed("orders")


def test_a_group_knows_what_it_reads() -> None:
    story = Story()
    story.join("a", subscribed_topic_regex="pay.*")
    assert [story.group.is_subscribed(name) for name in ("orders", "payments", "other")] == [
        True,
        True,
        False,
    ]

"""Promises of a consumer among others: which reads what as members come, go, sleep and die, and what listeners hear."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import pytest

from barnabas import Admin, Consumer, Producer, Refused, TopicPartition
from barnabas.errors import Code
from barnabas.testing import Broker
from tests.deadline import Deadline, eventually

PARTITIONS = 6
SESSION_MS = 2000
"""Of members that are to be missed: longer than a busy machine stands still. All others have a minute."""


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """A broker that may miss its members soon."""
    with Broker({"group.min.session.timeout.ms": "100"}) as broker:
        yield broker.bootstrap


class Listener:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.story: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.story.append(("assigned", sorted(each.partition for each in assigned)))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.story.append(("revoked", sorted(each.partition for each in revoked)))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.story.append(("lost", sorted(each.partition for each in lost)))


class Group:
    """Mutable: consumers of one topic with six partitions, and what they have read."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.topic = self.name = name
        self.members: list[Consumer] = []
        self.read: list[int] = []
        with Admin(bootstrap) as admin:
            admin.create_topic(self.topic, partitions=PARTITIONS)

    def join(self, listener: object | None = None, **settings: object) -> Consumer:
        known: dict[str, object] = {
            "session_timeout_ms": 60_000,
            "heartbeat_interval_ms": 50,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 50,
            "retry_backoff_ms": 20,
        }
        consumer = Consumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.name,
            **known | settings,  # type: ignore[arg-type]
        )
        consumer.subscribe([self.topic], listener=listener)
        self.members.append(consumer)
        return consumer

    def send(self, numbers: range) -> None:
        with Producer(self.bootstrap) as producer:
            for number in numbers:
                producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS)

    def poll(self, members: Sequence[Consumer]) -> None:
        for member in members:
            self.read += [int(record.value) for record in member.poll(0.02)]

    def settle(self, *members: Consumer) -> None:
        """Poll until these have the partitions among them, fairly."""

        def is_settled() -> bool:
            self.poll(members)
            shares = [len(member.assignment()) for member in members]
            joined = all(member.has_joined for member in members)
            return joined and sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

        eventually(is_settled, f"{len(members)} to share", 30)

    def read_until(self, count: int, *members: Consumer) -> None:
        deadline = Deadline(30, f"{count} records")
        while len(self.read) < count:
            self.poll(members)
            deadline.left()

    def vanish(self, member: Consumer) -> None:
        """As if its process were killed: no goodbye, no commit."""
        member._network.close()
        member._is_closed = True


@pytest.fixture
def new_group(impatient: str, request: pytest.FixtureRequest) -> Iterator[Callable[[], Group]]:
    made: list[Group] = []

    def start() -> Group:
        made.append(Group(impatient, f"group-{len(made)}-{id(request):x}"))
        return made[-1]

    yield start
    for group in made:
        for member in group.members:
            member.close(5.0)


ALL = list(range(PARTITIONS))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_records_are_read_once_while_members_come_and_go(
    strategy: str, new_group: Callable[[], Group]
) -> None:
    group = new_group()
    group.send(range(300))
    first = group.join(partition_assignment_strategy=strategy, max_poll_records=5)
    group.read_until(20, first)
    second = group.join(partition_assignment_strategy=strategy, max_poll_records=5)
    group.settle(first, second)
    third = group.join(partition_assignment_strategy=strategy, max_poll_records=5)
    group.settle(first, second, third)
    first.close()
    group.settle(second, third)
    group.send(range(300, 400))
    group.read_until(400, second, third)
    assert sorted(group.read) == list(range(400))


def test_an_eager_group_stops_for_a_rebalance_and_listeners_hear_of_it(
    new_group: Callable[[], Group],
) -> None:
    group, heard = new_group(), Listener()
    first = group.join(heard)
    group.settle(first)
    second = group.join()
    group.settle(first, second)
    assert heard.story[:2] == [("assigned", ALL), ("revoked", ALL)]
    assert heard.story[-1][0] == "assigned"
    assert len(heard.story[-1][1]) == 3
    first.close()
    assert heard.story[-1][0] == "revoked"


def test_a_cooperative_group_does_not_stop(new_group: Callable[[], Group]) -> None:
    """While it rebalances, a member goes on with what it keeps, and gives up only what moves."""
    group, heard = new_group(), Listener()
    first = group.join(heard, partition_assignment_strategy="cooperative-sticky")
    group.settle(first)
    second = group.join(partition_assignment_strategy="cooperative-sticky")
    owned = [first.assignment()]

    def is_settled() -> bool:
        group.poll([first, second])
        owned.append(first.assignment())
        return len(second.assignment()) == 3 and first.has_joined

    eventually(is_settled, "two to share", 30)
    kept = set.intersection(*owned)
    assert len(kept) == 3
    assert set.union(first.assignment(), second.assignment()) == set.union(*owned)
    revoked = [each for what, each in heard.story if what == "revoked"]
    assert len(revoked) == 1
    assert len(revoked[0]) == 3
    second.close()
    group.settle(first)
    assert "lost" not in [what for what, _ in heard.story]


def test_reading_goes_on_while_a_cooperative_group_waits_for_a_member(new_group: Callable[[], Group]) -> None:
    group = new_group()
    cooperative = {"partition_assignment_strategy": "cooperative-sticky"}
    first, second = group.join(**cooperative), group.join(**cooperative)
    group.settle(first, second)
    third = group.join(**cooperative)  # the second has to give something up, and does not poll

    def first_gave_up() -> bool:
        group.poll([first, third])
        return len(first.assignment()) == 2

    eventually(first_gave_up, "the first to make room")
    group.send(range(60))
    mine = {each.partition for each in first.assignment()}
    wanted = [number for number in range(60) if number % PARTITIONS in mine]
    deadline = Deadline(20, "the records of the first")
    while not set(wanted) <= set(group.read):
        group.poll([first])
        deadline.left()
    group.settle(first, second, third)


@pytest.mark.shares_cores("a member is missed if its heartbeats get no core for two seconds")
def test_a_killed_member_s_partitions_go_to_others_with_what_it_did_not_commit(
    new_group: Callable[[], Group],
) -> None:
    group = new_group()
    first, second = group.join(enable_auto_commit=False, session_timeout_ms=SESSION_MS), group.join()
    group.settle(first, second)
    group.send(range(60))
    mine = [
        number
        for number in range(60)
        if TopicPartition(group.topic, number % PARTITIONS) in first.assignment()
    ]
    group.read_until(30, first)
    assert sorted(group.read) == mine
    first.commit()
    group.send(range(60, 120))
    group.read_until(60, first)  # these are never committed
    group.vanish(first)
    group.read.clear()
    group.settle(second)
    group.read_until(90, second)
    assert sorted(set(range(120)) - set(group.read)) == mine


@pytest.mark.slow(seconds=7)
@pytest.mark.shares_cores("a member is missed if its heartbeats get no core for two seconds")
def test_a_user_that_works_for_long_keeps_its_membership(new_group: Callable[[], Group]) -> None:
    """Heartbeats go on beside it: for three sessions no other member gets a partition."""
    group, heard = new_group(), Listener()
    group.send(range(12))
    first = group.join(heard, session_timeout_ms=SESSION_MS)
    group.settle(first)
    group.read_until(12, first)
    assert not threading.Event().wait(3 * SESSION_MS / 1000)  # the user's work
    first.commit()
    assert first.poll(0.05) == []
    assert heard.story == [("assigned", ALL)]


@pytest.mark.shares_cores("a member that gets no core for 0.3 s has not polled in time")
def test_a_user_that_does_not_poll_in_time_loses_its_partitions(new_group: Callable[[], Group]) -> None:
    group, heard = new_group(), Listener()
    first = group.join(heard, max_poll_interval_ms=300)
    second = group.join()
    group.settle(first, second)
    group.send(range(30))

    def second_has_all() -> bool:
        group.poll([second])
        return len(second.assignment()) == PARTITIONS

    eventually(second_has_all, "the partitions of the one that does not poll")
    with pytest.raises(Refused, match="gone on without this consumer") as caught:
        first.commit(dict.fromkeys(first.assignment(), 1))
    assert caught.value.code is Code.UNKNOWN_MEMBER_ID
    group.settle(first, second)
    assert heard.story[-2][0] == "lost"
    group.read_until(30, first, second)


def test_a_static_member_comes_back_to_what_it_had_without_a_rebalance(
    new_group: Callable[[], Group],
) -> None:
    group, heard = new_group(), Listener()
    named = {"group_instance_id": "one"}
    first, second = group.join(**named), group.join(heard)
    group.settle(first, second)
    mine = first.assignment()
    story = len(heard.story)
    first.close()
    first = group.join(**named)
    group.settle(first, second)
    assert first.assignment() == mine
    assert len(heard.story) == story, "the others have not noticed"


def test_a_second_member_of_the_same_name_throws_the_first_one_out(new_group: Callable[[], Group]) -> None:
    group, heard = new_group(), Listener()
    first = group.join(heard, group_instance_id="one")
    group.settle(first)
    second = group.join(group_instance_id="one")

    def first_is_out() -> bool:
        group.poll([second])
        try:
            first.poll(0.02)
        except Refused as why:
            return why.code is Code.FENCED_INSTANCE_ID
        return False

    eventually(first_is_out, "the first to be told")
    assert heard.story[-1] == ("lost", ALL)
    group.settle(second)


def test_a_listener_may_seek_and_commit(new_group: Callable[[], Group]) -> None:
    group = new_group()
    group.send(range(60))

    class Rewinder(Listener):
        def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            for each in assigned:
                member.seek(each, 9)

        def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            super().on_partitions_revoked(revoked)
            member.commit(dict.fromkeys(revoked, 5))

    heard = Rewinder()
    member = group.join(heard, enable_auto_commit=False)
    group.read_until(PARTITIONS, member)
    assert sorted(group.read) == list(range(54, 60))
    member.close()
    with Admin(group.bootstrap) as admin:
        assert set(admin.list_group_offsets(group.name).values()) == {5}


def test_a_topic_that_grows_is_shared_out_anew(new_group: Callable[[], Group]) -> None:
    group, heard = new_group(), Listener()
    member = group.join(heard, partition_assignment_strategy="cooperative-sticky", metadata_max_age_ms=100)
    group.settle(member)
    with Admin(group.bootstrap) as admin:
        admin.create_partitions(group.topic, PARTITIONS + 2)
    eventually(lambda: member.poll(0.02) == [] and len(member.assignment()) == PARTITIONS + 2, "the new ones")
    assert ("assigned", [PARTITIONS, PARTITIONS + 1]) in heard.story
    assert "revoked" not in [what for what, _ in heard.story]


def test_closing_takes_no_longer_than_it_may(new_group: Callable[[], Group]) -> None:
    group = new_group()
    member = group.join()
    group.settle(member)
    begun = time.monotonic()
    member.close(60.0)
    assert time.monotonic() - begun < 20.0


def test_a_commit_says_which_partition_is_not_ours(new_group: Callable[[], Group]) -> None:
    group = new_group()
    first, second = group.join(), group.join()

    def refused(wanted: TopicPartition) -> Refused:
        with pytest.raises(Refused) as caught:
            first.commit({wanted: 1})
        return caught.value

    ours = TopicPartition(group.topic, 0)
    assert f"partition {ours} is not assigned to this consumer now" in str(refused(ours)), (
        "before it has joined"
    )
    group.settle(first, second)
    (theirs, *_) = second.assignment()
    elsewhere = TopicPartition("elsewhere", 0)
    for each in (theirs, elsewhere):
        assert f"partition {each} is not assigned to this consumer now" in str(refused(each))
    why = refused(TopicPartition(group.topic, 99))
    assert why.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert str(why) == f"Topic {group.topic!r} has no partition 99, only {PARTITIONS}."
    first.commit(dict.fromkeys(first.assignment(), 1))

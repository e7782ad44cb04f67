"""Members of a group in a bad world, under one seed: our own machines against our own coordinator, over a network that
loses, delays and hangs up, with users that poll late or never, members that are killed, topics that grow and a
coordinator that crashes. Checked after every event.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from barnabas.client.consumer.assignors import assignors_of
from barnabas.client.consumer.classic_member import GroupMember
from barnabas.client.consumer.consumer_member import ConsumerGroupMember
from barnabas.client.consumer.member import Member, Phase
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Context, Effects, TopicFacts
from barnabas.coordinator.records import decode, encode
from barnabas.errors import Code
from barnabas.types import TopicPartition
from barnabas.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import OffsetCommitRequest
from tests.coordinator.classic.members import GROUP, commit_request
from tests.coordinator.shell import config, told

FAULTY_S = 90.0
CALM_S = 150.0
REQUEST_TIMEOUT_S = 5.0
MAX_POLL_S = 20.0
VERSIONS = {
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    ConsumerGroupHeartbeatRequest: 1,
    OffsetCommitRequest: 9,
}
KIP_848 = "kip-848"
STRATEGIES = (
    KIP_848,
    KIP_848,
    KIP_848,
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "roundrobin,range",
    "sticky,range",
)


class User:
    """Mutable: a process with one member, driven as `membership` and `consumer` drive theirs."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.is_static = world.rng.random() < 0.3
        self.is_alive = True
        self.polls = True
        self.born = 0
        self.begin()

    def begin(self) -> None:
        """A process of this name starts, as a member like any other."""
        rng = self.world.rng
        self.born += 1
        self.is_alive = True
        instance_id = f"{self.name}-static" if self.is_static else None
        self.member: Member
        if self.world.strategy == KIP_848:
            self.member = ConsumerGroupMember(
                GROUP,
                self.world.topics,
                member_id=f"{self.name}-{self.born}",
                instance_id=instance_id,
                max_poll_interval_ms=int(MAX_POLL_S * 1000),
            )
        else:
            self.member = GroupMember(
                GROUP,
                self.world.topics,
                assignors=assignors_of(self.world.strategy),
                instance_id=instance_id,
                session_timeout_ms=rng.randint(6000, 9000),
                max_poll_interval_ms=int(MAX_POLL_S * 1000),
                heartbeat_interval_ms=1000,
            )
        self._asked = 0
        self._is_listening = False
        self._counts: dict[str, int] = {}

    def kill(self) -> None:
        self.is_alive = False

    def drive(self) -> None:
        """Send what is due, as a network thread would."""
        world, member = self.world, self.member
        if not self.is_alive or member.due > world.now:
            return
        if member.phase is Phase.STABLE and member.topics_to_assign and self._counts != world.topics:
            member.rebalance(world.now)
        if member.phase is Phase.SYNCING:
            self._counts = dict(world.topics)
        member.know(world.names)
        request = member.next_request(world.now, world.topics)
        if member.is_away and request is not None:
            world.send(request, self.name, lambda answer: None)
        elif request is not None:
            self._ask(request)

    def _ask(self, request: Any) -> None:
        number = self._asked = next(self.world.numbers)
        born = self.born

        def hear(answer: Any) -> None:
            if self._asked == number and self.is_alive and self.born == born:
                self._asked = 0
                self.member.take(answer, self.world.now)
                self.member.know(self.world.names)

        def give_up() -> None:
            if self._asked == number and self.born == born:
                self._asked = 0
                self.member.fail(self.world.now)

        self.world.send(request, self.name, hear)
        patience = REQUEST_TIMEOUT_S
        if isinstance(request, JoinGroupRequest | SyncGroupRequest):
            patience += MAX_POLL_S
        self.world.after(patience, give_up)

    def poll(self) -> None:
        """What the user's thread does now and then; it may commit in between."""
        if not self.is_alive or not self.polls or self._is_listening:
            return
        world, member = self.world, self.member
        member.polls(world.now)
        if (failure := member.failure()) is not None:
            taken = failure.code in (Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID)
            assert taken or failure.code is Code.GROUP_MAX_SIZE_REACHED, failure
            if taken:
                self.begin()
        elif (handover := member.handover) is not None:
            gone = handover.lost or handover.revoked
            assert set(gone) <= set(member.given)
            assert not set(handover.assigned or ()) & set(member.given)
            if handover.assigned is None:
                self._is_listening = True
                world.after(world.rng.uniform(0, 2), partial(self._give_back, member, gone))
            else:
                member.took_over(world.now)
        elif member.given and world.rng.random() < 0.3:
            self._commit()
        member.works(world.now)

    def _give_back(self, member: Member, gone: Iterable[TopicPartition]) -> None:
        """The listener has taken its time, and the world went on."""
        if member is self.member:
            self._is_listening = False
        member.gave_back(gone, self.world.now)

    def _commit(self) -> None:
        world, member = self.world, self.member
        topic, number = world.rng.choice(member.given)
        generation, born = member.generation, self.born
        request = commit_request(
            1,
            member=member.id,
            generation=generation,
            topic=topic,
            partition=number,
            instance=member.instance_id,
        )

        def hear(answer: Any) -> None:
            code = answer.topics[0].partitions[0].error_code
            if self.is_alive and self.born == born and code:
                member.commit_refused(code, generation, world.now)

        world.send(request, self.name, hear)


class World:
    """Mutable: everything, at one moment. Nothing in it is random but by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 1000.0
        self.calm = False
        self.numbers = itertools.count(1)
        self.topics = {f"t{n}": rng.randint(1, 6) for n in range(rng.randint(1, 2))}
        self.strategy = rng.choice(STRATEGIES)
        limit = rng.choice((3, 100, 100))
        self.config = config(
            group_initial_rebalance_delay_ms=rng.choice((0, 0, 1000)),
            group_max_size=limit,
            group_consumer_max_size=limit,
            group_consumer_session_timeout_ms=7000,
            group_consumer_heartbeat_interval_ms=1000,
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.waiting: dict[int, tuple[Any, int, Callable[[Any], None]]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.coordinator = GroupCoordinator(self.config, self._facts())
        self.coordinator.loaded(self._millis())
        self.users = [User(self, f"user{n}") for n in range(rng.randint(1, 5))]

    def run(self) -> None:
        for user in self.users:
            self._again(user.drive, 0.02, 0.2)
            self._again(user.poll, 0.05, 3.0)
        self._again(self._tick, 0.05, 0.05)
        self._again(self._misfortune, 0.5, 6.0)
        self._run_until(self.now + FAULTY_S)
        self.calm = True
        for user in self.users:
            user.polls = True
            if not user.is_alive:
                user.begin()
        # A static leader that comes back does not share out, and cannot know that a topic has grown meanwhile (Java's
        # neither); our broker tells it, unless it crashed before. So every member hears once more.
        self._grow()
        self._run_until(self.now + CALM_S)
        self._check_rest()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self.numbers), event))

    def _again(self, event: Callable[[], None], least: float, most: float) -> None:
        def run() -> None:
            event()
            self._again(event, least, most)

        self.after(self.rng.uniform(least, most), run)

    def _run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self._check()
        self.now = end

    def _misfortune(self) -> None:
        if self.calm:
            return
        user = self.rng.choice(self.users)
        match self.rng.randrange(6):
            case 0:
                self._crash()
            case 1:
                user.kill()
                self.after(self.rng.uniform(1, 20), user.begin)
            case 2 | 3:
                user.polls = False
                self.after(self.rng.uniform(1, 40), partial(setattr, user, "polls", True))
            case 4:
                self._grow()
            case 5:
                goodbye = user.member.leave_request()
                user.kill()
                if goodbye is not None:
                    self.send(goodbye, user.name, lambda answer: None)
                self.after(self.rng.uniform(1, 10), user.begin)

    def _grow(self) -> None:
        self.topics[self.rng.choice(sorted(self.topics))] += 1
        self._carry_out(self.coordinator.topics_changed(self._facts(), self._millis()))

    # The network and the coordinator

    def send(self, request: Any, client: str, hear: Callable[[Any], None]) -> None:
        if self.calm or self.rng.random() > 0.05:
            self.after(self._delay(), partial(self._arrive, request, client, hear))

    def _delay(self) -> float:
        late = not self.calm and self.rng.random() < 0.04
        return self.rng.uniform(0.5, 8.0) if late else self.rng.uniform(0.0, 0.02)

    def _arrive(self, request: Any, client: str, hear: Callable[[Any], None]) -> None:
        token = next(self.numbers)
        version = VERSIONS[type(request)]
        self.waiting[token] = request, version, hear
        context = Context(version, client, "/10.0.0.1", f"{token}")
        self._carry_out(self.coordinator.handle(request, context, self._millis(), token))

    def _tick(self) -> None:
        while self.coordinator.deadline <= self._millis():
            self._carry_out(self.coordinator.tick(self._millis()))

    def _carry_out(self, effects: Effects) -> None:
        for record in effects.records:
            self.log.append(encode(record))
            self.coordinator.apply(record)
        for token, response in effects.replies:
            request, version, hear = self.waiting.pop(token)
            if self.calm or self.rng.random() > 0.05:
                self.after(self._delay(), partial(hear, told(request, version, response)))

    def _crash(self) -> None:
        self.waiting.clear()
        self.coordinator = GroupCoordinator(self.config, self._facts())
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.coordinator.apply(record)
        self._carry_out(self.coordinator.loaded(self._millis()))

    def _facts(self) -> dict[str, TopicFacts]:
        return {
            topic: TopicFacts(UUID(int=int(topic[1:]) + 1), count) for topic, count in self.topics.items()
        }

    @property
    def names(self) -> dict[UUID, str]:
        return {facts.id: topic for topic, facts in self._facts().items()}

    def _millis(self) -> int:
        return int(self.now * 1000)

    # What must hold

    def _check(self) -> None:
        """No two members of a generation may commit the same partition."""
        owners: dict[tuple[int, TopicPartition], str] = {}
        for user in self.users:
            member = user.member
            if not user.is_alive or not member.may_commit or not self._is_in(member):
                continue
            for partition in member.given:
                generation = 0 if self.strategy == KIP_848 else member.generation
                other = owners.setdefault((generation, partition), user.name)
                assert other == user.name, f"{partition} is read by {other} and {user.name}"

    def _is_in(self, member: Member) -> bool:
        group = self.coordinator.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            known = group.state.members.get(member.id)
            return known is not None and member.generation == known.epoch
        return isinstance(group, ClassicGroup) and member.id in group.members

    def _check_rest(self) -> None:
        """In calm weather everything is shared out, to the members of the group, and fairly."""
        members = [user.member for user in self.users if self._is_in(user.member)]
        assert len(members) == min(len(self.users), self.config.group_max_size)
        given = sorted(each for member in members for each in member.given)
        every = sorted(TopicPartition(t, n) for t, count in self.topics.items() for n in range(count))
        assert given == every, [(m.phase, m.given, m.generation) for m in members]
        shares = [len(member.given) for member in members]
        if self.strategy.split(",")[0] != "range" or len(self.topics) == 1:
            assert max(shares) - min(shares) <= 1

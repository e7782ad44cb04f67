"""A KIP-848 group in a bad world, under one seed: consumers of both protocols that come, stop and go, a network that
loses and repeats, topics that change, a log that refuses, a coordinator that crashes. Checked after every event.
"""

import itertools
import random
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from barnabas.config import BrokerConfig
from barnabas.coordinator.consumer import classic_members
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.consumer.member import AWAY, LEFT, Member
from barnabas.coordinator.consumer.pattern import pattern
from barnabas.coordinator.consumer.state import ConsumerGroupState
from barnabas.coordinator.effects import Context, Effects, TopicFacts
from barnabas.coordinator.records import Record, decode, encode
from barnabas.errors import Code, Refused
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
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from tests.coordinator.metadata import subscription_bytes

Partition: TypeAlias = tuple[UUID, int]

GROUP = "g"
SESSION_MS = 10_000
EVENTS = 120
QUIET_ROUNDS = 60


class Lost(Exception):
    """The client never gets an answer."""


def settings() -> BrokerConfig:
    return BrokerConfig(
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_max_size=12,
        group_consumer_migration_policy="disabled",
    )


class World:
    """Mutable: the coordinator's group, its log, and all clients."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000
        self.faulty = True
        self.names = itertools.count(1)
        self.topic_ids = itertools.count(1)
        self.topics: dict[str, TopicFacts] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.group = ConsumerGroup(GROUP, settings())
        self.shadow = ConsumerGroupState(GROUP)
        """Knows only what was in the log, as bytes."""
        self.clients: list[Client] = []
        self.epochs = (0, 0)
        self.member_epochs: dict[str, int] = {}
        for name in ("orders", "orders-eu", "payments"):
            self.put_topic(name, self.rng.randint(1, 6))

    # Driving

    def run(self) -> None:
        for _ in range(EVENTS):
            self._event()
            self.check()
        self.faulty = False
        self.calm_down()
        self.settle()
        self.check_quiet()

    def settle(self) -> None:
        for client in self.clients:
            client.paused = False
        for _ in range(QUIET_ROUNDS):
            self.now += 1000
            self.tick()
            for client in list(self.clients):
                client.act()
                self.check()

    def calm_down(self) -> None:
        # Classic members alone cannot make a group of this kind.
        self.clients.append(Modern(self))

    def _event(self) -> None:
        rng = self.rng
        self.now += rng.choice((0, 10, 200, 1000, 3000))
        self.tick()
        kind = rng.random()
        if kind < 0.08 and len(self.clients) < 8:
            self.clients.append(self.client())
        elif kind < 0.11:
            self._change_topics()
        elif kind < 0.13:
            self.crash()
        elif self.clients:
            self._disturb(rng.choice(self.clients), kind)

    def client(self) -> "Client":
        return self.rng.choice((Modern, Modern, Classic))(self)

    def _disturb(self, client: "Client", kind: float) -> None:
        if kind < 0.16:
            client.paused = not client.paused
        elif kind < 0.18:
            self.clients.remove(client)
            client.die()
        elif kind < 0.21:
            self.clients.remove(client)
            client.leave()
        elif kind < 0.23:
            client.resubscribe()
        elif kind < 0.27:
            client.haunt()
        elif not client.paused:
            client.act()

    def _change_topics(self) -> None:
        name = self.rng.choice(("orders", "orders-eu", "orders-us", "payments"))
        facts = self.topics.get(name)
        if facts is None:
            self.put_topic(name, self.rng.randint(1, 6))
        elif self.rng.random() < 0.3 and len(self.topics) > 1:
            self.topics = {n: f for n, f in self.topics.items() if n != name}
        else:
            self.topics = {**self.topics, name: TopicFacts(facts.id, facts.partitions + 1)}
        self.tell_topics()

    def tell_topics(self) -> None:
        if self.rng.random() < 0.5:
            self._work(lambda out: self.group.topics_changed(self.now, self.topics, out))

    def put_topic(self, name: str, partitions: int) -> None:
        self.topics = {**self.topics, name: TopicFacts(UUID(int=next(self.topic_ids)), partitions)}

    # The coordinator

    def ask(self, action: Callable[[Effects], Any]) -> Any:
        """One request and its answer, as far as the network and the log let it through."""
        if self.faulty and self.rng.random() < 0.05:
            raise Lost
        answer = self._work(action)
        if self.faulty and self.rng.random() < 0.05:
            self._work(action)
        if self.faulty and self.rng.random() < 0.07:
            raise Lost
        if self.faulty and self.rng.random() < 0.01:
            self.crash()
            raise Lost
        if isinstance(answer, Refused):
            raise answer
        return answer

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: Context
    ) -> ConsumerGroupHeartbeatResponse:
        answer: ConsumerGroupHeartbeatResponse = self.ask(
            lambda out: self.group.consumer_heartbeat(request, context, self.now, self.topics, out)
        )
        return answer

    def _work(self, action: Callable[[Effects], Any]) -> Any:
        out = Effects()
        try:
            answer = action(out)
        except Refused as refused:
            assert not out.records, "a refused request leaves no record"
            return refused
        if out.records and self.faulty and self.rng.random() < 0.03:
            return Refused(Code.COORDINATOR_NOT_AVAILABLE)
        self.append(out.records)
        return answer

    def append(self, records: list[Record]) -> None:
        for record in records:
            self.log.append(encode(record))
            self.group.apply(record)
            decoded = decode(*self.log[-1])
            assert decoded == record
            self.shadow.apply(decoded)

    def tick(self) -> None:
        if self.group.deadline <= self.now:
            out = Effects()
            self.group.tick(self.now, self.topics, out)
            if not (self.faulty and self.rng.random() < 0.05):
                self.append(out.records)

    def crash(self) -> None:
        """A new coordinator that knows the log and nothing else."""
        self.group = ConsumerGroup(GROUP, settings())
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.group.apply(record)
        self.group.loaded(self.now, Effects())

    # What must hold

    def check(self) -> None:
        state = self.group.state
        assert known(state) == known(self.shadow)
        self._check_epochs(state)
        holders: dict[Partition, str] = {}
        for member in state.members.values():
            for partition in held(member):
                assert partition not in holders, (
                    f"{partition} is held by {holders[partition]} and {member.id}"
                )
                assert state.is_held(*partition)
                holders[partition] = member.id
        for client in self.clients:
            if client.id in state.members:
                for partition in client.owned:
                    if partition[0] in {facts.id for facts in self.topics.values()}:
                        assert holders.get(partition) == client.id, f"{client.id} is not told of {partition}"
                client.check_commits()

    def _check_epochs(self, state: ConsumerGroupState) -> None:
        epochs = (state.epoch, state.target_epoch)
        assert state.target_epoch <= state.epoch
        assert state.epoch >= self.epochs[0]
        assert state.target_epoch >= self.epochs[1]
        self.epochs = epochs
        for member in state.members.values():
            assert member.epoch <= state.epoch
            # Below zero: a static member that is away. It comes back as a new one.
            assert member.epoch >= self.member_epochs.get(member.id, 0) or member.epoch == AWAY
            self.member_epochs[member.id] = max(member.epoch, 0)

    def check_quiet(self) -> None:
        state = self.group.state
        assert {client.id for client in self.clients} == set(state.members)
        assert state.phase == ("Stable" if self.clients else "Empty")
        self.check_owners()

    def check_owners(self) -> None:
        wanted = {
            (facts.id, index): name
            for client in self.clients
            for name, facts in self.topics.items()
            if client.wants(name)
            for index in range(facts.partitions)
        }
        owned = {partition: client for client in self.clients for partition in client.owned}
        assert owned.keys() == wanted.keys(), (
            "every partition has an owner once it is quiet, and no other one"
        )
        assert sum(len(client.owned) for client in self.clients) == len(owned)
        assert all(client.wants(wanted[partition]) for partition, client in owned.items())


class Client:
    """Mutable: a consumer of either protocol. `owned` is what it reads from: nobody takes it away from outside."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        self.world = world
        self.name = f"c{next(world.names)}"
        self.id = ""
        self.instance = f"i{rng.randint(1, 4)}" if rng.random() < 0.3 else None
        if self.instance in {client.instance for client in world.clients}:
            self.instance = None
        self.topics: list[str] = []
        self.regex: str | None = None
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.paused = False
        self.resubscribe()

    def act(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def resubscribe(self) -> None:
        names = ("orders", "orders-eu", "orders-us", "payments")
        self.topics = sorted(self.world.rng.sample(names, self.world.rng.randint(1, 3)))

    def die(self) -> None:
        self.owned.clear()

    def wants(self, topic: str) -> bool:
        return topic in self.topics or (self.regex is not None and pattern(self.regex).matches(topic))

    def context(self, version: int) -> Context:
        return Context(version, self.name, "/127.0.0.1", f"{self.name}-{next(self.world.names)}")

    def haunt(self) -> None:
        """Something it sent long ago arrives now."""

    def check_commits(self) -> None:
        """What a member owns it may commit, also while the coordinator is an epoch ahead of it."""


class Modern(Client):
    """A member of KIP-848."""

    def __init__(self, world: World) -> None:
        self.version = world.rng.choice((0, 1, 1))
        super().__init__(world)
        self.id = "" if self.version == 0 else self.name
        self.target: set[Partition] | None = None
        self.reported: set[Partition] | None = None
        self.past: list[ConsumerGroupHeartbeatRequest] = []
        self.is_full = True

    def resubscribe(self) -> None:
        super().resubscribe()
        self.regex = "orders.*" if self.version > 0 and self.world.rng.random() < 0.2 else None
        if self.regex:
            self.topics = []
        self.is_changed = True

    def act(self) -> None:
        if self.target is not None and (not self.world.faulty or self.world.rng.random() < 0.5):
            # Revoke first, then take: in between nothing is read.
            self.owned = set(self.target)
            self.target = None
        request = self._request()
        self.past.append(request)
        context = self.context(self.version)
        world = self.world
        try:
            answer = world.heartbeat(request, context)
        except Lost:
            self.is_full = True
            return
        except Refused as refused:
            self._refused(refused.code)
            return
        assert answer.member_epoch >= self.epoch
        assert answer.member_id is not None
        self.id, self.epoch = answer.member_id, answer.member_epoch
        self.is_full = self.is_changed = False
        if request.topic_partitions is not None:
            self.reported = set(self.owned)
        if answer.assignment is not None:
            self.target = {(r.topic_id, p) for r in answer.assignment.topic_partitions for p in r.partitions}

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(GROUP, self.id, self.epoch, self.instance)
        is_full = self.is_full or self.epoch == 0
        if is_full:
            request.rebalance_timeout_ms = 6000
        if is_full or self.is_changed:
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = (self.regex or "") if self.version else None
        if is_full or self.reported != self.owned:
            # It means what it says: what it was told of and does not name here it will not take any more. (A full
            # request is always answered with the assignment.) Heartbeats cannot tell "not yet" from "no longer".
            self.target = None
            request.topic_partitions = [
                TopicPartitions(topic, [index]) for topic, index in sorted(self.owned)
            ]
        return request

    def _refused(self, code: Code) -> None:
        if code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND):
            self.owned.clear()
            self.epoch = 0
            self.target = None
        elif code in (Code.UNRELEASED_INSTANCE_ID, Code.COORDINATOR_NOT_AVAILABLE):
            pass
        elif code is Code.FENCED_INSTANCE_ID:
            # Another one has its name: it goes on under none.
            self.__init__(self.world)  # type: ignore[misc]
            self.instance = None
        else:
            raise AssertionError(code)
        self.is_full = True

    def leave(self) -> None:
        self.owned.clear()
        if not self.id or self.epoch == 0:
            return
        comes_back = self.instance is not None and self.world.rng.random() < 0.7
        request = ConsumerGroupHeartbeatRequest(GROUP, self.id, AWAY if comes_back else LEFT, self.instance)
        world = self.world
        try:
            world.heartbeat(request, self.context(self.version))
        except (Lost, Refused):
            return
        if comes_back and world.rng.random() < 0.7:
            successor = Modern(world)
            successor.instance = self.instance
            if world.rng.random() < 0.7 and (successor.version > 0 or not self.regex):
                successor.topics, successor.regex = self.topics, self.regex
            world.clients.append(successor)

    def haunt(self) -> None:
        world = self.world
        member = world.group.state.members.get(self.id)
        if member is None or member.epoch == AWAY:
            return
        context = self.context(self.version)
        for late in self.past:
            if 0 < late.member_epoch < min(member.epoch, member.previous_epoch):
                with pytest.raises(Refused) as refused:
                    world.group.consumer_heartbeat(late, context, world.now, world.topics, Effects())
                assert refused.value.code in (
                    Code.FENCED_MEMBER_EPOCH,
                    Code.FENCED_INSTANCE_ID,
                    Code.UNKNOWN_MEMBER_ID,
                )

    def check_commits(self) -> None:
        if self.epoch <= 0:
            return
        names = {facts.id: name for name, facts in self.world.topics.items()}
        for topic, index in self.owned:
            if topic in names:
                row = OffsetCommitTopic(names[topic], [OffsetCommitPartition(index)])
                request = OffsetCommitRequest(GROUP, self.epoch, self.id, topics=[row])
                self.world.group.check_commit(request, 9, self.world.now, self.world.topics)


class Classic(Client):
    """A member of the classic protocol: it gives everything back before it joins, or only what it has to."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.instance = None
        self.cooperates = world.rng.random() < 0.6

    def resubscribe(self) -> None:
        super().resubscribe()
        self.phase = "join"

    def act(self) -> None:
        if self.world.group.is_forgotten:
            # A classic member that finds no group makes a classic one; that is not what is looked at here.
            return
        try:
            {"join": self._join, "sync": self._sync, "stable": self._heartbeat}[self.phase]()
        except Lost:
            return
        except Refused as refused:
            self._refused(refused.code)

    def _join(self) -> None:
        if not self.cooperates:
            self.owned.clear()
        world = self.world
        owned = self.owned if self.cooperates else set()
        names = {facts.id: name for name, facts in world.topics.items()}
        metadata = subscription_bytes(
            self.topics, [(names[topic], index) for topic, index in sorted(owned) if topic in names]
        )
        request = JoinGroupRequest(
            GROUP, 8000, 6000, self.id, self.instance, "consumer", [JoinGroupProtocol("any", metadata)]
        )
        answer = world.ask(
            lambda out: classic_members.join(
                world.group, request, self.context(9), world.now, world.topics, out
            )
        )
        self.id = answer.member_id
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            return
        self.epoch, self.phase = answer.generation_id, "sync"

    def _sync(self) -> None:
        world = self.world
        request = SyncGroupRequest(GROUP, self.epoch, self.id, self.instance, "consumer", "any")
        answer = world.ask(lambda out: classic_members.sync(world.group, request, world.now, world.topics))
        rows = assignment_of(answer.assignment).assigned_partitions
        assigned = {(world.topics[row.topic].id, p) for row in rows for p in row.partitions}
        # One that cooperates joins again at once, to say that it has given back what it had to.
        self.phase = "join" if self.cooperates and self.owned - assigned else "stable"
        self.owned = assigned

    def _heartbeat(self) -> None:
        world = self.world
        request = HeartbeatRequest(GROUP, self.epoch, self.id, self.instance)
        world.ask(lambda out: classic_members.heartbeat(world.group, request, world.now))

    def _refused(self, code: Code) -> None:
        if code is Code.REBALANCE_IN_PROGRESS:
            self.phase = "join"
        elif code in (Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID):
            self.owned.clear()
            self.phase = "join"
            if code is Code.UNKNOWN_MEMBER_ID:
                self.id = ""
        elif code is not Code.COORDINATOR_NOT_AVAILABLE:
            raise AssertionError(code)

    def leave(self) -> None:
        self.owned.clear()
        request = LeaveGroupRequest(GROUP, members=[LeavingMember(self.id)])
        world = self.world
        if self.id:
            try:
                world.ask(
                    lambda out: classic_members.leave(world.group, request, world.now, world.topics, out)
                )
            except (Lost, Refused):
                pass


def held(member: Member) -> list[Partition]:
    parts = (member.assigned, member.revoking)
    return [(topic, index) for part in parts for topic, indexes in part.items() for index in indexes]


def known(state: ConsumerGroupState) -> list[Any]:
    return [getattr(state, name) for name in ConsumerGroupState.__slots__]

"""One group that members of both protocols share, under one seed, with a whole coordinator: it becomes a KIP-848 group
when one of them comes and a classic group when the last of them goes, in the same bad world as consumer_simulation.
"""

from typing import Any

from barnabas.config import BrokerConfig
from barnabas.coordinator.classic.group import ClassicGroup, State
from barnabas.coordinator.consumer.group import ConsumerGroup
from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Context, Effects
from barnabas.coordinator.records import decode, encode
from barnabas.errors import Code, Refused
from barnabas.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.messages.consumer_protocol import assignment_of, subscription_of
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupProtocol,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from tests.coordinator.consumer.simulation import GROUP, SESSION_MS, Client, Lost, Modern, World
from tests.coordinator.metadata import assigned_bytes, subscription_bytes
from tests.coordinator.shell import told

PATIENCE_MS = 15_000
"""How long a classic client waits for an answer."""


def settings() -> BrokerConfig:
    return BrokerConfig(
        group_consumer_session_timeout_ms=SESSION_MS,
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=1000,
    )


class MixedWorld(World):
    """Mutable: a coordinator instead of a group."""

    def __init__(self, seed: int) -> None:
        self.coordinator: GroupCoordinator
        self.waiting: dict[int, tuple[Any, int, Classic | None]] = {}
        self.answers: dict[int, Any] = {}
        self.is_new = True
        self.kinds: list[str] = []
        """Which kinds the group has been, in turn."""
        super().__init__(seed)
        self.coordinator = GroupCoordinator(settings(), self.topics)
        self.coordinator.loaded(self.now)
        self.replay = GroupCoordinator(settings(), self.topics)

    def client(self) -> Client:
        return self.rng.choice((Modern, Classic, Classic))(self)

    def calm_down(self) -> None:
        if self.rng.random() < 0.5:
            self.settle()
            for client in [client for client in self.clients if isinstance(client, Modern)]:
                self.clients.remove(client)
                client.leave()
            self.clients = [client for client in self.clients if isinstance(client, Classic)]
        if not self.clients:
            self.clients.append(self.client())

    # Requests

    def send(self, request: Any, context: Context, token: int, client: "Classic | None" = None) -> None:
        self.waiting[token] = (request, context.version, client)
        if not (self.faulty and self.rng.random() < 0.04):
            self.carry_out(self.coordinator.handle(request, context, self.now, token))
            self.tick()

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: Context
    ) -> ConsumerGroupHeartbeatResponse:
        token = next(self.names)
        self.send(request, context, token)
        answer: ConsumerGroupHeartbeatResponse | None = self.answers.pop(token, None)
        if answer is None or (self.faulty and self.rng.random() < 0.06):
            raise Lost
        if answer.error_code:
            raise Refused(Code.of(answer.error_code))
        return answer

    def carry_out(self, effects: Effects) -> None:
        replies = effects.replies
        if effects.records and self.faulty and self.rng.random() < 0.03:
            replies = [
                (token, Refused(Code.COORDINATOR_NOT_AVAILABLE))
                for token, _ in replies
                if token in self.waiting
            ]
        else:
            for record in effects.records:
                self.log.append(encode(record))
                self.coordinator.apply(record)
                decoded = decode(*self.log[-1])
                assert decoded == record
                self.replay.apply(decoded)
        for token, response in replies:
            request, version, client = self.waiting.pop(token)
            response = told(request, version, response)
            if client is None:
                self.answers[token] = response
            elif client.asked == token and not (self.faulty and self.rng.random() < 0.05):
                client.asked = None
                client.hear(response)

    def tick(self) -> None:
        for _ in range(20):
            if self.coordinator.deadline > self.now:
                return
            self.carry_out(self.coordinator.tick(self.now))
        raise AssertionError("always something to do, and nothing is done")

    def crash(self) -> None:
        self.waiting.clear()
        self.coordinator = GroupCoordinator(settings(), self.topics)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.coordinator.apply(record)
        self.carry_out(self.coordinator.loaded(self.now))

    def tell_topics(self) -> None:
        self.carry_out(self.coordinator.topics_changed(self.topics, self.now))

    # What must hold

    def check(self) -> None:
        group = self.coordinator.groups.get(GROUP)
        other = self.replay.groups.get(GROUP)
        if group is not None and (not self.kinds or self.kinds[-1] != group.kind.value):
            self.kinds.append(group.kind.value)
        if self.is_new:
            self.epochs = (0, 0)
            self.member_epochs.clear()
        # Whoever finds nobody in a group may begin another one in its place.
        self.is_new = not (isinstance(group, ConsumerGroup) and group.state.members)
        if isinstance(group, ConsumerGroup):
            assert isinstance(other, ConsumerGroup)
            self.group, self.shadow = group, other.state
            super().check()
        elif isinstance(group, ClassicGroup):
            self._check_classic(group, other)

    def _check_classic(self, group: ClassicGroup, other: Any) -> None:
        if group.recorded and group.state in (State.STABLE, State.EMPTY):
            assert isinstance(other, ClassicGroup)
            assert other.recording == group.recording
        owners: dict[Any, str] = {}
        for client in self.clients:
            if client.id in group.members:
                for partition in client.owned:
                    assert partition not in owners, f"{partition} has two owners"
                    owners[partition] = client.id

    def check_quiet(self) -> None:
        group = self.coordinator.groups[GROUP]
        if isinstance(group, ConsumerGroup):
            assert any(isinstance(client, Modern) for client in self.clients)
            super().check_quiet()
        else:
            assert isinstance(group, ClassicGroup)
            assert not any(isinstance(client, Modern) for client in self.clients)
            assert group.state is (State.STABLE if self.clients else State.EMPTY)
            assert {member.id for member in group.members} == {client.id for client in self.clients}
            self.check_owners()


class Classic(Client):
    """A classic member with an eager assignor: it gives everything back before it joins, and may have to lead."""

    world: MixedWorld

    def __init__(self, world: MixedWorld) -> None:
        self.asked: int | None = None
        self.asked_at = 0
        self.assignments: list[SyncGroupAssignment] = []
        self.phase = "join"
        self.told: list[str] = []
        """What it has said it subscribes to."""
        super().__init__(world)
        self.instance = None

    def act(self) -> None:
        world = self.world
        if self.asked is not None:
            if world.now < self.asked_at + PATIENCE_MS:
                return
            self.asked = None
        request: Any
        if self.phase == "stable" and self.told != self.topics:
            self.phase = "join"
        if self.phase == "join":
            self.owned.clear()
            self.told = self.topics
            metadata = subscription_bytes(self.topics)
            rows = [JoinGroupProtocol("any", metadata)]
            request = JoinGroupRequest(GROUP, 8000, 6000, self.id, None, "consumer", rows)
        elif self.phase == "sync":
            request = SyncGroupRequest(GROUP, self.epoch, self.id, assignments=self.assignments)
        else:
            request = HeartbeatRequest(GROUP, self.epoch, self.id)
        self.asked_at = world.now
        self.asked = token = next(world.names)
        world.send(request, self.context(9), token, self)

    def hear(self, answer: Any) -> None:
        code = Code.of(answer.error_code)
        if code is Code.NONE:
            {"join": self._joined, "sync": self._synced, "stable": lambda _: None}[self.phase](answer)
        elif code is Code.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
        elif code is Code.REBALANCE_IN_PROGRESS:
            self.phase = "join"
        elif code in (Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID):
            self.owned.clear()
            self.phase = "join"
            if code is Code.UNKNOWN_MEMBER_ID:
                self.id = ""
        else:
            assert code is Code.COORDINATOR_NOT_AVAILABLE, code

    def _joined(self, answer: Any) -> None:
        self.id, self.epoch, self.phase = answer.member_id, answer.generation_id, "sync"
        shares: dict[str, list[tuple[str, int]]] = {row.member_id: [] for row in answer.members}
        wanted = {row.member_id: subscription_of(row.metadata).topics for row in answer.members}
        for name, facts in self.world.topics.items():
            readers = sorted(member for member, topics in wanted.items() if name in topics)
            for index in range(facts.partitions if readers else 0):
                shares[readers[index % len(readers)]].append((name, index))
        self.assignments = [SyncGroupAssignment(m, assigned_bytes(share)) for m, share in shares.items()]

    def _synced(self, answer: Any) -> None:
        topics = self.world.topics
        rows = assignment_of(answer.assignment).assigned_partitions
        self.owned = {(topics[r.topic].id, p) for r in rows if r.topic in topics for p in r.partitions}
        self.phase = "stable"

    def leave(self) -> None:
        self.owned.clear()
        self.asked = None
        if self.id:
            request = LeaveGroupRequest(GROUP, members=[LeavingMember(self.id)])
            self.world.send(request, self.context(5), next(self.world.names))

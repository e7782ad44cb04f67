"""A classic group in a bad world, under one seed: clients that come, stop and go, a network that loses, delays and
repeats, a log that refuses, a coordinator that crashes between any two steps. Checked after every event.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from barnabas.broker.coordinators.host import append_code
from barnabas.coordinator.classic.group import ClassicGroup, State
from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Context, Effects, TopicFacts
from barnabas.coordinator.records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode,
)
from barnabas.errors import Code, Refused
from barnabas.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupAssignment,
    SyncGroupRequest,
)
from barnabas.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from tests.coordinator.classic.members import GROUP, commit_request, join_request, subscription
from tests.coordinator.shell import config, lasting, told

TOPIC = "orders"
FAULTY_MS = 45_000
CALM_MS = 75_000
TIMEOUT_MS = 20_000
"""How long a client waits for an answer. Longer than any rebalance takes in calm weather."""


def compacted(log: list[tuple[bytes, bytes | None]], *, tombstones: bool) -> list[tuple[bytes, bytes | None]]:
    """What compaction leaves of a log: the last record of each key, where it stood; tombstones only for a while."""
    last = {key: place for place, (key, _) in enumerate(log)}
    return [log[place] for place in sorted(last.values()) if tombstones or log[place][1] is not None]


class Client:
    """Mutable: a consumer as clients are, as far as a coordinator can tell."""

    def __init__(self, world: "World", name: str) -> None:
        rng = world.rng
        self.world = world
        self.name = name
        self.instance = f"{name}-static" if rng.random() < 0.3 else None
        self.join_version = rng.randint(5, 9) if self.instance else rng.choice((0, 1, 3, 4, 5, 7, 9))
        self.session_ms = rng.randint(6000, 10_000)
        self.rebalance_ms = rng.randint(8000, 12_000)
        self.protocols = {name: subscription(TOPIC) for name in rng.sample(("range", "sticky", "common"), 3)}
        self.alive = True
        self.fenced = False
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.positions: dict[int, int] = {}
        self.joined: JoinGroupResponse | None = None
        self.shared_out = 0
        """How many partitions it has assigned, as the leader of its generation."""
        self._asked = 0
        self._numbers = itertools.count(1)

    def act(self) -> None:
        """Do whatever a consumer would do next, unless it waits for an answer."""
        if not self.alive or self.fenced or self._asked:
            return
        if self.shared_out not in (0, self.world.partitions):
            # A leader looks at its metadata now and then: the coordinator's hint may be lost in a crash.
            self._forget(self.member_id)
        request: Any
        if self.joined is None:
            request = join_request(
                self.member_id,
                instance=self.instance,
                protocols=self.protocols,
                session_ms=self.session_ms,
                rebalance_ms=self.rebalance_ms,
            )
            self._ask(request, self.join_version, self._on_join)
        elif self.generation < 0:
            self._sync(self.joined)
        elif self.owned - self.positions.keys():
            topics = [OffsetFetchTopic(TOPIC, sorted(self.owned))]
            self._ask(OffsetFetchRequest(groups=[OffsetFetchGroup(GROUP, topics=topics)]), 8, self._on_fetch)
        elif self.owned and self.world.rng.random() < 0.4:
            partition = self.world.rng.choice(sorted(self.owned))
            self.positions[partition] += self.world.rng.randint(1, 5)
            request = commit_request(
                self.positions[partition],
                member=self.member_id,
                generation=self.generation,
                partition=partition,
                instance=self.instance,
            )
            self._ask(request, 9, self._on_commit)
        else:
            request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance)
            self._ask(request, 4, self._on_heartbeat)

    def leave(self) -> None:
        request = LeaveGroupRequest(GROUP, members=[LeavingMember(self.member_id, self.instance)])
        self._ask(request, 5, lambda response: None)
        self.alive = False

    def revive(self) -> None:
        """A process that was stopped goes on where it was; one that left begins anew."""
        self.alive = True
        self._asked = 0

    def restart(self) -> None:
        self.alive, self.fenced, self._asked = True, False, 0
        self._forget("")

    def _sync(self, joined: JoinGroupResponse) -> None:
        rows = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            names = [row.member_id for row in joined.members]
            self.shared_out = self.world.partitions
            shares: dict[str, list[int]] = {name: [] for name in names}
            for partition in range(self.world.partitions):
                shares[names[partition % len(names)]].append(partition)
            rows = [SyncGroupAssignment(name, bytes(share)) for name, share in shares.items()]
        request = SyncGroupRequest(
            GROUP, joined.generation_id, self.member_id, self.instance, "consumer", joined.protocol_name, rows
        )
        self._ask(request, 5, self._on_sync)

    def _ask(self, request: Any, version: int, then: Callable[[Any], None]) -> None:
        number = self._asked = next(self._numbers)

        def hear(response: Any) -> None:
            if self._asked == number and self.alive:
                self._asked = 0
                then(response)
                if self.generation < 0 or self.owned - self.positions.keys():
                    self.world.after(self.world.rng.randint(1, 50), self.act)

        def give_up() -> None:
            if self._asked == number:
                self._asked = 0
                self.world.after(0, self.act)

        self.world.send(request, version, self.name, hear)
        self.world.after(TIMEOUT_MS, give_up)

    def _on_join(self, response: Any) -> None:
        match response.error_code:
            case Code.NONE:
                self.member_id = response.member_id
                self.joined = response
                self.generation = -1
            case Code.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            case Code.FENCED_INSTANCE_ID:
                self.fenced = True
            case Code.UNKNOWN_MEMBER_ID | Code.GROUP_MAX_SIZE_REACHED:
                self._forget("")
            case Code.REBALANCE_IN_PROGRESS | Code.NOT_COORDINATOR:
                pass
            case code:
                raise AssertionError(f"JoinGroup was answered with {Code.of(code).name}")

    def _on_sync(self, response: Any) -> None:
        if self._heard_of_trouble(response.error_code):
            return
        assert self.joined is not None
        self.generation = self.joined.generation_id
        self.owned = set(response.assignment)
        self.positions = {}

    def _on_heartbeat(self, response: Any) -> None:
        self._heard_of_trouble(response.error_code)

    def _on_commit(self, response: Any) -> None:
        self._heard_of_trouble(response.topics[0].partitions[0].error_code)

    def _on_fetch(self, response: Any) -> None:
        for topic in response.groups[0].topics:
            for row in topic.partitions:
                self.positions[row.partition_index] = max(row.committed_offset, 0)

    def _heard_of_trouble(self, code: int) -> bool:
        match code:
            case Code.NONE:
                return False
            case Code.REBALANCE_IN_PROGRESS | Code.NOT_COORDINATOR:
                self._forget(self.member_id)
            case Code.ILLEGAL_GENERATION | Code.UNKNOWN_MEMBER_ID | Code.GROUP_ID_NOT_FOUND:
                self._forget("")
            case Code.FENCED_INSTANCE_ID:
                self.fenced = True
            case _:
                raise AssertionError(f"a member was answered with {Code.of(code).name}")
        return True

    def _forget(self, member_id: str) -> None:
        self.member_id = member_id
        self.joined = None
        self.shared_out = 0
        self.generation = -1
        self.owned = set()
        self.positions = {}


class World:
    """Mutable: everything, at one moment. Nothing in it is random but by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 1_000_000
        self.calm = False
        self.partitions = rng.randint(1, 6)
        self.config = config(
            group_initial_rebalance_delay_ms=rng.choice((0, 0, 1000, 3000)),
            group_max_size=rng.choice((2, 100, 100, 100)),
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shadow = self._coordinator()
        """Knows only what was appended, byte for byte, and when."""
        self.coordinator = self._coordinator()
        self.coordinator.loaded(self.now)
        self.committed: dict[OffsetCommitKey, int] = {}
        """What was committed last, as only the records say it: no code of the machine has touched this."""
        self.owners: dict[tuple[int, int], str] = {}
        """Who was ever given a partition, by generation and partition."""
        self.waiting: dict[int, tuple[Any, int, Callable[[Any], None]]] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._tick_at = 0
        self.clients = [Client(self, f"client{number}") for number in range(rng.randint(1, 5))]

    # Running

    def run(self) -> None:
        for client in self.clients:
            self.after(self.rng.randint(0, 5000), partial(self._think, client))
        self.after(self.rng.randint(500, 5000), self._misfortune)
        self._run_until(self.now + FAULTY_MS)
        self.calm = True
        for client in self.clients:
            client.restart() if client.fenced or not client.alive else client.revive()
        self._grow()
        self._run_until(self.now + CALM_MS)
        self.check_rest()

    def after(self, ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + ms, next(self._numbers), event))

    def _run_until(self, end: int) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def _think(self, client: Client) -> None:
        if self.calm and client.fenced:
            # Its own request, sent twice, has taken its place: somebody starts it again.
            client.restart()
        client.act()
        self.after(self.rng.randint(1000, 4000), partial(self._think, client))

    def _misfortune(self) -> None:
        if self.calm:
            return
        rng = self.rng
        client = rng.choice(self.clients)
        match rng.randrange(7):
            case 0 | 1:
                self.crash()
            case 2:
                client.alive = False
                self.after(rng.randint(1000, 30_000), client.revive)
            case 3:
                client.restart()
            case 4:
                client.leave()
                self.after(rng.randint(1000, 10_000), client.restart)
            case 5:
                self._grow()
            case 6:
                # An administrator, who may only where nobody is in the group.
                self.send(commit_request(rng.randint(0, 9)), 9, "admin", lambda response: None)
        self.after(rng.randint(500, 8000), self._misfortune)

    def _grow(self) -> None:
        self.partitions += 1
        self._carry_out(self.coordinator.topics_changed(self._topics(), self.now))

    # The network

    def send(self, request: Any, version: int, client: str, hear: Callable[[Any], None]) -> None:
        rng = self.rng
        if not self.calm and rng.random() < 0.06:
            return
        copies = 2 if not self.calm and rng.random() < 0.05 else 1
        for _ in range(copies):
            self.after(self._delay(), lambda: self._arrive(request, version, client, hear))

    def _delay(self) -> int:
        late = not self.calm and self.rng.random() < 0.05
        return self.rng.randint(1000, 12_000) if late else self.rng.randint(0, 20)

    def _arrive(self, request: Any, version: int, client: str, hear: Callable[[Any], None]) -> None:
        token = next(self._numbers)
        self.waiting[token] = request, version, hear
        context = Context(version, client, "/10.0.0.1", f"{token}")
        group = self.coordinator.groups.get(GROUP)
        effects = self.coordinator.handle(request, context, self.now, token)
        if isinstance(request, OffsetCommitRequest) and effects.records:
            self._check_commit(request, group)
        self._carry_out(effects)

    # The log

    def _carry_out(self, effects: Effects) -> None:
        if effects.records:
            fate = 1.0 if self.calm else self.rng.random()
            if fate < 0.03:
                code = append_code(Code.KAFKA_STORAGE_ERROR)
                for token, _ in effects.replies:
                    self._answer(token, Refused(code))
                self._check()
                return
            if fate < 0.05:
                self.crash()
                return
            for record in effects.records:
                self._append(*encode(record))
            if fate < 0.08:
                # It lasts, and nobody hears of it.
                self.crash()
                return
            for record in effects.records:
                self.coordinator.apply(record)
        for token, response in effects.replies:
            self._answer(token, response)
        self._check()

    def _append(self, key: bytes, value: bytes | None) -> None:
        self.log.append((key, value))
        record = decode(key, value)
        assert record is not None
        self.shadow.apply(record)
        if isinstance(record.key, OffsetCommitKey):
            assert isinstance(record.value, OffsetCommitValue), "nothing expires here, and nobody deletes"
            self.committed[record.key] = record.value.offset
        elif isinstance(record.value, GroupMetadataValue):
            self._note_owners(record.value)

    def _note_owners(self, value: GroupMetadataValue) -> None:
        for member in value.members:
            who = member.group_instance_id or member.member_id
            for partition in member.assignment:
                owner = self.owners.setdefault((value.generation, partition), who)
                assert owner == who, f"partition {partition} has two owners in generation {value.generation}"

    def _answer(self, token: int, response: Any) -> None:
        request, version, hear = self.waiting.pop(token)
        response = told(request, version, response)
        if isinstance(request, SyncGroupRequest) and response.error_code == Code.NONE:
            who = request.group_instance_id or request.member_id
            for partition in response.assignment:
                owner = self.owners.get((request.generation_id, partition))
                assert owner == who, f"{who} was given a partition of {owner}"
        elif isinstance(request, OffsetFetchRequest):
            for row in response.groups[0].topics[0].partitions:
                last = self.committed.get(OffsetCommitKey(GROUP, TOPIC, row.partition_index), -1)
                assert row.committed_offset == last, "a member would go on from somewhere else"
        if self.calm or self.rng.random() > 0.05:
            self.after(self._delay(), lambda: hear(response))

    def crash(self) -> None:
        self.waiting.clear()
        self.coordinator = self._coordinator()
        if self.rng.random() < 0.5:
            self.log = compacted(self.log, tombstones=self.rng.random() < 0.5)
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.coordinator.apply(record)
        assert lasting(self.coordinator) == lasting(self.shadow)
        self._carry_out(self.coordinator.loaded(self.now))

    # What must hold

    def _check_commit(self, request: OffsetCommitRequest, group: Any) -> None:
        """An offset may fall only by somebody who may say so: a member of the generation, or nobody's administrator."""
        if not request.member_id:
            assert group is None or not group.members, "a stranger has committed"
            return
        assert isinstance(group, ClassicGroup)
        assert request.member_id in group.members, "a stranger has committed"
        assert request.generation_id_or_member_epoch == group.generation, "a zombie has committed"

    def _check(self) -> None:
        groups, offsets = lasting(self.coordinator)
        shadow_groups, shadow_offsets = lasting(self.shadow)
        assert offsets == shadow_offsets, "offsets have changed without a commit"
        live = {OffsetCommitKey(*row[:3]): row[3] for row in self.coordinator.offsets.rows()}
        assert live == self.committed, "an offset is not the one that was committed last"
        for group_id, recording in groups.items():
            assert recording == shadow_groups[group_id], "a group at rest is not what the log says"
        group = self.coordinator.groups.get(GROUP)
        if group is not None:
            self._check_group(group)
        self._watch_the_clock()

    def _check_group(self, group: Any) -> None:
        waiting = {*group._joining.values(), *group._syncing.values()}
        assert waiting <= self.waiting.keys(), "somebody waits who has been answered"
        assert len(waiting) == len(self.waiting), "a request was forgotten"
        assert not (group._joining and group.state is not State.PREPARING)
        assert not (group._syncing and group.state is not State.COMPLETING)
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert self.coordinator.deadline >= self.now or self._tick_at <= self.now

    def _watch_the_clock(self) -> None:
        at = self.coordinator.deadline
        if at < 1 << 60 and not (self.now < self._tick_at <= at):
            self._tick_at = max(at, self.now)
            self.after(self._tick_at - self.now, self._tick)

    def _tick(self) -> None:
        if self.now >= self._tick_at:
            self._tick_at = 0
        if self.coordinator.deadline <= self.now:
            self._carry_out(self.coordinator.tick(self.now))

    def check_rest(self) -> None:
        """After the storm: one stable generation, in which every partition is read by exactly one client."""
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        assert group.state is State.STABLE, f"the group ended in {group.state}"
        members = [client for client in self.clients if client.generation == group.generation]
        assert {client.member_id for client in members} == {member.id for member in group.members}
        assert len(members) == min(len(self.clients), self.config.group_max_size)
        owned = [partition for client in members for partition in client.owned]
        assert sorted(owned) == list(range(self.partitions))

    def _topics(self) -> dict[str, TopicFacts]:
        return {TOPIC: TopicFacts(UUID(int=1), self.partitions)}

    def _coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self._topics())

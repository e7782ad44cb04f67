"""A world of transactions under one seed: producers, partitions, a group, and coordinators that come and go.

The machines are the real ones: the transaction coordinator, what a partition remembers of producers, the group
coordinator. The network loses, repeats and delays; a coordinator dies between any two steps, with or without what it
has appended last, and what it has sent may arrive long after. A reader reads what is committed all the time.
"""

import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from barnabas.coordinator.coordinator import GroupCoordinator
from barnabas.coordinator.effects import Context
from barnabas.coordinator.transactions.coordinator import (
    TransactionCoordinator,
    TransactionEffects,
    decode,
    encode,
)
from barnabas.coordinator.transactions.requests import NEEDS_PRODUCER_ID, Add, Marked, Markers, Verify
from barnabas.coordinator.transactions.transaction import Producer
from barnabas.errors import Code, Refused
from barnabas.log.producers import ProducerStates
from barnabas.log.transactions.markers import Marker
from barnabas.log.transactions.verifications import ONGOING, Verification
from barnabas.types import Millis, Offset, ProducerId
from barnabas.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from barnabas.wire.messages.offsets import OffsetFetchGroup, OffsetFetchTopic
from barnabas.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinator.shell import TOPICS, config

ID = "payments"
GROUP = "readers"
PARTITIONS = 3
OFFSETS = PARTITIONS
"""The number of the partition with the group's offsets."""

SETTINGS = config(transaction_abort_timed_out_transaction_cleanup_interval_ms=300)
RESEND_MS = 400
"""How long a coordinator waits for a marker's answer before it sends the marker again."""

Reply = Callable[[Any], None]


class Entry(NamedTuple):
    """One record, or a marker, in a partition."""

    producer_id: int
    value: int | None
    commit: bool | None = None


class World:
    """Mutable: the network, the clock, and everything that is reached by them."""

    def __init__(self, seed: int, version: int) -> None:
        self.version = version
        """The transaction.version of the producers."""
        self.dice = random.Random(seed)
        self.now = 0
        self.is_calm = False
        """Whether nothing is lost, late or repeated any more."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.ids = itertools.count(100)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        """How much of the coordinators' log no crash can take."""
        self.partitions = [Partition(self, index) for index in range(PARTITIONS)]
        self.offsets = OffsetsPartition(self)
        self.coordinator = Coordinator(self, 1)
        self.happened: set[str] = set()

    # The network and the clock

    def at(self, delay_ms: int, work: Callable[[], None]) -> None:
        self._events.append((self.now + delay_ms, next(self._numbers), work))

    def post(self, work: Callable[[], None]) -> None:
        """Let something arrive: once, twice, late, or never."""
        if self.is_calm:
            self.at(self.dice.randint(0, 5), work)
            return
        fate = self.dice.random()
        if fate < 0.05:
            self.happened.add("lost")
            return
        late = 3000 if fate < 0.12 else 20
        self.at(self.dice.randint(0, late), work)
        if fate > 0.92:
            self.happened.add("repeated")
            self.at(self.dice.randint(0, 3000), work)

    def step(self) -> None:
        """Do what comes next."""
        event = min(self._events)
        self._events.remove(event)
        self.now = max(self.now, event[0])
        event[2]()
        self.coordinator.tick()

    def run(self, until: int) -> None:
        while self.now < until:
            self.step()

    # What happens to coordinators

    def fail_over(self) -> None:
        """Another coordinator takes over, with all that is committed and perhaps some of the rest."""
        self.happened.add("failover")
        self.committed = kept = self.dice.randint(self.committed, len(self.log))
        del self.log[kept:]
        self.coordinator.is_over = True
        self.coordinator = Coordinator(self, self.coordinator.epoch + 1)

    def commit_log(self) -> None:
        """The followers of the coordinators' log catch up."""
        self.committed = len(self.log)
        self.coordinator.committed()


class Coordinator:
    """Mutable: a transaction coordinator with its host, in one epoch."""

    def __init__(self, world: World, epoch: int) -> None:
        self._world = world
        self.epoch = epoch
        self.is_over = False
        self._owed: list[tuple[int, TransactionEffects]] = []
        self._replies: dict[int, tuple[Any, Reply]] = {}
        self._tokens = itertools.count()
        self.machine = TransactionCoordinator(SETTINGS, TOPICS)
        for key, value in world.log:
            record = decode(key, value)
            assert record is not None
            self.machine.apply(record)
        self._carry_out(self.machine.loaded(world.now))

    def ask(self, request: Any, reply: Reply) -> None:
        if self.is_over:
            reply(Refused(Code.NOT_COORDINATOR))
            return
        token = next(self._tokens)
        self._replies[token] = request, reply
        self._carry_out(self.machine.handle(request, Context(0), self._world.now, token))

    def tick(self) -> None:
        while not self.is_over and self.machine.deadline <= self._world.now:
            self._carry_out(self.machine.tick(self._world.now))

    def _carry_out(self, effects: TransactionEffects) -> None:
        world = self._world
        for record in effects.records:
            world.log.append(encode(record))
            self.machine.apply(record)
        self._owed.append((len(world.log), effects))
        world.at(world.dice.randint(0, 30), world.commit_log)

    def committed(self) -> None:
        """Give the answers, and send the markers, that are safe by now."""
        while self._owed and self._owed[0][0] <= self._world.committed:
            _, effects = self._owed.pop(0)
            for token, answer in effects.replies:
                request, reply = self._replies.pop(token)
                if answer is NEEDS_PRODUCER_ID:
                    self.ask(request._replace(fresh_id=next(self._world.ids)), reply)
                else:
                    reply(answer)
            for markers in effects.sends:
                Sending(self._world, self, markers).send()


class Sending:
    """Mutable: the markers of one transaction, sent again until each partition has answered."""

    def __init__(self, world: World, coordinator: Coordinator, markers: Markers) -> None:
        self._world, self._coordinator, self._markers = world, coordinator, markers
        self._left = {index for _, index in markers.partitions}
        self._round = 0
        self._arrived: set[int] = set()

    def send(self) -> None:
        if self._coordinator.is_over or not self._left:
            return
        self._round += 1
        for index in sorted(self._left):
            self._world.post(partial(self._arrive, index, self._round))
        self._world.at(RESEND_MS, self.send)

    def _arrive(self, index: int, number: int) -> None:
        """Also of a coordinator that is over by now: it does not know, and the network does not care.

        Before KIP-890 nothing told a marker that comes twice from that of the next transaction: connections had to.
        """
        markers, world = self._markers, self._world
        if markers.version < 2 and number < self._round and not self._coordinator.is_over:
            return
        if markers.version < 2 and index in self._arrived:
            world.post(lambda: self._answered(index))
            return
        partition = world.offsets if index == OFFSETS else world.partitions[index]
        marked = partition.mark(markers, self._coordinator.epoch)
        if marked:
            self._arrived.add(index)
            world.post(lambda: self._answered(index))

    def _answered(self, index: int) -> None:
        self._left.discard(index)
        if not self._coordinator.is_over:
            told = Marked(self._markers.transactional_id, self._markers.producer, frozenset({("p", index)}))
            effects = self._coordinator.machine.handle(told, Context(0), self._world.now, None)
            self._coordinator._carry_out(effects)


def header(producer: Producer, sequence: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(0, 60, 0, 2, 0, attributes, 0, 0, 0, producer.id, producer.epoch, sequence, 1)


class Partition:
    """Mutable: what is in a partition, and what its leader remembers of producers."""

    def __init__(self, world: World, index: int) -> None:
        self._world = world
        self.index = index
        self.producers = ProducerStates()
        self.entries: list[Entry] = []

    def produce(self, producer: Producer, sequence: int, value: int, reply: Reply) -> None:
        """Append a record, once the coordinator agrees."""
        if self.producers.has_open(producer.id, producer.epoch):
            self._append(producer, sequence, value, ONGOING, reply)
            return
        verified = self.producers.verifications.begin(
            producer.id,
            producer.epoch,
            sequence,
            bumps_epochs=self._world.version >= 2,
            now=Millis(self._world.now),
        )

        def agreed(answer: Any) -> None:
            if isinstance(answer, Refused):
                reply(answer)
            else:
                self._append(producer, sequence, value, verified, reply)

        self.ask_to_join(producer, agreed)

    def ask_to_join(self, producer: Producer, reply: Reply) -> None:
        """Be added to the transaction; where older producers do that themselves, find out whether it was done."""
        world = self._world
        asked: Any = Add(ID, producer, frozenset({("p", self.index)}), 2)
        if world.version < 2:
            asked, hear = Verify(ID, producer, asked.partitions), reply

            def reply(answer: Any) -> None:
                hear(Refused(Code.TRANSACTION_ABORTABLE) if answer == asked.partitions else answer)

        world.post(lambda: world.coordinator.ask(asked, lambda answer: world.post(lambda: reply(answer))))

    def _append(
        self, producer: Producer, sequence: int, value: int, verified: Verification, reply: Reply
    ) -> None:
        head = header(producer, sequence)
        try:
            stored = self.producers.check(head, verified)
        except Refused as refused:
            reply(refused)
            return
        if stored is None:
            self.producers.note(head, Offset(len(self.entries)), Millis(self._world.now))
            self.entries.append(Entry(producer.id, value))
        reply(None)

    def mark(self, markers: Markers, coordinator_epoch: int) -> bool:
        """Write a marker; False where it goes again, because it is refused."""
        head = header(markers.producer, -1, TRANSACTIONAL | CONTROL)
        marker = Marker(markers.commit, coordinator_epoch)
        try:
            self.producers.check_marker(head, marker, markers.version)
        except Refused as refused:
            self._world.happened.add(refused.code.name)
            return refused.code is Code.INVALID_PRODUCER_EPOCH
        self.producers.note_marker(head, Offset(len(self.entries)), marker, Millis(self._world.now))
        self.entries.append(Entry(markers.producer.id, None, markers.commit))
        self.producers.acknowledge(Offset(len(self.entries)))
        return True

    def lead_anew(self) -> None:
        """Another leader knows what is in the log, and nothing of what is being verified."""
        self.producers.verifications.clear()

    @property
    def last_stable(self) -> int:
        first = self.producers.first_unstable
        return len(self.entries) if first is None else first

    def readable(self) -> list[int]:
        """The values that a reader of committed records gets."""
        found = []
        for place, entry in enumerate(self.entries[: self.last_stable]):
            if entry.value is None:
                continue
            end = next(
                each
                for each in self.entries[place:]
                if each.commit is not None and each.producer_id == entry.producer_id
            )
            if end.commit:
                found.append(entry.value)
        return found


class OffsetsPartition(Partition):
    """Mutable: the partition of `__consumer_offsets`, with the group's coordinator."""

    def __init__(self, world: World) -> None:
        super().__init__(world, OFFSETS)
        self.group = GroupCoordinator(SETTINGS, TOPICS)
        self.group.loaded(0)

    def commit(self, producer: Producer, offset: int, reply: Reply) -> None:
        """TxnOffsetCommit."""
        world = self._world
        verified: Verification = ONGOING
        if not self.producers.has_open(producer.id, producer.epoch):
            verified = self.producers.verifications.begin(
                producer.id, producer.epoch, -1, bumps_epochs=world.version >= 2, now=Millis(world.now)
            )

        def agreed(answer: Any) -> None:
            if isinstance(answer, Refused):
                reply(answer)
                return
            head = header(producer, -1)
            try:
                self.producers.check_own(head, verified)
            except Refused as refused:
                reply(refused)
                return
            self.producers.note(head, Offset(len(self.entries)), Millis(world.now))
            self.entries.append(Entry(producer.id, offset))
            topic = TxnOffsetCommitRequestTopic("orders", [TxnOffsetCommitRequestPartition(0, offset)])
            request = TxnOffsetCommitRequest(ID, GROUP, producer.id, producer.epoch, topics=[topic])
            for record in self.group.handle(request, Context(5), world.now, None).records:
                self.group.apply_in(producer.id, record)
            reply(None)

        if verified is ONGOING:
            agreed(None)
        else:
            self.ask_to_join(producer, agreed)

    def mark(self, markers: Markers, coordinator_epoch: int) -> bool:
        before = len(self.entries)
        marked = super().mark(markers, coordinator_epoch)
        if len(self.entries) > before:
            self.group.end_transaction(ProducerId(markers.producer.id), commit=markers.commit)
        return marked

    def shown(self) -> int:
        """The group's offset, as a reader that wants it stable or not is told; -1 where there is none."""
        wanted = OffsetFetchGroup(GROUP, topics=[OffsetFetchTopic("orders", [0])])
        (row,) = self.group.offsets.fetch(wanted).topics[0].partitions
        return row.committed_offset

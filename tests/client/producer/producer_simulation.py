"""Owns a world for the pure accumulator: brokers that keep Kafka's rules, a network that loses, a clock.

One seed is one story: what is sent, which answers are lost, which leader moves, which connection takes its time,
what a broker forgets. Every record's fate is compared with what the brokers have stored.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.client.network.failures import Unreachable
from barnabas.client.producer.accumulator import Accumulator, size_of
from barnabas.client.producer.batches import Batch, Section, Sent, section_of
from barnabas.client.producer.partition_state import BatchRequest, ProducerIdentity, WireBatch
from barnabas.errors import Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.records import decode_records, encode_flat

NODES = (BrokerId(1), BrokerId(2))
POISON = b"poison"
_SEQUENCES = 1 << 31


@dataclass
class ProducerEntry:
    """What a partition remembers of a producer: its epoch and its last batches."""

    epoch: int
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """First sequence, count, offset."""

    @property
    def expected(self) -> int:
        first, count, _ = self.recent[-1]
        return (first + count) % _SEQUENCES


def values_of(section: Section | None) -> list[bytes]:
    assert section is not None
    records = decode_records(bytes(section.body), section.count, 0, section.base_timestamp, None)
    return [value or b"" for value in records.values]


class StoredPartition:
    """A log with Kafka's rules for idempotent producers."""

    def __init__(self, max_bytes: int) -> None:
        self.values: list[bytes] = []
        self.producers: dict[int, ProducerEntry] = {}
        self._max_bytes = max_bytes

    def append(self, wire: WireBatch, section: Section) -> tuple[Code, int]:
        values = values_of(section)
        if len(section.body) > self._max_bytes:
            return Code.MESSAGE_TOO_LARGE, -1
        identity, first = wire.producer, wire.base_sequence
        if identity.id < 0:
            return self._store(values)
        entry = self.producers.get(identity.id)
        if entry is not None:
            for known_first, count, offset in entry.recent:
                if entry.epoch == identity.epoch and (known_first, count) == (first, len(values)):
                    return Code.NONE, offset
            if identity.epoch < entry.epoch:
                return Code.INVALID_PRODUCER_EPOCH, -1
            if first != (entry.expected if identity.epoch == entry.epoch else 0):
                return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        # A batch that is out of order, or known already, is told so whatever is in it.
        if any(value.startswith(POISON) for value in values):
            return Code.INVALID_RECORD, -1
        if entry is None or entry.epoch != identity.epoch:
            entry = self.producers[identity.id] = ProducerEntry(identity.epoch)
        code, offset = self._store(values)
        entry.recent.append((first, len(values), offset))
        return code, offset

    def _store(self, values: list[bytes]) -> tuple[Code, int]:
        if any(value.startswith(POISON) for value in values):
            return Code.INVALID_RECORD, -1
        offset = len(self.values)
        self.values += values
        return Code.NONE, offset


class World:
    """A producer's accumulator, two brokers, and all that can go wrong between them."""

    def __init__(
        self, seed: int, *, partitions: int = 3, is_idempotent: bool = True, faults: float = 0.3
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 0.0
        self.faults = faults
        self.memory = 1 << 20
        self.accumulator = Accumulator(
            batch_size=rng.choice([60, 200, 1000]),
            linger=rng.choice([0.0, 0.005]),
            buffer_memory=self.memory,
            max_request_size=rng.choice([500, 4000]),
            max_in_flight=rng.choice([1, 2, 5]),
            delivery_timeout=rng.choice([3.0, 60.0]),
            retry_backoff=0.1,
            retries=2**31 - 1,
            is_idempotent=is_idempotent,
        )
        if is_idempotent:
            # Near the last epoch and close to where sequences wrap round: both must be survived.
            self.accumulator.numbers.producer = ProducerIdentity(0, rng.choice([0, 32_765]))
        self._next_id = 0
        self.logs = [StoredPartition(rng.choice([150, 1000, 10_000])) for _ in range(partitions)]
        self.leaders = [rng.choice(NODES) for _ in range(partitions)]
        self.believed: list[BrokerId | None] = list(self.leaders)
        self.pipes: dict[BrokerId, deque[BatchRequest]] = {node: deque() for node in NODES}
        self.unsent: dict[BrokerId, deque[BatchRequest]] = {node: deque() for node in NODES}
        """Requests that wait for their connection to be made."""
        self.is_connected = dict.fromkeys(NODES, True)
        self.ever_sent: set[bytes] = set()
        self._heard: set[int] = set()
        self.flights: dict[BrokerId, int] = {}
        self.sent: list[tuple[int, bytes, Sent]] = []
        self.told: list[Batch] = []
        self._topic = self.accumulator.topic("t", partitions)
        if is_idempotent:
            for state in self._topic.partitions:
                state.producer = self.accumulator.numbers.producer or state.producer
                state.sequence = rng.choice([0, _SEQUENCES - 7])

    # What happens

    def send(self) -> None:
        index = self.rng.randrange(len(self.logs))
        state = self._topic.partitions[index]
        number = len(self.sent)
        if self.rng.random() < 0.1:
            values = [self._value(number + each) for each in range(self.rng.randint(1, 5))]
            body = encode_flat(values, None, None, [0] * len(values))
            batch = self.accumulator.append_section(state, Section(body, len(values), 0, 0), self.now)
            assert batch is not None
            self.sent += [(index, value, Sent(batch, each)) for each, value in enumerate(values)]
            return
        value = self._value(number)
        pair = self.accumulator.append(state, value, None, (), 0, size_of(value, None, ()), self.now)
        assert pair is not None, "the memory is for much more"
        self.sent.append((index, value, Sent(*pair)))

    def _value(self, number: int) -> bytes:
        word = POISON if self.rng.random() < 0.01 * (self.faults > 0) else b"record"
        return b"%s %08d %s" % (word, number, b"x" * self.rng.choice([0, 0, 30]))

    def drain(self) -> None:
        if self.accumulator.numbers.producer is None:
            self._next_id += 1
            self.accumulator.numbers.producer = ProducerIdentity(self._next_id, 0)
        requests = self.accumulator.drain(self.now, self._leader_of, self.flights)
        for request in requests:
            assert len({wire.owner for wire in request.batches}) == len(request.batches)
            self.flights[request.node] = self.flights.get(request.node, 0) + 1
            for wire in request.batches:
                wire.section = wire.section or section_of(wire.batches)
                if wire.producer.id >= 0:
                    assert len(wire.owner.flying) <= 5
            if self.is_connected[request.node]:
                self._put_on_the_wire(request)
            else:
                self.unsent[request.node].append(request)

    def _put_on_the_wire(self, request: BatchRequest) -> None:
        self.pipes[request.node].append(request)
        for wire in request.batches:
            self.ever_sent.update(values_of(wire.section))

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        return self.believed[partition.partition]

    def serve(self, node: BrokerId) -> None:
        """The broker handles the oldest request; its answer arrives, or the connection is cut."""
        pipe = self.pipes[node]
        if not pipe:
            return
        request = pipe.popleft()
        codes = [self._handle(node, wire) for wire in request.batches]
        if self.rng.random() < self.faults * 0.3:
            pipe.appendleft(request)
            self.cut(node, self.rng.randrange(len(pipe)))
            return
        self.flights[node] -= 1
        for wire, (code, offset) in zip(request.batches, codes, strict=True):
            if code is Code.NONE:
                self.accumulator.stored(wire, offset, -1)
            else:
                self.accumulator.refused(wire, Refused(code), self.now)

    def _handle(self, node: BrokerId, wire: WireBatch) -> tuple[Code, int]:
        index = wire.owner.partition.partition
        if self.leaders[index] != node:
            return Code.NOT_LEADER_OR_FOLLOWER, -1
        luck = self.rng.random()
        if luck < self.faults * 0.2:
            return self.rng.choice([Code.NOT_ENOUGH_REPLICAS, Code.KAFKA_STORAGE_ERROR]), -1
        assert wire.section is not None
        code, offset = self.logs[index].append(wire, wire.section)
        if code is Code.NONE and wire.producer.id >= 0 and luck < self.faults * 0.4:
            return Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        return code, offset

    def cut(self, node: BrokerId, handled: int) -> None:
        """The connection breaks: this many of the requests were handled, and none is answered."""
        pipe = self.pipes[node]
        lost, self.pipes[node] = list(pipe), deque()
        # The first of them was handled already by a cut in the middle of serving.
        for number, request in enumerate(lost):
            if 0 < number < handled:
                for wire in request.batches:
                    self._handle(node, wire)
        self._lose(node, lost, was_sent=True)
        self.is_connected[node] = self.rng.random() < 0.5

    def _lose(self, node: BrokerId, requests: Iterable[BatchRequest], *, was_sent: bool) -> None:
        for request in requests:
            self.flights[node] -= 1
            for wire in request.batches:
                self.accumulator.lost(wire, Unreachable("cut"), self.now, was_sent)

    def connect(self) -> None:
        """A connection is made, and what has waited for it goes out; or the attempt fails."""
        node = self.rng.choice(NODES)
        unsent, self.unsent[node] = self.unsent[node], deque()
        if self.rng.random() < self.faults:
            self._lose(node, unsent, was_sent=False)
        else:
            self.is_connected[node] = True
            for request in unsent:
                self._put_on_the_wire(request)

    def recall(self) -> None:
        """As the sender does before anything is given up: what is not sent yet is called off."""
        for node, unsent in self.unsent.items():
            for request in [each for each in unsent if self.accumulator.is_overdue(each, self.now)]:
                unsent.remove(request)
                self.flights[node] -= 1
                for wire in request.batches:
                    self.accumulator.recalled(wire)

    def forget_producers(self) -> None:
        """A broker that no longer remembers, as after retention."""
        self.rng.choice(self.logs).producers.clear()

    def move_leader(self) -> None:
        index = self.rng.randrange(len(self.logs))
        self.leaders[index] = self.rng.choice(NODES)

    def learn(self) -> None:
        self.believed = [None if self.rng.random() < self.faults * 0.2 else leader for leader in self.leaders]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.accumulator.next_at <= self.now:
            self.recall()
            self.accumulator.expire(self.now)

    def step(self) -> None:
        roll = self.rng.random()
        if roll < 0.35:
            self.send()
        elif roll < 0.6:
            self.drain()
        elif roll < 0.85:
            self.serve(self.rng.choice(NODES))
        elif roll < 0.93:
            self.pass_time(self.rng.choice([0.001, 0.05, 0.3]))
        elif roll < 0.95:
            self.connect()
        elif self.rng.random() < self.faults:
            self.rng.choice([self.move_leader, self.learn, self.pass_time_long, self.cut_one])()
        else:
            self.learn()
        self._hear()

    def _hear(self) -> None:
        """Take what was settled; a failure that tells of doubt is of a record that is sent by now."""
        self.told += self.accumulator.settled
        if any(batch.failure is not None for batch in self.accumulator.settled):
            for number, (_, value, sent) in enumerate(self.sent):
                if number not in self._heard and sent.done():
                    self._heard.add(number)
                    failure = sent.exception()
                    is_in_doubt = failure is not None and failure.may_be_stored
                    assert not is_in_doubt or value in self.ever_sent, f"never sent: {failure}"
        self.accumulator.settled = []

    def cut_one(self) -> None:
        node = self.rng.choice(NODES)
        if self.pipes[node]:
            self.cut(node, 0)

    def pass_time_long(self) -> None:
        self.pass_time(self.rng.choice([1.0, 5.0]))

    def settle_all(self) -> None:
        """No more faults: everything must find its end, in bounded time."""
        self.faults = 0.0
        self.believed = list(self.leaders)
        self.accumulator.flushing += 1
        for _ in range(20_000):
            if not self.accumulator.unsettled() and not any((*self.pipes.values(), *self.unsent.values())):
                break
            self.connect()
            self.drain()
            for node in NODES:
                self.serve(node)
            self.pass_time(0.01)
            self._hear()

    # What must hold

    def judge(self, *, order: bool = True) -> None:
        assert not self.accumulator.unsettled()
        assert self.accumulator.free == self.memory, "memory was lost"
        assert len({id(batch) for batch in self.told}) == len(self.told), "a batch was settled twice"
        everywhere = [value for log in self.logs for value in log.values]
        assert len(set(everywhere)) == len(everywhere), "a record was stored twice"
        for index, log in enumerate(self.logs):
            sent_here = [value for where, value, _ in self.sent if where == index]
            place = {value: number for number, value in enumerate(sent_here)}
            found = [place[value] for value in log.values]
            assert not order or found == sorted(found), "records were reordered"
        for index, value, sent in self.sent:
            assert sent.done()
            failure = sent.exception()
            if failure is not None and not failure.may_be_stored:
                assert value not in self.logs[index].values, (
                    f"stored, though it was said not to be: {failure}"
                )
            if failure is None:
                assert value in self.logs[index].values, "a record was lost"
                batch, number = sent._place()
                if batch.base_offset >= 0:
                    stored = self.logs[index].values[batch.base_offset + number]
                    assert stored == value, "the offset is another record's"

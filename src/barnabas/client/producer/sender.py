"""Drives the accumulator from the network's thread: sends what is ready, tells it what became of it.

Owned by `producer`. The accumulator is shared with sending threads, under one lock; encoding, compression and callbacks
happen outside it. Always holds: whatever is drained is asked, and whatever is asked comes back as stored, refused or
lost, or is recalled before all of it is sent. What is given up is recalled first: a record that failed is not stored
later, but for one whose request was sent, and its failure says so.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from threading import Condition, RLock

from barnabas.client.network.channel import PendingCall
from barnabas.client.network.failures import RETRIABLE, STALE, Closed, Unreachable, check, refusal
from barnabas.client.network.guarded import guarded
from barnabas.client.network.metadata import Snapshot
from barnabas.client.network.network import Network
from barnabas.client.network.timer import Timer
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.batches import Batch, section_of, wait_for
from barnabas.client.producer.one_batch import LARGEST, Envelope, OneBatch
from barnabas.client.producer.partition_state import BatchRequest, ProducerIdentity, WireBatch
from barnabas.client.producer.transactor import Transactor
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, Buffer, TopicPartition
from barnabas.wire.batch import TRANSACTIONAL, BatchInTwo, wrap_apart, wrap_records
from barnabas.wire.compression import Compression
from barnabas.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse

_MOST_UNSEEN = 1000
_LARGE = 64 * 1024
"""Records that are not copied to be put behind their header; a channel joins no request of that size."""
_NO_TIMER = Timer(float("inf"), lambda: None)


class Flight:
    """A request on its way, from `drain` to its outcome."""

    __slots__ = ("call", "request")

    def __init__(self, request: BatchRequest) -> None:
        self.request = request
        self.call: PendingCall | None = None
        """What the network was asked; None where it was not, or said no at once: then nothing is sent."""


class Sender:
    """The sending half of a producer. All but `wake` runs in the network's thread."""

    def __init__(
        self,
        network: Network,
        accumulator: Accumulator,
        lock: RLock,
        room: Condition,
        *,
        acks: int,
        codec: Compression,
        request_timeout_ms: int,
        transactor: Transactor | None = None,
    ) -> None:
        self._network = network
        self._transactor = transactor
        self._transactional_id = None if transactor is None else transactor.machine.id
        self._attributes = codec | (TRANSACTIONAL if transactor is not None else 0)
        self._accumulator = accumulator
        self._lock = lock
        self._room = room
        """The bell, on the same lock, for threads that wait for memory."""
        self._acks = acks
        self._codec = codec
        self._request_timeout_ms = request_timeout_ms
        self._flights: dict[BrokerId, int] = {}
        """How many requests each broker has not answered yet."""
        self._flying: set[Flight] = set()
        self._envelopes: dict[TopicPartition, Envelope] = {}
        self._is_woken = False
        self._timer = _NO_TIMER
        self._is_asking_for_id = False
        self._unseen: deque[Batch] = deque(maxlen=_MOST_UNSEEN)
        accumulator.hurry = self.hurry
        accumulator.carrier = network
        if transactor is not None:
            transactor.sender = self
        network.metadata.subscribe(self._learn)

    def wake(self, *, is_urgent: bool = True) -> None:
        """Any thread: there may be something to send; not urgent where this thread may be about to wait for it."""
        if not self._is_woken:
            self._is_woken = True
            self._network.post(self.run, is_urgent=is_urgent)
        else:
            self._network.nudge(is_urgent=is_urgent)

    def hurry(self, partition: TopicPartition) -> None:
        """Any thread: what lingers there is waited for."""
        self._network.refuse_in_forks()  # first: a thread of the parent may have held the lock as the process forked
        with self._lock:
            self._accumulator.topics[partition.topic].partitions[partition.partition].is_hurried = True
        self.wake()

    def run(self) -> None:
        """Send all that is ready, and come back when more will be."""
        self._is_woken = False
        self._turn(None, None)

    def _turn(self, flight: Flight | None, answer: ProduceResponse | Refused | None) -> None:
        """Take in what became of a request, if any; then send what is ready."""
        accumulator = self._accumulator
        now = time.monotonic()
        is_stale = False
        with self._lock:
            if flight is not None:
                is_stale = self._take_in(flight, answer, now)
            if accumulator.next_at <= now:
                self._recall([each for each in self._flying if accumulator.is_overdue(each.request, now)])
                accumulator.expire(now)
            if self._transactor is not None:
                self._transactor.note(list(accumulator.settled))
            requests = accumulator.drain(now, self._leader_of, self._flights)
            next_at = accumulator.next_at
            settled = self._take_settled()
        self._tell(settled)  # first: a thread may be waiting
        for each in requests:
            self._send(each)
        if self._transactor is not None:
            self._transactor.step()
        elif accumulator.numbers.producer is None:
            self._ask_for_id()
        if is_stale or accumulator.lacks_leader:
            self._network.refresh_soon()
        # A timer that comes too early costs less than one made anew for every request.
        if next_at < self._timer.at:
            self._timer.cancel()
            self._timer = self._network.later(next_at - now, self._tick)

    def _tick(self) -> None:
        self._timer = _NO_TIMER
        self.run()

    def _learn(self, snapshot: Snapshot) -> None:
        with self._lock:
            for name in self._accumulator.topics:
                topic = snapshot.topics.get(name)
                if topic is not None:
                    self._accumulator.topic(name, len(topic.partitions))
        self.run()

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        leader = self._network.metadata.snapshot.leader(partition)
        return None if leader is None else leader.id

    def _send(self, request: BatchRequest) -> None:
        node = request.node
        self._flights[node] = self._flights.get(node, 0) + 1
        flight = Flight(request)
        self._flying.add(flight)
        done = partial(self._answered, flight)
        try:
            message = self._message(request.batches)
        except Exception as error:
            # No such records are known; if there are any, they must not keep the others from being sent.
            unwritten = Refused(Code.INVALID_RECORD, f"A record cannot be written: {error}.")
            self._network.later(0.0, partial(done, unwritten))
            return
        if self._acks:
            versions = None if self._transactor is None else self._transactor.produce_versions
            flight.call = self._network.ask(node, message, ProduceResponse, done, versions=versions)
        else:
            flight.call = self._network.tell(node, message, done)

    def _recall(self, flights: Iterable[Flight]) -> None:
        """With the lock: take back what is not sent yet, so that what is given up of it never will be."""
        for flight in flights:
            if flight.call is None or flight.call.recall():
                self._flying.discard(flight)
                self._flights[flight.request.node] -= 1
                for wire in flight.request.batches:
                    self._accumulator.recalled(wire)

    def _message(self, wires: list[WireBatch]) -> OneBatch | ProduceRequest:
        if len(wires) == 1:
            wire = wires[0]
            records = self._encode(wire)
            if not isinstance(records, BatchInTwo) and len(records) <= LARGEST:
                partition = wire.owner.partition
                envelope = self._envelopes.get(partition)
                if envelope is None:
                    envelope = Envelope(
                        partition, self._acks, self._request_timeout_ms, self._transactional_id
                    )
                    self._envelopes[partition] = envelope
                return OneBatch(envelope, records)
        topics: dict[str, ProduceTopic] = {}
        for wire in wires:
            name, index = wire.owner.partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = ProduceTopic(name=name)
            part = ProducePartition(index, self._encode(wire))  # type: ignore[arg-type]  # any chunk will do
            topic.partition_data.append(part)
        return ProduceRequest(
            self._transactional_id, self._acks, self._request_timeout_ms, list(topics.values())
        )

    def _encode(self, wire: WireBatch) -> Buffer | BatchInTwo:
        if wire.encoded is None:
            section = wire.section = wire.section or section_of(wire.batches)
            facts = {
                "attributes": self._attributes,
                "base_timestamp": section.base_timestamp,
                "max_timestamp": section.max_timestamp,
                "producer_id": wire.producer.id,
                "producer_epoch": wire.producer.epoch,
                "base_sequence": wire.base_sequence,
            }
            if len(section.body) > _LARGE and not self._codec:
                wire.encoded = wrap_apart(section.body, section.count, **facts)
            else:
                wire.encoded = wrap_records(section.body, section.count, **facts)
        return wire.encoded

    def _answered(self, flight: Flight, answer: ProduceResponse | Refused | None) -> None:
        if flight in self._flying:  # or it was recalled meanwhile
            self._flying.discard(flight)
            self._flights[flight.request.node] -= 1
            self._turn(flight, answer)

    def _take_in(self, flight: Flight, answer: ProduceResponse | Refused | None, now: float) -> bool:
        """Tell the accumulator what became of a request; true where fresh metadata may help."""
        request = flight.request
        was_sent = flight.call is not None and flight.call.was_sent
        if isinstance(answer, ProduceResponse):
            return self._settle(request, answer, now)
        for wire in request.batches:
            if answer is None:
                self._accumulator.stored(wire, -1, -1)
            elif answer.code in RETRIABLE:
                self._accumulator.lost(wire, answer, now, was_sent)
            else:
                self._accumulator.refused(wire, answer, now)
        return answer is not None

    def _settle(self, request: BatchRequest, answer: ProduceResponse, now: float) -> bool:
        """Tell the accumulator of every batch; true where fresh metadata may help."""
        found = {
            (topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses
        }
        is_stale = False
        for wire in request.batches:
            partition = wire.owner.partition
            each = found.get(partition)
            if each is None:
                silent = Unreachable(f"Broker {request.node} gave no answer for partition {partition}.")
                self._accumulator.lost(wire, silent, now, True)
            elif not each.error_code:
                self._accumulator.stored(wire, each.base_offset, each.log_append_time_ms)
            elif each.error_code == Code.DUPLICATE_SEQUENCE_NUMBER:
                # Stored before, by a try whose answer got lost: that is what was wanted.
                self._accumulator.stored(wire, -1, -1)
            else:
                failure = refusal(each.error_code, f"Partition {partition}", each.error_message)
                is_stale |= failure.code in STALE
                self._accumulator.refused(wire, failure, now)
        return is_stale

    def _take_settled(self) -> Sequence[Batch]:
        """With the lock: the batches that were not told of yet. There is memory again."""
        settled = self._accumulator.settled
        if not settled:
            return ()
        self._accumulator.settled = []
        if self._accumulator.starving:
            self._room.notify_all()
        return settled

    def _tell(self, settled: Sequence[Batch]) -> None:
        """Callbacks run outside the lock: they may send again."""
        for batch in settled:
            if batch.failure is not None:
                self._unseen.append(batch)
            if batch.callbacks:
                guarded(batch.tell)

    def unseen_failure(self) -> BarnabasError | None:
        """Any thread: the first failure since the last time that was not looked at."""
        first: BarnabasError | None = None
        while self._unseen:
            batch = self._unseen.popleft()
            if first is None and not batch.is_seen:
                first = batch.failure
        return first

    def drain_for(self, seconds: float) -> None:
        """Any thread: send what waits, and wait this long for its outcome."""
        with self._lock:
            self._accumulator.flushing += 1
            batches = self._accumulator.unsettled()
        if batches:
            self.wake()
            wait_for(batches, seconds, "A record")

    def close(self, timeout: float) -> None:
        """Any thread: give up what is still on its way, say so, and hang up."""
        try:
            self._network.post(lambda: self._fail_all(Closed()))
        except BarnabasError:
            pass  # closed already, or by a process that was forked since
        self._network.close(timeout)
        if self._transactor is not None:
            self._transactor.close()

    def _fail_all(self, failure: Refused) -> None:
        with self._lock:
            self.give_up(failure)
            settled = self._take_settled()
        self._tell(settled)

    def give_up(self, failure: BarnabasError) -> None:
        """With the lock: nothing that is on its way is sent any more, or again."""
        self._recall(list(self._flying))
        self._accumulator.fail_all(failure)

    def forget_failures(self) -> None:
        """Any thread: what has failed so far is nothing to tell of any more."""
        self._unseen.clear()

    def _ask_for_id(self) -> None:
        if self._is_asking_for_id:
            return
        self._is_asking_for_id = True
        self._network.ask(None, InitProducerIdRequest(), InitProducerIdResponse, self._got_id)

    def _got_id(self, answer: InitProducerIdResponse | Refused) -> None:
        failure: Refused | None = answer if isinstance(answer, Refused) else None
        if isinstance(answer, InitProducerIdResponse):
            try:
                check(answer.error_code, "A producer id")
            except Refused as refused:
                failure = refused
            else:
                self._is_asking_for_id = False
                with self._lock:
                    self._accumulator.numbers.producer = ProducerIdentity(
                        answer.producer_id, answer.producer_epoch
                    )
                self.run()
                return
        assert failure is not None
        if failure.code not in RETRIABLE:
            self._fail_all(failure)
        self._network.later(self._network.retry_backoff, self._ask_again)

    def _ask_again(self) -> None:
        self._is_asking_for_id = False
        self.run()

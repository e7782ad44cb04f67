"""Records on their way, partition by partition: what waits, what is in flight, what must be sent again. PURE.

Filled by `producer`, drained and told of outcomes by `sender`, both under one lock; time is an argument, in seconds.
Always holds, with idempotence: a partition's wire batches are numbered in the order they are stored in; a number is
never given to other records while anyone might have stored the first ones under it; while something must be sent
again, nothing later of that partition goes first, and one batch is in flight at a time. So a retry neither doubles
nor reorders.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from barnabas.client.network.failures import RETRIABLE, TimedOut, in_doubt, never_sent
from barnabas.client.producer.batches import RECORD_OVERHEAD, Batch, Carrier, Section
from barnabas.client.producer.numbering import Numbering
from barnabas.client.producer.partition_state import BatchRequest, PartitionState, TopicState, WireBatch
from barnabas.errors import BarnabasError, Code, Refused
from barnabas.types import BrokerId, TopicPartition
from barnabas.wire.batch import HEADER_SIZE
from barnabas.wire.records import Headers

_LONGEST_PAUSE_S = 1.0
_IN_HAND_S = 0.001
"""After which a batch is looked at again that was in hand."""
_FIRST_LOOK_S = 0.002
"""The pause while the transaction before is being ended: that takes milliseconds."""
_MOST_NUMBERED = 5
"""Batches of a producer that a broker remembers: with more in flight a repeated one could pass for new."""

_FORGOTTEN_AFTER_S = 600.0
"""A broker forgets a producer it has not heard of for long (producer.id.expiration.ms; a day unless it was changed)."""

_TOO_LARGE = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE})

_MISSING = frozenset(
    {Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID, Code.INVALID_PRODUCER_EPOCH}
)
"""The broker expects another number: something before this batch is missing there, or it forgot the producer."""

_ONE_RECORD = frozenset({Code.INVALID_RECORD, Code.INVALID_TIMESTAMP})
"""Refusals for the sake of one record, which the others of its wire batch should not suffer from."""

_NOT_STORED = (
    _TOO_LARGE
    | _ONE_RECORD
    | {
        Code.INVALID_REQUIRED_ACKS,
        Code.UNSUPPORTED_COMPRESSION_TYPE,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Refusals that leave no doubt: nothing was written."""

_REFUSED_BEFORE_WRITING = (
    _NOT_STORED
    | _MISSING
    | {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
        Code.INVALID_TOPIC_EXCEPTION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_ENOUGH_REPLICAS,
        Code.THROTTLING_QUOTA_EXCEEDED,
        Code.PRODUCER_FENCED,
        Code.INVALID_TXN_STATE,
        Code.CONCURRENT_TRANSACTIONS,
        Code.TRANSACTION_ABORTABLE,
    }
)
"""Refusals of an attempt that wrote nothing. NOT_LEADER_OR_FOLLOWER is none of them: a leader that is replaced while
it waits for its followers says so too, and they may have the batch."""


class Accumulator:
    """All partitions of one producer."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger: float,
        buffer_memory: int,
        max_request_size: int,
        max_in_flight: int,
        delivery_timeout: float,
        retry_backoff: float,
        retries: int,
        is_idempotent: bool,
        is_transactional: bool = False,
    ) -> None:
        self.topics: dict[str, TopicState] = {}
        self.numbers = Numbering(is_idempotent=is_idempotent, is_transactional=is_transactional)
        self.admits: Callable[[TopicPartition], bool] | None = None
        """Whether a partition's batches may go now; None where there are no transactions, which may forbid it."""
        self.free = buffer_memory
        self.starving = 0
        """Threads that wait for memory: until there is some, nothing lingers."""
        self.flushing = 0
        self.next_at = inf
        """When `drain` or `expire` has something to do, should nothing else happen."""
        self.lacks_leader = False
        self.settled: list[Batch] = []
        """Settled, but not told yet."""
        self.hurry: Callable[[TopicPartition], None] | None = None
        """Called by a thread that waits for a batch that lingers."""
        self.carrier: Carrier | None = None
        self.batch_size = batch_size
        self._linger = linger
        self._max_request_size = max_request_size
        self._max_in_flight = max_in_flight
        self._most_numbered = min(max_in_flight, _MOST_NUMBERED) if is_idempotent else max_in_flight
        self._delivery_timeout = delivery_timeout
        self._retry_backoff = retry_backoff
        self._retries = retries
        self._is_idempotent = is_idempotent
        self._listed: deque[PartitionState] = deque()
        """Partitions that have anything on its way."""

    # Filling

    def topic(self, name: str, partitions: int, first: int = 0) -> TopicState:
        """A topic's state, with at least `partitions` partitions; keyless records begin at partition `first`."""
        state = self.topics.get(name)
        known = [] if state is None else state.partitions
        known += [
            PartitionState(TopicPartition(name, index), self._max_request_size)
            for index in range(len(known), partitions)
        ]
        if state is None:
            state = self.topics[name] = TopicState(name, known, first)
        return state

    def append(
        self,
        state: PartitionState,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: int,
        size: int,
        now: float,
    ) -> tuple[Batch, int] | None:
        """Add a record of about `size` bytes; None when there is no memory for another batch."""
        batch = state.take_open()
        if batch is not None and batch.room < size:
            state.give_back(batch)
            batch = None
        if batch is None:
            needed = max(min(self.batch_size, state.limit), size)
            if needed > self.free:
                return None
            batch = self._put(state, Batch(state.partition, needed, now))
            state.begin(batch)
        batch.room -= size
        index = batch.add(value, key, headers, timestamp)
        state.give_back(batch)
        return batch, index

    def append_section(self, state: PartitionState, section: Section, now: float) -> Batch | None:
        """Add a record section that was encoded elsewhere; None when there is no memory for it."""
        needed = len(section.body) + HEADER_SIZE
        if needed > self.free:
            return None
        batch = Batch(state.partition, needed, now)
        batch.section = section
        batch.room = 0
        state.shut()
        return self._put(state, batch)

    def _put(self, state: PartitionState, batch: Batch) -> Batch:
        self.free -= batch.reserved
        batch.carrier = self.carrier
        if self._linger:
            batch.hurry = self.hurry
        state.queue.append(batch)
        if not state.is_listed:
            state.is_listed = True
            if batch.created - state.idle_since > _FORGOTTEN_AFTER_S:
                state.is_known = False
            self._listed.append(state)
        return batch

    def is_ready(self, state: PartitionState) -> bool:
        """Whether what waits has no reason to wait longer."""
        return bool(
            len(state.queue) > 1 or not self._linger or state.is_hurried or self.flushing or self.starving
        ) or (bool(state.queue) and state.open is None)

    # Draining

    def drain(
        self, now: float, leader_of: Callable[[TopicPartition], BrokerId | None], flights: dict[BrokerId, int]
    ) -> list[BatchRequest]:
        """What goes out now, in order; `flights` counts the requests that each broker has not answered yet."""
        self.next_at = inf
        self.lacks_leader = False
        if not self._listed:
            return []
        requests: dict[BrokerId, list[BatchRequest]] = {}
        listed = self._listed
        for _ in range(len(listed)):
            state = listed.popleft()
            if state.is_idle:
                state.is_listed = False
                state.idle_since = now
                continue
            listed.append(state)
            self._wake_at(self._oldest(state) + self._delivery_timeout)
            at = self._drains_at(state)
            if at > now:
                self._wake_at(at)
                continue
            node = leader_of(state.partition)
            if node is None:
                self.lacks_leader = True
            elif self.numbers.producer is not None and (self.admits is None or self.admits(state.partition)):
                room = self._max_in_flight - flights.get(node, 0)
                self._drain_partition(state, node, requests.setdefault(node, []), room, now)
        # The next turn begins with another partition: none is always last when requests are full.
        listed.rotate(-1)
        return [request for group in requests.values() for request in group]

    def _wake_at(self, at: float) -> None:
        self.next_at = min(self.next_at, at)

    def _oldest(self, state: PartitionState) -> float:
        oldest = state.queue[0].created if state.queue else inf
        if state.resend:
            oldest = min(oldest, state.resend[0].created)
        for wire in state.flying:
            if not wire.is_over:
                oldest = min(oldest, wire.created)
        return oldest

    def _drains_at(self, state: PartitionState) -> float:
        """When this partition's next batch may go; never, where only an answer can change that."""
        if state.resend or state.needs_epoch:
            return state.not_before if not state.flying else inf
        # A broker takes any number from a producer it does not know yet: nothing may overtake the first batch.
        most = self._most_numbered if state.is_known or not self._is_idempotent else 1
        if not state.queue or len(state.flying) >= most:
            return inf
        if state.flying and (state.producer != self.numbers.producer or state.flying[0].attempts > 1):
            # Those in flight are of another epoch, or sent again: a broker that has stored more than five batches
            # since would no longer know a repeated one.
            return inf
        if self.is_ready(state):
            return state.not_before
        return max(state.not_before, state.queue[0].created + self._linger)

    def _drain_partition(
        self, state: PartitionState, node: BrokerId, requests: list[BatchRequest], room: int, now: float
    ) -> None:
        at = 0
        while self._drains_at(state) <= now:
            self.numbers.renumber(state)
            if self.numbers.producer is None or not (state.resend or state.queue):
                return
            size = state.resend[0].size if state.resend else state.queue[0].size
            while at < len(requests) and self._is_full(requests[at], size):
                at += 1
            if at == len(requests) and at >= room:
                return
            if not state.resend:
                if not state.can_take(state.queue[0]):
                    self._wake_at(now + _IN_HAND_S)
                    return
                if state.queue[0].size != size:
                    continue  # it has grown meanwhile, and will not do so again
            if at == len(requests):
                requests.append(BatchRequest(node, []))
            wire = state.resend.popleft() if state.resend else self._take(state, self._left(requests[at]))
            wire.attempts += 1
            state.flying.append(wire)
            requests[at].batches.append(wire)
            if not (state.resend or state.queue):
                return  # as a rule; saves another look
            at += 1

    def _left(self, request: BatchRequest) -> int:
        left = self._max_request_size
        for wire in request.batches:
            left -= wire.size
        return left

    def _is_full(self, request: BatchRequest, size: int) -> bool:
        return bool(request.batches) and self._left(request) < size

    def _take(self, state: PartitionState, most: int) -> WireBatch:
        """What waits in the queue as one wire batch, as far as it fits."""
        queue = state.queue
        first = queue.popleft()
        batches = [first]
        if first.section is None:
            room = min(most, state.limit) - first.size
            while queue and queue[0].section is None and queue[0].size <= room:
                if not state.can_take(queue[0]) or queue[0].size > room:
                    break
                room -= queue[0].size
                batches.append(queue.popleft())
        if not queue:
            state.is_hurried = False
        wire = WireBatch(state, batches)
        self.numbers.number(state, wire)
        return wire

    # Outcomes

    def stored(self, wire: WireBatch, base_offset: int, append_time: int) -> None:
        """The broker has it; the offset is -1 where it does not say."""
        state = wire.owner
        state.flying.remove(wire)
        state.trouble = None
        state.is_known = state.is_known or wire.producer == state.producer
        if wire.is_over:
            return
        for batch in wire.batches:
            count = len(batch)
            self._settle(batch, base_offset, append_time, None)
            if base_offset >= 0:
                base_offset += count

    def refused(self, wire: WireBatch, failure: Refused, now: float) -> None:
        """The broker said no to this batch."""
        state = wire.owner
        code = failure.code
        state.flying.remove(wire)
        state.trouble = failure
        wire.was_sent = True
        if code not in _REFUSED_BEFORE_WRITING:
            wire.is_in_doubt = True
        if wire.is_over:
            return
        if code in _TOO_LARGE and len(wire) > 1:
            state.limit = max(min(state.limit, wire.size) // 2, 1)
            self._send_again(self.numbers.halved(wire))
        elif code in _ONE_RECORD and len(wire.batches) > 1:
            self._send_again(self.numbers.halved(wire))
        elif self._is_idempotent and code in _MISSING:
            if self.numbers.is_first(wire):
                if self.numbers.is_transactional:
                    self._fail(wire, failure)  # which ends the transaction, and so the epoch
                    return
                state.needs_epoch = True
            self._try_again(wire, failure, now)
        elif code in RETRIABLE:
            self._try_again(wire, failure, now)
        else:
            # What follows cannot be stored under its numbers either, and is known not to be. Where something earlier
            # is in doubt, that must be settled under its own number first: the next gap will tell.
            if self._is_idempotent and code in _NOT_STORED and self.numbers.is_first(wire):
                state.needs_epoch = True
            self._fail(wire, failure)

    def lost(self, wire: WireBatch, failure: Refused, now: float, was_sent: bool) -> None:
        """No answer came: where all of it was sent it may be stored, so it keeps its number."""
        wire.owner.flying.remove(wire)
        wire.owner.trouble = failure
        if was_sent:
            wire.was_sent = wire.is_in_doubt = True
        if not wire.is_over:
            self._try_again(wire, failure, now)

    def recalled(self, wire: WireBatch) -> None:
        """An attempt was called off before all of it was sent: no broker has it, or ever will by that attempt."""
        wire.owner.flying.remove(wire)
        if not wire.is_over:
            wire.attempts -= 1
            self._send_again([wire])

    def _try_again(self, wire: WireBatch, failure: Refused, now: float) -> None:
        state = wire.owner
        if wire.attempts > self._retries or now >= wire.created + self._delivery_timeout:
            self._fail(wire, failure)
            return
        doublings = 2.0 ** min(wire.attempts - 1, 20)
        if failure.code is Code.CONCURRENT_TRANSACTIONS:
            pause = min(_FIRST_LOOK_S * doublings, self._retry_backoff)
        else:
            pause = max(min(self._retry_backoff * doublings, _LONGEST_PAUSE_S), self._retry_backoff)
        state.not_before = max(state.not_before, now + pause)
        self._send_again([wire])

    def _send_again(self, wires: Sequence[WireBatch]) -> None:
        """Put them among those to be sent again, in the order they were first sent in."""
        state = wires[0].owner
        state.resend = deque(self.numbers.in_order([*state.resend, *wires]))

    def is_overdue(self, request: BatchRequest, now: float) -> bool:
        """Whether something in a request is about to be given up: what is not sent yet of it should be called off."""
        born_before = now - self._delivery_timeout
        return any(wire.created <= born_before and not wire.is_over for wire in request.batches)

    def expire(self, now: float) -> None:
        """Give up what has been on its way for longer than delivery.timeout.ms.

        Requests that hold any of it, and are not sent yet, have been recalled before: what flies now was sent.
        """
        born_before = now - self._delivery_timeout
        for state in self._listed:
            if self._oldest(state) > born_before:
                continue
            state.shut()
            failure = state.trouble or TimedOut(
                f"Partition {state.partition}: not delivered in {self._delivery_timeout:g} s (delivery.timeout.ms)."
            )
            for wire in [*state.flying, *state.resend]:
                if wire.created <= born_before and not wire.is_over:
                    self._give_up(wire, failure)
            given_up = [wire for wire in state.resend if wire.is_over]
            state.resend = deque(wire for wire in state.resend if not wire.is_over)
            for wire in reversed(given_up):
                self.numbers.take_back(wire)
            while state.queue and state.queue[0].created <= born_before:
                self._settle(state.queue.popleft(), -1, -1, never_sent(failure))

    def fail_all(self, failure: BarnabasError) -> None:
        """Give up everything that is on its way; requests that are not sent yet have been recalled before."""
        for state in self._listed:
            state.shut()
            for wire in [*state.flying, *state.resend]:
                if not wire.is_over:
                    self._give_up(wire, failure)
            for batch in state.queue:
                self._settle(batch, -1, -1, never_sent(failure))
            state.resend.clear()
            state.queue.clear()

    def drop_waiting(self, failure: BarnabasError) -> None:
        """Give up what has no number yet."""
        for state in self._listed:
            state.shut()
            while state.queue:
                self._settle(state.queue.popleft(), -1, -1, failure)

    @property
    def is_drained(self) -> bool:
        """Whether nothing is on its way."""
        return all(state.is_idle for state in self._listed)

    def shut(self) -> None:
        """Nothing more comes into any batch."""
        for state in self._listed:
            state.shut()

    def unsettled(self) -> list[Batch]:
        """All batches on their way."""
        found: list[Batch] = []
        for state in self._listed:
            for wire in (*state.flying, *state.resend):
                if not wire.is_over:
                    found += wire.batches
            found += state.queue
        return found

    def _give_up(self, wire: WireBatch, failure: BarnabasError) -> None:
        """The end of a batch that waits, or that flies: of the latter all has been sent."""
        if wire in wire.owner.flying:
            wire.was_sent = wire.is_in_doubt = True
        self._fail(wire, failure)

    def _fail(self, wire: WireBatch, failure: BarnabasError) -> None:
        wire.is_over = True
        if wire.is_in_doubt:
            failure = in_doubt(failure)
        elif not wire.was_sent:
            failure = never_sent(failure)
        for batch in wire.batches:
            self._settle(batch, -1, -1, failure)

    def _settle(
        self, batch: Batch, base_offset: int, append_time: int, failure: BarnabasError | None
    ) -> None:
        self.free += batch.reserved
        batch.settle(base_offset, append_time, failure)
        self.settled.append(batch)


def size_of(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """No less than what a record takes in a batch."""
    size = RECORD_OVERHEAD + len(value or b"") + len(key or b"")
    for name, content in headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size

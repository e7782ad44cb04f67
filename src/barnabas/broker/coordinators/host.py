"""Hosts one coordinator over its partition, in one leader epoch: the hands of a machine that only thinks. Owned by
`coordinators`, and the same for whatever is coordinated.

Always holds: records are applied in the order of the log, right after they are in it; an answer leaves when all
that was in the log when it was given is below the high watermark: no answer tells of what could still be lost. One
that waits too long for that is a refusal, and the client asks again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from barnabas.broker.partitions.leader import Leader
from barnabas.broker.partitions.partition import Partition
from barnabas.coordinator.effects import NEVER, Context, TopicChanges, TopicFacts
from barnabas.coordinator.machine import Factory, Machine, Wanted
from barnabas.errors import Code, Refused, counted
from barnabas.log.salvage import Salvaged
from barnabas.log.transactions.markers import read_marker
from barnabas.log.transactions.verifications import Verification
from barnabas.types import Buffer, Millis, Offset, ProducerId
from barnabas.wire.batch import decode_batch
from barnabas.wire.codec import Malformed
from barnabas.wire.records import encode_flat

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

NO_CONTEXT = Context(-1)
"""Of what comes from the broker itself."""

BACK_OFF_MS = 1000
"""How long a coordinator whose records are refused by the log waits before it does what is due by itself."""

SLEEPY_MS = 1000
"""A wake-up later than this means that the whole process was stopped, or that the clock was set."""

GRACE_MS = 3000
"""The time that members then get to send a heartbeat: the interval at which most of them do."""

_FROM_APPEND = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Code.COORDINATOR_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
    Code.RECORD_LIST_TOO_LARGE: Code.UNKNOWN_SERVER_ERROR,
    # An author's verification was lost on the way: to a marker that came again, or to a truncation. The next attempt is
    # verified anew, and the transaction's coordinator says whether it is over. INVALID_TXN_STATE is fatal in Java.
    Code.INVALID_TXN_STATE: Code.COORDINATOR_LOAD_IN_PROGRESS,
}

log = logging.getLogger("barnabas.coordinators")

M = TypeVar("M", bound=Machine)

Replies: TypeAlias = list[tuple["Waiting", Any]]


def append_code(code: Code) -> Code:
    """What a client of a coordinator is told when an append was refused with this code."""
    return _FROM_APPEND.get(code, code)


class Waiting:
    """Mutable: the answer to a request, a response or a refusal. A future is made only for one that really waits."""

    __slots__ = ("_answer", "_future")

    def __init__(self) -> None:
        self._answer: Any = None
        self._future: asyncio.Future[Any] | None = None

    def give(self, answer: Any) -> None:
        if self._future is None:
            self._answer = answer
        elif not self._future.done():
            if isinstance(answer, Refused):
                self._future.set_exception(answer)
                self._future.exception()  # marked as seen: its client may have gone
            else:
                self._future.set_result(answer)

    @property
    def outcome(self) -> Any:
        """The answer, or a future of it. Raises Refused."""
        answer = self._answer
        if answer is not None:
            if isinstance(answer, Refused):
                raise answer
            return answer
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class Author(NamedTuple):
    """The producer in whose transaction the records of a request are written, and what lets them in."""

    producer_id: ProducerId
    epoch: int
    verified: Verification


class Damage:
    """Mutable: what of a partition could not be read while it was replayed."""

    __slots__ = ("_bytes", "_first", "_places", "_records")

    def __init__(self) -> None:
        self._places = self._bytes = self._records = 0
        self._first = ""

    def pass_over(self, size: int) -> None:
        if size:
            self._places += 1
            self._bytes += size

    def broken(self, offset: Offset, why: Malformed) -> None:
        """A record whose batch is whole, and which makes no sense."""
        self._records += 1
        self._first = self._first or f"{why} at offset {offset}"

    def __bool__(self) -> bool:
        return bool(self._places or self._records)

    def __str__(self) -> str:
        parts = []
        if self._places:
            parts.append(f"{counted(self._places, 'place')} of {self._bytes} bytes in all")
        if self._records:
            parts.append(f"{counted(self._records, 'record')} ({self._first})")
        return " and ".join(parts) + " cannot be read"


class CoordinatorHost(Generic[M]):
    """Mutable: a coordinator at work."""

    def __init__(
        self,
        broker: "Broker",
        partition: Leader,
        factory: Factory[M],
        topics: Mapping[str, TopicFacts],
    ) -> None:
        self.partition = partition
        self.epoch = partition.epoch
        self.coordinator = factory.make(broker.config, topics)
        self._factory = factory
        self._encode = factory.encode
        self._leader_of = broker.replicas.lookup_leader
        self.is_loaded = False
        self._topics = self._topics_at_first = topics
        self.replayed = 0
        self._broker = broker
        self._owed: deque[tuple[Offset, float, Replies]] = deque()
        """Answers that wait for the high watermark, and until when."""
        self._held: deque[tuple[Offset, Sequence[Any]]] = deque()
        """What is to be told to others, and waits for the high watermark."""
        self.on_send: Callable[[CoordinatorHost[M], Any], None] = lambda host, what: None
        """Called with each thing that is to be told."""
        self._late: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._awake_by = NEVER
        self.is_closed = False

    # What the broker asks

    def ask(self, request: Any, context: Context, author: Author | None = None) -> Any:
        """The answer to a request, or a future of it. Raises Refused. With an author, its records count when the
        author's transaction is committed."""
        waiting = Waiting()
        now = self._broker.clock.now()
        self._carry_out(self.coordinator.handle(request, context, now, waiting), now, author)
        self._arm(now)
        return waiting.outcome

    def tell(self, event: Any) -> None:
        """Something has happened; there is nothing to answer."""
        now = self._broker.clock.now()
        self._carry_out(self.coordinator.handle(event, NO_CONTEXT, now, None), now)
        self._arm(now)

    def end_transaction(
        self, producer_id: ProducerId, *, commit: bool, write: Callable[[], Offset]
    ) -> Offset:
        """Let `write` put a transaction's marker into the partition, and act on it; its offset. Raises Refused."""
        self._check_epoch()
        place = write()
        self.coordinator.end_transaction(producer_id, commit=commit)
        self._arm(self._broker.clock.now())
        return place

    def topics_changed(self, topics: Mapping[str, TopicFacts], changes: TopicChanges) -> None:
        self._topics = topics
        if self.is_loaded:
            now = self._broker.clock.now()
            self._carry_out(self.coordinator.topics_changed(topics, now, changes), now)
            self._arm(now)

    def close(self) -> None:
        """Another host has the partition now, here or elsewhere, or none: waiting requests are refused."""
        self.is_closed = True
        self._held.clear()
        self._disarm()
        self.partition.unwatch(self)
        effects = self.coordinator.resign(Code.NOT_COORDINATOR)
        for waiting, answer in effects.replies:
            waiting.give(answer)
        self._refuse_owed(Code.NOT_COORDINATOR)

    # Loading

    async def load(self) -> None:
        """Replay the partition, in slices, up to where it ends now: only this host writes to it. What the epoch before
        has left above the high watermark counts; an answer that is made of it waits until that has passed it.

        Damage costs what is damaged, and one line of the log. Raises Refused where the disk cannot be read at all for
        the moment: then this may be called again, and begins anew.
        """
        self.coordinator = self._factory.make(self._broker.config, self._topics_at_first)
        self.replayed = 0
        damage = Damage()
        try:
            for piece in self.partition.log.salvage(self.partition.log.end):
                damage.pass_over(piece.damaged)
                self._replay(piece, damage)
                await asyncio.sleep(0)
                if self.is_closed:
                    return
        except OSError as error:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.partition.tp} cannot be read: {error}") from error
        if damage:
            log.error(
                "%s is damaged: %s. Its coordinator is loaded from the rest.", self.partition.tp, damage
            )
        self.loaded()

    def _replay(self, piece: Salvaged, damage: "Damage") -> None:
        for at, header in piece.batches:
            try:
                if header.is_control:
                    self._replay_marker(piece.data[at : at + header.size], header.producer_id)
                    continue
                stored = decode_batch(piece.data, at)
            except Refused:
                damage.pass_over(header.size)
                continue
            author = header.producer_id if header.is_transactional else None
            for each in stored:
                try:
                    record = self._factory.decode(each.key or b"", each.value)
                except Malformed as malformed:
                    damage.broken(Offset(each.offset), malformed)
                    continue
                if record is not None:
                    self.replayed += 1
                    if author is None:
                        self.coordinator.apply(record)
                    else:
                        self.coordinator.apply_in(author, record)

    def _replay_marker(self, batch: Buffer, producer_id: int) -> None:
        marker = read_marker(batch)
        if marker is not None:
            self.coordinator.end_transaction(producer_id, commit=marker.commit)

    def loaded(self) -> None:
        """From here on requests are served."""
        now = self._broker.clock.now()
        self.is_loaded = True
        self._carry_out(self.coordinator.loaded(now), now)
        if self._topics is not self._topics_at_first:
            self._carry_out(self.coordinator.topics_changed(self._topics, now), now)
        self._arm(now)

    # Effects

    def _carry_out(self, effects: Wanted, now: Millis, author: Author | None = None) -> bool:
        """Append, apply, answer, tell. False where the log has refused."""
        if effects.records:
            try:
                self._append(effects.records, now, author)
            except Refused as refused:
                self._broker.note_refusal("Coordinators", refused, *self.partition.tp)
                code = append_code(refused.code)
                for waiting, _ in effects.replies:
                    waiting.give(Refused(code))
                return False
            for record in effects.records:
                if author is None:
                    self.coordinator.apply(record)
                else:
                    self.coordinator.apply_in(author.producer_id, record)
        if effects.replies:
            self._answer_when_safe(effects.replies)
        if effects.sends:
            self._tell_when_safe(effects.sends)
        return True

    def _check_epoch(self) -> None:
        partition = self.partition
        if partition.epoch != self.epoch or self._leader_of(partition.tp) is not partition:
            # Another host, here or elsewhere, reads the partition in the next epoch, and must not find in it what it
            # did not decide. `close` comes a few steps after the change.
            raise Refused(Code.NOT_LEADER_OR_FOLLOWER)

    def _append(self, records: list[Any], now: Millis, author: Author | None) -> None:
        self._check_epoch()
        partition = self.partition
        try:
            keys, values = zip(*map(self._encode, records), strict=True)
        except Malformed as malformed:
            raise Refused(Code.INVALID_REQUEST, f"the log cannot hold it: {malformed}") from malformed
        body = encode_flat(values, keys, timestamps=[now] * len(values))
        if author is None:
            partition.append_own(body, len(values), now)
        else:
            partition.append_own_in_transaction(
                body,
                len(values),
                now,
                producer_id=author.producer_id,
                producer_epoch=author.epoch,
                verified=author.verified,
            )

    def _answer_when_safe(self, replies: Replies) -> None:
        partition = self.partition
        end = partition.log.end
        if partition.high_watermark >= end:
            for waiting, answer in replies:
                waiting.give(answer)
        else:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._broker.config.offsets_commit_timeout_ms / 1000
            self._owed.append((end, deadline, replies))
            if self._late is None:
                self._late = loop.call_at(deadline, self._expire)
            partition.watch(self)

    def _tell_when_safe(self, sends: Sequence[Any]) -> None:
        end = self.partition.log.end
        if self.partition.high_watermark >= end and not self._held:
            self._tell(sends)
        else:
            self._held.append((end, sends))
            self.partition.watch(self)

    def _tell(self, sends: Sequence[Any]) -> None:
        for what in sends:
            self.on_send(self, what)

    def _expire(self) -> None:
        """Tell clients to ask again whose answers have waited too long, as where too few replicas are in sync."""
        self._late = None
        loop = asyncio.get_running_loop()
        while self._owed and self._owed[0][1] <= loop.time():
            _, _, replies = self._owed.popleft()
            for waiting, _ in replies:
                waiting.give(Refused(append_code(Code.REQUEST_TIMED_OUT)))
        if self._owed:
            self._late = loop.call_at(self._owed[0][1], self._expire)

    def _refuse_owed(self, code: Code) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        while self._owed:
            _, _, replies = self._owed.popleft()
            for waiting, _ in replies:
                waiting.give(Refused(code))

    def wake(self, partition: Partition) -> None:
        """The high watermark may have moved."""
        while self._owed and self._owed[0][0] <= self.partition.high_watermark:
            _, _, replies = self._owed.popleft()
            for waiting, answer in replies:
                waiting.give(answer)
        while self._held and self._held[0][0] <= self.partition.high_watermark:
            self._tell(self._held.popleft()[1])
        if not self._owed and not self._held:
            self.partition.unwatch(self)

    # Time

    def _arm(self, now: Millis, not_before: int = 0) -> None:
        """See to it that the coordinator is woken when something is due."""
        at = max(self.coordinator.deadline, not_before)
        if at == self._timer_at:
            return
        self._disarm()
        if at < NEVER and not self.is_closed:
            self._timer_at = at
            delay = max(at - now, 0)
            self._awake_by = now + delay + SLEEPY_MS
            self._timer = asyncio.get_running_loop().call_later(delay / 1000, self._tick)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, NEVER

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = self._broker.clock.now()
        not_before = 0
        if now > self._awake_by:
            # We slept, not the members: their heartbeats may be waiting to be read, and come first.
            not_before = now + GRACE_MS
        elif self.coordinator.deadline <= now and not self._do_what_is_due(now):
            not_before = now + BACK_OFF_MS
        self._arm(now, not_before)

    def _do_what_is_due(self, now: Millis) -> bool:
        try:
            return self._carry_out(self.coordinator.tick(now), now)
        except Exception:
            log.exception("the coordinator of %s stumbled and goes on", self.partition.tp)
            return False

"""Owns all transactional ids of one partition of `__transaction_state`. Hosted by the broker. PURE.

Requests and time come in; records, answers and markers to be sent go out. What must last changes by `apply` alone,
which loading calls too. A decision to commit or abort is a record first: its markers leave when that is safe, and the
end is another record when every partition has one. What a client asks meanwhile waits for it.

Always holds: what is decided stays decided, whichever coordinator carries it out; and a transaction whose end was
written down is over everywhere before the next one begins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from barnabas.config import BrokerConfig
from barnabas.coordinator.effects import NEVER, Context, Token, TopicChanges, TopicFacts
from barnabas.coordinator.transactions import rules
from barnabas.coordinator.transactions.records import TransactionRecord, decode, encode
from barnabas.coordinator.transactions.requests import (
    DONE,
    NEEDS_PRODUCER_ID,
    Add,
    Describe,
    End,
    Init,
    Initialised,
    List,
    Marked,
    Markers,
    Verify,
)
from barnabas.coordinator.transactions.transaction import (
    NO_PRODUCER,
    TopicIndex,
    Transaction,
    TransactionState,
)
from barnabas.errors import Code, Refused
from barnabas.wire.messages.transactions import DescribedTransaction, ListedTransaction, TransactionTopic

__all__ = ["EXPIRY_BATCH", "PATIENCE_MS", "TransactionCoordinator", "decode", "encode", "make"]

EXPIRY_BATCH = 1000
"""How many records are written at once: one batch must not grow past what the log accepts."""

PATIENCE_MS = 5000
"""How long a request waits for the end of the transaction before; then its client is told to ask again."""

UNKNOWN = "There is no transactional id {} here: it was never initialised, or not used for a long time."


@dataclass(slots=True)
class TransactionEffects:
    """Mutable while the machine works: see `coordinator.effects`. `sends` leave when all records are safe."""

    records: list[TransactionRecord] = field(default_factory=list)
    replies: list[tuple[Token, Any]] = field(default_factory=list)
    sends: list[Markers] = field(default_factory=list)

    def reply(self, token: Token, answer: Any) -> None:
        self.replies.append((token, answer))


class Parked(NamedTuple):
    """A request that waits for the end of a transaction."""

    request: Any
    token: Token
    until: int


class TransactionCoordinator:
    """Mutable: the transactional ids. `deadline` is when `tick` has something to do."""

    def __init__(self, config: BrokerConfig, topics: Mapping[str, TopicFacts]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._config = config
        self._unmarked: dict[str, set[TopicIndex]] = {}
        """Of each transaction that is being ended: the partitions that have no marker so far."""
        self._unfinished: set[str] = set()
        """Transactions with all their markers, whose end is not in the log yet."""
        self._open: set[str] = set()
        self._gone: dict[str, set[TopicIndex]] = {}
        """Of open transactions: partitions whose topic was deleted since they were added. They need no marker."""
        self._parked: dict[str, list[Parked]] = {}
        self._released: set[str] = set()
        """Transactional ids with requests that need not wait any more."""
        self._timeouts_at = NEVER
        self._expiry_at = NEVER

    # Events

    def handle(self, request: Any, context: Context, now: int, token: Token) -> TransactionEffects:
        """Work on a request. Its answer comes with these effects, or with later ones."""
        out = TransactionEffects()
        self._handle(request, now, token, out)
        return out

    def _handle(self, request: Any, now: int, token: Token, out: TransactionEffects) -> None:
        try:
            _HANDLERS[type(request)](self, request, now, token, out)
        except Refused as refused:
            out.reply(token, refused)
        except rules.IdNeeded:
            out.reply(token, NEEDS_PRODUCER_ID)

    def tick(self, now: int) -> TransactionEffects:
        """Do what is due."""
        out = TransactionEffects()
        for transactional_id in sorted(self._unfinished):
            self._complete(transactional_id, now, out)
        if out.records:
            return out
        self._release(now, out)
        if self._timeouts_at <= now:
            self._abort_late(now, out)
        if self._expiry_at <= now:
            self._forget(now, out)
        return out

    @property
    def deadline(self) -> int:
        """When `tick` ought to be called. Never later than something is due; `NEVER` where nothing is."""
        if self._unfinished or self._released:
            return 0
        first = min((each[0].until for each in self._parked.values()), default=NEVER)
        if self._open:
            first = min(first, self._timeouts_at)
        return min(first, self._expiry_at) if self.transactions else first

    def topics_changed(
        self, topics: Mapping[str, TopicFacts], now: int, changes: TopicChanges | None = None
    ) -> TransactionEffects:
        """A partition that is gone needs no marker."""
        if changes is not None and changes.gone:
            for transactional_id in self._open:
                partitions = self.transactions[transactional_id].partitions
                gone = {each for each in partitions if each[0] in changes.gone}
                if gone:
                    self._gone.setdefault(transactional_id, set()).update(gone)
            for transactional_id, unmarked in self._unmarked.items():
                unmarked -= {each for each in unmarked if each[0] in changes.gone}
                if not unmarked:
                    self._unfinished.add(transactional_id)
        return TransactionEffects()

    def resign(self, code: Code) -> TransactionEffects:
        """Answer all waiting requests: another coordinator has the transactional ids now."""
        out = TransactionEffects()
        for waiting in self._parked.values():
            for each in waiting:
                out.reply(each.token, Refused(code))
        self._parked.clear()
        self.transactions.clear()
        return out

    # The log

    def apply(self, record: TransactionRecord) -> None:
        """Become what the log says."""
        transactional_id, transaction = record
        self._open.discard(transactional_id)
        self._unmarked.pop(transactional_id, None)
        self._unfinished.discard(transactional_id)
        if transaction is None or transaction.state is TransactionState.DEAD:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._open.add(transactional_id)
            return
        gone = self._gone.pop(transactional_id, set())
        if transaction.state.is_ending:
            unmarked = self._unmarked[transactional_id] = set(transaction.partitions - gone)
            if not unmarked:
                self._unfinished.add(transactional_id)
            return
        if transactional_id in self._parked:
            self._released.add(transactional_id)

    def apply_in(self, producer_id: int, record: TransactionRecord) -> None:
        """Nothing of this log is written in a transaction."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Nothing of this log is written in a transaction."""

    def loaded(self, now: int) -> TransactionEffects:
        """All of the log has been applied: what was decided is carried out, and from here on time counts."""
        out = TransactionEffects()
        for transactional_id in self._unmarked:
            out.sends.append(_markers(transactional_id, self.transactions[transactional_id], set()))
        self._timeouts_at = now + self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._expiry_at = now + self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        return out

    # Producers

    def _init(self, asked: Init, now: int, token: Token, out: TransactionEffects) -> None:
        self._check_init(asked)
        current = self.transactions.get(asked.transactional_id)
        if current is not None and current.state.is_ending:
            self._park(asked, asked.transactional_id, now, token)
            return
        following = rules.initialised(current, asked, now)
        self._write(asked.transactional_id, following, out)
        if following.state.is_ending:
            # The producer before this one had a transaction open. It is over once its markers are written.
            self._park(asked, asked.transactional_id, now, token)
            return
        ongoing = following.producer if following.is_kept else NO_PRODUCER
        out.reply(token, Initialised(following.follower, ongoing))

    def _check_init(self, asked: Init) -> None:
        _check_id(asked.transactional_id)
        config = self._config
        if (asked.two_phase or asked.keep) and not config.transaction_two_phase_commit_enable:
            raise Refused(
                Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "Two-phase commit is switched off: transaction.two.phase.commit.enable is false.",
            )
        if not asked.two_phase and not 0 < asked.timeout_ms <= config.transaction_max_timeout_ms:
            raise Refused(
                Code.INVALID_TRANSACTION_TIMEOUT,
                f"A transaction timeout of {asked.timeout_ms} ms is not possible: it must be above 0 and at most "
                f"transaction.max.timeout.ms, {config.transaction_max_timeout_ms}.",
            )

    # Partitions

    def _add(self, asked: Add, now: int, token: Token, out: TransactionEffects) -> None:
        current = self._known(asked.transactional_id)
        rules.check_producer(current, asked.transactional_id, asked.producer)
        if current.state.is_ending:
            self._park(asked, asked.transactional_id, now, token)
            return
        following = rules.added(current, asked, now)
        if asked.transactional_id in self._gone:
            self._gone[asked.transactional_id] -= asked.partitions
        if following is not current:
            self._write(asked.transactional_id, following, out)
        out.reply(token, DONE)

    def _verify(self, asked: Verify, now: int, token: Token, out: TransactionEffects) -> None:
        current = self._known(asked.transactional_id)
        rules.check_producer(current, asked.transactional_id, asked.producer)
        if current.state.is_ending:
            raise Refused(Code.CONCURRENT_TRANSACTIONS)
        out.reply(token, asked.partitions - current.partitions)

    # The end

    def _end(self, asked: End, now: int, token: Token, out: TransactionEffects) -> None:
        current = self._known(asked.transactional_id)
        following = rules.ended(current, asked, now)
        if following is not current:
            self._write(asked.transactional_id, following, out)
        elif following.state.is_ending:
            self._park(asked, asked.transactional_id, now, token)
            return
        out.reply(token, following.follower)

    def _marked(self, told: Marked, now: int, token: Token, out: TransactionEffects) -> None:
        """Partitions have their marker. What an older end of this id has to say is not heard."""
        current = self.transactions.get(told.transactional_id)
        unmarked = self._unmarked.get(told.transactional_id)
        if current is None or unmarked is None or current.producer != told.marker:
            return
        unmarked -= told.partitions
        if not unmarked:
            self._unfinished.add(told.transactional_id)
            self._complete(told.transactional_id, now, out)

    def _complete(self, transactional_id: str, now: int, out: TransactionEffects) -> None:
        current = self.transactions[transactional_id]
        out.records.append(TransactionRecord(transactional_id, rules.completed(current, now)))

    # What comes by itself

    def _abort_late(self, now: int, out: TransactionEffects) -> None:
        self._timeouts_at = now + self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        for transactional_id in sorted(self._open):
            current = self.transactions[transactional_id]
            if rules.is_late(current, now):
                self._write(transactional_id, rules.timed_out(current, now), out)
                if len(out.records) >= EXPIRY_BATCH:
                    self._timeouts_at = now
                    return

    def _forget(self, now: int, out: TransactionEffects) -> None:
        self._expiry_at = now + self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        kept_ms = self._config.transactional_id_expiration_ms
        for transactional_id, transaction in self.transactions.items():
            if rules.is_forgotten(transaction, kept_ms, now) and transactional_id not in self._parked:
                out.records.append(TransactionRecord(transactional_id))
                if len(out.records) >= EXPIRY_BATCH:
                    self._expiry_at = now
                    return

    # Waiting for the end of the transaction before

    def _park(self, request: Any, transactional_id: str, now: int, token: Token) -> None:
        waiting = self._parked.setdefault(transactional_id, [])
        waiting.append(Parked(request, token, now + PATIENCE_MS))

    def _release(self, now: int, out: TransactionEffects) -> None:
        """Go on with the first request of each id whose transaction has ended: others are to see what it changes."""
        released, self._released = self._released, set()
        for transactional_id in sorted(released):
            current = self.transactions.get(transactional_id)
            if current is not None and current.state.is_ending:
                continue  # the next end releases them
            waiting = self._parked.get(transactional_id, [])
            while waiting:
                request, token, _ = waiting.pop(0)
                before = len(out.records)
                self._unpark(transactional_id)
                self._handle(request, now, token, out)
                if len(out.records) > before:
                    break
            self._unpark(transactional_id)
            if waiting:
                self._released.add(transactional_id)
        for transactional_id, waiting in list(self._parked.items()):
            while waiting and waiting[0].until <= now:
                out.reply(waiting.pop(0).token, Refused(Code.CONCURRENT_TRANSACTIONS))
            self._unpark(transactional_id)

    def _unpark(self, transactional_id: str) -> None:
        if not self._parked.get(transactional_id):
            self._parked.pop(transactional_id, None)

    # Looking at transactions

    def _describe(self, asked: Describe, now: int, token: Token, out: TransactionEffects) -> None:
        _check_id(asked.transactional_id)
        current = self.transactions.get(asked.transactional_id)
        if current is None:
            raise Refused(Code.TRANSACTIONAL_ID_NOT_FOUND, UNKNOWN.format(asked.transactional_id))
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self._unmarked.get(asked.transactional_id, current.partitions)):
            topics.setdefault(topic, []).append(index)
        out.reply(
            token,
            DescribedTransaction(
                Code.NONE,
                asked.transactional_id,
                current.state.shown,
                current.timeout_ms,
                current.started,
                current.producer_id,
                current.epoch,
                [TransactionTopic(topic, indexes) for topic, indexes in topics.items()],
            ),
        )

    def _list(self, asked: List, now: int, token: Token, out: TransactionEffects) -> None:
        rows = []
        for transactional_id, each in self.transactions.items():
            is_long = asked.longer_than_ms < 0 or (
                each.state is TransactionState.ONGOING and now - each.started > asked.longer_than_ms
            )
            if (
                is_long
                and (not asked.states or each.state.shown in asked.states)
                and (not asked.producer_ids or each.producer_id in asked.producer_ids)
            ):
                rows.append(ListedTransaction(transactional_id, each.producer_id, each.state.shown))
        out.reply(token, rows)

    # Finding and writing

    def _known(self, transactional_id: str) -> Transaction:
        _check_id(transactional_id)
        current = self.transactions.get(transactional_id)
        if current is None:
            raise Refused(Code.INVALID_PRODUCER_ID_MAPPING, UNKNOWN.format(transactional_id))
        return current

    def _write(self, transactional_id: str, following: Transaction, out: TransactionEffects) -> None:
        out.records.append(TransactionRecord(transactional_id, following))
        if following.state.is_ending:
            out.sends.append(_markers(transactional_id, following, self._gone.get(transactional_id, set())))


def _markers(transactional_id: str, ending: Transaction, gone: set[TopicIndex]) -> Markers:
    is_commit = ending.state is TransactionState.PREPARE_COMMIT
    return Markers(transactional_id, ending.producer, is_commit, ending.partitions - gone, ending.version)


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise Refused(Code.INVALID_REQUEST, "A transactional id must not be empty.")


_Handler: TypeAlias = Callable[[TransactionCoordinator, Any, int, Token, TransactionEffects], None]

_HANDLERS: dict[type[Any], _Handler] = {
    Init: TransactionCoordinator._init,
    Add: TransactionCoordinator._add,
    Verify: TransactionCoordinator._verify,
    End: TransactionCoordinator._end,
    Describe: TransactionCoordinator._describe,
    List: TransactionCoordinator._list,
    Marked: TransactionCoordinator._marked,
}

make = TransactionCoordinator
"""With `encode` and `decode` all that a host needs of this module: see `machine.Factory`."""

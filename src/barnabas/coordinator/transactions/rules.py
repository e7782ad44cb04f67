"""What becomes of a transactional id by what its producer asks, and what is refused. Called by `coordinator`. PURE.

Each function takes what is, and gives what is to be: the same value where nothing changes. With transaction.version 2
every transaction has an epoch of its own: what comes late carries an epoch that is over, and touches nothing. A retry
is known by it, too: the epoch that was the last one, while no other producer has come in between.
"""

from barnabas.coordinator.transactions.requests import EPOCH_A_TRANSACTION, Add, End, Init
from barnabas.coordinator.transactions.transaction import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    NO_TIMEOUT_MS,
    Producer,
    Transaction,
    TransactionState,
    is_exhausted,
)
from barnabas.errors import Code, Refused

FENCED = "Another producer with the transactional id {} has taken over: this one can only be closed."
OTHER_PRODUCER = "Transactional id {} belongs to producer id {}, not to {}."
KEPT = "The transaction of {} is prepared: it has to be committed or aborted before another begins."
NOTHING_OPEN = "There is no open transaction of {} to commit."
DIFFERENT_END = "The transaction of {} has ended already, and otherwise: it was {}."
TIMED_OUT = "The transaction of {} was aborted, as it took longer than its timeout: abort it here, too, and begin anew."


class IdNeeded(Exception):
    """The decision needs a producer id that was never given."""


# --- a producer begins


def initialised(current: Transaction | None, asked: Init, now: int) -> Transaction:
    """The transactional id with a producer that may begin. Where a transaction is open, it is fenced or kept first."""
    timeout_ms = NO_TIMEOUT_MS if asked.two_phase else asked.timeout_ms
    if current is None:
        return Transaction(TransactionState.EMPTY, _fresh(asked.fresh_id), 0, timeout_ms, now)
    if current.state is TransactionState.ONGOING:
        _check_expected(current.follower, asked)
        return _kept(current, asked, now) if asked.keep else fenced(current, now)
    return _begun(current, asked, timeout_ms, now)


def _begun(current: Transaction, asked: Init, timeout_ms: int, now: int) -> Transaction:
    """Nothing is open: another epoch, or another id where there is none left; a retry gets what it was given."""
    expected = asked.expected
    producer, last = current.producer, NO_EPOCH
    if expected is not None and expected != producer:
        if not _is_before(expected, current):
            raise Refused(Code.PRODUCER_FENCED, FENCED.format(asked.transactional_id))
        last = current.last_epoch
    else:
        last = NO_EPOCH if expected is None else current.epoch
        if is_exhausted(current.epoch):
            producer = Producer(_fresh(asked.fresh_id), 0)
        else:
            producer = Producer(current.producer_id, current.epoch + 1)
    return Transaction(
        TransactionState.EMPTY,
        producer.id,
        producer.epoch,
        timeout_ms,
        now,
        last,
        current.producer_id,
        version=current.version,
    )


def _is_before(producer: Producer, current: Transaction) -> bool:
    """Whether this is what the producer was before it became what is known, without another in between."""
    if producer.epoch != current.last_epoch:
        return False
    if producer.id == current.producer_id:
        return producer.epoch + 1 == current.epoch
    return producer.id == current.previous_id and current.epoch == 0 and is_exhausted(producer.epoch)


def _check_expected(holder: Producer, asked: Init) -> None:
    if asked.expected is not None and asked.expected != holder:
        raise Refused(Code.PRODUCER_FENCED, FENCED.format(asked.transactional_id))


def _kept(current: Transaction, asked: Init, now: int) -> Transaction:
    """The transaction stays as it is, and another producer gets the right to end it."""
    id_, epoch = current.follower
    following = Producer(_fresh(asked.fresh_id), 0) if is_exhausted(epoch + 1) else Producer(id_, epoch + 1)
    return current._replace(
        next_id=following.id, next_epoch=following.epoch, previous_id=current.producer_id, updated=now
    )


def fenced(current: Transaction, now: int) -> Transaction:
    """Abort an open transaction on behalf of a new producer: the old one gets nowhere any more."""
    return _aborted(current, now, NO_EPOCH)


def timed_out(current: Transaction, now: int) -> Transaction:
    """Abort a transaction that took too long. Its producer may abort it too, and go on with the next epoch."""
    may_go_on = not is_exhausted(current.epoch) and not current.is_kept
    return _aborted(current, now, current.epoch if may_go_on else NO_EPOCH)


def _aborted(current: Transaction, now: int, last_epoch: int) -> Transaction:
    following = current.follower
    return current._replace(
        state=TransactionState.PREPARE_ABORT,
        epoch=min(current.epoch + 1, LAST_EPOCH),
        last_epoch=last_epoch,
        previous_id=current.producer_id,
        next_epoch=following.epoch + 1 if current.is_kept else NO_EPOCH,
        updated=now,
    )


# --- partitions


def check_producer(current: Transaction, transactional_id: str, producer: Producer) -> None:
    """Refuse what another producer than the one of the transaction asks."""
    holder = current.follower
    if producer.id != holder.id:
        raise Refused(
            Code.INVALID_PRODUCER_ID_MAPPING, OTHER_PRODUCER.format(transactional_id, holder.id, producer.id)
        )
    if producer.epoch != holder.epoch:
        raise Refused(Code.PRODUCER_FENCED, FENCED.format(transactional_id))


def added(current: Transaction, asked: Add, now: int) -> Transaction:
    """The transaction with these partitions: one that is open, or a new one."""
    if current.is_kept:
        raise Refused(Code.INVALID_TXN_STATE, KEPT.format(asked.transactional_id))
    if current.state is TransactionState.ONGOING and asked.partitions <= current.partitions:
        return current
    is_open = current.state is TransactionState.ONGOING
    return current._replace(
        state=TransactionState.ONGOING,
        partitions=current.partitions | asked.partitions if is_open else asked.partitions,
        started=current.started if is_open else now,
        updated=now,
        previous_id=current.producer_id,
        version=asked.version,
    )


# --- the end


def ended(current: Transaction, asked: End, now: int) -> Transaction:
    """The transaction with its outcome decided; the same value where it was decided so before."""
    bumps = asked.version >= EPOCH_A_TRANSACTION
    if current.state is not TransactionState.ONGOING and (
        _is_repeated(current, asked) if bumps else _is_over(current)
    ):
        _check_producer_of_end(current, asked, is_repeated=bumps)
        return _as_decided(current, asked)
    check_producer(current, asked.transactional_id, asked.producer)
    if current.state is not TransactionState.ONGOING and (asked.commit or not bumps):
        raise Refused(Code.INVALID_TXN_STATE, NOTHING_OPEN.format(asked.transactional_id))
    return _decided(current, asked, bumps, now)


def _is_repeated(current: Transaction, asked: End) -> bool:
    """Whether the producer asks for the end of the transaction that was ended last."""
    ending, following = current.state.is_ending, current.follower
    if asked.producer.epoch != current.last_epoch:
        return False
    if asked.producer.id == following.id:
        return asked.producer.epoch + 1 == following.epoch
    before = current.producer_id if ending else current.previous_id
    return asked.producer.id == before and following.epoch == 0 and is_exhausted(asked.producer.epoch)


def _is_over(current: Transaction) -> bool:
    return current.state is not TransactionState.EMPTY


def _check_producer_of_end(current: Transaction, asked: End, *, is_repeated: bool) -> None:
    if not is_repeated:
        check_producer(current, asked.transactional_id, asked.producer)


def _as_decided(current: Transaction, asked: End) -> Transaction:
    committed = current.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if committed == asked.commit:
        return current
    if asked.commit and asked.version >= EPOCH_A_TRANSACTION:
        raise Refused(Code.TRANSACTION_ABORTABLE, TIMED_OUT.format(asked.transactional_id))
    was = "committed" if committed else "aborted"
    raise Refused(Code.INVALID_TXN_STATE, DIFFERENT_END.format(asked.transactional_id, was))


def _decided(current: Transaction, asked: End, bumps: bool, now: int) -> Transaction:
    """The outcome of an open transaction, or of one without records, which is aborted for its epoch alone."""
    is_kept, is_open = current.is_kept, current.state is TransactionState.ONGOING
    holder = current.follower
    next_id, next_epoch = NO_ID, NO_EPOCH
    if is_kept:
        next_id, next_epoch = holder.id, holder.epoch + 1 if bumps else holder.epoch
    elif bumps and is_exhausted(current.epoch):
        next_id, next_epoch = _fresh(asked.fresh_id), 0
    decided = current._replace(
        state=TransactionState.PREPARE_COMMIT if asked.commit else TransactionState.PREPARE_ABORT,
        epoch=current.epoch + 1 if bumps or is_kept else current.epoch,
        last_epoch=holder.epoch if bumps else current.last_epoch,
        previous_id=current.producer_id,
        next_id=next_id,
        next_epoch=next_epoch,
        partitions=current.partitions if is_open else frozenset(),
        started=current.started if is_open else now,
        updated=now,
        version=asked.version,
    )
    return decided if decided.partitions else completed(decided, now)


def completed(current: Transaction, now: int) -> Transaction:
    """Every partition has the marker."""
    following = current.follower
    is_commit = current.state is TransactionState.PREPARE_COMMIT
    return current._replace(
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        producer_id=following.id,
        epoch=following.epoch,
        previous_id=current.producer_id,
        next_id=NO_ID,
        next_epoch=NO_EPOCH,
        partitions=frozenset(),
        updated=now,
    )


def is_late(transaction: Transaction, now: int) -> bool:
    """Whether a transaction has been open for longer than its producer allowed."""
    if (
        transaction.state is not TransactionState.ONGOING
        or transaction.is_two_phase
        or transaction.started == NO_TIME
    ):
        return False
    return now >= transaction.started + transaction.timeout_ms


def is_forgotten(transaction: Transaction, kept_ms: int, now: int) -> bool:
    """Whether a transactional id was unused for long enough to go."""
    is_idle = transaction.state is not TransactionState.ONGOING and not transaction.state.is_ending
    return is_idle and now >= transaction.updated + kept_ms


def _fresh(producer_id: int) -> int:
    if producer_id == NO_ID:
        raise IdNeeded
    return producer_id

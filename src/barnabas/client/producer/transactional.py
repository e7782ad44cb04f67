"""What people do with transactions: a part of Producer, which needs a transactional_id for it.

    with Producer(transactional_id="copier-1") as producer:
        with producer.transaction() as transaction:
            transaction.send("orders", b"paid")
            transaction.send_offsets(consumer)

The block commits where it ends, and aborts where it raises. Always holds: with `isolation_level="read_committed"` all
that was sent in a block is seen, and the offsets with it, or nothing is.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from reprlib import Repr
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from barnabas.client.declared import ProducerSettings
from barnabas.client.group_offsets import GroupMetadata, GroupOffsets, NextOffset, Reader
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.batches import Sent
from barnabas.client.producer.sent_table import SentTable
from barnabas.client.producer.transaction import Phase, Transactions
from barnabas.client.producer.transaction_questions import PreparedTransaction
from barnabas.client.producer.transactor import Transactor
from barnabas.client.serializers import GivenHeaders
from barnabas.client.settings import Long, can_be_written, checked, sound
from barnabas.errors import BarnabasError, TransactionAbortable, TransactionAborted
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.producer.producer import Producer

_LONGEST_ID = 32_767
"""What the older encodings of a name can hold."""
_short = Repr()
_ENDING = (Phase.COMMITTING, Phase.ABORTING)


class Transactional:
    """The transactions of a Producer."""

    _transactor: Transactor | None
    _accumulator: Accumulator
    _lock: RLock
    _max_block: float

    @checked
    def init_transactions(
        self, *, keep_prepared: bool = False, timeout: float | None = None
    ) -> PreparedTransaction | None:
        """Become the one producer with this transactional id: earlier ones are fenced, what they left open is aborted.

        The first transaction does it where it is not done before. With `keep_prepared` a transaction that is open
        stays open, to be committed, aborted or completed; it is returned.
        """
        transactor = self._for_transactions()
        machine = transactor.machine
        with self._lock:
            machine.init(keep_prepared=keep_prepared)
        seconds = self._max_block if timeout is None else timeout
        transactor.wait_until(lambda: machine.phase is not Phase.STARTING, seconds, "Initialising")
        machine.raise_failure("The producer cannot be initialised")
        machine.version = transactor.version  # of what is kept: it may be ended now
        return machine.prepared

    def begin_transaction(self) -> None:
        """Open a transaction: from now on records can be sent."""
        transactor = self._for_transactions()
        if transactor.machine.phase in (Phase.NEW, Phase.STARTING):
            self.init_transactions()
        with self._lock:
            transactor.machine.begin(transactor.version)

    def transaction(self) -> "OpenTransaction":
        """A transaction for a `with` block, which commits where it ends and aborts where it raises."""
        self._for_transactions()
        return OpenTransaction(self)  # type: ignore[arg-type]

    @checked
    def commit_transaction(self, timeout: float | None = None) -> None:
        """Store what was sent, and let it count. TransactionAbortable where it cannot: then abort.

        TimedOut after `timeout` seconds (max.block.ms): it is still being committed, call again to wait on.
        """
        self._end(commits=True, timeout=timeout)

    @checked
    def abort_transaction(self, timeout: float | None = None) -> None:
        """Let nothing count of what was sent; what is not stored yet is given up. Also after TransactionAbortable."""
        self._end(commits=False, timeout=timeout)

    @checked
    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Store what was sent, and leave its end to be decided: by this producer, or a later one with the same id.

        Write down what this gives where the decision is made. Needs transaction_two_phase_commit_enable.
        """
        transactor = self._for_transactions()
        machine = transactor.machine
        with self._lock:
            machine.prepare()
            self._accumulator.shut()
        with self._in_a_hurry():
            transactor.wait_until(
                lambda: machine.phase is not Phase.PREPARING,
                self._max_block if timeout is None else timeout,
                "Preparing the transaction",
            )
        machine.raise_failure("The transaction cannot be prepared")
        if machine.prepared is None:
            raise BarnabasError("The transaction was ended while it was being prepared.")
        return machine.prepared

    @checked
    def complete_transaction(self, prepared: PreparedTransaction | str, timeout: float | None = None) -> bool:
        """End a prepared transaction: commit it if it is this one, which was decided on, or else abort it.

        Says whether it is committed; True also where no transaction is open any more: it was ended before.
        """
        decided = PreparedTransaction.parse(prepared) if isinstance(prepared, str) else prepared
        machine = self._for_transactions().machine
        if machine.phase is Phase.READY:
            return True
        commits = machine.prepared == decided
        if machine.phase not in (Phase.PREPARED, *_ENDING):
            raise BarnabasError(f"The transaction cannot be completed: {machine.phase.value}.")
        self._end(commits=commits, timeout=timeout)
        return commits

    def send_offsets(
        self,
        read: Mapping[TopicPartition, int | NextOffset] | Reader,
        group: str | GroupMetadata | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit, with the transaction, what a consumer has given so far; or these offsets of next records.

        Offsets come with their group: its name, or better the `group_metadata()` of the consumer, by which the group
        refuses what comes from a member that it has gone on without.
        """
        transactor = self._for_transactions()
        member, offsets = _given(read, group) if isinstance(read, Mapping) else offsets_of(read)
        with self._lock:
            wish = transactor.machine.add_offsets(member, offsets)
        seconds = self._max_block if timeout is None else timeout
        transactor.wait_until(lambda: wish.is_done, seconds, "Sending offsets")
        if wish.failure is not None:
            transactor.machine.raise_failure("The offsets were not taken")
            raise wish.failure

    def _for_transactions(self) -> Transactor:
        if self._transactor is None:
            raise BarnabasError("Transactions need a transactional_id: give the producer one of its own.")
        self._refuse_if_gone()
        self._refuse_to_wait()
        return self._transactor

    def _end(self, *, commits: bool, timeout: float | None) -> None:
        transactor = self._for_transactions()
        machine = transactor.machine
        seconds = self._max_block if timeout is None else timeout
        with self._lock:
            machine.end(commits=commits)
            self._accumulator.shut()
            if not commits:
                self._accumulator.drop_waiting(TransactionAborted("The transaction was aborted."))
        with self._in_a_hurry():
            what = "Committing the transaction" if commits else "Aborting the transaction"
            transactor.wait_until(lambda: machine.phase not in _ENDING, seconds, what)
        if transactor.sender is not None:
            transactor.sender.forget_failures()  # what is wrong is told here
        machine.raise_failure(
            "The transaction is not committed" if commits else "The transaction cannot be aborted"
        )

    @contextmanager
    def _in_a_hurry(self) -> Iterator[None]:
        """Nothing lingers meanwhile."""
        with self._lock:
            self._accumulator.flushing += 1
        try:
            yield
        finally:
            with self._lock:
                self._accumulator.flushing -= 1

    def _abort_what_is_open(self, timeout: float | None) -> None:
        """A producer that is closed leaves nothing open, so that no reader waits for its timeout."""
        transactor = self._transactor
        if transactor is not None and transactor.machine.is_open:
            try:
                self._end(commits=False, timeout=timeout)
            except BarnabasError:
                return  # the coordinator aborts it, in time

    if TYPE_CHECKING:

        def _refuse_if_gone(self) -> None: ...
        def _refuse_to_wait(self) -> None: ...


class OpenTransaction:
    """A transaction in a `with` block: what is sent in it counts together, or not at all."""

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer

    @property
    def _machine(self) -> Transactions:
        return self._producer._for_transactions().machine

    def __enter__(self) -> "OpenTransaction":
        self._producer.begin_transaction()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._abort_after(error)
        elif self._machine.is_open or self._machine.phase is Phase.COMMITTING:
            try:
                self.commit()
            except TransactionAbortable as why:
                self._abort_after(why)
                raise

    def _abort_after(self, error: BaseException) -> None:
        """What the block raised is the better story, unless it says no more than that there is to abort."""
        try:
            if self._machine.is_open:
                self.abort()
        except BarnabasError as why:
            if isinstance(error, TransactionAbortable):
                raise why from error
            error.add_note(f"The transaction could not be aborted either: {why}")

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Sent:
        """As `Producer.send`."""
        return self._producer.send(topic, value, key, headers, partition, timestamp)

    def send_table(self, topic: str, table: Any, **columns: str | None) -> SentTable:
        """As `Producer.send_table`."""
        return self._producer.send_table(topic, table, **columns)  # type: ignore[arg-type]

    def send_offsets(
        self,
        read: Mapping[TopicPartition, int | NextOffset] | Reader,
        group: str | GroupMetadata | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """As `Producer.send_offsets`."""
        self._producer.send_offsets(read, group, timeout=timeout)

    def commit(self, timeout: float | None = None) -> None:
        """Before the block ends: as `Producer.commit_transaction`."""
        self._producer.commit_transaction(timeout)

    def abort(self, timeout: float | None = None) -> None:
        """Let nothing count, without an error."""
        self._producer.abort_transaction(timeout)

    def prepare(self, timeout: float | None = None) -> PreparedTransaction:
        """As `Producer.prepare_transaction`: the block then leaves the transaction as it is."""
        return self._producer.prepare_transaction(timeout)


def offsets_of(read: Any) -> GroupOffsets:
    """What a consumer has given so far."""
    offsets_to_send = getattr(read, "offsets_to_send", None)
    if offsets_to_send is None:
        raise BarnabasError(f"Offsets are a consumer's, or a mapping of partitions to offsets, not {read!r}.")
    found: GroupOffsets = offsets_to_send()
    return found


def _given(read: Mapping[Any, Any], group: object) -> GroupOffsets:
    member = GroupMetadata(group) if isinstance(group, str) else group
    if not isinstance(member, GroupMetadata):
        raise BarnabasError("Offsets are sent for a group: give its name, or a consumer's group_metadata().")
    plain = {where: at[0] if isinstance(at, NextOffset) else at for where, at in read.items()}
    sound("send_offsets: read", Mapping[TopicPartition, Long], plain)
    return GroupOffsets(
        member,
        {
            TopicPartition(*where): at if isinstance(at, NextOffset) else NextOffset(at)
            for where, at in read.items()
        },
    )


def transactions_of(settings: ProducerSettings, *, can_be: bool) -> Transactions | None:
    """The machine that the settings of a producer ask for; None without a transactional id."""
    name = settings["transactional_id"]
    if name is None:
        if settings["transaction_two_phase_commit_enable"]:
            raise BarnabasError("transaction_two_phase_commit_enable needs a transactional_id.")
        return None
    if not can_be:
        raise BarnabasError(
            "Transactions need idempotence: acks=all, retries, and no more than 5 requests in flight."
        )
    if not name or len(name.encode(errors="replace")) > _LONGEST_ID or not can_be_written(name):
        raise BarnabasError(
            f"transactional_id is a name of 1 to {_LONGEST_ID:,} bytes of UTF-8, not {_short.repr(name)}."
        )
    return Transactions(
        name,
        timeout_ms=settings["transaction_timeout_ms"],
        is_two_phase=settings["transaction_two_phase_commit_enable"],
        retry_backoff=settings["retry_backoff_ms"] / 1000,
    )

"""The records of `__transaction_state`, in Kafka's own formats: each transactional id, and what is known of it.

Made and applied by the machines of this package; the broker turns them into bytes and back. We write version 1, as
Kafka does with transaction.version 1 and up, and read version 0 too. A record without a value says that the id is
forgotten.
"""

from dataclasses import dataclass
from struct import Struct, error
from typing import Annotated, ClassVar, NamedTuple

from barnabas.coordinator.transactions.transaction import (
    NO_EPOCH,
    NO_ID,
    TopicIndex,
    Transaction,
    TransactionState,
)
from barnabas.types import Buffer
from barnabas.wire.apis import NO_VERSION, Versions
from barnabas.wire.codec import Malformed, decoder, encoder
from barnabas.wire.schema import Int8, Int16, Int32, Int64, Since, String, Tag

_PREFIX = Struct(">h")
_WRITTEN = 1
_OWN_TAG = 10_000
"""Tags from here on are ours alone: Kafka passes over them."""


@dataclass(frozen=True, slots=True)
class TransactionKey:
    versions: ClassVar[Versions] = Versions(0, 0, NO_VERSION)

    transactional_id: Annotated[str, String] = ""


@dataclass(frozen=True, slots=True)
class TransactionPartitions:
    topic: Annotated[str, String] = ""
    partition_ids: Annotated[tuple[int, ...], Int32] = ()


@dataclass(frozen=True, slots=True)
class TransactionValue:
    versions: ClassVar[Versions] = Versions(0, 1, 1)

    producer_id: Annotated[int, Int64] = 0
    previous_producer_id: Annotated[int, Int64, Tag(0), Since(1)] = NO_ID
    next_producer_id: Annotated[int, Int64, Tag(1), Since(1)] = NO_ID
    producer_epoch: Annotated[int, Int16] = 0
    transaction_timeout_ms: Annotated[int, Int32] = 0
    transaction_status: Annotated[int, Int8] = 0
    transaction_partitions: tuple[TransactionPartitions, ...] | None = None
    transaction_last_update_timestamp_ms: Annotated[int, Int64] = 0
    transaction_start_timestamp_ms: Annotated[int, Int64] = 0
    client_transaction_version: Annotated[int, Int16, Tag(2), Since(1)] = 0
    next_producer_epoch: Annotated[int, Int16, Tag(3), Since(1)] = NO_EPOCH
    last_producer_epoch: Annotated[int, Int16, Tag(_OWN_TAG), Since(1)] = NO_EPOCH
    """Kafka forgets it with the coordinator, and then fences a producer that only asks once more."""


class TransactionRecord(NamedTuple):
    """A transactional id and what is known of it; None forgets it."""

    transactional_id: str
    transaction: Transaction | None = None


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The bytes of key and value. Raises Malformed where a field cannot carry what it was given."""
    transactional_id, transaction = record
    key = bytearray(_PREFIX.pack(0))
    encoder(TransactionKey, 0)(TransactionKey(transactional_id), key)
    if transaction is None:
        return bytes(key), None
    value = bytearray(_PREFIX.pack(_WRITTEN))
    encoder(TransactionValue, _WRITTEN)(_value(transaction), value)
    return bytes(key), bytes(value)


def decode(key: Buffer, value: Buffer | None) -> TransactionRecord | None:
    """The record of these bytes; None for a kind of key that we do not know."""
    if _prefix(key) != 0:
        return None
    transactional_id = decoder(TransactionKey, 0)(key, 2).transactional_id
    if value is None:
        return TransactionRecord(transactional_id)
    version = _prefix(value)
    if not TransactionValue.versions.speaks(version):
        raise Malformed(f"version {version} of a transaction's value")
    return TransactionRecord(transactional_id, _transaction(decoder(TransactionValue, version)(value, 2)))


def _value(transaction: Transaction) -> TransactionValue:
    partitions = None if transaction.state is TransactionState.EMPTY else _by_topic(transaction.partitions)
    return TransactionValue(
        transaction.producer_id,
        transaction.previous_id,
        transaction.next_id,
        transaction.epoch,
        transaction.timeout_ms,
        transaction.state,
        partitions,
        transaction.updated,
        transaction.started,
        transaction.version,
        transaction.next_epoch,
        transaction.last_epoch,
    )


def _transaction(value: TransactionValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise Malformed(f"state {value.transaction_status} of a transaction") from None
    return Transaction(
        state,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        value.last_producer_epoch,
        value.previous_producer_id,
        value.next_producer_id,
        value.next_producer_epoch,
        frozenset(
            (each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.client_transaction_version,
    )


def _by_topic(partitions: frozenset[TopicIndex]) -> tuple[TransactionPartitions, ...]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return tuple(TransactionPartitions(topic, tuple(indexes)) for topic, indexes in found.items())


def _prefix(buffer: Buffer) -> int:
    try:
        (number,) = _PREFIX.unpack_from(buffer)
    except error as problem:
        raise Malformed("a key or value of less than two bytes") from problem
    return int(number)

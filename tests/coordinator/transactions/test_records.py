"""The bytes of `__transaction_state`: what is written is read back, and what Kafka has written is understood."""

import pytest

from barnabas.coordinator.transactions.records import TransactionRecord, decode, encode
from barnabas.coordinator.transactions.transaction import Transaction, TransactionState
from barnabas.wire.codec import Malformed

KEY = bytes.fromhex("00000004") + b"id-1"
VERSION_0 = bytes.fromhex(
    "0000"  # version
    "0000000000000007"  # producer id
    "0003"  # epoch
    "0000ea60"  # timeout
    "01"  # Ongoing
    "00000001"
    "0001"
    "61"  # topic a
    "00000002"
    "00000000"
    "00000005"  # its partitions
    "0000000000000064"  # updated
    "0000000000000032"  # started
)

FULL = Transaction(
    TransactionState.PREPARE_COMMIT,
    7,
    3,
    60_000,
    100,
    last_epoch=2,
    previous_id=6,
    next_id=8,
    next_epoch=0,
    partitions=frozenset({("a", 0), ("a", 5), ("b", 1)}),
    started=50,
    version=2,
)


@pytest.mark.parametrize(
    "transaction",
    [
        None,
        FULL,
        Transaction(TransactionState.EMPTY, 7, 0, 60_000, 100),
        FULL._replace(partitions=frozenset()),
    ],
)
def test_what_is_written_is_read_back(transaction: Transaction | None) -> None:
    record = TransactionRecord("id-1", transaction)
    key, value = encode(record)
    assert key == KEY
    assert decode(key, value) == record


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    _, value = encode(TransactionRecord("id-1", Transaction(TransactionState.EMPTY, 7, 3, 60_000, 100)))
    assert value is not None
    assert value[2 + 8 + 2 + 4 + 1] == 0  # null, as Kafka writes it


def test_the_first_version_is_read() -> None:
    record = decode(KEY, VERSION_0)
    partitions = frozenset({("a", 0), ("a", 5)})
    expected = Transaction(TransactionState.ONGOING, 7, 3, 60_000, 100, partitions=partitions, started=50)
    assert record == TransactionRecord("id-1", expected)


def test_another_kind_of_key_is_passed_over() -> None:
    assert decode(b"\0\1" + KEY[2:], None) is None


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\2" + VERSION_0[2:], VERSION_0[:16] + b"\x09" + VERSION_0[17:]]
)
def test_what_makes_no_sense_is_refused(value: bytes) -> None:
    with pytest.raises(Malformed):
        decode(KEY, value)


def test_every_state_has_the_name_that_kafkas_tools_show() -> None:
    assert [state.shown for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]

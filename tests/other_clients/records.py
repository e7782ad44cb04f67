"""Owns the records that clients write and must read back equal. The same seed gives the same records."""

import random

from tests.other_clients.adapters.adapter import Record

# A fixed past hour: inside every retention that the tests set, and the same in each run.
FIRST_MS = 1_750_000_000_000
STEP_MS = 10


def some_records(count: int, seed: int = 1) -> list[Record]:
    """Records of every shape: no key, empty and null values, odd headers, large values."""
    chance = random.Random(seed)
    return [_record(index, chance) for index in range(count)]


def _record(index: int, chance: random.Random) -> Record:
    key = None if index % 11 == 3 else b"key-%d" % (index % 97)
    return Record(key, _value(index, chance), _headers(index), FIRST_MS + index * STEP_MS)


def _value(index: int, chance: random.Random) -> bytes | None:
    if index % 13 == 5 and index % 11 != 3:  # aiokafka writes no record without both key and value
        return None
    if index % 17 == 7:
        return b""
    if index % 1000 == 500:
        return chance.randbytes(20_000)
    return b"value %d " % index + b"again and " * (index % 9) + chance.randbytes(index % 23)


def _headers(index: int) -> tuple[tuple[str, bytes], ...]:
    if index % 3 == 0:
        return ()
    if index % 3 == 1:
        return (("trace", b"%032x" % index),)
    return (("twice", b"first"), ("twice", b""), ("café", bytes(range(index % 40))))

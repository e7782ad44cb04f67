"""Promises of client/partitioner.py."""

import pytest
from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.partitioner import StickyTurns, murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=50))
def test_the_hash_is_that_of_other_clients(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 100))
def test_a_partition_is_among_those_there_are(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions


def test_turns_stick_until_they_move_on() -> None:
    turns = StickyTurns()
    seen = []
    for _ in range(4):
        seen += [turns.current("t", 3), turns.current("t", 3)]
        turns.move_on("t")
    assert seen == [0, 0, 1, 1, 2, 2, 0, 0]

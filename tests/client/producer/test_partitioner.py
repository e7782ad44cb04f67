"""Promises of client/partitioner.py."""

import pytest
from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.partitioner import KeyedPartitions, murmur2, partition_of


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


def test_a_key_that_comes_again_goes_where_it_went() -> None:
    keyed = KeyedPartitions()
    keys = [b"%d" % number for number in range(70_000)]
    first = [keyed.partition_of(key, 7) for key in keys]
    assert first == [partition_of(key, 7) for key in keys]
    assert [keyed.partition_of(key, 7) for key in keys[-100:]] == first[-100:]
    assert keyed.partition_of(keys[0], 3) == partition_of(keys[0], 3)

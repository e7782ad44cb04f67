"""Promises of client/columns/interleave.py: pieces of any length, from any arrays, lie row by row, in order."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.columns.interleave import pieces, same, weave
from barnabas.client.columns.table_slices import Pieces

SOME = st.none() | st.sampled_from([0, 1, 11, 12, 13, 14, 100]).map(lambda size: bytes(range(size)))


def woven(columns: list[pa.Array], order: list[int]) -> list[bytes]:
    strands = [pieces(Pieces(column)).of(np.array(order, np.int64)) for column in columns]
    whole, places = weave([*strands, same(b"|")], len(order))
    row = len(columns) + 1
    return [bytes(whole)[first:end] for first, end in pairwise(places[::row])]


@given(rows=st.lists(st.tuples(SOME, SOME, SOME), min_size=1, max_size=20), data=st.data())
@settings(max_examples=200, deadline=None)
def test_rows_are_woven_in_any_order(
    rows: list[tuple[bytes | None, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    columns = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    expected = [b"".join(piece or b"" for piece in rows[row]) + b"|" for row in order]
    assert woven(columns, order) == expected


def test_a_part_of_an_array_is_woven_as_if_it_were_alone() -> None:
    column = pa.array([b"%d" % row * 9 for row in range(100)] + [None, b""], pa.binary())
    assert woven([column.slice(98)], [0, 1, 2, 3]) == [b"98" * 9 + b"|", b"99" * 9 + b"|", b"|", b"|"]


def test_views_of_a_part_take_no_more_than_the_part() -> None:
    """Arrow makes views of all rows before a part too: for a large table in slices that is the square of its rows."""
    part = pa.array([b"x"] * 100_000, pa.binary()).slice(99_990)
    before = pa.total_allocated_bytes()
    strand = pieces(Pieces(part))
    assert len(strand.first) == 10
    assert pa.total_allocated_bytes() - before < 10_000


def test_bytes_behind_a_null_are_not_woven() -> None:
    offsets = pa.py_buffer(np.array([0, 20, 40], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"s" * 40)])
    assert column.to_pylist() == [None, b"s" * 20]
    assert woven([column], [0, 1]) == [b"|", b"s" * 20 + b"|"]

"""What can be said of many rows in one value: Spark's own functions, under short names. Used in `aggregate(...)`.

The names are those of Python's built-ins on purpose, as in `from barnabas.streams import count, sum`.
"""

from typing import TypeAlias

from pyspark.sql import Column, functions

Columnar: TypeAlias = Column | str
"""A column by name, or an expression of columns."""


def count(column: Columnar | None = None) -> Column:
    """How many rows; with a column, how many in which it is not null."""
    return functions.count(functions.lit(1) if column is None else column)


def sum(column: Columnar) -> Column:
    return functions.sum(column)


def avg(column: Columnar) -> Column:
    return functions.avg(column)


def min(column: Columnar) -> Column:
    return functions.min(column)


def max(column: Columnar) -> Column:
    return functions.max(column)


def first(column: Columnar) -> Column:
    """The first value that is not null, in the order in which rows arrive."""
    return functions.first(column, ignorenulls=True)


def last(column: Columnar) -> Column:
    """The last value that is not null, in the order in which rows arrive."""
    return functions.last(column, ignorenulls=True)


def approx_count_distinct(column: Columnar) -> Column:
    """How many different values, to within 5 %: an exact count is not possible on a stream."""
    return functions.approx_count_distinct(column)


def collect(column: Columnar) -> Column:
    """All values as a list; they are kept in memory until their window is over."""
    return functions.collect_list(column)

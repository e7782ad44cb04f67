"""Rows of a database table, the new ones by a column that only grows."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.connect.connector import Json, PolledSource, Step, connector
from barnabas.connect.database import Database, told_plainly
from barnabas.connect.option import ConnectError, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHOLE = frozenset({-6, 5, 4, -5, 2, 3})
"""java.sql.Types that hold whole numbers: TINYINT, SMALLINT, INTEGER, BIGINT, NUMERIC, DECIMAL."""
_NUMBER = re.compile(r"-?\d+")


@connector("jdbc")
@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource(Database, PolledSource):
    """Rows of a table: those that were added since the last look, by a column whose values only grow."""

    table: str = option(
        "The table, or a query in parentheses with a name: `(select ...) as t`.", example="orders"
    )
    increasing: str = option(
        "The column whose values only grow, and differ: an id or a sequence. A row that is committed after one with "
        "a greater value is not seen.",
        example="id",
    )
    start: str = option("Take only rows whose increasing column is greater than this.", "")
    max_rows: int = option("How many rows a batch takes at most.", 100_000, least=1)
    parallel: int = option(
        "Into how many parts a batch is read, where the increasing column is a number.", 1, least=1
    )

    def guarantee(self) -> str:
        return "each row once"

    def _check_file(self, file: Path) -> None:
        if not file.is_file():
            raise ConnectError(f"There is no database {file}.")

    def plan(self, spark: "SparkSession", position: Json) -> Step | None:
        column = self._driver().quoted(self.increasing)
        low = position if position is not None else self._start()
        behind = f"WHERE {column} > {_literal(low)}" if low is not None else ""
        newest = (
            f"SELECT max({column}) AS newest, count(*) AS many FROM (SELECT {column} FROM {self.table} {behind} "
            f"ORDER BY {column} LIMIT {self.max_rows}) AS behind"
        )
        with told_plainly(f"Looking for new rows of {self.table}"):
            self._load(spark)
            with self._connection(spark) as connection:
                high, rows = _first_row(connection, newest)
        if high is None:
            return None
        return Step({"from": low, "to": high, "rows": rows}, high)

    def read(self, spark: "SparkSession", plan: Json, bad: str) -> "DataFrame":
        column = self._driver().quoted(self.increasing)
        low, high = plan["from"], plan["to"]
        behind = f"{column} > {_literal(low)} AND " if low is not None else ""
        rows = f"(SELECT * FROM {self.table} WHERE {behind}{column} <= {_literal(high)}) AS planned"
        options = {**self._options(), "dbtable": rows}
        if self.parallel > 1 and isinstance(high, int):
            options |= {
                "partitionColumn": self.increasing,
                "lowerBound": str(low if isinstance(low, int) else 0),
                "upperBound": str(high),
                "numPartitions": str(self.parallel),
            }
        with told_plainly(f"Reading {self.table}"):
            self._load(spark)
            return spark.read.format("jdbc").options(**options).load()

    def _start(self) -> Json:
        if not self.start:
            return None
        try:
            return int(self.start)
        except ValueError:
            return self.start


def _literal(value: Json) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("'", "''")
    return f"'{escaped}'"


def _first_row(connection: Any, query: str) -> tuple[Json, int]:
    """A position, as JSON can keep it, and a count. Asked without Spark: that takes milliseconds."""
    statement = connection.createStatement()
    found = statement.executeQuery(query)
    found.next()
    text, kind, count = found.getString(1), found.getMetaData().getColumnType(1), found.getInt(2)
    statement.close()
    return (int(text) if text is not None and kind in _WHOLE and _NUMBER.fullmatch(text) else text), count

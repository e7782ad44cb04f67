"""Rows into a database table, each batch exactly once.

A batch goes to a table of its own first, through Spark; then one transaction takes it over, notes its id in
`barnabas_batches`, and drops it. A batch that comes again finds its id there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.connect.connector import Batch, Sink, connector
from barnabas.connect.database import Database, told_plainly
from barnabas.connect.option import ConnectError, option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCHES = "barnabas_batches"
_TYPES = {
    "string": "TEXT",
    "tinyint": "SMALLINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
}
_REMEMBERED = 100
"""Only the newest batch can come again; some more stay for people to look at."""


@connector("jdbc")
@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSink(Database, Sink):
    """Rows of a table, which is made if it is not there. With a key, a row replaces the one with the same key."""

    table: str = option("The table.", example="orders")
    key: tuple[str, ...] = option("Columns that make a row unique: rows are then updated, else inserted.", ())

    def check(self) -> None:
        # Named, because super() does not work in a class with slots that is made anew by its decorator.
        Database.check(self)
        if self.key and not self._driver().upserts:
            raise ConnectError(
                "Rows are updated by key in SQLite and PostgreSQL; leave key out for this database."
            )

    def guarantee(self) -> str:
        return "exactly once"

    def write(self, frame: "DataFrame", batch: Batch, *, keep_refused: bool = False) -> None:
        spark = frame.sparkSession
        columns = frame.columns
        for name in self.key:
            if name not in columns:
                raise ConnectError(
                    f"There is no column {name} to be a key of {self.table}; there is {columns}."
                )
        if self.key:
            frame = _newest_of_each(frame, self.key)
        staged = f"barnabas_{batch.origin}_{self._plain_table}"
        with told_plainly(f"Writing to {self.table}"):
            self._load(spark)
            with self._connection(spark) as connection:
                if self._is_there_already(connection, batch):
                    return
                _execute(connection, [f"DROP TABLE IF EXISTS {staged}", self._created(staged, frame)])
                self._stage(frame, staged)
                connection.setAutoCommit(False)
                _execute(connection, self._takeover(staged, columns, batch))
                connection.commit()

    def _is_there_already(self, connection: Any, batch: Batch) -> bool:
        columns = "origin VARCHAR(200), number BIGINT, PRIMARY KEY (origin, number)"
        _execute(connection, [f"CREATE TABLE IF NOT EXISTS {_BATCHES} ({columns})"])
        statement = connection.createStatement()
        found = statement.executeQuery(
            f"SELECT 1 FROM {_BATCHES} WHERE origin = '{self._origin(batch)}' AND number = {batch.number}"
        )
        there = bool(found.next())
        statement.close()
        return there

    @property
    def _plain_table(self) -> str:
        """The table's name as a part of others: it may have a schema before it, or quotes around it."""
        return re.sub(r"\W+", "_", self.table)

    def _origin(self, batch: Batch) -> str:
        """Two tables of a database may get the same batch."""
        return f"{batch.origin}:{self.table}"

    def _stage(self, frame: "DataFrame", staged: str) -> None:
        if self._driver().one_writer:
            frame = frame.coalesce(1)
        frame.write.format("jdbc").options(**self._options(), dbtable=staged).mode("append").save()

    def _created(self, table: str, frame: "DataFrame") -> str:
        """Made by us: Spark looks for a table in a way that not every database answers."""
        driver = self._driver()
        types = {**_TYPES, "binary": driver.bytes_type, "timestamp": driver.time_type}
        columns = []
        for name, kind in frame.dtypes:
            wanted = kind.replace("decimal", "NUMERIC") if kind.startswith("decimal") else types.get(kind)
            if wanted is None:
                raise ConnectError(
                    f"{self.table} cannot have the column {name} of {kind}: select its fields, or to_json({name})."
                )
            columns.append(f"{driver.quoted(name)} {wanted}")
        return f"CREATE TABLE {table} ({', '.join(columns)})"

    def _takeover(self, staged: str, columns: Sequence[str], batch: Batch) -> list[str]:
        quoted = self._driver().quoted
        names = ", ".join(map(quoted, columns))
        index = f"barnabas_key_{self._plain_table}"
        sql = [f"CREATE TABLE IF NOT EXISTS {self.table} AS SELECT {names} FROM {staged} WHERE 1 = 0"]
        # WHERE: without it SQLite takes ON for the condition of a join.
        insert = f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {staged} WHERE 1 = 1"
        if self.key:
            keys = ", ".join(map(quoted, self.key))
            others = [name for name in columns if name not in self.key]
            updates = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
            sql.append(f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {self.table} ({keys})")
            insert += f" ON CONFLICT ({keys}) DO " + (f"UPDATE SET {updates}" if updates else "NOTHING")
        origin = self._origin(batch)
        return [
            *sql,
            insert,
            f"INSERT INTO {_BATCHES} (origin, number) VALUES ('{origin}', {batch.number})",
            f"DELETE FROM {_BATCHES} WHERE origin = '{origin}' AND number < {batch.number - _REMEMBERED}",
            f"DROP TABLE {staged}",
        ]


def _execute(connection: Any, sql: Sequence[str]) -> None:
    statement = connection.createStatement()
    for each in sql:
        statement.executeUpdate(each)
    statement.close()


def _newest_of_each(frame: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """Of several rows with the same key in a batch the last one counts."""
    from pyspark.sql import functions

    numbered = frame.withColumn("_row", functions.monotonically_increasing_id())
    row = functions.struct(*(functions.col(f"`{name}`") for name in frame.columns))
    last = functions.max_by(row, functions.col("_row")).alias("_last")
    return numbered.groupBy(*key).agg(last).select("_last.*")

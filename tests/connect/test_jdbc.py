"""Databases that are real: rows are followed by a growing column, and written exactly once."""

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnabas.connect.connector import Batch
from barnabas.connect.jdbc_sink import JdbcSink
from barnabas.connect.jdbc_source import JdbcSource
from barnabas.connect.option import ConnectError
from tests.connect.conftest import RunFile

pytestmark = pytest.mark.java


def _sql(database: Path, *statements: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection, connection:
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = connection.execute(statement).fetchall()
        return found


def _shop(tmp_path: Path) -> Path:
    database = tmp_path / "shop.db"
    _sql(database, "CREATE TABLE orders (id INTEGER PRIMARY KEY, user TEXT, amount REAL)")
    return database


def _flow(database: Path, tmp_path: Path, extra: str = "") -> str:
    return f"""
        [source.shop]
        connector = "jdbc"
        url = "jdbc:sqlite:{database}"
        table = "orders"
        increasing = "id"
        {extra}
        [sink.copy]
        connector = "jdbc"
        url = "jdbc:sqlite:{tmp_path}/copy.db"
        table = "orders"
        key = "id"
    """


def test_new_rows_are_followed_and_the_position_outlives_the_flow(run_file: RunFile, tmp_path: Path) -> None:
    database = _shop(tmp_path)
    text = _flow(database, tmp_path, "max_rows = 2")
    _sql(database, "INSERT INTO orders VALUES (1, 'ann', 1.5), (2, 'bob', 2.5), (5, 'o''hara', NULL)")
    done = run_file(text)
    assert (done.told.batches, done.told.rows) == (2, 3)
    assert run_file(text).told.batches == 0
    _sql(database, "INSERT INTO orders VALUES (7, 'dan', 4)", "UPDATE orders SET amount = 99 WHERE id = 1")
    assert run_file(text).told.rows == 1
    copied = _sql(tmp_path / "copy.db", "SELECT id, user, amount FROM orders ORDER BY id")
    assert copied == [(1, "ann", 1.5), (2, "bob", 2.5), (5, "o'hara", None), (7, "dan", 4.0)]


def test_a_flow_that_died_in_a_batch_reads_the_same_rows_again(run_file: RunFile, tmp_path: Path) -> None:
    database = _shop(tmp_path)
    _sql(database, "INSERT INTO orders VALUES (1, 'ann', 1), (2, 'bob', 2)")
    text = _flow(database, tmp_path)
    run_file(text)
    done = tmp_path / "state" / "shop" / "steps" / "00000000.done"
    done.unlink()  # as if it had died after the sink's commit
    _sql(database, "INSERT INTO orders VALUES (3, 'cyd', 3)")
    # A sink that did not know the batch would put this back to what the source has.
    _sql(tmp_path / "copy.db", "UPDATE orders SET amount = 77 WHERE id = 1")
    again = run_file(text)
    assert again.told.batches == 2
    assert _sql(tmp_path / "copy.db", "SELECT id, amount FROM orders ORDER BY id") == [
        (1, 77.0),
        (2, 2.0),
        (3, 3.0),
    ]


def test_rows_without_a_key_are_inserted_once_a_batch(spark: Any, tmp_path: Path) -> None:
    sink = JdbcSink(url=f"jdbc:sqlite:{tmp_path}/a.db", table="log")
    rows = spark.createDataFrame([(1, "a"), (1, "a")], "id long, text string")
    for batch in (Batch("x", 0), Batch("x", 0), Batch("x", 1), Batch("y", 0)):
        sink.write(rows, batch)
    assert _sql(tmp_path / "a.db", "SELECT count(*) FROM log") == [(6,)]
    tables = {
        name for (name,) in _sql(tmp_path / "a.db", "SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert tables == {"log", "barnabas_batches"}


def test_of_rows_with_the_same_key_the_last_one_counts(spark: Any, tmp_path: Path) -> None:
    sink = JdbcSink(url=f"jdbc:sqlite:{tmp_path}/a.db", table="users", key=("id",))
    schema = "id long, name string"
    sink.write(spark.createDataFrame([(1, "a"), (2, "b"), (1, "c")], schema).coalesce(1), Batch("x", 0))
    sink.write(spark.createDataFrame([(2, "d")], schema), Batch("x", 1))
    assert _sql(tmp_path / "a.db", "SELECT id, name FROM users ORDER BY id") == [(1, "c"), (2, "d")]


def test_a_table_is_read_in_parts(spark: Any, tmp_path: Path) -> None:
    database = _shop(tmp_path)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany("INSERT INTO orders VALUES (?, 'x', 1)", [(each,) for each in range(1, 101)])
    source = JdbcSource(
        url=f"jdbc:sqlite:{database}", table="orders", increasing="id", start="10", parallel=4
    )
    step = source.plan(spark, None)
    assert step is not None
    frame = source.read(spark, step.plan, "fail")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 90


Wrong = Callable[[Path], str]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('table = "orders"\n        increasing', 'table = "oders"\n        increasing'),
            "no such table: oders",
        ),
        (('increasing = "id"', 'increasing = "nr"'), "no such column: nr"),
        (('key = "id"', 'key = "nr"'), "There is no column nr to be a key of orders"),
    ],
)
def test_a_wrong_name_is_one_sentence(
    run_file: RunFile, tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    database = _shop(tmp_path)
    _sql(database, "INSERT INTO orders VALUES (1, 'ann', 1)")
    text = _flow(database, tmp_path)
    assert change[0] in text
    with pytest.raises(ConnectError, match=sentence) as told:
        run_file(text.replace(*change))
    assert "\n" not in str(told.value)


def test_postgresql_to_postgresql(spark: Any, run_file: RunFile, postgres: str, tmp_path: Path) -> None:
    def sql(statement: str) -> list[str]:
        address = postgres.removeprefix("jdbc:").replace("//", "//barnabas@")
        asked = subprocess.run(
            ["psql", address, "-AtX", "-v", "ON_ERROR_STOP=1", "-c", statement],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return asked.stdout.split()

    sql('CREATE TABLE orders (id serial PRIMARY KEY, "user" text, at timestamptz, amount numeric(10, 2))')
    sql(
        "INSERT INTO orders (\"user\", at, amount) SELECT 'u' || n % 3, '2026-01-01', n FROM generate_series(1, 50) n"
    )
    text = f"""
        [source.orders]
        connector = "jdbc"
        url = "{postgres}"
        user = "barnabas"
        table = "orders"
        increasing = "id"
        max_rows = 30
        parallel = 2

        [sink.newest]
        connector = "jdbc"
        url = "{postgres}"
        user = "barnabas"
        table = "newest"
        key = "user"
    """
    done = run_file(text)
    assert (done.told.batches, done.told.rows) == (2, 50)
    assert sql('SELECT "user", amount FROM newest ORDER BY 1') == ["u0|48.00", "u1|49.00", "u2|50.00"]
    sql("INSERT INTO orders (\"user\", at, amount) VALUES ('u9', now(), 1)")
    assert run_file(text).told.rows == 1
    assert sql("SELECT count(*) FROM newest") == ["4"]

"""Topics of a real broker as sources and sinks of flows."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.connect.option import ConnectError
from barnabas.connect.topics import TopicSource
from barnabas.spark.installed import has_read_limits
from barnabas.streams import Stream
from tests.brokers import Brokers, serving
from tests.connect.conftest import RunFile


@pytest.fixture(scope="module")
def broker() -> Iterator[Brokers]:
    with serving() as running:
        yield running


def test_a_topic_or_a_broker_that_is_not_there_is_one_sentence(broker: Brokers) -> None:
    with pytest.raises(ConnectError, match=f"There is no topic nosuch at {broker.bootstrap}"):
        TopicSource(topic=("nosuch",), bootstrap=broker.bootstrap).check()
    with pytest.raises(ConnectError, match=r"No broker answers at 127\.0\.0\.1:9 "):
        TopicSource(topic=("nosuch",), bootstrap="127.0.0.1:9").check()


@pytest.mark.java
def test_from_a_database_through_a_topic_to_a_database(
    spark: Any, run_file: RunFile, broker: Brokers, tmp_path: Path
) -> None:
    with Admin(broker.bootstrap) as admin:
        for topic in ("orders", "dead"):
            admin.create_topic(topic, partitions=2)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, user TEXT)")
        shop.executemany(
            "INSERT INTO orders VALUES (?, ?)", [(number, f"u{number % 3}") for number in range(1, 10)]
        )
    run_file(
        f"""
        bootstrap = "{broker.bootstrap}"
        [source.shop]
        connector = "jdbc"
        url = "jdbc:sqlite:{tmp_path}/shop.db"
        table = "orders"
        increasing = "id"
        [sink.orders]
        connector = "topic"
        topic = "orders"
        key = "user"
        """,
        checkpoint="there",
    )
    # Somebody else writes to the topic too, and not what was agreed on.
    Stream.of(spark.createDataFrame([("no json",)], "value string")).to_topic(
        "orders", bootstrap=broker.bootstrap, value="value"
    ).run()
    back = f"""
        bootstrap = "{broker.bootstrap}"
        [source.orders]
        connector = "topic"
        topic = "orders"
        schema = "id long, user string"
        keep = ["key", "offset"]
        {"max_records = 4" if has_read_limits() else ""}
        [sink.copy]
        connector = "jdbc"
        url = "jdbc:sqlite:{tmp_path}/copy.db"
        table = "copy"
        key = "id"
        [sink.letters]
        connector = "topic"
        topic = "dead"
        [flow.back]
        source = "orders"
        sinks = ["copy"]
        dead_letters = "letters"
    """
    done = run_file(back, checkpoint="back")
    assert done.told.rows == 10
    assert (done.told.batches > 1) == has_read_limits()
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        found = copy.execute("SELECT id, user, key FROM copy ORDER BY id").fetchall()
    assert found == [(number, f"u{number % 3}", f"u{number % 3}") for number in range(1, 10)]
    dead = Stream.from_topic(spark, "dead", bootstrap=broker.bootstrap, streaming=False).dataframe
    (letter,) = [json.loads(bytes(row.value)) for row in dead.select("value").collect()]
    assert letter == {"value": "no json", "reason": "it does not fit the schema", "flow": "back"}
    assert run_file(back, checkpoint="back").told.rows == 0

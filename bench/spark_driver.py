"""Spark in a process of its own: reads one task a line (JSON), answers with the seconds it took. Both connectors.

Started by bench/workloads/spark.py as `python -m bench.spark_driver ours|plain BOOTSTRAP JAR...`: a session of ours, or
one as anybody would build it. A session that is warm stays warm: every task of a run goes through the same one,
whichever connector it asks for.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from barnabas.spark import register
from barnabas.spark.checkpoints import start_query
from barnabas.spark.session import start_session

LIMIT_S = 600


class Tasks:
    """What can be measured; each returns how many rows it has seen, to be compared with what was wanted."""

    def __init__(self, spark: Any, bootstrap: str, *, plain: bool) -> None:
        self._spark = spark
        self._plain = plain
        self._bootstrap = bootstrap
        self._table: tuple[tuple[int, int], Any] | None = None

    def read(self, connector: str, topic: str) -> int:
        row = (
            self._load(connector, topic)
            .selectExpr("count(*)", "sum(length(value))", "max(timestamp)")
            .first()
        )
        return int(row[0])

    def slice(self, connector: str, topic: str, since_ms: int, before_ms: int) -> int:
        times = {"startingTimestamp": str(since_ms), "endingTimestamp": str(before_ms)}
        return int(
            self._load(connector, topic, **times).selectExpr("count(*)", "sum(length(value))").first()[0]
        )

    def stream(self, connector: str, topic: str, each: int) -> int:
        source = self._spark.readStream.format(connector).options(**self._reading(topic))
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", each)
        checkpoint = tempfile.mkdtemp(prefix="barnabas-bench-")
        try:
            # Whoever reads looks at the values: a sink that does not would leave them undecoded.
            looked_at = source.load().where("length(value) >= 0")
            sink = looked_at.writeStream.format("noop").trigger(availableNow=True)
            if self._plain:
                query = sink.option("checkpointLocation", checkpoint).start()
            else:
                query = start_query(self._spark, sink, checkpoint)
            if not query.awaitTermination(LIMIT_S):
                query.stop()
            return sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def write(self, connector: str, topic: str, rows: int, size: int) -> int:
        writer = self._rows(rows, size).write.format(connector).mode("append")
        writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic).save()
        return rows

    def prepare(self, rows: int, size: int) -> int:
        """Rows in memory, so that making them is not what is measured."""
        return int(self._rows(rows, size).count())

    def _rows(self, rows: int, size: int) -> Any:
        if self._table is None or self._table[0] != (rows, size):
            if self._table is not None:
                self._table[1].unpersist()
            value = f"concat(lpad(string(id), 10, '0'), repeat('x', {size - 10}))"
            table = self._spark.range(0, rows, 1, 2).selectExpr(f"cast({value} as binary) as value").cache()
            self._table = (rows, size), table
        return self._table[1]

    def _load(self, connector: str, topic: str, **more: str) -> Any:
        return self._spark.read.format(connector).options(**self._reading(topic), **more).load()

    def _reading(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}


def plain_session(jars: tuple[str, ...]) -> Any:
    """What a person has who cannot let us start the session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    return builder.config("spark.jars", ",".join(jars)).getOrCreate()


def main(which: str, bootstrap: str, *jars: str) -> None:
    log = Path(tempfile.gettempdir()) / f"barnabas-bench-spark-{os.getpid()}.log"
    settings = {"spark.driver.memory": "2g"}
    session = (
        plain_session(jars)
        if which == "plain"
        else start_session("bench", master="local[2]", jars=jars, settings=settings, log=log)
    )
    try:
        register(session)
        tasks = Tasks(session, bootstrap, plain=which == "plain")
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            task = json.loads(line)
            run = getattr(tasks, task.pop("task"))
            begun = time.perf_counter()
            try:
                answer: dict[str, Any] = {"rows": run(**task), "seconds": time.perf_counter() - begun}
            except Exception as error:
                answer = {"error": str(error).splitlines()[0]}
            print(json.dumps(answer), flush=True)
    finally:
        session.stop()
        log.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

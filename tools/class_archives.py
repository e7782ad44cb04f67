"""Owns archives of the classes that Spark and Kafka's tools load at their start: Java starts in half the time with one.

`python -m tools.class_archives` makes those that are missing, in half a minute; `make test` does so first. A JVM of
another version, or with other jars, passes over an archive without a word. Measured: Spark up and one stream through
takes 5.2 s of CPU in place of 10.3, a command of Kafka's 0.55 s in place of 1.0.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tools import kafka_jars, spark_kafka_jars, table_jars
from tools.maven import CACHE, NoJarsError

LEAN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that lives for seconds: compiling well what it runs would cost more than it saves."""

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""What an archive lacks, or why it does not fit, is nothing that a test wants to read."""

LIMIT_S = 300.0


def spark_archive() -> Path:
    return CACHE / f"spark-{version('pyspark')}.jsa"


def kafka_archive() -> Path:
    return CACHE / f"kafka-{kafka_jars.KAFKA_VERSION}.jsa"


def options(archive: Path) -> list[str]:
    """What Java is told, so that it takes its classes from there; nothing where there is no archive."""
    return [f"-XX:SharedArchiveFile={archive}", *SILENT] if archive.exists() else []


def make_all() -> None:
    """Make the archives that are missing. Without Java there is nothing to do."""
    if shutil.which("java") is None:
        return
    for archive, train in ((spark_archive(), _train_spark), (kafka_archive(), _train_kafka)):
        if not archive.exists():
            CACHE.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="classes-") as folder:
                made = Path(folder) / archive.name
                train([*LEAN, *SILENT, f"-XX:ArchiveClassesAtExit={made}"])
                made.rename(archive)


def _train_spark(told: Sequence[str]) -> None:
    """A session as tests have it, queries and a stream; its JVM is waited for, because it writes as its last act."""
    jars = [str(jar) for jar in (*spark_kafka_jars.jars(), *table_jars.jars())]
    _run([sys.executable, "-c", _SESSION, *jars], {"JDK_JAVA_OPTIONS": " ".join(told)})


_SESSION = """
import sys, tempfile
from barnabas.spark.session import start_session
spark = start_session("classes", master="local[2]", jars=sys.argv[1:])
with tempfile.TemporaryDirectory() as folder:
    rows = spark.range(1000).selectExpr("id % 3 as key", "to_json(struct(id)) as value")
    rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(f"{folder}/table")
    spark.read.parquet(f"{folder}/table").groupBy("key").agg({"value": "max"}).collect()
    stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/table").dropDuplicates(["key"])
    sink = stream.writeStream.format("parquet").option("path", f"{folder}/rows").trigger(availableNow=True)
    sink.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
"""


def _train_kafka(told: Sequence[str]) -> None:
    """A tool that makes a topic, sends and reads: it has a client of each kind."""
    from barnabas.testing import Broker

    command = ["java", *told, "-cp", f"{kafka_jars.jars()}/*", "org.apache.kafka.tools.EndToEndLatency"]
    with Broker() as broker:
        _run([*command, broker.bootstrap, "classes", "20", "1", "100"], {})


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise NoJarsError(f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    try:
        make_all()
    except (NoJarsError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"No archive of Java's classes could be made, and all goes on without: {error}\n")

"""Owns the folder with Spark's own Kafka connector. Called by bench/ and by the tests that hold it against our broker.

`python -m tools.spark_kafka_jars [DIR]` fetches the jars with Maven into DIR (default `.cache/spark-kafka`) and prints
the folder. Which jars depends on the PySpark that is installed beside this Python.
SPARK_KAFKA_LIBS names a folder that has them already; then nothing is fetched.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from tools import maven
from tools.maven import CACHE, NoJarsError
from tools.table_jars import spark_version

NEWEST = "4.2.0"
OLDER = {"4.1": "4.1.0"}
"""The connector reaches into Spark: that of 4.2 works with 4.2 and 4.3, and not with 4.1."""


def _connector() -> str:
    try:
        return OLDER.get(spark_version(), NEWEST)
    except PackageNotFoundError:
        return NEWEST


DEFAULT = CACHE / ("spark-kafka" if _connector() == NEWEST else f"spark-kafka-{_connector()}")
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", _connector()),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
NAMES = [f"{name}-{version}.jar" for _, name, version in ARTIFACTS]


def jars(directory: Path | None = None) -> list[Path]:
    """The connector's jars, fetched once."""
    folder = _folder(directory)
    return [folder / name for name in NAMES]


def _folder(directory: Path | None) -> Path:
    given = os.environ.get("SPARK_KAFKA_LIBS")
    target = directory or Path(given or DEFAULT)
    if given and directory is None and not maven.has(target, ARTIFACTS):
        raise NoJarsError(f"SPARK_KAFKA_LIBS={given} lacks one of {', '.join(NAMES)}; unset it to fetch them")
    # What they need besides comes with PySpark.
    maven.provide(
        target,
        ARTIFACTS,
        alone=True,
        what="The jars of Spark's Kafka connector",
        otherwise=", or set SPARK_KAFKA_LIBS",
    )
    return target


if __name__ == "__main__":
    raise SystemExit(maven.main(_folder))

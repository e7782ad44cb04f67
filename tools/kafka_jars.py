"""Owns the folder with Apache Kafka's jars. Called by bench/ and by tests that use Kafka's own Java tools.

`python -m tools.kafka_jars [DIR]` fetches the jars with Maven into DIR (default `.cache/kafka`) and prints the folder.
KAFKA_LIBS names a folder that has them already; then nothing is fetched.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools import maven
from tools.maven import CACHE, NoJarsError

KAFKA_VERSION = "4.3.0"
DEFAULT = CACHE / "kafka"
KAFKA = ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)
ARTIFACTS = (
    KAFKA,
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)


def jars(directory: Path | None = None) -> Path:
    """The folder with Kafka's jars, fetched once."""
    given = os.environ.get("KAFKA_LIBS")
    if directory is None and given:
        if not maven.has(Path(given), [KAFKA]):
            raise NoJarsError(
                f"KAFKA_LIBS={given} has no kafka_2.13-{KAFKA_VERSION}.jar; unset it to fetch the jars"
            )
        return Path(given)
    target = directory or DEFAULT
    if not maven.has(target, ARTIFACTS) and shutil.which("java") is None:
        raise NoJarsError("Apache Kafka needs Java 17 or newer: install a JDK so that `java` is on the PATH")
    maven.provide(
        target, ARTIFACTS, what="Apache Kafka's jars", otherwise=", or point KAFKA_LIBS at the jars"
    )
    return target


if __name__ == "__main__":
    raise SystemExit(maven.main(jars))

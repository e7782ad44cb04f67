"""Owns the folder with Apache Kafka's jars. Called by bench/ and by tests that use Kafka's own Java tools.

`python tools/kafka_jars.py [DIR]` fetches the jars with Maven into DIR (default `.cache/kafka`) and prints
the folder. It is complete or not there at all: the jars are fetched beside it, then renamed into place.
KAFKA_LIBS names a folder that has them already; then nothing is fetched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.0"
DEFAULT = Path(__file__).resolve().parent.parent / ".cache" / "kafka"
FETCH_TIMEOUT_S = 600
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)


class NoJarsError(Exception):
    """Kafka's jars are not there and cannot be fetched; the message says what to do."""


def jars(directory: Path | None = None) -> Path:
    """The folder with Kafka's jars, fetched once."""
    given = os.environ.get("KAFKA_LIBS")
    if directory is None and given:
        if not _complete(Path(given)):
            raise NoJarsError(
                f"KAFKA_LIBS={given} has no kafka_2.13-{KAFKA_VERSION}.jar; unset it to fetch the jars"
            )
        return Path(given)
    target = directory or DEFAULT
    if _complete(target):
        return target
    if shutil.which("java") is None:
        raise NoJarsError("Apache Kafka needs Java 17 or newer: install a JDK so that `java` is on the PATH")
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJarsError(
            "Apache Kafka's jars come with Maven: install `mvn`, or point KAFKA_LIBS at the jars"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        # Two runs at once (a test and the bench) fetch once: the second finds the folder complete.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(target):
            _fetch(maven, target)
    return target


def _complete(directory: Path) -> bool:
    return (directory / f"kafka_2.13-{KAFKA_VERSION}.jar").exists()


def _fetch(maven: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="kafka-fetch-") as work:
        fetched = Path(work) / "libs"
        pom = Path(work) / "pom.xml"
        pom.write_text(_pom())
        command = [
            maven,
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={fetched}",
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as late:
            raise NoJarsError(f"Maven did not fetch Kafka's jars within {FETCH_TIMEOUT_S} s") from late
        if done.returncode or not _complete(fetched):
            said = (done.stdout + done.stderr).strip().splitlines()
            raise NoJarsError("Maven could not fetch Kafka's jars: " + " | ".join(said[:3]))
        if target.exists():
            shutil.rmtree(target)
        fetched.rename(target)


def _pom() -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>kafka-beside-us</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{wanted}</dependencies></project>"
    )


def main() -> int:
    directory = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    try:
        folder = jars(directory)
    except NoJarsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

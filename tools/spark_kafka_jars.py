"""Owns the folder with Spark's own Kafka connector. Called by bench/ and by the tests that hold it against our broker.

`python tools/spark_kafka_jars.py [DIR]` fetches the jars with Maven into DIR (default `.cache/spark-kafka`) and prints
the folder. Which jars depends on the PySpark that is installed beside this Python. The folder is complete or not there
at all: the jars are fetched beside it, then renamed into place.
SPARK_KAFKA_LIBS names a folder that has them already; then nothing is fetched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"
FETCH_TIMEOUT_S = 300
NEWEST = "4.2.0"
OLDER = {"4.1": "4.1.0"}
"""The connector reaches into Spark: that of 4.2 works with 4.2 and 4.3, and not with 4.1."""


def _connector() -> str:
    try:
        return OLDER.get(".".join(version("pyspark").split(".")[:2]), NEWEST)
    except PackageNotFoundError:
        return NEWEST


DEFAULT = CACHE / ("spark-kafka" if _connector() == NEWEST else f"spark-kafka-{_connector()}")
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", _connector()),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


class NoJarsError(Exception):
    """The connector is not there and cannot be fetched; the message says what to do."""


def jars(directory: Path | None = None) -> list[Path]:
    """The connector's jars, fetched once. What they need besides comes with PySpark."""
    given = os.environ.get("SPARK_KAFKA_LIBS")
    target = directory or Path(given or DEFAULT)
    if not _complete(target) and given and directory is None:
        raise NoJarsError(
            f"SPARK_KAFKA_LIBS={given} lacks one of {', '.join(_names())}; unset it to fetch them"
        )
    if not _complete(target):
        maven = shutil.which("mvn")
        if maven is None:
            raise NoJarsError(
                "Spark's Kafka connector comes with Maven: install `mvn`, or set SPARK_KAFKA_LIBS"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / f"{target.name}.lock").open("w") as lock:
            # Two runs at once (a test and the bench) fetch once: the second finds the folder complete.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _complete(target):
                _fetch(maven, target)
    return [target / name for name in _names()]


def _names() -> list[str]:
    return [f"{name}-{version}.jar" for _, name, version in ARTIFACTS]


def _complete(directory: Path) -> bool:
    return all((directory / name).exists() for name in _names())


def _fetch(maven: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="spark-kafka-fetch-") as work:
        fetched = Path(work) / "libs"
        for group, name, version in ARTIFACTS:
            command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={group}:{name}:{version}"]
            try:
                done = subprocess.run(
                    [*command, f"-DoutputDirectory={fetched}"],
                    capture_output=True,
                    text=True,
                    timeout=FETCH_TIMEOUT_S,
                    check=False,
                    stdin=subprocess.DEVNULL,
                    cwd=work,
                )
            except subprocess.TimeoutExpired as late:
                raise NoJarsError(f"Maven did not fetch {name} within {FETCH_TIMEOUT_S} s") from late
            if done.returncode:
                said = (done.stdout + done.stderr).strip().splitlines()
                raise NoJarsError(f"Maven could not fetch {name}: " + " | ".join(said[:3]))
        if not _complete(fetched):
            raise NoJarsError(
                f"Maven fetched {', '.join(sorted(path.name for path in fetched.iterdir()))} only"
            )
        if target.exists():
            shutil.rmtree(target)
        fetched.rename(target)


def main() -> int:
    directory = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    try:
        found = jars(directory)
    except NoJarsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{found[0].parent}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
